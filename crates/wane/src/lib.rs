//! A store for state that expires, and the services built on such state.
//!
//! ```text
//! services   app_ttl  elections  sequencer  blobs  device_auth  pull_stream
//!                              |
//! contract              store::Store
//!                              |
//! wrappers        watched -> deadline -> observed -> cached -> spread -> faulty (tests)
//!                              |
//! backends   memory (here)   file, redis, cassandra, dynamodb (wane-backends)
//! ```
//!
//! Read [`store::Store`] first: it is the contract that everything else keeps or relies on.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod services;
pub mod store;

/// The library example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExample;
