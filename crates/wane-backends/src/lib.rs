//! Backends of the `wane` store: the same contract on the engines that people run.
//!
//! Each backend is a folder and a feature, implements [`wane::store::Store`], and knows nothing of
//! the services above it. Limits and the rules of writes are not here: they come with the types of
//! `wane::store`, so that a backend holds only what differs.

#[cfg(feature = "file")]
pub mod file;
mod open;

pub use open::OpenError;
