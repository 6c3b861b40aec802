//! The DynamoDB backend: one table, shared by any number of machines.
//!
//! Every write is one call with a condition that DynamoDB decides in one step; the expiry is part
//! of the condition, compared with this node's clock to the millisecond. DynamoDB's own time to
//! live only cleans up, a minute or more later. Reads are consistent. What a node was not told is
//! looked for by the id of the operation, which stands in the item; see `writes`.
//!
//! Invariant: no write depends on an earlier read. What a record must be for a write to apply is
//! in the condition of that write.
//!
//! | file | what |
//! |---|---|
//! | `settings` | the URL of a table |
//! | `client` | the SDK: credentials, time limits, retries of reads |
//! | `table` | creating and checking the table |
//! | `item` | records and keys as attributes |
//! | `conditions` | each change as one conditional call |
//! | `writes` | calling, refusals, answers that were not heard |
//! | `reads` | points, batches, ranges, scans |
//! | `failure` | what an error says of the request |
//! | `server_clock` | the time of DynamoDB |
//!
//! Not here: comparing clocks, which is `ClockGuarded`'s. While a request is under way, time goes
//! on: a write decides by the clock as it stood when the write was sent.

mod client;
mod conditions;
mod failure;
mod item;
mod reads;
mod server_clock;
mod settings;
mod table;
mod writes;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use wane::clock::SharedClock;
use wane::store::{
    Change, ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Timestamp, Write,
};

pub use self::reads::DynamodbScanCursor;
pub use self::settings::DynamodbSettings;

use self::client::Table;
use crate::OpenError;

/// What this backend is called in errors.
const BACKEND: &str = "dynamodb";

/// A store in a table of DynamoDB. A handle is a cheap clone.
#[derive(Debug, Clone)]
pub struct DynamodbStore {
    table: Arc<Table>,
}

impl DynamodbStore {
    /// Opens the store, after creating its table where there is none.
    ///
    /// Needs a tokio runtime with time and I/O.
    pub async fn connect(
        settings: DynamodbSettings,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        let table = Table::reach(settings, clock).await?;
        table.make_ready().await?;
        Ok(Self { table: Arc::new(table) })
    }

    fn now(&self) -> Timestamp {
        self.table.clock.now()
    }
}

impl Store for DynamodbStore {
    type ScanCursor = DynamodbScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.table.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        reads::get_batch(&self.table, keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.table.page(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<DynamodbScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<DynamodbScanCursor>, StoreError> {
        self.table.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.table.change(key, &Change::put(write, || self.now())?).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let keyed = |(key, write)| Ok((key, Change::put(write, || self.now())?));
        let changes = writes.into_iter().map(keyed).collect::<Result<Vec<_>, StoreError>>()?;
        writes::put_batch(&self.table, changes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.table.change(key, &Change::insert(write, || self.now())?).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.table.change(key, &Change::swap(expected, write, || self.now())?).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.table.change(key, &Change::delete(expected, fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.table.remaining(key).await
    }
}
