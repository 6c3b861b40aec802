//! The log of an institution: immutable rows of messages, in the order of their sequence.
//!
//! A row is inserted where none is, at the sequence after the last one, and never changed. So a
//! row that exists had all rows before it, and one that is missing below it has expired.
//!
//! Invariants:
//! - No gaps: a row is inserted at a sequence only by who has seen the row before it, or that it
//!   had been there.
//! - No message is put below `head`, where nobody would look for it: see `appending`.
//!
//! Flow: `appending` seals what comes in and inserts it, `row` is what a row looks like, `window`
//! reads what comes next for `record`, `tail` says where the log ends once rows expire and `end` finds
//! it; `span` reads the rows of a time, which `times` finds.

mod appending;
mod end;
mod row;
mod span;
mod tail;
mod times;
mod window;

pub(super) use appending::{Ingest, attend};
pub(super) use end::log_end;
pub(super) use row::SealedRow;
pub(super) use span::{DamagedRow, Found, Span, SpanRow};
pub(super) use tail::{Tail, tail_key};
pub(super) use times::MARGIN;
pub(super) use window::{Demand, Window, first_rows, read_rows};

use super::Ispb;
use crate::store::{Key, Keyspace, Partition, StoreError};

/// Rows of one partition. With the longest rows it takes 60 MiB.
pub(super) const ROWS_PER_RANGE: u64 = 256;

/// The range that a row lies in, which is its partition.
pub(super) fn range_of_row(row: u64) -> u64 {
    row / ROWS_PER_RANGE
}

/// Where the rows of an institution lie: its home region and its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) region: &'a str,
    pub(super) ispb: Ispb,
}

impl Place<'_> {
    fn bytes(&self) -> Vec<u8> {
        // At most 32 bytes, so the length fits in one.
        let length = [self.region.len() as u8];
        [&length, self.region.as_bytes(), self.ispb.as_bytes()].concat()
    }

    pub(super) fn log_partition(&self, range: u64) -> Result<Partition, StoreError> {
        Keyspace::PullStreamLog.partition(&[&self.bytes()[..], &range.to_be_bytes()].concat())
    }

    pub(super) fn row_key(&self, row: u64) -> Result<Key, StoreError> {
        let partition = self.log_partition(range_of_row(row))?;
        Key::new(partition.as_bytes(), &row.to_be_bytes())
    }

    /// What is known of a row that is under a hold.
    pub(super) fn mark_key(&self, row: u64) -> Result<Key, StoreError> {
        let range = range_of_row(row).to_be_bytes();
        let marks = [&self.bytes()[..], b"m", &range].concat();
        let partition = Keyspace::PullStreamState.partition(&marks)?;
        Key::new(partition.as_bytes(), &row.to_be_bytes())
    }

    /// A record beside the state.
    pub(super) fn state_key(&self, name: &str) -> Result<Key, StoreError> {
        let partition = Keyspace::PullStreamState.partition(&self.bytes())?;
        Key::new(partition.as_bytes(), name.as_bytes())
    }

    /// The record of a replay, in a partition of its own.
    pub(super) fn replay_key(&self, id: &[u8; 16]) -> Result<Key, StoreError> {
        let rest = [&self.bytes()[..], b"replay", id].concat();
        Key::new(Keyspace::PullStreamState.partition(&rest)?.as_bytes(), b"")
    }

    pub(super) fn audit_partition(&self, chain: u8, range: u64) -> Result<Partition, StoreError> {
        let rest = [&self.bytes()[..], &[chain], &range.to_be_bytes()].concat();
        Keyspace::Audit.partition(&rest)
    }
}
