//! A request body that must keep coming while it is waited for.
//!
//! A body may make us wait for `stalled` in all. Bytes buy time back at `body_rate`, up to
//! `stalled` again: a peer that sends nothing and one that drips are both given up in time, and one
//! that is merely slow is not. Time that our side takes between reads is not counted. Whoever
//! reads a given-up body gets [`BodyStalled`]; HTTP/1 closes the connection after the answer,
//! HTTP/2 resets the stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use wane::clock::Sleep;

use super::patience::Patience;

/// The peer did not send the rest of its request body in time. Answer 408.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request body did not arrive in time")]
pub struct BodyStalled;

/// The peer took the rest of its request body back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request body was reset")]
struct BodyReset;

pub(super) struct RequestBody {
    inner: Incoming,
    is_http2: bool,
    patience: Arc<Patience>,
    /// How much longer it may make us wait.
    allowance: Duration,
    waiting_since: Option<Duration>,
    /// Left running when bytes arrive, and set anew only when it fires too early.
    alarm: Option<Sleep>,
    ended: bool,
}

impl RequestBody {
    pub(super) fn new(inner: Incoming, is_http2: bool, patience: Arc<Patience>) -> Self {
        let allowance = patience.limits.stalled;
        Self {
            inner,
            is_http2,
            patience,
            allowance,
            waiting_since: None,
            alarm: None,
            ended: false,
        }
    }

    /// Settles the wait that `bytes` have ended.
    fn arrived(&mut self, bytes: usize) {
        let limits = &self.patience.limits;
        if let Some(since) = self.waiting_since.take() {
            let waited = self.patience.clock.monotonic().saturating_sub(since);
            self.allowance = self.allowance.saturating_sub(waited);
        }
        self.allowance = (self.allowance + limits.time_for(bytes)).min(limits.stalled);
    }

    /// Completes once the allowance is used up, if nothing arrives before.
    fn poll_given_up(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(|| self.patience.clock.monotonic());
        loop {
            let waited = self.patience.clock.monotonic().saturating_sub(since);
            let left = self.allowance.saturating_sub(waited);
            if left.is_zero() {
                return Poll::Ready(());
            }
            let alarm = self.alarm.get_or_insert_with(|| self.patience.clock.sleep(left));
            ready!(alarm.as_mut().poll(context));
            self.alarm = None;
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.arrived(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            // A stream that its peer reset without calling it an error ends like a whole one.
            Poll::Ready(None) if self.is_http2 && !self.inner.is_end_stream() => {
                Poll::Ready(Some(Err(BodyReset.into())))
            }
            Poll::Ready(None) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Poll::Pending => {
                ready!(self.poll_given_up(context));
                Poll::Ready(Some(Err(BodyStalled.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.ended && !self.inner.is_end_stream() {
            self.patience.body_left();
        }
    }
}
