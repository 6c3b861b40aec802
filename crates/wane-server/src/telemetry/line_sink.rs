//! Where log lines go: into a buffer, which a thread of its own writes out.
//!
//! A request must not wait for a terminal or a pipe. A line that comes while the thread sleeps wakes
//! it; those of the next few milliseconds go out with it in one write. When more is waiting
//! than the buffer holds, lines are dropped, and how many is written in their place.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes that may wait.
const BUFFER: usize = 4 << 20;

/// Bytes of a buffer that are kept for the next lines: those of a busy server.
const KEPT: usize = 256 << 10;

/// How long lines are gathered before they are written.
const GATHER: Duration = Duration::from_millis(5);

/// How long the end waits for somebody to read the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The way into the buffer. A clone leads into the same one.
#[derive(Debug, Clone)]
pub(super) struct LineSink {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    /// The thread has written everything.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    dropped: u64,
    is_asleep: bool,
    is_closing: bool,
    has_ended: bool,
}

/// Keeps the thread. When dropped, everything that waits is written first, unless nobody reads it: a
/// terminal that stands still does not keep a process from ending.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.is_closing = true;
        self.shared.arrived.notify_one();
        let is_writing = |waiting: &mut Waiting| !waiting.has_ended;
        self.shared.ended.wait_while_for(&mut waiting, is_writing, LAST_LINES);
    }
}

/// Says that the thread has ended, however it does.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.waiting.lock().has_ended = true;
        self.0.ended.notify_one();
    }
}

/// Starts the thread that writes to `out`.
pub(super) fn start(mut out: impl Write + Send + 'static) -> io::Result<(LineSink, LogWriter)> {
    let shared = Arc::<Shared>::default();
    let end = End(Arc::clone(&shared));
    std::thread::Builder::new().name("log".into()).spawn(move || {
        let mut lines = Vec::new();
        while let Some(dropped) = end.0.take(&mut lines) {
            // Where standard error is gone there is nobody to tell.
            drop(out.write_all(&lines));
            lines.clear();
            lines.shrink_to(KEPT);
            if dropped > 0 {
                drop(writeln!(out, "{dropped} log lines were dropped: nobody reads fast enough"));
            }
        }
    })?;
    let sink = LineSink { shared: Arc::clone(&shared) };
    Ok((sink, LogWriter { shared }))
}

impl Shared {
    /// Exchanges an empty buffer for the lines that wait, once there are any; returns how many were
    /// dropped, and `None` at the end.
    fn take(&self, lines: &mut Vec<u8>) -> Option<u64> {
        let mut waiting = self.waiting.lock();
        while waiting.lines.is_empty() && waiting.dropped == 0 {
            if waiting.is_closing {
                return None;
            }
            waiting.is_asleep = true;
            self.arrived.wait(&mut waiting);
            waiting.is_asleep = false;
        }
        if !waiting.is_closing {
            // Nobody but the end wakes it from this: waking a thread costs more than a line.
            self.arrived.wait_for(&mut waiting, GATHER);
        }
        mem::swap(&mut waiting.lines, lines);
        Some(mem::take(&mut waiting.dropped))
    }
}

impl Write for &LineSink {
    /// Takes a whole line, as the formatter gives it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.shared.waiting.lock();
        if waiting.lines.len() + line.len() > BUFFER {
            waiting.dropped += 1;
        } else {
            waiting.lines.extend_from_slice(line);
        }
        if waiting.is_asleep {
            self.shared.arrived.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineSink {
    type Writer = &'a LineSink;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Writes wait until they are let go.
    struct Slow {
        go: mpsc::Receiver<()>,
        seen: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // An error is the end of the test: nobody lets go any more.
            let _go = self.go.recv();
            self.seen.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn everything_is_written_before_the_end() {
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let (go, wait) = mpsc::channel();
        drop(go);
        let (sink, writer) = start(Slow { go: wait, seen: Arc::clone(&seen) }).unwrap();
        for number in 0..1_000 {
            writeln!(&sink, "{number}").unwrap();
        }
        drop(writer);
        let lines = String::from_utf8(seen.lock().clone()).unwrap();
        assert!(lines.lines().map(|line| line.parse::<u32>().unwrap()).eq(0..1_000));
    }

    /// Nobody lets the writer go on before the end.
    #[test]
    fn a_reader_that_stands_still_does_not_keep_a_process_from_ending() {
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let (go, wait) = mpsc::channel();
        let (sink, writer) = start(Slow { go: wait, seen: Arc::clone(&seen) }).unwrap();
        writeln!(&sink, "read by nobody").unwrap();
        drop(writer);
        assert!(seen.lock().is_empty());
        drop(go);
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_and_not_memory() {
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let (go, wait) = mpsc::channel();
        let (sink, writer) = start(Slow { go: wait, seen: Arc::clone(&seen) }).unwrap();
        let line = "x".repeat(1 << 20);
        for _ in 0..12 {
            writeln!(&sink, "{line}").unwrap();
        }
        drop(go);
        drop(writer);
        let seen = String::from_utf8(seen.lock().clone()).unwrap();
        assert!(seen.len() < 3 * BUFFER);
        assert!(seen.contains("log lines were dropped"));
    }
}
