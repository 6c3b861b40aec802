//! Watches: changes of the entries with one prefix, across lost connections.
//!
//! Where a connection was lost and the server cannot go on where it stopped, it says so:
//! [`Notice::Gap`]. Where no event was heard before, the gap is said here.

use bytes::Bytes;
use wane::store::Timestamp;

use super::app_ttl::{ItemForm, escaped};
use super::events::{Heard, Stream};
use super::server_sent::ServerSent;
use super::{AppTtl, ClientError, Item};

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was written where none was.
    Inserted,
    /// It was replaced, or given another life.
    Swapped,
    /// It was deleted.
    Deleted,
    /// It reached its expiry.
    Expired,
}

impl ChangeKind {
    /// The name of the event.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inserted => "inserted",
            Self::Swapped => "swapped",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
        }
    }

    fn named(name: &str) -> Option<Self> {
        let all = [Self::Inserted, Self::Swapped, Self::Deleted, Self::Expired];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// A change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Where a watch resumes after this event.
    pub id: Option<String>,
    /// What happened.
    pub kind: ChangeKind,
    /// The key.
    pub key: String,
    /// The value: the new one, or the last one.
    pub value: Bytes,
    /// The expiry of that value.
    pub expires_at: Option<Timestamp>,
}

/// What a watch hears next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The next change.
    Event(Event),
    /// Changes may have been missed: read the entries anew. The watch goes on after it.
    Gap,
}

/// A watch over the keys with one prefix. Dropping it ends it.
#[derive(Debug)]
pub struct Watch(Stream);

impl AppTtl {
    /// Watches the keys that begin with `prefix`, from now on or on from the event `after`.
    pub async fn watch(&self, prefix: &str, after: Option<String>) -> Result<Watch, ClientError> {
        let path = format!("{}:watch?prefix={}", self.path, escaped(prefix));
        Stream::open(&self.client, path, after).await.map(Watch)
    }
}

impl Watch {
    /// Waits for the next notice. After an error the watch has ended.
    pub async fn next(&mut self) -> Result<Notice, ClientError> {
        loop {
            match self.0.next().await? {
                Heard::Anew => return Ok(Notice::Gap),
                Heard::Event(event) => {
                    if let Some(notice) = notice(event)? {
                        return Ok(notice);
                    }
                }
            }
        }
    }
}

/// What an event means; `None` for one that later servers may send.
fn notice(event: ServerSent) -> Result<Option<Notice>, ClientError> {
    if event.kind == "gap" {
        return Ok(Some(Notice::Gap));
    }
    let Some(kind) = ChangeKind::named(&event.kind) else { return Ok(None) };
    let protocol = |reason| ClientError::Protocol { reason };
    let form: ItemForm =
        serde_json::from_str(&event.data).map_err(|error| protocol(error.to_string()))?;
    let Item { key, value, expires_at } = form.meaning().map_err(protocol)?;
    Ok(Some(Notice::Event(Event { id: event.id, kind, key, value, expires_at })))
}
