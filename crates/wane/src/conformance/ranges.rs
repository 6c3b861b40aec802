//! Ranges: half-open, in the order of bytes, complete whatever the size of a page.

use std::ops::ControlFlow;

use super::case::{Case, Trial, cases};
use super::check::{self, CaseResult};
use super::reads::whole;
use super::sample::{clusterings, list, pages_of, permanent, range, read_all};
use super::{CaseError, Harness};
use crate::store::{
    ClusteringRange, Fence, MAX_CLUSTERING, MAX_VALUE, PAGE_BYTES, PageLimit, Row, Store,
    StoreError, for_each_row,
};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Ranges;
        Store: whole_partition_ascends_by_bytes,
            bounds_inside_the_partition,
            start_only_reads_to_the_last_row,
            end_only_reads_from_the_first_row,
            both_bounds_empty_read_everything,
            start_at_or_beyond_the_end_reads_nothing,
            row_on_the_start_is_in_and_on_the_end_is_out,
            keys_that_are_prefixes_of_a_bound,
            every_range_over_a_set_of_bounds,
            prefix_ranges_hold_exactly_their_prefix,
            pages_join_to_the_whole_range,
            bounds_hold_on_every_page,
            pages_go_on_past_the_longest_keys,
            page_ends_early_under_large_values,
            range_larger_than_a_page_comes_complete,
            large_rows_fill_a_page_alone,
            pages_go_on_while_rows_change,
            consumer_that_stops_ends_the_read,
            error_of_a_consumer_ends_the_read_and_comes_back,
    ]
}

async fn whole_partition_ascends_by_bytes<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    // Orders that are not that of bytes: signed bytes, letters without case, numbers, length.
    let ordered: [&[u8]; 9] = [b"", b"10", b"9", b"B", b"a", b"aa", b"b", b"\x80", b"\xFE\x01"];
    for at in [3, 8, 0, 6, 1, 5, 7, 2, 4] {
        check::applied(store.put(&trial.row("p", ordered[at]), permanent(ordered[at])).await?)?;
    }
    // Rows of partitions next to it stay out.
    for neighbour in ["o", "p\0", "pp", "q"] {
        check::applied(store.put(&trial.row(neighbour, "a"), permanent("x")).await?)?;
    }
    let rows = whole(&store, &trial.partition("p")).await?;
    let values = rows.iter().map(|row| row.record.value.to_vec()).collect();
    check::equal("rows", values, list(ordered))
}

/// Rows of the cases about bounds.
const ROWS: [&str; 7] = ["", "a", "ab", "abc", "abd", "b", "c"];

async fn reads<H: Harness>(
    trial: &Trial<'_, H>,
    start: &str,
    end: &str,
    expected: &[&str],
) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    for row in ROWS {
        check::applied(store.put(&trial.row("p", row), permanent("v")).await?)?;
    }
    let found = clusterings(&store, &partition, &range(start, end)).await?;
    check::equal(&format!("rows from {start:?} to {end:?}"), found, list(expected))
}

async fn bounds_inside_the_partition<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    reads(trial, "aa", "bb", &["ab", "abc", "abd", "b"]).await
}

async fn start_only_reads_to_the_last_row<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    reads(trial, "ac", "", &["b", "c"]).await
}

async fn end_only_reads_from_the_first_row<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    reads(trial, "", "aba", &["", "a", "ab"]).await
}

async fn both_bounds_empty_read_everything<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    reads(trial, "", "", &ROWS).await
}

async fn start_at_or_beyond_the_end_reads_nothing<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    reads(trial, "b", "a", &[]).await?;
    reads(trial, "b", "b", &[]).await?;
    reads(trial, "bx", "bx", &[]).await?;
    reads(trial, "abc", "ab", &[]).await?;
    reads(trial, "z", "", &[]).await
}

async fn row_on_the_start_is_in_and_on_the_end_is_out<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    reads(trial, "ab", "b", &["ab", "abc", "abd"]).await?;
    reads(trial, "c", "", &["c"]).await?;
    reads(trial, "", "a", &[""]).await
}

async fn keys_that_are_prefixes_of_a_bound<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    reads(trial, "ab", "abd", &["ab", "abc"]).await?;
    reads(trial, "aba", "abdd", &["abc", "abd"]).await?;
    reads(trial, "a", "ab", &["a"]).await?;
    reads(trial, "a\0", "ab\0", &["ab"]).await
}

