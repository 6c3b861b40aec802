//! [`RedisStore`]: the store on Redis 7, Valkey, or a cluster of them.
//!
//! Every operation is one Lua script, which the server runs alone: it reads the server's clock,
//! decides, and writes, in one step. A record is a field of its partition's hash; two sorted sets
//! beside it keep the order of the rows and their expiries. No key has a TTL of Redis' own: that
//! would take records away and leave their rows in the order.
//!
//! Invariants:
//! - The expiry in the record and the server's clock decide; the sorted sets say where to look.
//! - A script touches only keys it was given, and those have one hash tag (`layout`).
//! - Nothing is sent twice. A write whose answer was lost is looked for by the id of its operation:
//!   what is not found to be applied is [`StoreError::Unknown`] (`unclear`).
//!
//! | file | what |
//! |---|---|
//! | `settings`, `opening` | the URL; what is asked of a server before it is trusted |
//! | `layout`, `record`, `reply` | names of keys; bytes of records; what scripts answer |
//! | `scripts`, `lua/` | the scripts |
//! | `link`, `servers` | one shared connection; who has which slot of a cluster |
//! | `batches`, `scan` | many rows at once; the whole store |
//! | `unclear` | what errors mean, and what became of a write whose answer was lost |
//! | `sweeper` | removal of what expired |
//! | `pull_stream/` | not of the store: a view of pull streams, and a lock |

mod batches;
mod layout;
mod link;
mod opening;
pub mod pull_stream;
mod record;
mod reply;
mod scan;
mod scripts;
mod servers;
mod settings;
mod sweeper;
mod unclear;

pub use scan::RedisScanCursor;
pub use settings::RedisSettings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Value as Reply, cmd};
use wane::clock::SharedClock;
use wane::store::{
    Change, ClusteringRange, Effect, Fence, Key, Outcome, PAGE_BYTES, Page, PageFill, PageLimit,
    Partition, Record, Remaining, ScanPage, Store, StoreError, Timestamp, Write,
};

use self::layout::{Layout, Place};
use self::link::Fault;
use self::record::{OperationId, decode, life_argument, unsound};
use self::reply::{array, bytes, bytes_or_none, number, time};
use self::scripts::Script;
use self::servers::Servers;
use crate::{OpenError, ServerClock, ServerTime};

/// How long a delete can be told from another's.
const TRACE: Duration = Duration::from_secs(60);

/// Rows that one script looks at, so that the server is held up for a millisecond or so.
const SCRIPT_ROWS: usize = 1_000;

/// A store on Redis. A clone is a second handle on the same connections.
///
/// Dropping the last handle ends the sweeping of this process; the server and other processes keep
/// what is stored.
#[derive(Debug, Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    servers: Servers,
    layout: Layout,
    address: String,
    clock: SharedClock,
    /// The first half of every operation's id: no other handle draws the same.
    node: [u8; 8],
    operations: AtomicU64,
}

