//! The body of a request, piece by piece.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use crate::http::problem::Problem;

/// Bytes on their way in. How slow they may be is up to the listener.
#[derive(Debug)]
pub(super) struct Arriving(Body);

impl Arriving {
    pub(super) fn of(body: Body) -> Self {
        Self(body)
    }

    /// How many will come, where the head says so.
    pub(super) fn length(&self) -> Option<u64> {
        self.0.size_hint().exact()
    }

    /// The next piece; `None` after the last one, and an error where the rest does not come.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let Some(frame) = self.0.frame().await else { return Ok(None) };
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
