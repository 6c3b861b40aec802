//! [`CassandraStore`]: the contract on Cassandra or ScyllaDB, every write one conditional statement.
//!
//! Promise: of any number of writers, in any datacenter, one is applied. What was acknowledged is
//! on a majority of the replicas, and every later read sees it. What was read is not lost again.
//! Expiry is decided by this node's clock, to the millisecond; native TTLs only clean up.
//!
//! Mechanism: a write first tries the statement that fits the usual case, in one round trip. Where
//! that is refused, what stood there is judged by [`Change::decide`], and if the write is due all
//! the same it is made over exactly the row that was seen. Each row carries the id of the operation
//! that wrote it, so a write that ended without a clear answer is looked for; found, it was applied,
//! otherwise the answer is `Unknown`. Nothing is sent twice.
//!
//! Invariant: there is no plain write. All writes and all reads of one partition go through Paxos
//! at SERIAL, and every write sets the whole row.
//!
//! | file | what |
//! |---|---|
//! | `settings` | the URL |
//! | `session` | connections and timeouts |
//! | `routing` | which node is asked |
//! | `tls` | the same encrypted (feature `cassandra-tls`) |
//! | `schema` | keyspace, tables, layout row |
//! | `statements` | the CQL, with its conditions |
//! | `row` | cells and records |
//! | `turns` | one writer or many readers of a partition, in this process |
//! | `writing` | one write, and what becomes of an unclear one |
//! | `reading` | points, pages, scans |
//! | `batches` | many keys |
//! | `doubt` | which errors prove that nothing was applied |

mod batches;
mod doubt;
mod reading;
mod routing;
mod row;
mod schema;
mod session;
mod settings;
mod statements;
#[cfg(feature = "cassandra-tls")]
mod tls;
mod turns;
mod writing;

pub use self::reading::CassandraScanCursor;
pub use self::settings::{CassandraSettings, Replication};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use scylla::client::session::Session;
use wane::clock::SharedClock;
use wane::store::{
    BoxError, Change, ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record,
    Remaining, ScanPage, Store, StoreError, Timestamp, Write,
};

use self::row::OperationId;
use self::statements::Statements;
use self::turns::Turns;
use crate::{OpenError, ServerClock, ServerTime};

/// A store in a keyspace of Cassandra or ScyllaDB. A clone is a second handle on the same one.
#[derive(Clone)]
pub struct CassandraStore {
    inner: Arc<Inner>,
}

struct Inner {
    session: Session,
    statements: Statements,
    turns: Turns,
    clock: SharedClock,
    backend: &'static str,
    place: String,
    operations: AtomicU64,
}

impl fmt::Debug for CassandraStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { backend, place, .. } = &*self.inner;
        f.debug_struct("CassandraStore").field("backend", backend).field("place", place).finish()
    }
}

impl CassandraStore {
    /// Connects, and makes the keyspace and its tables where they are missing.
    ///
    /// Ends within about half a minute, whatever the cluster does.
    pub async fn connect(
        settings: CassandraSettings,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        let session = session::connect(&settings).await?;
        schema::prepare(&session, &settings, &clock).await?;
        let backend = settings.replication.name();
        let statements = Statements::prepare(&session, &settings.keyspace).await;
        let statements = statements.map_err(|error| OpenError::Refused {
            backend,
            address: settings.address(),
            check: "that the user may read and write the tables of the keyspace",
            source: error.into(),
        })?;
        let place = format!("{}/{}", settings.address(), settings.keyspace);
        let (turns, operations) = (Turns::new(), AtomicU64::new(0));
        let inner = Inner { session, statements, turns, clock, backend, place, operations };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The name of the backend: `cas1` or `cas3`.
    pub fn name(&self) -> &'static str {
        self.inner.backend
    }

    fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// An id that no other operation has: the session's random id, cut, and a count.
    fn next_operation(&self) -> OperationId {
        const COUNTED: usize = 6;
        let count = self.inner.operations.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut id = *self.inner.session.session_id().as_bytes();
        // The end of such an id is all chance, its middle is not.
        id.rotate_left(COUNTED);
        id[16 - COUNTED..].copy_from_slice(&count[8 - COUNTED..]);
        id
    }

    /// Nothing was applied.
    fn unavailable(&self, source: impl Into<BoxError>) -> StoreError {
        StoreError::Unavailable { backend: self.inner.backend, source: self.located(source) }
    }

    /// Something may have been applied.
    fn unknown(&self, source: impl Into<BoxError>) -> StoreError {
        StoreError::Unknown { backend: self.inner.backend, source: self.located(source) }
    }

    fn located(&self, source: impl Into<BoxError>) -> BoxError {
        format!("{} at {}", source.into(), self.inner.place).into()
    }
}

impl Store for CassandraStore {
    type ScanCursor = CassandraScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.point(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.points(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.page(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<CassandraScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<CassandraScanCursor>, StoreError> {
        self.scan_page(after.unwrap_or_default(), limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(key, Change::put(write, || self.now())?).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.put_all(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(key, Change::insert(write, || self.now())?).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.change(key, Change::swap(expected, write, || self.now())?).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.change(key, Change::delete(expected, fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        let record = self.point(key).await?;
        Ok(record.map_or(Remaining::Absent, |record| record.remaining_of_live(self.now())))
    }
}

impl ServerClock for CassandraStore {
    async fn server_time(&self) -> Result<ServerTime, StoreError> {
        let Inner { session, statements, .. } = &*self.inner;
        let told = session.execute_unpaged(&statements.time, ()).await;
        let told = told.map_err(|error| self.unavailable(error))?;
        let told = told.into_rows_result().map_err(|error| self.unavailable(error))?;
        let (millis,) = told.first_row::<(i64,)>().map_err(|error| self.unavailable(error))?;
        let millis = u64::try_from(millis).map_err(|error| self.unavailable(error))?;
        Ok(ServerTime::exactly(Timestamp::from_unix_millis(millis)))
    }
}
