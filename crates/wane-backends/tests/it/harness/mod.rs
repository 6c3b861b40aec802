//! How the conformance suite reaches each backend.

pub(crate) mod any;
#[cfg(feature = "cassandra")]
pub(crate) mod cassandra;
#[cfg(feature = "dynamodb")]
pub(crate) mod dynamodb;
pub(crate) mod file;
#[cfg(any(feature = "redis", feature = "cassandra", feature = "dynamodb"))]
pub(crate) mod listed;
#[cfg(any(feature = "kms", feature = "archive-s3"))]
pub(crate) mod moto;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
pub(crate) mod redis_proxy;
#[cfg(feature = "redis")]
pub(crate) mod redis_server;
#[cfg(all(feature = "redis", feature = "cassandra", feature = "dynamodb"))]
pub(crate) mod urls;
