//! Reading: points and pages at SERIAL, scans at QUORUM.
//!
//! A read at SERIAL completes what Paxos has under way in the partition, so it sees every write
//! that was acknowledged and shows none that could still be lost. A page may take several such
//! reads. Cassandra reads serially within one partition only, so a scan reads at QUORUM: commits
//! are acknowledged by a quorum, and two quorums meet.
//!
//! A row is judged by the time after it was read: had it expired before the answer came, it is
//! absent, and what is told to be alive was alive when the server looked.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use scylla::errors::ExecutionError;
use scylla::response::PagingState;
use scylla::response::query_result::QueryRowsResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use tokio::time::timeout;
use wane::store::{
    ClusteringRange, Key, PAGE_BYTES, Page, PageFill, PageLimit, Partition, Record, Row, ScanPage,
    StoreError,
};

use super::CassandraStore;
use super::doubt::is_interrupted;
use super::row::{Columns, Seen};
use super::session::REQUEST;

/// Rows that one page looks at before it goes on elsewhere, so that a stretch of expired rows
/// cannot hold up a reader.
const PAGE_WALK: usize = 20_000;

/// How often a read is made that others get in the way of.
const READS: usize = 8;

impl CassandraStore {
    /// The live record at `key`.
    pub(super) async fn point(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let turn = self.inner.turns.together(key.partition()).await;
        let _turn = turn.map_err(|error| self.unavailable(error))?;
        // Before the look: a record that another process renews meanwhile is live all the time.
        let now = self.now();
        let seen = self.look(key).await?;
        Ok(seen.into_live(now))
    }

    /// What stands at `key`, expired or not.
    pub(super) async fn look(&self, key: &Key) -> Result<Seen, StoreError> {
        let (p, c) = (key.partition(), key.clustering());
        let rows = self.serial_rows(&self.inner.statements.of(p).get, (p, c)).await?;
        let columns = rows.maybe_first_row::<Columns<'_>>();
        match columns.map_err(|error| self.unavailable(error))? {
            Some(columns) => Seen::decode(key, &columns),
            None => Ok(Seen::default()),
        }
    }

    /// Reads within a partition. A read that another process's write got in the way of ends at
    /// once and without an answer: it changes nothing, so it is made again.
    pub(super) async fn serial_rows(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryRowsResult, StoreError> {
        let mut reads = 1;
        let read = async {
            loop {
                match self.inner.session.execute_unpaged(statement, &values).await {
                    Err(error) if reads < READS && is_interrupted(&error) => reads += 1,
                    answered => return answered,
                }
            }
        };
        let rows = timeout(REQUEST, read).await.map_err(|elapsed| self.unavailable(elapsed))?;
        let rows = rows.map_err(|error| self.unavailable(error))?;
        rows.into_rows_result().map_err(|error| self.unavailable(error))
    }

    pub(super) async fn page(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        if range.end().is_some_and(|end| range.start() >= end) {
            return Ok(Page { rows: Vec::new(), rest: None });
        }
        let p = partition.as_bytes();
        let turn = self.inner.turns.together(p).await;
        let _turn = turn.map_err(|error| self.unavailable(error))?;
        let (mut fill, mut pace) = (PageFill::new(limit), Pace::new());
        let mut start = range.start().to_vec();
        let mut walked = 0;
        loop {
            // One more than there is room for tells whether there is a rest.
            let asked = pace.rows().min(fill.room() + 1);
            let now = self.now();
            let rows = self.rows_from(p, &start, range.end(), asked).await?;
            pace.note(&rows);
            let got = rows.rows_num();
            for columns in self.columns(&rows)? {
                let columns = columns?;
                if fill.is_full() || walked >= PAGE_WALK {
                    let rest = Some(range.starting_at(columns.c.to_vec()));
                    return Ok(Page { rows: fill.into_rows(), rest });
                }
                walked += 1;
                // The least clustering after this one is this one and a zero byte.
                start = [columns.c, &[0]].concat();
                let key = stored_key(p, columns.c)?;
                if let Some(record) = Seen::decode(&key, &columns)?.into_live(now) {
                    fill.push(key, record);
                }
            }
            if got < asked {
                return Ok(Page { rows: fill.into_rows(), rest: None });
            }
            if fill.is_full() || walked >= PAGE_WALK {
                let last = &start[..start.len() - 1];
                return Ok(Page { rows: fill.into_rows(), rest: range.after(last) });
            }
        }
    }

    async fn rows_from(
        &self,
        p: &[u8],
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<QueryRowsResult, StoreError> {
        let table = self.inner.statements.of(p);
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        match end {
            Some(end) => self.serial_rows(&table.between, (p, start, end, limit)).await,
            None => self.serial_rows(&table.from, (p, start, limit)).await,
        }
    }

    /// The rows of an answer.
    pub(super) fn columns<'r>(
        &'r self,
        rows: &'r QueryRowsResult,
    ) -> Result<impl Iterator<Item = Result<Columns<'r>, StoreError>>, StoreError> {
        let rows = rows.rows::<Columns<'r>>().map_err(|error| self.unavailable(error))?;
        Ok(rows.map(|columns| columns.map_err(|error| self.unavailable(error))))
    }