async fn every_range_over_a_set_of_bounds<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    let rows: [&[u8]; 7] = [b"", b"\0", b"\0\xFF", b"m", b"mm", b"\xFF", b"\xFF\0"];
    for row in rows {
        check::applied(store.put(&trial.row("p", row), permanent("v")).await?)?;
    }
    let between: [&[u8]; 4] = [b"\0\0", b"m\0", b"\x80", b"\xFF\xFF"];
    let bounds: Vec<&[u8]> = rows.into_iter().chain(between).collect();
    for start in &bounds {
        for end in &bounds {
            let inside = |row: &&[u8]| row >= start && (end.is_empty() || row < end);
            let expected = list(rows.into_iter().filter(inside));
            let found = clusterings(&store, &partition, &range(start, end)).await?;
            let (start, end) = (start.escape_ascii(), end.escape_ascii());
            check::equal(&format!("rows from {start} to {end}"), found, expected)?;
        }
    }
    Ok(())
}

async fn prefix_ranges_hold_exactly_their_prefix<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    let rows: [&[u8]; 7] = [b"a", b"a\0", b"a\xFF", b"a\xFF\xFF", b"b", b"\xFF", b"\xFF\xFFx"];
    for row in rows {
        check::applied(store.put(&trial.row("p", row), permanent("v")).await?)?;
    }
    for prefix in [&b""[..], b"a", b"a\xFF", b"\xFF", b"\xFF\xFF", b"c"] {
        let expected = list(rows.into_iter().filter(|row| row.starts_with(prefix)));
        let prefix = ClusteringRange::prefix(prefix)?;
        let found = clusterings(&store, &partition, &prefix).await?;
        check::equal(&format!("rows of {prefix:?}"), found, expected)?;
    }
    Ok(())
}

async fn pages_join_to_the_whole_range<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    let names: Vec<String> = (0..60).map(|row| format!("{row:03}")).collect();
    fill(trial, &names).await?;
    for limit in [1, 2, 7, 30, 59, 60, 61, 10_000] {
        let rows = read_all(&store, &partition, &ClusteringRange::ALL, pages_of(limit)).await?;
        let found = rows.iter().map(|row| row.key.clustering().to_vec()).collect();
        check::equal(&format!("rows in pages of {limit}"), found, list(&names))?;
    }
    Ok(())
}

async fn bounds_hold_on_every_page<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    let names: Vec<String> = (0..60).map(|row| format!("{row:03}")).collect();
    fill(trial, &names).await?;
    for limit in [1, 4, 7] {
        let rows = read_all(&store, &partition, &range("010", "050"), pages_of(limit)).await?;
        let found = rows.iter().map(|row| row.key.clustering().to_vec()).collect();
        check::equal(&format!("rows in pages of {limit}"), found, list(&names[10..50]))?;
    }
    Ok(())
}

async fn pages_go_on_past_the_longest_keys<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    let long = |first: u8, last: u8| {
        let mut bytes = vec![b'x'; MAX_CLUSTERING - usize::from(first == 0)];
        bytes[0] = first;
        *bytes.last_mut().expect("it is long") = last;
        bytes
    };
    let ends = [(0, 0), (0, 0xFF), (b'a', 0), (b'a', 0xFF), (b'b', 1), (0xFF, 0), (0xFF, 0xFF)];
    let mut names: Vec<_> = ends.map(|(first, last)| long(first, last)).to_vec();
    names.push(vec![0xFF; MAX_CLUSTERING]);
    fill(trial, &names).await?;
    for limit in [1, 3] {
        let rows = read_all(&store, &partition, &ClusteringRange::ALL, pages_of(limit)).await?;
        check::equal("rows", rows.len(), names.len())?;
    }
    Ok(())
}

async fn page_ends_early_under_large_values<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let large = vec![7; MAX_VALUE];
    for row in 0..8 {
        check::applied(store.put(&trial.row("p", [row]), permanent(&large)).await?)?;
    }
    let range = ClusteringRange::ALL;
    let page = store.read(&trial.partition("p"), &range, PageLimit::MAX).await?;
    check::that(!page.rows.is_empty(), "the first page is empty")?;
    let most = PAGE_BYTES / MAX_VALUE;
    check::that(page.rows.len() <= most, format!("{} rows on a page", page.rows.len()))?;
    check::that(page.rest.is_some(), "the first page claims to be the last one")
}

