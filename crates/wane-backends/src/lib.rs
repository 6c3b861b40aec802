//! Backends of the `wane` store: the same contract on the engines that people run.
//!
//! Each backend is a folder and a feature, implements [`wane::store::Store`], and knows nothing of
//! the services above it. Limits and the rules of writes are not here: they come with the types of
//! `wane::store`, so that a backend holds only what differs.
//!
//! ```
//! use wane::clock::SystemClock;
//! use wane::store::{Key, Life, Store, Value, Write};
//! use wane_backends::file::FileStore;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! let store = FileStore::open_or_create(directory, SystemClock::shared())?;
//! let key = Key::new(b"settings", b"motd")?;
//! let kept = store.put(&key, Write::new(Value::new("hello")?, Life::Permanent)).await?;
//! assert!(kept.is_applied(), "and durable, once this is told");
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "file")]
pub mod file;
mod open;

pub use open::OpenError;
