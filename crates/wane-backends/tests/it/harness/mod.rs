//! How the conformance suite reaches each backend.

pub(crate) mod file;
