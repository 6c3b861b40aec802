//! One connection that asks and reads the whole answer.

use std::net::SocketAddr;

use serde_json::Value as Json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::BoxError;
use crate::http::answer;

/// The longest answer: that of `/metrics`.
const LONGEST: usize = 1 << 20;

/// A connection that is kept.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
    pub(super) async fn to(server: SocketAddr) -> Result<Self, BoxError> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; LONGEST] })
    }

    /// Sends a request; the answer must have this status.
    pub(super) async fn text(&mut self, request: &[u8], status: u16) -> Result<String, BoxError> {
        self.stream.write_all(request).await?;
        let answered = answer(&mut self.stream, &mut self.buffer).await?;
        let body = String::from_utf8_lossy(&self.buffer[answered.body.clone()]).into_owned();
        if answered.status != status {
            return Err(format!("expected {status}, got {}: {body}", answered.status).into());
        }
        Ok(body)
    }

    pub(super) async fn ask(&mut self, request: &[u8], status: u16) -> Result<Json, BoxError> {
        Ok(serde_json::from_str(&self.text(request, status).await?)?)
    }
}
