//! Archives in a bucket of S3, or of another server that speaks its protocol.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ClientOptions, RetryConfig};

use super::ObjectArchive;
use crate::OpenError;

/// How long one request may take. A segment has some megabytes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tries of one request; whoever archives comes again.
const RETRIES: usize = 2;

/// The archive at `//BUCKET/PREFIX`.
pub(super) fn open(rest: &str, endpoint: Option<&str>) -> Result<ObjectArchive, OpenError> {
    let bad = |reason: String| OpenError::BadUrl { backend: "archive in S3", reason };
    let named = rest.strip_prefix("//").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
    let Some((bucket, prefix)) = named.filter(|(bucket, _)| !bucket.is_empty()) else {
        return Err(bad("give s3://BUCKET/PREFIX".into()));
    };
    let prefix = Path::parse(prefix).map_err(|error| bad(error.to_string()))?;
    // The client brings no cryptography of its own. Refused, the process has chosen one.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let retry =
        RetryConfig { max_retries: RETRIES, retry_timeout: PATIENCE * 2, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry)
        .with_client_options(ClientOptions::new().with_timeout(PATIENCE));
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http:"));
    }
    let objects = builder.build().map_err(|error| bad(error.to_string()))?;
    Ok(ObjectArchive { objects: Arc::new(objects), prefix, is_ordered: true })
}
