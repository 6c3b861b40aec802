//! Integration tests of the `wane` crate: one binary, one module per concern.

mod conformance;
mod tidy;
