//! The `wane` process: HTTP, command line, settings and wiring.
//!
//! ```text
//! main -> cli -> serve: settings -> wiring -> http (routes) -> listen (connections)
//!             -> ttl, app, ..: client -> a server somewhere
//!             -> backup, restore, verify: a server or a stopped store
//! ```
//!
//! Only `wiring` names concrete stores. `http` parses, calls a service and answers; the rules are in
//! `wane::services`.

// The futures of wrappers around wrappers around five backends are deep types.
#![recursion_limit = "256"]

mod archiver;
#[cfg(test)]
mod campaigns;
pub mod cli;
pub mod client;
pub mod first_start;
mod gzip;
pub mod http;
pub mod listen;
pub mod qr;
mod ready_file;
pub mod serve;
pub mod settings;
pub mod shutdown;
mod snapshots;
mod stream_holds;
mod stream_keys;
mod stream_tier;
pub mod telemetry;
pub mod wiring;
