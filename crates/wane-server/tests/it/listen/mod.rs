//! The accept loop at real sockets: what a client of each kind sees, with short limits.
//!
//! Each test of a time limit has a control: a client that is slow but within the limit is served.

#![expect(clippy::unwrap_used, reason = "a test ends where its footing fails")]

mod connection_count;
mod heads;
mod http2;
mod own_process;
mod raw_frames;
mod resting;
mod shutdown;
mod slow_clients;
mod smuggling;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wane::clock::SystemClock;
use wane_server::listen::{
    BodyStalled, Certificates, ClientCertificate, Connections, Drained, ListenLimits, Listener,
    TlsFiles,
};

/// Every limit of a peer's in these tests, unless a test says otherwise.
const LIMIT: Duration = Duration::from_secs(1);

/// Every limit in the controls: what stays within it must do so on a busy machine too.
const LENIENT: Duration = Duration::from_secs(3);

/// Well within [`LIMIT`].
const SHORT: Duration = Duration::from_millis(40);

/// By when anything that ends or answers must have done so, on a busy machine too.
const SOON: Duration = Duration::from_secs(30);

const ROOT: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

fn limits() -> ListenLimits {
    limits_of(LIMIT)
}

fn limits_of(limit: Duration) -> ListenLimits {
    ListenLimits {
        handshake: limit,
        header: limit,
        idle: limit,
        stalled: limit,
        drain: limit,
        ..ListenLimits::default()
    }
}

#[expect(clippy::disallowed_methods, reason = "peers at real sockets are slow in real time")]
async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[expect(clippy::disallowed_methods, reason = "peers at real sockets wait in real time")]
fn stopwatch() -> impl Fn() -> Duration {
    let started = std::time::Instant::now();
    move || started.elapsed()
}

/// What the router saw.
#[derive(Debug, Default)]
struct Seen {
    smuggled: AtomicUsize,
    waiting: AtomicUsize,
    most_waiting: AtomicUsize,
}

/// Counts a waiting request until it is dropped.
struct Waiting(Arc<Seen>);

impl Waiting {
    fn among(seen: Arc<Seen>) -> Self {
        let now = seen.waiting.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_waiting.fetch_max(now, Ordering::SeqCst);
        Self(seen)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

fn router(seen: &Arc<Seen>) -> Router {
    Router::new()
        .route("/", get(|| async { "root" }))
        .route("/peer", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()))
        .route("/certificate", get(certificate))
        .route("/length", post(length))
        .route("/unread", post(|| async { StatusCode::PAYLOAD_TOO_LARGE }))
        .route("/slow", get(slow))
        .route("/for-ever", get(for_ever))
        .route("/ticks", get(ticks))
        .route("/big", get(big))
        .route("/whole", get(|| async { vec![b'w'; BIG] }))
        .route("/smuggled", get(smuggled))
        .layer(Extension(Arc::clone(seen)))
}

async fn certificate(shown: Option<Extension<ClientCertificate>>) -> Vec<u8> {
    shown.map_or_else(|| b"none".to_vec(), |Extension(certificate)| certificate.0.to_vec())
}

async fn length(body: Body) -> Result<String, StatusCode> {
    match axum::body::to_bytes(body, usize::MAX).await {
        Ok(bytes) => Ok(bytes.len().to_string()),
        Err(error) if is_stalled(&error) => Err(StatusCode::REQUEST_TIMEOUT),
        Err(_) => Err(StatusCode::BAD_REQUEST),
    }
}

fn is_stalled(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|e| e.is::<BodyStalled>())
}

/// Works longer than every limit.
async fn slow() -> &'static str {
    pause(2 * LIMIT).await;
    "slow"
}

async fn for_ever(Extension(seen): Extension<Arc<Seen>>) {
    let _waiting = Waiting::among(seen);
    std::future::pending::<()>().await;
}

/// Ten pieces over three limits.
async fn ticks() -> Body {
    let ticks = futures_util::stream::unfold(0, async |tick| {
        pause(3 * LIMIT / 10).await;
        (tick < 10).then(|| (Ok::<_, io::Error>(Bytes::from("tick ")), tick + 1))
    });
    Body::from_stream(ticks)
}

const BIG: usize = 32 * 1024 * 1024;

/// More than fits between two sockets, in pieces.
async fn big() -> Body {
    let piece = Bytes::from(vec![b'b'; 64 * 1024]);
    let pieces = (0..BIG / piece.len()).map(move |_| Ok::<_, io::Error>(piece.clone()));
    Body::from_stream(futures_util::stream::iter(pieces))
}

