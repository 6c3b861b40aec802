//! [`RedisTier`]: slots and tokens of pull streams, shown in Redis for people and programs that look on.
//!
//! | key | what | how long |
//! |---|---|---|
//! | `cursor:token:{hash}` | hash: `ispb`, `thread_slot`, `cursor_seq`, `expiry`, `signature` | as long as the token |
//! | `cursor:slot:{ispb}` | hash: `version`, and of each slot `client_id`, `last_seen`, `reservation_id` | as long as the last lease |
//! | `cursor:lag:{ispb}` | stream: `delivered_at`, about the last 1,000 | a day after the last |
//!
//! No token is stored, only its hash. Writers of all nodes show what they wrote; one script compares
//! the version, so that an older write never replaces a newer one.
//!
//! Invariants:
//! - [`show`](TokenView::show) takes a lock for a moment and never waits for a server.
//! - What waits is bounded (see `pending`). What was not shown is counted.
//! - Nothing is decided by what stands here: tokens are checked without it, in microseconds.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Pipeline, Value as Reply, cmd};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wane::clock::SharedClock;
use wane::services::pull_stream::{Ispb, SlotView, TokenView, token_hash};
use wane::store::Timestamp;

use super::pending::{Pending, Put, Update};
use crate::OpenError;
use crate::redis::link::{Fault, Link};

const SHOW: &str = include_str!("../lua/show.lua");

/// Updates that are sent together.
const TOGETHER: usize = 64;

/// Entries of the stream of deliveries, about.
const LAG_ENTRIES: usize = 1_000;

/// How long an institution without readers is remembered: an older write of another node that comes
/// later must not show its slots again.
const EMPTY: Duration = Duration::from_secs(60);

/// How long the tier rests after a server did not answer.
const PAUSE: Duration = Duration::from_millis(250);

/// A view in Redis. A clone is a second handle; with the last one its task ends.
#[derive(Debug, Clone)]
pub struct RedisTier {
    shared: Arc<Shared>,
    _task: Arc<Task>,
}

#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct Shared {
    link: Link,
    clock: SharedClock,
    pending: Mutex<Pending>,
    work: Notify,
    shown: AtomicU64,
    stale: AtomicU64,
    superseded: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// How many updates there were, by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierCounts {
    /// Shown.
    pub shown: u64,
    /// Not shown, as a later write was.
    pub stale: u64,
    /// Not sent, as a later write waited to be.
    pub superseded: u64,
    /// Not sent for want of room.
    pub dropped: u64,
    /// In a batch that the server did not answer, and which was tried again, or that it refused.
    pub failed: u64,
}

/// A token as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownToken {
    /// Whose it is.
    pub ispb: String,
    /// Which of the six slots it is of.
    pub thread_slot: usize,
    /// Its number.
    pub cursor_seq: u64,
    /// Until when it is good.
    pub expiry: Timestamp,
}

/// Why nothing can be said of a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The server did not answer.
    #[error("the tier does not answer: {reason}")]
    Away {
        /// What went wrong.
        reason: String,
    },
    /// What stands there was not put there by us.
    #[error("the tier holds something else under the name of the token")]
    Strange,
}

impl RedisTier {
    /// A view on the server that the URL names, as `redis://host:port/1`. It need not be there yet.
    /// Needs a tokio runtime.
    pub fn new(url: &str, clock: SharedClock) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared {
            link: super::server(url)?,
            clock,
            pending: Mutex::default(),
            work: Notify::new(),
            shown: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            superseded: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let task = tokio::spawn(send_all(Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, _task: Arc::new(Task(task)) })
    }

    /// What is shown of a token; `None` where nothing is, which says nothing of the token.
    ///
    /// For operators, and for programs that look on. Whether a token is good is not decided here.
    pub async fn lookup(&self, token: &str) -> Result<Option<ShownToken>, TierError> {
        let key = token_key(&token_hash(token));
        let reply = self.shared.link.request(cmd("HGETALL").arg(key)).await;
        let reply = reply.map_err(|fault| TierError::Away { reason: fault.to_string() })?;
        let fields: HashMap<String, String> =
            redis::from_redis_value(reply).map_err(|_| TierError::Strange)?;
        if fields.is_empty() {
            return Ok(None);
        }
        shown_token(&fields).map(Some).ok_or(TierError::Strange)
    }

    /// What became of updates so far.
    #[must_use]
    pub fn counts(&self) -> TierCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let shared = &self.shared;
        TierCounts {
            shown: read(&shared.shown),
            stale: read(&shared.stale),
            superseded: read(&shared.superseded),
            dropped: read(&shared.dropped),
            failed: read(&shared.failed),
        }
    }
}