    pub(super) async fn scan_page(
        &self,
        mut cursor: CassandraScanCursor,
        limit: PageLimit,
    ) -> Result<ScanPage<CassandraScanCursor>, StoreError> {
        let mut fill = PageFill::new(limit);
        let mut walked = 0;
        loop {
            while !fill.is_full() {
                // It was live when it was read. Since then it may have been renewed.
                let Some(Row { key, record }) = cursor.fetched.pop_front() else { break };
                fill.push(key, record);
            }
            if fill.is_full() || walked >= PAGE_WALK {
                let next = (!cursor.is_done()).then_some(cursor);
                return Ok(ScanPage { rows: fill.into_rows(), next });
            }
            if cursor.place.is_none() {
                return Ok(ScanPage { rows: fill.into_rows(), next: None });
            }
            walked += self.fetch(&mut cursor).await?;
        }
    }

    /// Fetches more rows into the cursor and returns how many the server looked at.
    async fn fetch(&self, cursor: &mut CassandraScanCursor) -> Result<usize, StoreError> {
        let Some(Place { table, state }) = cursor.place.take() else { return Ok(0) };
        let tables = &self.inner.statements.tables;
        let mut statement = tables[table].scan.clone();
        statement.set_page_size(i32::try_from(cursor.pace.rows()).unwrap_or(i32::MAX));
        let now = self.now();
        let page = self.inner.session.execute_single_page(&statement, (), state).await;
        let (rows, after) = page.map_err(|error: ExecutionError| self.unavailable(error))?;
        let rows = rows.into_rows_result().map_err(|error| self.unavailable(error))?;
        cursor.pace.note(&rows);
        for columns in self.columns(&rows)? {
            let columns = columns?;
            let key = stored_key(columns.p, columns.c)?;
            if let Some(record) = Seen::decode(&key, &columns)?.into_live(now) {
                cursor.fetched.push_back(Row { key, record });
            }
        }
        cursor.place = match after.into_paging_control_flow() {
            ControlFlow::Continue(state) => Some(Place { table, state }),
            ControlFlow::Break(()) if table + 1 < tables.len() => {
                Some(Place { table: table + 1, state: PagingState::start() })
            }
            ControlFlow::Break(()) => None,
        };
        Ok(rows.rows_num())
    }
}

fn stored_key(partition: &[u8], clustering: &[u8]) -> Result<Key, StoreError> {
    Key::stored(partition, clustering)
}

/// Where a scan of Cassandra goes on: in which table, and after which of its rows.
#[derive(Debug)]
pub struct CassandraScanCursor {
    /// None once both tables were read.
    place: Option<Place>,
    /// Rows that did not fit on the page before.
    fetched: VecDeque<Row>,
    pace: Pace,
}

#[derive(Debug)]
struct Place {
    table: usize,
    state: PagingState,
}

impl Default for CassandraScanCursor {
    fn default() -> Self {
        let place = Some(Place { table: 0, state: PagingState::start() });
        Self { place, fetched: VecDeque::new(), pace: Pace::new() }
    }
}

impl CassandraScanCursor {
    fn is_done(&self) -> bool {
        self.place.is_none() && self.fetched.is_empty()
    }
}

/// How many rows to ask for at once: few where they are large, as an answer comes whole.
#[derive(Debug)]
struct Pace(usize);

impl Pace {
    const LEAST: usize = 4;
    const MOST: usize = 512;

    fn new() -> Self {
        Self(4 * Self::LEAST)
    }

    fn rows(&self) -> usize {
        self.0
    }

    /// Asks for twice as many next time, if these were small.
    fn note(&mut self, rows: &QueryRowsResult) {
        let size = rows.rows_bytes_size() / rows.rows_num().max(1);
        let fitting = PAGE_BYTES / size.max(1);
        self.0 = fitting.min(self.0 * 2).clamp(Self::LEAST, Self::MOST);
    }
}
