//! Servers for tests: one that plays answers over proper HTTP, one that plays bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};
use axum::serve::ListenerExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use wane::clock::{SharedClock, SystemClock};
use wane::services::apps::AppName;

use crate::client::{Client, ClientError, Endpoint, Trust};

/// The credential of all tests.
pub(crate) const KEY: &str = "1-0123456789abcdef.a-secret-that-nobody-may-see";

/// A request as a server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Heard {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A server that gives one prepared answer after the other.
#[derive(Clone, Default)]
pub(crate) struct Player {
    answers: Arc<Mutex<VecDeque<Response<Body>>>>,
    heard: Arc<Mutex<Vec<Heard>>>,
    connections: Arc<AtomicUsize>,
}

impl Player {
    /// A player, and where it is.
    pub(crate) async fn start() -> (Self, String) {
        let player = Self::default();
        let app = axum::Router::new().fallback(play).with_state(player.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url_of(listener.local_addr().unwrap());
        let connections = Arc::clone(&player.connections);
        let listener = listener.tap_io(move |_| {
            connections.fetch_add(1, Ordering::SeqCst);
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        (player, url)
    }

    pub(crate) fn answers(&self, status: u16, media_type: &str, body: impl Into<Body>) {
        let answer = Response::builder().status(status).header("content-type", media_type);
        self.answers_with(answer.body(body.into()).unwrap());
    }

    pub(crate) fn answers_with(&self, answer: Response<Body>) {
        self.answers.lock().push_back(answer);
    }

    pub(crate) fn json(&self, status: u16, body: &str) {
        self.answers(status, "application/json", body.to_owned());
    }

    pub(crate) fn problem(&self, status: u16, code: &str) {
        let body = format!(r#"{{"code":"{code}","status":{status},"detail":"because"}}"#);
        self.answers(status, "application/problem+json", body);
    }

    /// The last request.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.lock().last().cloned().unwrap()
    }

    /// Every request, in order.
    pub(crate) fn all_heard(&self) -> Vec<Heard> {
        self.heard.lock().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.heard.lock().len()
    }
}

async fn play(State(player): State<Player>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    let body = to_bytes(body, 8 << 20).await.unwrap();
    player.heard.lock().push(Heard { line, headers: head.headers, body });
    player.answers.lock().pop_front().expect("an answer was prepared")
}

/// What a [`raw`] server does with one connection, after it has read one request.
#[derive(Debug, Clone)]
pub(crate) enum Play {
    /// Says this and closes.
    Say(String),
    /// Says this and stays.
    Stay(String),
}

/// A server of bytes and what it was sent.
#[derive(Clone, Default)]
pub(crate) struct Raw {
    pub(crate) heard: Arc<Mutex<Vec<String>>>,
    /// Told of each request.
    pub(crate) arrived: Arc<Notify>,
    /// Told of each connection that was closed.
    pub(crate) closed: Arc<Notify>,
}

impl Raw {
    /// Plays one script per connection, then refuses connections.
    pub(crate) async fn start(scripts: Vec<Play>) -> (Self, String) {
        let raw = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url_of(listener.local_addr().unwrap());
        let server = raw.clone();
        tokio::spawn(async move {
            let mut held = Vec::new();
            for script in scripts {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                server.heard.lock().push(request);
                server.arrived.notify_one();
                match script {
                    Play::Say(words) => {
                        stream.write_all(words.as_bytes()).await.unwrap();
                        drop(stream);
                        server.closed.notify_one();
                    }
                    Play::Stay(words) => {
                        stream.write_all(words.as_bytes()).await.unwrap();
                        held.push(stream);
                    }
                }
            }
            drop(listener);
            if !held.is_empty() {
                std::future::pending::<()>().await;
            }
        });
        (raw, url)
    }
}

/// Reads a request to its end, by its length.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.lines().next());
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return text;
            }
        }
        let mut part = [0; 4_096];
        match stream.read(&mut part).await.unwrap() {
            0 => return text,
            read => bytes.extend_from_slice(&part[..read]),
        }
    }
}

pub(crate) fn url_of(address: SocketAddr) -> String {
    format!("http://{address}")
}

pub(crate) fn client(url: &str) -> Client {
    client_at(url, SystemClock::shared())
}

pub(crate) fn client_at(url: &str, clock: SharedClock) -> Client {
    let endpoint = Endpoint { url: url.into(), key: Some(KEY.into()), trust: Trust::PublicRoots };
    Client::new(&endpoint, clock).unwrap()
}

pub(crate) fn demo() -> AppName {
    "demo/app".parse().unwrap()
}

/// The case of an error, for comparing.
pub(crate) fn case(error: &ClientError) -> &'static str {
    match error {
        ClientError::Refused { .. } => "refused",
        ClientError::Contested { .. } => "contested",
        ClientError::Absent => "absent",
        ClientError::Problem { .. } => "problem",
        ClientError::Unreachable { .. } => "unreachable",
        ClientError::UnknownOutcome { .. } => "unknown",
        ClientError::Protocol { .. } => "protocol",
        ClientError::Source { .. } => "source",
        ClientError::DigestMismatch { .. } => "digest",
        ClientError::Spent { .. } => "spent",
    }
}
