//! What readers are sent. The same batch is the same bytes and the same headers each time.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use wane::services::pull_stream::{Delivery, Pulled};

use super::{PULL_NEXT, RESOURCE_ID, unspeakable};
use crate::gzip;
use crate::http::problem::Problem;

/// The answer to a pull: a batch, or nothing, and where to ask for more, which is under `prefix`.
pub(super) async fn delivered(prefix: &str, pulled: &Pulled) -> Result<Response, Problem> {
    let mut response = match &pulled.batch {
        Some(batch) => with_batch(batch).await?,
        None => StatusCode::NO_CONTENT.into_response(),
    };
    let next = format!("{prefix}/{}", pulled.next);
    let headers = response.headers_mut();
    headers.insert(PULL_NEXT, HeaderValue::from_str(&next).map_err(unspeakable)?);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn with_batch(batch: &Delivery) -> Result<Response, Problem> {
    let body = batch.body();
    let is_gzipped = batch.form().gzip;
    let bytes = match (is_gzipped, body.gzip) {
        (false, _) => body.plain,
        (true, Some(prepared)) => prepared,
        (true, None) => gzip::compress_aside(body.plain).await,
    };
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_str(&body.content_type).map_err(unspeakable)?;
    headers.insert(CONTENT_TYPE, content_type);
    if let Some(id) = body.resource_id {
        let id = HeaderValue::from_str(&id.to_string()).map_err(unspeakable)?;
        headers.insert(RESOURCE_ID, id);
    }
    if is_gzipped {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}
