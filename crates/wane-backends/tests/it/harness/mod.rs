//! How the conformance suite reaches each backend.

pub(crate) mod any;
pub(crate) mod file;
