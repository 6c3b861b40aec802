//! The statements: prepared once per table, everything bound, nothing printed into them.
//!
//! A write is an `UPDATE` of the whole row, never an `INSERT`: an insert leaves a row marker with a
//! life of its own, which a later update to a shorter life does not touch, and the row would haunt
//! every condition. The native TTL is bound too, so that lives need no statements of their own.
//!
//! A refused condition gives back the columns that it names, so it names whatever the next step
//! needs. `op != ?`, bound to the id of this very operation, is such a name: it holds always.
//! A null equals null and differs from everything else, and no other comparison with it holds.

use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use wane::store::Keyspace;

use super::schema::{RECORDS, STREAM_LOG};

/// The statements of one table.
#[derive(Debug)]
pub(super) struct Table {
    /// Where there is no record, also no expired one.
    pub(super) insert: PreparedStatement,
    /// Over a live value without a stamp.
    pub(super) swap: PreparedStatement,
    /// Over a live value with a stamp that the write may replace.
    pub(super) fenced_swap: PreparedStatement,
    /// Over anything without a stamp, and over nothing.
    pub(super) put: PreparedStatement,
    /// Over anything with a stamp that the write may replace.
    pub(super) fenced_put: PreparedStatement,
    /// Over exactly the row that was seen: what any write comes down to.
    pub(super) exact: PreparedStatement,
    pub(super) get: PreparedStatement,
    pub(super) get_some: PreparedStatement,
    /// Rows from a clustering on.
    pub(super) from: PreparedStatement,
    /// Rows from a clustering on, up to another.
    pub(super) between: PreparedStatement,
    pub(super) scan: PreparedStatement,
}

impl Table {
    async fn prepare(session: &Session, table: &str) -> Result<Self, PrepareError> {
        let set = format!(
            "UPDATE {table} USING TTL ? SET v = ?, exp = ?, fence = ?, op = ? \
             WHERE p = ? AND c = ? IF"
        );
        let select = format!("SELECT c, v, exp, fence, op FROM {table} WHERE p = ? AND c");
        let write = async |condition: &str| session.prepare(format!("{set} {condition}")).await;
        let read = async |rows: &str| {
            let mut statement = session.prepare(format!("{select} {rows}")).await?;
            // What a conditional write was acknowledged with is seen, and what is seen stays.
            statement.set_consistency(Consistency::Serial);
            Ok::<_, PrepareError>(statement)
        };
        Ok(Self {
            insert: write("v = null AND exp = null AND fence = null AND op != ?").await?,
            swap: write("v = ? AND exp > ? AND fence = null AND op != ?").await?,
            fenced_swap: write("v = ? AND exp > ? AND fence <= ? AND op != ?").await?,
            put: write("fence = null AND op != ?").await?,
            fenced_put: write("fence <= ? AND op != ?").await?,
            exact: write("op = ?").await?,
            get: read("= ?").await?,
            get_some: read("IN ?").await?,
            from: read(">= ? LIMIT ?").await?,
            between: read(">= ? AND c < ? LIMIT ?").await?,
            scan: session.prepare(format!("SELECT p, c, v, exp, fence FROM {table}")).await?,
        })
    }
}

/// All statements of a store.
#[derive(Debug)]
pub(super) struct Statements {
    /// In the order of a scan.
    pub(super) tables: [Table; 2],
    pub(super) time: PreparedStatement,
}

impl Statements {
    pub(super) async fn prepare(session: &Session, keyspace: &str) -> Result<Self, PrepareError> {
        let records = Table::prepare(session, &format!("{keyspace}.{RECORDS}")).await?;
        let stream_log = Table::prepare(session, &format!("{keyspace}.{STREAM_LOG}")).await?;
        let time = "SELECT toUnixTimestamp(now()) FROM system.local";
        let mut time = session.prepare(time).await?;
        time.set_consistency(Consistency::One);
        Ok(Self { tables: [records, stream_log], time })
    }

    /// The statements of the table that holds `partition`.
    pub(super) fn of(&self, partition: &[u8]) -> &Table {
        let [records, stream_log] = &self.tables;
        if partition.starts_with(&Keyspace::PullStreamLog.prefix()) { stream_log } else { records }
    }
}
