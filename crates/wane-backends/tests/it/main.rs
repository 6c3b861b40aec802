//! Integration tests of the backends: one binary, one module per concern.

mod opening;
