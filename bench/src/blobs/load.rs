//! Many uploads at once, over a connection each, by tasks on one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::client::Answer;
use super::server::Wane;
use crate::{BoxError, timing};

/// Uploads the content so many times at once, once each.
pub(super) fn at_once(server: &Wane, content: &[u8], uploads: usize) -> Result<(), BoxError> {
    let load = Load::begin(server, content, uploads, true)?;
    load.finish().map(drop)
}

/// Uploads that go on until they are stopped.
#[derive(Debug)]
pub(super) struct Load {
    runtime: Runtime,
    tasks: Vec<JoinHandle<Result<(), BoxError>>>,
    ended: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    began: Instant,
}

impl Load {
    /// Keeps so many uploads of the content under way.
    pub(super) fn start(server: &Wane, content: &[u8], uploads: usize) -> Result<Self, BoxError> {
        Self::begin(server, content, uploads, false)
    }

    fn begin(server: &Wane, content: &[u8], uploads: usize, once: bool) -> Result<Self, BoxError> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (ended, bytes) = (Arc::new(AtomicBool::new(once)), Arc::new(AtomicU64::new(0)));
        let (content, head) = (Arc::<[u8]>::from(content), server.upload_head(content.len()));
        let (head, http, began) = (Arc::<str>::from(head), server.http, timing::now());
        let upload = || {
            let (content, head) = (Arc::clone(&content), Arc::clone(&head));
            let (ended, bytes) = (Arc::clone(&ended), Arc::clone(&bytes));
            runtime.spawn(async move {
                let mut stream = TcpStream::connect(http).await?;
                loop {
                    upload(&mut stream, &head, &content).await?;
                    bytes.fetch_add(content.len() as u64, Ordering::Relaxed);
                    if ended.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                }
            })
        };
        let tasks = (0..uploads).map(|_| upload()).collect();
        Ok(Self { runtime, tasks, ended, bytes, began })
    }

    /// Ends after the uploads under way, and returns how many bytes a second went in.
    pub(super) fn stop(self) -> Result<f64, BoxError> {
        self.ended.store(true, Ordering::Relaxed);
        self.finish()
    }

    fn finish(self) -> Result<f64, BoxError> {
        for task in self.tasks {
            self.runtime.block_on(task)??;
        }
        Ok(self.bytes.load(Ordering::Relaxed) as f64 / self.began.elapsed().as_secs_f64())
    }
}

async fn upload(stream: &mut TcpStream, head: &str, content: &[u8]) -> Result<(), BoxError> {
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(content).await?;
    let (mut buffer, mut filled) = (vec![0; 16 << 10], 0);
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Err("the server closed the connection".into());
        }
        filled += read;
        match Answer::of(&buffer[..filled]) {
            Some(Answer { status: 201, length, body_at }) if filled >= body_at + length => {
                return Ok(());
            }
            Some(Answer { status: 201, .. }) | None => {}
            Some(Answer { status, .. }) => {
                let text = String::from_utf8_lossy(&buffer[..filled]).into_owned();
                return Err(format!("expected 201, got {status}: {text}").into());
            }
        }
    }
}
