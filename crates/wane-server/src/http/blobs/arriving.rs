//! The body of a request, piece by piece.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use crate::http::problem::Problem;

/// Bytes on their way in. How slow they may be is up to the listener.
#[derive(Debug)]
pub(super) struct Arriving {
    body: Body,
    /// A piece that was looked at and not taken.
    first: Option<Bytes>,
}

impl Arriving {
    pub(super) fn of(body: Body) -> Self {
        Self { body, first: None }
    }

    /// How many will come, where the head says so.
    pub(super) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Whether nothing will come. Where the head does not say, it waits for the first byte.
    pub(super) async fn is_empty(&mut self) -> Result<bool, Problem> {
        if let Some(length) = self.length() {
            return Ok(length == 0);
        }
        while self.first.as_ref().is_none_or(Bytes::is_empty) {
            let Some(piece) = self.next().await? else { return Ok(true) };
            self.first = Some(piece);
        }
        Ok(false)
    }

    /// The next piece; `None` after the last one, and an error where the rest does not come.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| {
                tracing::debug!(%error, "a body broke off");
                Problem::invalid("body", "it broke off, came too slowly or is not well formed")
            })?;
            if let Ok(piece) = frame.into_data() {
                return Ok(Some(piece));
            }
        }
    }
}
