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
#[cfg(feature = "archive")]
pub mod archive;
#[cfg(any(feature = "dynamodb", feature = "kms"))]
mod aws;
#[cfg(feature = "cassandra")]
pub mod cassandra;
#[cfg(any(feature = "redis", feature = "cassandra"))]
mod certainty;
mod clock_guard;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "kms")]
pub mod kms;
mod open;
#[cfg(feature = "redis")]
pub mod redis;
mod url;

pub use any::{AnyScanCursor, AnyStore};
#[cfg(feature = "archive")]
pub use archive::ObjectArchive;
pub use clock_guard::{ClockGuarded, ServerClock, ServerTime};
pub use open::OpenError;
pub use url::StoreUrl;

use std::pin::Pin;
use std::time::Duration;

use wane::clock::SharedClock;
use wane::store::MemoryStore;

/// How far the clock of a node may be off from its server's.
pub const MAX_SKEW: Duration = Duration::from_millis(500);

/// The same for DynamoDB, which tells whole seconds.
pub const MAX_SKEW_DYNAMODB: Duration = Duration::from_secs(2);

/// Opens the store that `url` names, after creating it where there is none.
///
/// | url | store |
/// |---|---|
/// | `mem:` | memory, gone with the process |
/// | `file:DIRECTORY?young_bytes=268435456` | an embedded file |
/// | `redis://USER:PASSWORD@HOST:PORT/DB?prefix=wane` | Redis or Valkey; `rediss:` with TLS, several hosts are a cluster |
/// | `cas1://USER:PASSWORD@HOST,HOST/KEYSPACE?datacenter=dc1&ca=FILE` | Cassandra or ScyllaDB, one copy |
/// | `cas3://..` | the same, two copies in dc1 and one in dc2 |
/// | `dynamodb:///TABLE?endpoint=URL&region=NAME` | DynamoDB |
///
/// Stores on servers need a tokio runtime for as long as they live, and answer
/// [`Unavailable`](wane::store::StoreError::Unavailable) while the clock of this node is off from the server's by more than
/// [`MAX_SKEW`].
pub fn open(url: &str, clock: SharedClock) -> Opening<'_> {
    Box::pin(opened(url, clock))
}

/// A store that is being opened. Boxed, so that what opening takes is compiled here.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<AnyStore, OpenError>> + Send + 'a>>;

async fn opened(url: &str, clock: SharedClock) -> Result<AnyStore, OpenError> {
    let unknown = || OpenError::UnknownUrl { url: StoreUrl::without_secrets(url) };
    let (scheme, rest) = url.split_once(':').ok_or_else(unknown)?;
    match scheme {
        "mem" if rest.is_empty() => MemoryStore::new(clock)
            .map(AnyStore::Memory)
            .map_err(|source| OpenError::Io { path: "memory".into(), source: source.into() }),
        #[cfg(feature = "file")]
        "file" if !rest.is_empty() => {
            let (directory, settings) = file::FileSettings::from_place(rest)?;
            let opened = file::FileStore::open_or_create_aside(directory, settings, clock);
            opened.await.map(AnyStore::File)
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" => {
            let settings = redis::RedisSettings::from_url(url)?;
            let store = redis::RedisStore::connect(settings, SharedClock::clone(&clock)).await?;
            guarded(store, "redis", MAX_SKEW, clock).await.map(AnyStore::Redis)
        }
        #[cfg(feature = "cassandra")]
        "cas1" | "cas3" => {
            let settings = cassandra::CassandraSettings::from_url(url)?;
            let connected =
                cassandra::CassandraStore::connect(settings, SharedClock::clone(&clock));
            let store = connected.await?;
            let name = store.name();
            guarded(store, name, MAX_SKEW, clock).await.map(AnyStore::Cassandra)
        }
        #[cfg(feature = "dynamodb")]
        "dynamodb" => {
            let settings = dynamodb::DynamodbSettings::from_url(url)?;
            let store = dynamodb::DynamodbStore::connect(settings, SharedClock::clone(&clock));
            guarded(store.await?, "dynamodb", MAX_SKEW_DYNAMODB, clock)
                .await
                .map(AnyStore::Dynamodb)
        }
        _ => Err(not_built(scheme).unwrap_or_else(unknown)),
    }
}

/// A backend that exists, and that this build was made without.
fn not_built(scheme: &str) -> Option<OpenError> {
    let (backend, feature) = match scheme {
        "file" if !cfg!(feature = "file") => ("file", "file"),
        "redis" | "rediss" if !cfg!(feature = "redis") => ("redis", "redis"),
        "cas1" | "cas3" if !cfg!(feature = "cassandra") => ("cassandra", "cassandra"),
        "dynamodb" if !cfg!(feature = "dynamodb") => ("dynamodb", "aws"),
        _ => return None,
    };
    Some(OpenError::NotBuilt { backend, feature })
}

/// Puts the guard of the clock in front of a store on a server.
#[cfg(any(feature = "redis", feature = "cassandra", feature = "dynamodb"))]
async fn guarded<S: ServerClock>(
    store: S,
    backend: &'static str,
    max_skew: Duration,
    clock: SharedClock,
) -> Result<ClockGuarded<S>, OpenError> {
    let begun = ClockGuarded::begin(store, backend, max_skew, clock).await;
    begun.map_err(|source| OpenError::Unreachable {
        backend,
        address: "its server".to_owned(),
        check: "that the server can be asked for its time",
        source: source.into(),
    })
}
