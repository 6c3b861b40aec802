//! A front before the server: real HTTP, which passes requests on, loses or replaces answers as
//! told, and counts what it saw. The server itself never throttles and never fails.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What the front does with a request.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// Answers with this status and error, and does not pass the request on.
    Answer(u16, &'static str),
    /// Passes the request on, and answers with this status and error all the same.
    AnswerAfter(u16, &'static str),
    /// Closes the connection, and does not pass the request on.
    CutBefore,
    /// Passes the request on, and closes the connection without an answer.
    CutAfter,
    /// Passes the request on, and never answers.
    SilenceAfter,
    /// Passes the request on once told to.
    Hold(Arc<Notify>),
    /// Passes so many keys of a batch on, and gives the others back unprocessed.
    ProcessOnly(usize),
}

#[derive(Debug, Default)]
struct Script {
    faults: VecDeque<(&'static str, Fault)>,
    seen: Vec<String>,
}

/// The front. It ends with the value.
pub(super) struct Front {
    pub(super) endpoint: String,
    script: Arc<Mutex<Script>>,
    accepting: JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Front {
    /// A front before the server at `endpoint`.
    pub(super) async fn before(endpoint: &str) -> Self {
        let server = endpoint.strip_prefix("http://").expect("a plain endpoint").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let script = Arc::new(Mutex::new(Script::default()));
        let told = Arc::clone(&script);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A connection that breaks is what some of the faults are about.
                tokio::spawn(serve(stream, server.clone(), Arc::clone(&told)));
            }
        });
        Self { endpoint, script, accepting }
    }

    /// The next request for `operation` that no other fault waits for meets this one.
    pub(super) fn next(&self, operation: &'static str, fault: Fault) {
        self.script.lock().faults.push_back((operation, fault));
    }

    pub(super) fn next_times(&self, times: usize, operation: &'static str, fault: &Fault) {
        (0..times).for_each(|_| self.next(operation, fault.clone()));
    }

    /// The operations seen since this was last asked.
    pub(super) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.script.lock().seen)
    }

    /// Checks that every fault was met.
    pub(super) fn assert_done(&self) {
        let faults = &self.script.lock().faults;
        assert!(faults.is_empty(), "nobody met {faults:?}");
    }
}

impl Script {
    /// Notes a request and tells what to do with it.
    fn meet(&mut self, operation: &str) -> Option<Fault> {
        self.seen.push(operation.to_owned());
        let at = self.faults.iter().position(|(wanted, _)| *wanted == operation)?;
        self.faults.remove(at).map(|(_, fault)| fault)
    }
}

/// A request or an answer.
struct Message {
    head: String,
    body: Vec<u8>,
}

impl Message {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(header, _)| header.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    }

    fn operation(&self) -> &str {
        let target = self.header("x-amz-target").unwrap_or_default();
        target.rsplit('.').next().unwrap_or_default()
    }

    async fn read(stream: &mut TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let head_len = loop {
            let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
            if let Some(at) = end {
                break at + 4;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let body = bytes.split_off(head_len);
        let mut message = Self { head: String::from_utf8(bytes).ok()?, body };
        let length = message.header("content-length").and_then(|length| length.parse().ok());
        let length: usize = length.unwrap_or_default();
        while message.body.len() < length {
            if stream.read_buf(&mut message.body).await.ok()? == 0 {
                return None;
            }
        }
        Some(message)
    }
}

async fn serve(mut client: TcpStream, server: String, script: Arc<Mutex<Script>>) {
    while let Some(request) = Message::read(&mut client).await {
        let fault = script.lock().meet(request.operation());
        let answer = match fault {
            None => ask(&server, &request).await,
            Some(Fault::Hold(permit)) => {
                permit.notified().await;
                ask(&server, &request).await
            }
            Some(Fault::Answer(status, code)) => error(status, code),
            Some(Fault::AnswerAfter(status, code)) => {
                ask(&server, &request).await;
                error(status, code)
            }
            Some(Fault::CutBefore) => return,
            Some(Fault::CutAfter) => {
                ask(&server, &request).await;
                return;
            }
            Some(Fault::SilenceAfter) => {
                ask(&server, &request).await;
                std::future::pending().await
            }
            Some(Fault::ProcessOnly(keys)) => process_only(keys, &server, request).await,
        };
        if client.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// The server's answer, as it came. One connection for each request: its end is the answer's.
async fn ask(server: &str, request: &Message) -> Vec<u8> {
    let mut upstream = TcpStream::connect(server).await.expect("the server is there");
    let head = request.head.trim_end().lines().filter(|line| {
        let line = line.to_ascii_lowercase();
        !line.starts_with("content-length:") && !line.starts_with("connection:")
    });
    let mut bytes = head.collect::<Vec<_>>().join("\r\n");
    bytes += &format!("\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", request.body.len());
    let sent = [bytes.as_bytes(), &request.body].concat();
    upstream.write_all(&sent).await.expect("the server takes the request");
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer).await.expect("the server answers");
    answer
}

fn error(status: u16, code: &str) -> Vec<u8> {
    let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
    answer(status, &json!({ "__type": kind, "message": "as the test told" }))
}

fn answer(status: u16, body: &Json) -> Vec<u8> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Told\r\nContent-Type: application/x-amz-json-1.0\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

async fn process_only(keys: usize, server: &str, mut request: Message) -> Vec<u8> {
    let mut asked: Json = serde_json::from_slice(&request.body).expect("a request in JSON");
    let tables = asked["RequestItems"].as_object_mut().expect("a batch");
    let (table, items) = tables.iter_mut().next().expect("a table");
    let (table, wanted) = (table.clone(), items["Keys"].as_array_mut().expect("keys"));
    let left: Vec<Json> = wanted.split_off(keys.min(wanted.len()));
    let mut unprocessed = items.clone();
    unprocessed["Keys"] = Json::Array(left);
    let mut told = json!({ "Responses": { table.as_str(): [] } });
    if keys > 0 {
        request.body = asked.to_string().into_bytes();
        told = body_of(&ask(server, &request).await);
    }
    if unprocessed["Keys"].as_array().is_some_and(|left| !left.is_empty()) {
        told["UnprocessedKeys"] = json!({ table: unprocessed });
    }
    answer(200, &told)
}

/// The body of an answer, which may have come in chunks.
fn body_of(answer: &[u8]) -> Json {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a whole head");
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let body = &answer[end + 4..];
    if head.contains("transfer-encoding: chunked") {
        return serde_json::from_slice(&unchunked(body)).expect("an answer in JSON");
    }
    serde_json::from_slice(body).expect("an answer in JSON")
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).expect("a chunk size");
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk size");
        if size == 0 {
            break;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    whole
}