async fn range_larger_than_a_page_comes_complete<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    for row in 0..48_u8 {
        let bytes = vec![row; 64 * 1024];
        check::applied(store.put(&trial.row("p", [row]), permanent(bytes)).await?)?;
    }
    let mut seen = 0;
    let counted = for_each_row(&store, &partition, ClusteringRange::ALL, |row: Row| {
        let right = row.key.clustering() == [seen] && *row.record.value == vec![seen; 64 * 1024];
        check::that(right, format!("row {:?} in place of {seen}", row.key))?;
        seen += 1;
        Ok::<_, CaseError>(ControlFlow::Continue(()))
    });
    counted.await?;
    check::equal("rows", seen, 48)?;
    check::equal("rows", whole(&store, &partition).await?.len(), 48)?;
    let some = read_all(&store, &partition, &range([10], [40]), pages_of(17)).await?;
    check::equal("rows of a part", some.len(), 30)
}

async fn large_rows_fill_a_page_alone<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    for row in 0..6_u8 {
        check::applied(store.put(&trial.row("p", [row]), permanent(vec![row; MAX_VALUE])).await?)?;
    }
    for limit in [1, 5, 10_000] {
        let rows = read_all(&store, &partition, &ClusteringRange::ALL, pages_of(limit)).await?;
        check::equal(&format!("rows in pages of {limit}"), rows.len(), 6)?;
    }
    Ok(())
}

/// Rows that stay are seen once, though others come and go between two pages.
async fn pages_go_on_while_rows_change<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    let names: Vec<String> = (0..20).map(|row| format!("{row:02}")).collect();
    fill(trial, &names).await?;
    let first = store.read(&partition, &ClusteringRange::ALL, pages_of(5)).await?;
    let rest = first.rest.ok_or_else(|| CaseError::new("the first page has no rest"))?;
    check::equal("rows on the first page", first.rows.len(), 5)?;
    for gone in ["04", "05", "06", "19"] {
        let key = trial.row("p", gone);
        check::applied(store.compare_and_delete(&key, b"v", Fence::NONE).await?)?;
    }
    check::applied(store.put(&trial.row("p", "00x"), permanent("v")).await?)?;
    let left = read_all(&store, &partition, &rest, pages_of(5)).await?;
    let found = left.iter().map(|row| row.key.clustering().to_vec()).collect();
    check::equal("rows after the change", found, list(&names[7..19]))
}

async fn consumer_that_stops_ends_the_read<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    fill(trial, &["a", "b", "c", "d"]).await?;
    let mut seen = Vec::new();
    let read = for_each_row(&store, &partition, ClusteringRange::ALL, |row: Row| {
        seen.push(row.key.clustering().to_vec());
        let flow = if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        Ok::<_, StoreError>(flow)
    });
    read.await?;
    check::equal("rows handed over", seen, list(["a", "b"]))
}

async fn error_of_a_consumer_ends_the_read_and_comes_back<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    fill(trial, &["a", "b", "c"]).await?;
    let mut seen = Vec::new();
    let read = for_each_row(&store, &partition, ClusteringRange::ALL, |row: Row| {
        seen.push(row.key.clustering().to_vec());
        Err(Consumer::Failed)
    });
    let answer = read.await;
    check::that(matches!(answer, Err(Consumer::Failed)), format!("{answer:?} came back"))?;
    check::equal("rows handed over", seen, list(["a"]))
}

#[derive(Debug)]
enum Consumer {
    Failed,
    Store,
}

impl From<StoreError> for Consumer {
    fn from(_: StoreError) -> Self {
        Self::Store
    }
}

/// Writes rows with these clusterings into the partition `p`.
async fn fill<H: Harness>(trial: &Trial<'_, H>, names: &[impl AsRef<[u8]>]) -> CaseResult {
    let row = |name: &_| (trial.row("p", name), permanent("v"));
    for outcome in trial.store().put_batch(names.iter().map(row).collect()).await? {
        check::applied(outcome)?;
    }
    Ok(())
}
