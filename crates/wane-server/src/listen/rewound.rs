//! A stream with bytes in front of it that were read from it before, or that stand for such.
//!
//! Whoever waits for a peer without a protocol reads what comes into [`Rewound::fill`], and the
//! protocol that is begun then finds it as if nobody had.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is read at once: a head, mostly.
const PIECE: usize = 4 * 1024;

/// What is kept of a peer that sends before it is asked to.
const MOST_AHEAD: usize = 4 * 1024;

#[derive(Debug)]
pub(super) struct Rewound<I> {
    ahead: BytesMut,
    inner: I,
}

impl<I> Rewound<I> {
    pub(super) fn new(inner: I) -> Self {
        Self { ahead: BytesMut::new(), inner }
    }

    /// What is in front.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Puts `bytes` before everything else that will be read.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        let mut ahead = BytesMut::with_capacity(bytes.len() + self.ahead.len());
        ahead.extend_from_slice(bytes);
        ahead.extend_from_slice(&self.ahead);
        self.ahead = ahead;
    }
}

impl<I: AsyncRead + Unpin> Rewound<I> {
    /// Waits until there is more in front than before; false where the peer has sent its last byte.
    pub(super) async fn fill(&mut self) -> io::Result<bool> {
        std::future::poll_fn(|context| {
            let mut bytes = [0; PIECE];
            let mut piece = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut piece))?;
            self.ahead.extend_from_slice(piece.filled());
            Poll::Ready(Ok(!piece.filled().is_empty()))
        })
        .await
    }

    /// Whether the first bytes are these. They stay in front.
    pub(super) async fn begins_with(&mut self, first: &[u8]) -> io::Result<bool> {
        loop {
            let known = self.ahead.len().min(first.len());
            if self.ahead[..known] != first[..known] {
                return Ok(false);
            }
            if known == first.len() {
                return Ok(true);
            }
            if !self.fill().await? {
                return Ok(false);
            }
        }
    }

    /// Completes when the peer has gone. What it sends before is kept, and read no further than that.
    pub(super) async fn hung_up(&mut self) -> io::Result<()> {
        while self.ahead.len() < MOST_AHEAD {
            if !self.fill().await? {
                return Ok(());
            }
        }
        std::future::pending().await
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Rewound<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.inner).poll_read(context, buffer);
        }
        let taken = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead[..taken]);
        self.ahead.advance(taken);
        if self.ahead.is_empty() {
            self.ahead = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Rewound<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn what_was_filled_and_put_back_is_read_first() {
        let mut stream = Rewound::new(&b"cdef"[..]);
        assert!(stream.fill().await.unwrap());
        stream.put_back(b"ab");
        assert_eq!(stream.ahead(), b"abcdef");
        let mut first = [0; 3];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!((&first[..], stream.ahead()), (&b"abc"[..], &b"def"[..]));
        assert!(!stream.fill().await.unwrap(), "nothing comes after it");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"def");
    }
}
