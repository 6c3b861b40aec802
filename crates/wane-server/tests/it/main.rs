//! Integration tests of the `wane` process: the real binary on ports that the system chose.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod http;
mod server;
