//! Backends of the `wane` store: the same contract on the engines that people run.
//!
//! Each backend is a folder and a feature, implements [`wane::store::Store`], and knows nothing of
//! the services above it. Limits and the rules of writes are not here: they come with the types of
//! `wane::store`, so that a backend holds only what differs.
//!
//! ```
//! use wane::clock::SystemClock;
//! use wane::store::{Key, Life, Store, Value, Write};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! let store = wane_backends::open(&format!("file:{}", directory.display()), SystemClock::shared())
//!     .await?;
//! let key = Key::new(b"settings", b"motd")?;
//! let kept = store.put(&key, Write::new(Value::new("hello")?, Life::Permanent)).await?;
//! assert!(kept.is_applied(), "and durable, once this is told");
//! # Ok(())
//! # }
//! ```

mod any;
#[cfg(feature = "cassandra")]
pub mod cassandra;
mod clock_guard;
#[cfg(feature = "file")]
pub mod file;
mod open;
mod url;

pub use any::{AnyScanCursor, AnyStore};
pub use clock_guard::{ClockGuarded, ServerClock, ServerTime};
pub use open::OpenError;
pub use url::StoreUrl;

use wane::clock::SharedClock;
use wane::store::MemoryStore;

/// Opens the store that `url` names, after creating it where there is none.
///
/// | url | store |
/// |---|---|
/// | `mem:` | memory, gone with the process |
/// | `file:DIRECTORY` | an embedded file |
pub async fn open(url: &str, clock: SharedClock) -> Result<AnyStore, OpenError> {
    let unknown = || OpenError::UnknownUrl { url: StoreUrl::without_secrets(url) };
    let (scheme, rest) = url.split_once(':').ok_or_else(unknown)?;
    match scheme {
        "mem" if rest.is_empty() => MemoryStore::new(clock)
            .map(AnyStore::Memory)
            .map_err(|source| OpenError::Io { path: "memory".into(), source: source.into() }),
        #[cfg(feature = "file")]
        "file" if !rest.is_empty() => {
            file::FileStore::open_or_create_aside(rest.into(), clock).await.map(AnyStore::File)
        }
        _ => Err(unknown()),
    }
}