impl TokenView for RedisTier {
    fn show(&self, ispb: Ispb, version: u64, slots: &[SlotView]) {
        self.shared.put(Update { ispb, version, slots: slots.to_vec() });
        self.shared.work.notify_one();
    }
}

impl Shared {
    fn put(&self, update: Update) {
        match self.pending.lock().put(update) {
            Put::Waits => {}
            Put::Superseded => add(&self.superseded),
            Put::Dropped => add(&self.dropped),
        }
    }

    /// Sends updates one behind the other; those that may not have arrived wait again, for the
    /// version tells if they have.
    async fn send(&self, updates: Vec<Update>) -> Result<(), Fault> {
        let now = self.clock.now();
        let mut commands = Pipeline::with_capacity(updates.len());
        for update in &updates {
            commands.add_command(show_command(update, now));
        }
        let replies = match self.link.requests(&commands).await {
            Ok(replies) => replies,
            Err(fault) => {
                updates.into_iter().for_each(|update| self.put(update));
                return Err(fault);
            }
        };
        let mut refused = None;
        for reply in replies {
            let is_shown = reply == Reply::Int(1);
            if let Reply::ServerError(error) = reply {
                refused = Some(error);
            } else {
                add(if is_shown { &self.shown } else { &self.stale });
            }
        }
        refused.map_or(Ok(()), |error| Err(Fault::Answered(error)))
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

async fn send_all(shared: Arc<Shared>) {
    let mut is_away = false;
    loop {
        let updates = shared.pending.lock().take(TOGETHER);
        if updates.is_empty() {
            shared.work.notified().await;
            continue;
        }
        let count = updates.len() as u64;
        match shared.send(updates).await {
            Ok(()) if is_away => {
                is_away = false;
                tracing::info!(address = shared.link.address(), "the tier of pull streams is back");
            }
            Ok(()) => {}
            Err(fault) => {
                shared.failed.fetch_add(count, Ordering::Relaxed);
                if !is_away {
                    let address = shared.link.address();
                    tracing::warn!(address, %fault, "the tier of pull streams shows nothing new");
                }
                is_away = true;
                shared.clock.sleep(PAUSE).await;
            }
        }
    }
}

fn token_key(hash: &str) -> String {
    format!("cursor:token:{hash}")
}

fn show_command(update: &Update, now: Timestamp) -> Cmd {
    let Update { ispb, version, slots } = update;
    let millis = |until: Timestamp| now.until(until).as_millis() as u64;
    let longest = slots.iter().map(|slot| millis(slot.lease_until)).max();
    let life =
        longest.unwrap_or(0).max(if slots.is_empty() { EMPTY.as_millis() as u64 } else { 1 });
    let delivered = slots.iter().filter(|slot| slot.in_flight > 0).map(|slot| slot.issued_at).max();
    let mut show = cmd("EVAL");
    show.arg(SHOW).arg(2 + slots.len());
    show.arg(format!("cursor:slot:{ispb}")).arg(format!("cursor:lag:{ispb}"));
    for slot in slots {
        show.arg(token_key(slot.token.as_deref().unwrap_or("none")));
    }
    show.arg(version).arg(life);
    show.arg(delivered.map_or(String::new(), |at| at.as_unix_millis().to_string()));
    show.arg(LAG_ENTRIES);
    for slot in slots {
        let hash = slot.token.as_deref().unwrap_or_default();
        let token_life = if hash.is_empty() { 0 } else { millis(slot.expires_at) };
        show.arg(slot.thread).arg(Told(slot).to_string()).arg(token_life);
        show.arg(ispb.as_str())
            .arg(slot.cursor_seq)
            .arg(slot.expires_at.as_unix_millis())
            .arg(hash);
    }
    show
}

/// What is told of a slot, as JSON.
struct Told<'a>(&'a SlotView);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlotView { thread, epoch, client, issued_at, lease_until, .. } = self.0;
        f.write_str("{\"client_id\":\"")?;
        for letter in client.as_str().chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                _ if letter.is_control() => write!(f, "\\u{:04x}", u32::from(letter))?,
                _ => write!(f, "{letter}")?,
            }
        }
        let (seen, until) = (issued_at.as_unix_millis(), lease_until.as_unix_millis());
        write!(f, "\",\"last_seen\":{seen},\"reservation_id\":\"{thread}-{epoch}\",")?;
        write!(f, "\"lease_until\":{until}}}")
    }
}

fn shown_token(fields: &HashMap<String, String>) -> Option<ShownToken> {
    Some(ShownToken {
        ispb: fields.get("ispb")?.clone(),
        thread_slot: fields.get("thread_slot")?.parse().ok()?,
        cursor_seq: fields.get("cursor_seq")?.parse().ok()?,
        expiry: Timestamp::from_unix_millis(fields.get("expiry")?.parse().ok()?),
    })
}
