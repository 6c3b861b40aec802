//! A client that speaks HTTP/2 without TLS.

use std::net::SocketAddr;

use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::server::PATIENCE;

/// A connection, and what drives it.
pub(super) struct Http2 {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
}

impl Http2 {
    pub(super) fn with(server: SocketAddr) -> Self {
        let runtime = Runtime::new().unwrap();
        let sender = runtime.block_on(async {
            let io = TokioIo::new(TcpStream::connect(server).await.unwrap());
            let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender
        });
        Self { runtime, sender }
    }

    /// The status and the body of an answer; none where the stream or the connection is reset.
    pub(super) fn ask(&mut self, request: Request<Full<Bytes>>) -> Option<(u16, String)> {
        let answer = self.sender.send_request(request);
        self.runtime.block_on(async {
            let answer = timeout(PATIENCE, answer).await.expect("an answer in time").ok()?;
            let (head, body) = Response::into_parts(answer);
            let body = timeout(PATIENCE, body.collect()).await.expect("a body in time").ok()?;
            let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            Some((head.status.as_u16(), body))
        })
    }

    /// Begins a request and takes it back at once; says whether it could be begun.
    pub(super) fn ask_and_leave(&mut self, request: Request<Full<Bytes>>) -> bool {
        let answer = self.sender.send_request(request);
        self.runtime.block_on(async {
            // Long enough for the request to go out.
            let asked = timeout(std::time::Duration::from_micros(200), answer).await;
            !matches!(asked, Ok(Err(_)))
        })
    }
}

/// A request to a path, with a key and a body.
pub(super) fn request(method: &str, path: &str, key: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("http://test{path}"))
        .header("authorization", format!("Bearer {key}"))
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap()
}