async fn smuggled(Extension(seen): Extension<Arc<Seen>>) {
    seen.smuggled.fetch_add(1, Ordering::SeqCst);
}

/// A listener that serves [`router`] until it is stopped or dropped.
struct Server {
    address: SocketAddr,
    connections: Connections,
    certificates: Option<Certificates>,
    seen: Arc<Seen>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Drained>,
}

impl Server {
    async fn start(limits: ListenLimits) -> Self {
        Self::start_with(limits, None).await
    }

    async fn start_with(limits: ListenLimits, tls: Option<TlsFiles>) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(any, tls, limits, SystemClock::shared()).await.unwrap();
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = oneshot::channel();
        let router = router(&seen);
        Self {
            address: listener.local_addr(),
            connections: listener.connections(),
            certificates: listener.certificates(),
            seen,
            stop,
            serving: tokio::spawn(listener.serve(router, async {
                let _ = stopped.await;
            })),
        }
    }

    async fn connect(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// A fresh client is served, and without delay.
    async fn serves_others(&self) {
        let took = stopwatch();
        let mut client = self.connect().await;
        client.send(ROOT).await;
        assert_eq!(client.answer().await, (200, "root".into()));
        assert!(took() < LIMIT, "took {:?}", took());
    }

    async fn until_open(&self, open: usize) {
        until("connections are open", open, || self.connections.open()).await;
    }

    /// Until so many requests wait in `/for-ever`.
    async fn until_waiting(&self, waiting: usize) {
        until("requests wait", waiting, || self.seen.waiting.load(Ordering::SeqCst)).await;
    }

    async fn stop(self) -> Drained {
        self.stop.send(()).expect("the server runs");
        timeout(SOON, self.serving).await.expect("it ends in time").expect("without a panic")
    }
}

async fn until(what: &str, wanted: usize, count: impl Fn() -> usize) {
    let reaching = async {
        while count() != wanted {
            pause(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(SOON, reaching).await.is_ok(), "{} {what}, not {wanted}", count());
}

/// A client that sends what it is told to, byte for byte.
struct Client<S> {
    stream: S,
    /// Received, but not looked at.
    received: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    fn new(stream: S) -> Self {
        Self { stream, received: Vec::new() }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends in pieces with pauses between them until all is sent or the server has closed.
    async fn drip(&mut self, bytes: &[u8], piece: usize, pause_between: Duration) {
        for piece in bytes.chunks(piece) {
            if self.stream.write_all(piece).await.is_err() {
                return;
            }
            pause(pause_between).await;
        }
    }

    /// The next answer with a known length: its status and body.
    async fn answer(&mut self) -> (u16, String) {
        let answer = timeout(SOON, self.read_answer()).await.expect("an answer in time");
        answer.unwrap_or_else(|| panic!("closed after {:?}", self.text()))
    }

    async fn read_answer(&mut self) -> Option<(u16, String)> {
        let head_end = loop {
            if let Some(at) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.receive().await?;
        };
        let head = String::from_utf8_lossy(&self.received[..head_end]).to_lowercase();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let length: usize =
            head.split("content-length: ").nth(1)?.split('\r').next()?.parse().ok()?;
        while self.received.len() < head_end + length {
            self.receive().await?;
        }
        let answer: Vec<u8> = self.received.drain(..head_end + length).collect();
        Some((status, String::from_utf8_lossy(&answer[head_end..]).into_owned()))
    }

    /// None once the server has closed.
    async fn receive(&mut self) -> Option<()> {
        let mut buffer = vec![0; 64 * 1024];
        let read = self.stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        self.received.extend_from_slice(&buffer[..read]);
        Some(())
    }

    /// Reads until the server closes, and says how long that took.
    async fn closed(&mut self) -> Duration {
        let took = stopwatch();
        let reading = async { while self.receive().await.is_some() {} };
        assert!(timeout(SOON, reading).await.is_ok(), "still open after {:?}", self.text());
        took()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// Reads until the server closes: the status lines of all that it said.
    async fn statuses(&mut self) -> Vec<u16> {
        self.closed().await;
        let text = self.text();
        let lines = text.split("HTTP/1.1 ").skip(1);
        lines.map(|line| line[..3].parse().expect("a status")).collect()
    }
}

/// A limit was kept: not before it, and soon after. The time counts from before its cause.
#[track_caller]
fn assert_at_limit(took: Duration, limit: Duration) {
    assert!((limit..limit + SOON).contains(&took), "{took:?} for {limit:?}");
}
