//! Integration tests of the server: its listener, and the real binary on ports the system chose.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod cli;
mod client;
mod connection;
mod http;
mod listen;
mod readme;
mod restart;
mod server;
