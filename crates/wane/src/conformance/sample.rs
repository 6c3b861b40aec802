//! What the cases are told with: writes, lives, and whole ranges read page by page.

use super::check::{self, CaseError};
use crate::store::{
    ClusteringRange, Life, PAGE_BYTES, PageLimit, Partition, Row, Store, Ttl, Value, Write,
};

/// The life of records that expire within a case: long enough for a few calls to a remote store,
/// and no whole second, so that rounding shows.
pub(super) const SHORT: u64 = 1_501;

/// The life of records that expire only after the case: an hour.
pub(super) const LONG: u64 = 3_600_000;

pub(super) fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).expect("cases use legal lives")
}

pub(super) fn value(bytes: impl AsRef<[u8]>) -> Value {
    Value::new(bytes.as_ref().to_vec()).expect("cases use legal values")
}

/// A write that does not expire.
pub(super) fn permanent(bytes: impl AsRef<[u8]>) -> Write {
    Write::new(value(bytes), Life::Permanent)
}

/// A write that expires after so many milliseconds.
pub(super) fn lasting(bytes: impl AsRef<[u8]>, millis: u64) -> Write {
    Write::new(value(bytes), Life::For(ttl(millis)))
}

/// A write that keeps the expiry of what it replaces.
pub(super) fn keeping(bytes: impl AsRef<[u8]>) -> Write {
    Write::new(value(bytes), Life::Keep)
}

pub(super) fn pages_of(rows: usize) -> PageLimit {
    PageLimit::new(rows).expect("cases use legal limits")
}

pub(super) fn range(start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> ClusteringRange {
    let (start, end) = (start.as_ref().to_vec(), end.as_ref().to_vec());
    ClusteringRange::new(start, end).expect("cases use legal bounds")
}

/// Reads a range to its end, and checks what every page must keep: its limits, its bounds, the
/// order, and that a page without rows is not followed by rows.
pub(super) async fn read_all(
    store: &impl Store,
    partition: &Partition,
    range: &ClusteringRange,
    limit: PageLimit,
) -> Result<Vec<Row>, CaseError> {
    let mut all: Vec<Row> = Vec::new();
    let mut rest = Some(range.clone());
    let mut ended = false;
    while let Some(left) = rest {
        let page = store.read(partition, &left, limit).await?;
        check::that(page.rows.len() <= limit.rows(), "a page holds more rows than its limit")?;
        check::that(fits(&page.rows), "a page goes on after its keys and values reach 1 MiB")?;
        check::that(!ended || page.rows.is_empty(), "rows follow on a page without any")?;
        ended |= page.rows.is_empty();
        all.extend(page.rows);
        check::that(all.len() <= 100_000, "the pages do not end")?;
        rest = page.rest;
        let goes_on = rest.as_ref().is_none_or(|rest| rest.start() > left.start() || ended);
        check::that(goes_on, "a page ends where it began")?;
    }
    for row in &all {
        check::that(row.key.partition() == partition.as_bytes(), "a row of another partition")?;
        check::that(range.contains(row.key.clustering()), "a row outside of the range")?;
    }
    let ascending = all.is_sorted_by(|a, b| a.key.clustering() < b.key.clustering());
    check::that(ascending, "rows do not ascend, or come twice")?;
    Ok(all)
}

/// Whether the page would have been too small without its last row.
fn fits(rows: &[Row]) -> bool {
    let before_last = rows.iter().rev().skip(1);
    before_last.map(|row| row.key.size() + row.record.value.len()).sum::<usize>() < PAGE_BYTES
}

/// The clusterings of a range, as the store gives them.
pub(super) async fn clusterings(
    store: &impl Store,
    partition: &Partition,
    range: &ClusteringRange,
) -> Result<Vec<Vec<u8>>, CaseError> {
    let rows = read_all(store, partition, range, PageLimit::MAX).await?;
    Ok(rows.iter().map(|row| row.key.clustering().to_vec()).collect())
}

/// Byte strings as a vector, to compare with [`clusterings`].
pub(super) fn list<B: AsRef<[u8]>>(items: impl IntoIterator<Item = B>) -> Vec<Vec<u8>> {
    items.into_iter().map(|item| item.as_ref().to_vec()).collect()
}
