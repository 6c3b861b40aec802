//! Integration tests of the backends: one binary, one module per concern.

mod conformance;
mod harness;
mod opening;
