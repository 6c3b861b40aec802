//! Bodies of requests: whole, or taken piece by piece from a source while the server takes them.
//!
//! A streamed body holds one piece at a time. Beside it stands its [`Pace`], which knows whether
//! the server moves on, whether everything was handed over, and why the source failed: so that a
//! long transfer is never cut and a stalled one always is.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream::unfold;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};
use wane::clock::Clock;

/// A server that neither takes a byte nor answers for so long is given up; at most twice as long
/// passes until then.
const STALLED: Duration = Duration::from_secs(60);

/// Bytes that are read from a source at once.
const PIECE: usize = 64 * 1024;

type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

type Listener = Box<dyn Fn(u64) + Send>;

/// The body of a request.
pub(super) type Outgoing = Either<Full<Bytes>, Streamed>;

/// Bytes to send, from wherever they come.
pub struct Source {
    pieces: Pieces,
    length: Option<u64>,
    listener: Option<Listener>,
}

impl Source {
    /// The bytes of a stream.
    pub fn of(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self { pieces: Box::pin(pieces), length: None, listener: None }
    }

    /// What a reader reads, to its end.
    pub fn reading(reader: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self::of(unfold(Some(reader), |reader| async {
            let mut reader = reader?;
            let mut piece = BytesMut::with_capacity(PIECE);
            match reader.read_buf(&mut piece).await {
                Ok(0) => None,
                Ok(_) => Some((Ok(piece.freeze()), Some(reader))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }

    /// These bytes, handed over in small pieces.
    pub fn bytes(bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        let pieces = futures_util::stream::iter(Slices(bytes).map(Ok));
        Self::of(pieces).with_length(length)
    }

    /// The same, announced with its length. Where other bytes come, the call fails.
    #[must_use]
    pub fn with_length(self, length: u64) -> Self {
        Self { length: Some(length), ..self }
    }

    /// The same; `listener` hears of each piece that is handed over, how many bytes it has.
    #[must_use]
    pub fn heard_by(self, listener: impl Fn(u64) + Send + 'static) -> Self {
        Self { listener: Some(Box::new(listener)), ..self }
    }

    /// The body, and what tells how it goes.
    pub(super) fn into_body(self) -> (Outgoing, Arc<Pace>) {
        let pace = Arc::new(Pace::default());
        pace.is_handed_over.store(self.length == Some(0), Ordering::SeqCst);
        let body = Streamed { source: self, sent: 0, pace: Arc::clone(&pace) };
        (Either::Right(body), pace)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("length", &self.length).finish_non_exhaustive()
    }
}

/// Bytes piece by piece.
struct Slices(Bytes);

impl Iterator for Slices {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let length = self.0.len().min(PIECE);
        (length > 0).then(|| self.0.split_to(length))
    }
}

/// How a streamed body goes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Pieces that were handed over, and the end.
    moves: AtomicU64,
    /// Whether the server would take more and the source has none yet.
    is_waiting: AtomicBool,
    is_handed_over: AtomicBool,
    failure: Mutex<Option<io::Error>>,
}

impl Pace {
    /// Waits until nothing has moved for too long, on the side of the server.
    pub(super) async fn stalled(&self, clock: &dyn Clock) -> String {
        loop {
            let before = self.moves.load(Ordering::SeqCst);
            clock.sleep(STALLED).await;
            let has_moved = self.moves.load(Ordering::SeqCst) != before;
            if !has_moved && !self.is_waiting.load(Ordering::SeqCst) {
                return format!("no byte was taken within {} s", STALLED.as_secs());
            }
        }
    }

    /// Whether every byte was handed to the connection.
    pub(super) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::SeqCst)
    }

    /// Why the source failed, if it did.
    pub(super) fn failure(&self) -> Option<io::Error> {
        self.failure.lock().take()
    }
}

/// A body on its way.
pub(super) struct Streamed {
    source: Source,
    sent: u64,
    pace: Arc<Pace>,
}

impl Streamed {
    /// Counts a piece, and compares with what was announced.
    fn hand_over(&mut self, piece: &Bytes) -> io::Result<()> {
        let length = piece.len() as u64;
        self.sent += length;
        let announced = self.source.length;
        if announced.is_some_and(|announced| self.sent > announced) {
            return Err(wrong_length("more"));
        }
        if announced == Some(self.sent) {
            self.pace.is_handed_over.store(true, Ordering::SeqCst);
        }
        if let Some(listener) = &self.source.listener {
            listener(length);
        }
        Ok(())
    }

    fn end(&self) -> io::Result<()> {
        if self.source.length.is_some_and(|announced| self.sent < announced) {
            return Err(wrong_length("fewer"));
        }
        self.pace.is_handed_over.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Keeps the reason where it can be asked for: the connection only says that there was one.
    fn fail(&self, error: io::Error) -> io::Error {
        let said = io::Error::new(error.kind(), error.to_string());
        *self.pace.failure.lock() = Some(error);
        said
    }
}

fn wrong_length(word: &str) -> io::Error {
    io::Error::other(format!("there are {word} bytes than at first"))
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = self.source.pieces.as_mut().poll_next(cx);
        self.pace.is_waiting.store(polled.is_pending(), Ordering::SeqCst);
        let Poll::Ready(piece) = polled else { return Poll::Pending };
        self.pace.moves.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(match piece {
            Some(Ok(piece)) => {
                let checked = self.hand_over(&piece).map_err(|error| self.fail(error));
                Some(checked.map(|()| Frame::data(piece)))
            }
            Some(Err(error)) => Some(Err(self.fail(error))),
            None => self.end().err().map(|error| Err(self.fail(error))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.source.length == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        match self.source.length {
            Some(length) => SizeHint::with_exact(length.saturating_sub(self.sent)),
            None => SizeHint::new(),
        }
    }
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streamed").field("sent", &self.sent).finish_non_exhaustive()
    }
}