impl RedisStore {
    /// Connects to the servers, checks them, and begins to sweep what expires.
    ///
    /// Needs a tokio runtime, which keeps the connections and the sweeper. Warns through `tracing`
    /// of a server that may forget what it acknowledged.
    pub async fn connect(settings: RedisSettings, clock: SharedClock) -> Result<Self, OpenError> {
        let layout = Layout::new(settings.prefix.clone());
        let servers = opening::open(&settings, &layout).await?;
        let node = clock.random_u64().to_be_bytes();
        let (address, operations) = (settings.address(), AtomicU64::new(0));
        let inner = Arc::new(Inner { servers, layout, address, clock, node, operations });
        tokio::spawn(sweeper::keep_sweeping(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }
}

impl Inner {
    fn new_operation(&self) -> OperationId {
        let mut id = [0; 16];
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        id[..8].copy_from_slice(&self.node);
        id[8..].copy_from_slice(&number.to_be_bytes());
        id
    }

    /// Runs a script over the first `keys` keys of a place.
    async fn run(
        &self,
        script: &Script,
        place: &Place,
        keys: usize,
        arguments: impl Fn(&mut Cmd) + Send,
    ) -> Result<Reply, Fault> {
        let keys = &place.keys[..keys];
        let mut call = script.by_hash(keys);
        arguments(&mut call);
        match self.servers.request(place.slot, &call).await {
            // The server did nothing but say that it does not know the script.
            Err(Fault::Answered(error)) if error.code() == "NOSCRIPT" => {
                let mut call = script.by_source(keys);
                arguments(&mut call);
                self.servers.request(place.slot, &call).await
            }
            answer => answer,
        }
    }

    /// Decides a change on the server. `script` is the one for its condition.
    async fn change(&self, key: &Key, change: &Change<'_>) -> Result<Outcome, StoreError> {
        let place = self.layout.place(key.partition());
        let operation = self.new_operation();
        let (script, expected) = match (change.condition(), change.effect()) {
            (wane::store::Condition::Always, _) => (&scripts::PUT, None),
            (wane::store::Condition::Absent, _) => (&scripts::INSERT, None),
            (wane::store::Condition::Equals(value), Effect::Write(_)) => {
                (&scripts::SWAP, Some(value))
            }
            (wane::store::Condition::Equals(value), Effect::Delete(_)) => {
                (&scripts::DELETE, Some(value))
            }
        };
        let arguments = |call: &mut Cmd| {
            call.arg(key.partition()).arg(key.clustering()).arg(&operation);
            match change.effect() {
                Effect::Write(write) => {
                    call.arg(life_argument(write.life)).arg(&write.fence.0.to_be_bytes());
                    call.arg(&write.value[..]);
                }
                Effect::Delete(fence) => {
                    call.arg(TRACE.as_millis() as u64).arg(&fence.0.to_be_bytes());
                }
            }
            if let Some(expected) = expected {
                call.arg(&expected[..]);
            }
        };
        let answer = self.run(script, &place, 4, arguments).await;
        let answer = match answer {
            // A put answers as many rows as it was given.
            Ok(Reply::Array(mut rows)) if matches!(rows[..], [Reply::Array(_)]) => {
                Ok(rows.pop().unwrap_or_default())
            }
            answer => answer,
        };
        self.settle(key, &place, &operation, answer).await
    }

    /// A page of a partition, as one script sees it.
    async fn page(
        &self,
        partition: &[u8],
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let place = self.layout.place(partition);
        let from =
            if range.start().is_empty() { b"-".to_vec() } else { bound(b'[', range.start()) };
        let to = range.end().map_or_else(|| b"+".to_vec(), |end| bound(b'(', end));
        let reply = self.run(&scripts::READ, &place, 3, |call| {
            call.arg(&from[..]).arg(&to[..]).arg(limit.rows().min(SCRIPT_ROWS));
            call.arg(PAGE_BYTES).arg(partition.len());
        });
        let reply = reply.await.map_err(|fault| self.unread(fault, partition))?;
        let strange = || self.unreadable();
        let mut parts = array(reply).ok_or_else(strange)?.into_iter();
        let rest = parts.next().and_then(bytes_or_none).ok_or_else(strange)?;
        let rest = rest.map(|next| range.starting_at(next));
        let mut fill = PageFill::new(limit);
        while let Some(row) = parts.next() {
            let stored = parts.next().and_then(bytes).ok_or_else(strange)?;
            let row = bytes(row).ok_or_else(strange)?;
            let key = Key::stored(partition, &row)?;
            let record = decode(&key, stored)?;
            fill.push(key, record);
        }
        Ok(Page { rows: fill.into_rows(), rest })
    }
}

/// A bound as ZRANGEBYLEX has it.
fn bound(kind: u8, clustering: &[u8]) -> Vec<u8> {
    [&[kind], clustering].concat()
}

impl Store for RedisStore {
    type ScanCursor = RedisScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let inner = &*self.inner;
        let place = inner.layout.place(key.partition());
        let reply = inner.run(&scripts::GET, &place, 3, |call| {
            call.arg(PAGE_BYTES).arg(key.clustering());
        });
        let reply = reply.await.map_err(|fault| inner.unread(fault, key.partition()))?;
        let mut records = array(reply).ok_or_else(|| inner.unreadable())?;
        let record = records.pop().ok_or_else(|| inner.unreadable())?;
        let stored = bytes_or_none(record).ok_or_else(|| inner.unreadable())?;
        stored.map(|stored| decode(key, stored)).transpose()
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.inner.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let mut range = range.clone();
        loop {
            let page = self.inner.page(partition.as_bytes(), &range, limit).await?;
            match &page.rest {
                // A script's worth of expired rows; it has removed them.
                Some(rest) if page.rows.is_empty() => range = rest.clone(),
                _ => return Ok(page),
            }
        }
    }

    async fn scan(
        &self,
        after: Option<RedisScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<RedisScanCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.inner.change(key, &Change::put(write, || self.now())?).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        for (_, write) in &writes {
            // All of them are valid before the first is sent.
            Change::put(write.clone(), || self.now())?;
        }
        self.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.inner.change(key, &Change::insert(write, || self.now())?).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.inner.change(key, &Change::swap(expected, write, || self.now())?).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.inner.change(key, &Change::delete(expected, fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        let inner = &*self.inner;
        let place = inner.layout.place(key.partition());
        let reply = inner.run(&scripts::QUERY_TTL, &place, 3, |call| {
            call.arg(key.clustering());
        });
        let reply = reply.await.map_err(|fault| inner.unread(fault, key.partition()))?;
        match number(&reply) {
            Some(-3) => Err(unsound(key)),
            Some(-2) => Ok(Remaining::Absent),
            Some(-1) => Ok(Remaining::Permanent),
            Some(left) if left > 0 => {
                Ok(Remaining::For(Duration::from_millis(left.unsigned_abs())))
            }
            _ => Err(inner.unreadable()),
        }
    }
}

impl ServerClock for RedisStore {
    /// Of a cluster, what all of its masters say.
    async fn server_time(&self) -> Result<ServerTime, StoreError> {
        let inner = &*self.inner;
        let mut whole: Option<ServerTime> = None;
        for master in inner.servers.masters() {
            let reply = master.request(&cmd("TIME")).await;
            let reply = reply.map_err(|fault| inner.unavailable(fault.into()))?;
            let told = time(reply).ok_or_else(|| inner.unreadable())?;
            let told = Timestamp::from_unix_millis(told);
            whole = Some(whole.map_or(ServerTime::exactly(told), |whole| ServerTime {
                not_before: whole.not_before.min(told),
                not_after: whole.not_after.max(told),
            }));
        }
        whole.ok_or_else(|| inner.unreadable())
    }
}
