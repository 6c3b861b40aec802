//! A client's socket that reports when bytes move, and that outlives the HTTP protocol above it.
//!
//! It stands below TLS, where a byte taken by the peer is a byte taken. The protocol owns one
//! handle and drops it when it is done; the connection keeps the other and decides how the socket
//! ends. That is why [`AsyncWrite::poll_shutdown`] does nothing here.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::patience::Patience;

/// Writes of several pieces that are smaller than this are copied into one. The system takes one piece
/// faster than two, by more than copying a head and a short body costs.
const SHORT: usize = 1024;

/// One of the handles of a socket.
#[derive(Debug, Clone)]
pub(super) struct TimedIo {
    socket: Arc<Mutex<TcpStream>>,
    patience: Arc<Patience>,
}

impl TimedIo {
    pub(super) fn new(socket: TcpStream, patience: Arc<Patience>) -> Self {
        Self { socket: Arc::new(Mutex::new(socket)), patience }
    }

    /// The socket itself, if this was the last handle.
    pub(super) fn into_socket(self) -> Option<TcpStream> {
        Arc::into_inner(self.socket).map(Mutex::into_inner)
    }

    fn reported(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.patience.sent(*bytes),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.patience.blocked(),
        }
        written
    }
}

impl AsyncRead for TimedIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut *self.socket.lock()).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.patience.received();
        }
        read
    }
}

impl AsyncWrite for TimedIo {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.socket.lock()).poll_write(context, bytes);
        self.reported(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if bytes <= SHORT {
            return self.poll_write(context, &joined(slices)[..bytes]);
        }
        let written = Pin::new(&mut *self.socket.lock()).poll_write_vectored(context, slices);
        self.reported(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Pieces side by side; they are no longer than [`SHORT`] together.
fn joined(slices: &[IoSlice<'_>]) -> [u8; SHORT] {
    let mut whole = [0; SHORT];
    let mut rest = &mut whole[..];
    for slice in slices {
        let (piece, after) = rest.split_at_mut(slice.len());
        piece.copy_from_slice(slice);
        rest = after;
    }
    whole
}
