//! Load over loopback: connections that send a request, read its answer, and send the next.
//!
//! Requests are written by hand and answers are read no further than needed to find their end, so
//! that the client takes as little of the two cores as it can, and the same for every contestant.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::measured::Measured;
use crate::{BoxError, timing};

/// The bytes of the next request of a connection; its number and how many it has sent are given.
pub(crate) type MakeRequest = Arc<dyn Fn(usize, u64) -> Vec<u8> + Send + Sync>;

/// What to send, to whom, and what must come back.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) server: SocketAddr,
    pub(crate) connections: usize,
    pub(crate) slice: Duration,
    pub(crate) request: MakeRequest,
    pub(crate) status: u16,
    /// One of these must be in the answer; nothing is looked for where there are none.
    pub(crate) says: &'static [&'static str],
}

impl Load {
    /// Sends requests on all connections for the slice.
    pub(crate) fn run(&self, runtime: &tokio::runtime::Runtime) -> Result<Measured, BoxError> {
        runtime.block_on(async {
            let ended = Arc::new(AtomicBool::new(false));
            let begin = timing::now();
            let tasks: Vec<_> = (0..self.connections)
                .map(|number| tokio::spawn(connection(self.clone(), number, Arc::clone(&ended))))
                .collect();
            tokio::time::timeout(self.slice, std::future::pending::<()>()).await.unwrap_or(());
            ended.store(true, Ordering::Relaxed);
            let mut all = Histogram::<u64>::new(3)?;
            for task in tasks {
                all.add(task.await??)?;
            }
            let elapsed = begin.elapsed();
            let micros = |quantile| all.value_at_quantile(quantile) as f64 / 1e3;
            Ok(Measured {
                rate: all.len() as f64 / elapsed.as_secs_f64(),
                p50: micros(0.5),
                p99: micros(0.99),
                p999: micros(0.999),
            })
        })
    }
}

async fn connection(
    load: Load,
    number: usize,
    ended: Arc<AtomicBool>,
) -> Result<Histogram<u64>, BoxError> {
    let mut stream = TcpStream::connect(load.server).await?;
    stream.set_nodelay(true)?;
    let mut times = Histogram::<u64>::new(3)?;
    let mut buffer = vec![0; 16 << 10];
    let mut sent = 0;
    while !ended.load(Ordering::Relaxed) {
        let request = (load.request)(number, sent);
        let begin = timing::now();
        stream.write_all(&request).await?;
        let answered = answer(&mut stream, &mut buffer).await?;
        times.record(begin.elapsed().as_nanos() as u64)?;
        let body = &buffer[answered.body.clone()];
        let (status, says) = (load.status, load.says);
        if answered.status != status || !(says.is_empty() || says.iter().any(|it| has(body, it))) {
            let text = String::from_utf8_lossy(&buffer[..answered.body.end.min(800)]).into_owned();
            return Err(format!("expected {status} {says:?}, got {text}").into());
        }
        sent += 1;
    }
    Ok(times)
}

fn has(body: &[u8], words: &str) -> bool {
    body.windows(words.len()).any(|part| part == words.as_bytes())
}

/// An answer in the buffer that it was read into.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// Where its body is.
    pub(crate) body: Range<usize>,
}

/// Reads one answer.
pub(crate) async fn answer(
    stream: &mut TcpStream,
    buffer: &mut [u8],
) -> Result<Answered, BoxError> {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Err("the server closed the connection".into());
        }
        filled += read;
        let seen = &buffer[..filled];
        let Some(head) = seen.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let end = head + 4 + content_length(&seen[..head]);
        if filled >= end {
            let status = seen.get(9..12).and_then(|status| std::str::from_utf8(status).ok());
            return Ok(Answered {
                status: status.unwrap_or_default().parse()?,
                body: head + 4..end,
            });
        }
        if end > buffer.len() {
            return Err(format!("an answer of {end} bytes").into());
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length: ";
    let lines = head.split(|byte| *byte == b'\n');
    let value = lines.filter_map(|line| {
        let name = line.get(..NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then(|| &line[NAME.len()..])
    });
    let digits = |value: &[u8]| {
        let digits = value.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
    };
    value.map(digits).next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_found_in_any_case() {
        assert_eq!(content_length(b"HTTP/1.1 200 OK\r\nContent-Length: 120\r\nx: y"), 120);
        assert_eq!(content_length(b"HTTP/1.1 204 No Content\r\nx: y"), 0);
    }
}
