//! Scans: the whole store, for backup and migration.

use std::collections::BTreeMap;

use super::case::{Case, Trial, cases};
use super::check::{self, CaseError, CaseResult};
use super::sample::{LONG, SHORT, lasting, pages_of, permanent, ttl};
use super::{Harness, sample};
use crate::store::{Fence, Key, PAGE_BYTES, PageLimit, Record, Row, ScanPage, Store};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Scan;
        Store: scan_shows_every_record_whole,
            scan_shows_every_key_once,
            scan_of_large_values_comes_in_pages,
            scan_shows_what_lives_throughout,
            abandoned_scan_leaves_no_trace;
        Time: scan_skips_what_has_expired,
    ]
}

/// The records of a trial that a scan showed, and how often it showed each.
type Picture = BTreeMap<Key, Vec<Record>>;

async fn scan_shows_every_record_whole<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let written = fill(trial).await?;
    for limit in [1_000, 10_000] {
        let seen = scan(trial, &store, pages_of(limit), None).await?;
        let keys = |picture: &mut dyn Iterator<Item = &Key>| picture.cloned().collect::<Vec<_>>();
        check::equal("keys", keys(&mut seen.keys()), keys(&mut written.keys()))?;
        for (key, record) in &written {
            let right = seen[key].iter().all(|shown| shown == record);
            check::that(right, format!("{:?} for {record:?}", seen[key]))?;
        }
    }
    Ok(())
}

/// Small pages, so that their seams are many.
async fn scan_shows_every_key_once<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let written = fill(trial).await?;
    for limit in [7, 64] {
        let seen = scan(trial, &store, pages_of(limit), None).await?;
        check::equal("keys", seen.len(), written.len())?;
        if trial.harness().consistent_scan() {
            let once = seen.values().all(|records| records.len() == 1);
            check::that(once, "a key is shown twice in one picture")?;
        }
    }
    Ok(())
}

async fn scan_of_large_values_comes_in_pages<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    for row in 0..24_u8 {
        let write = permanent(vec![row; 100 * 1024]);
        check::applied(store.put(&trial.row(format!("{}", row % 5), [row]), write).await?)?;
    }
    let seen = scan(trial, &store, PageLimit::MAX, None).await?;
    check::equal("keys", seen.len(), 24)?;
    for (key, records) in seen {
        let whole = vec![key.clustering()[0]; 100 * 1024];
        check::that(records.iter().all(|record| *record.value == whole), "a value was cut")?;
    }
    Ok(())
}

/// What is written while a scan runs is in its picture only where the picture is not consistent.
async fn scan_shows_what_lives_throughout<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let written = fill(trial).await?;
    let keys: Vec<Key> = written.keys().cloned().collect();
    let (changed, stays): (Vec<_>, Vec<_>) =
        keys.iter().enumerate().partition(|(at, _)| at % 3 == 0);
    let change = async || {
        for (at, key) in &changed {
            let Some(record) = store.get(key).await? else { continue };
            match at % 2 {
                0 => check::applied(store.put(key, permanent("changed")).await?)?,
                _ => check::applied(
                    store.compare_and_delete(key, &record.value, Fence(u64::MAX)).await?,
                )?,
            };
        }
        for row in 0..20 {
            check::applied(store.put(&trial.row("later", [row]), permanent("later")).await?)?;
        }
        Ok::<_, CaseError>(())
    };
    let first = store.scan(None, pages_of(5)).await?;
    change().await?;
    let seen = scan(trial, &store, pages_of(5), Some(first)).await?;
    for (_, key) in stays {
        let shown = seen.get(key).map(Vec::as_slice).unwrap_or_default();
        let right = shown.iter().all(|record| *record == written[key]) && !shown.is_empty();
        check::that(right, format!("{shown:?} for {key:?}, which nobody touched"))?;
    }
    if trial.harness().consistent_scan() {
        let before = written.into_iter().map(|(key, record)| (key, vec![record]));
        check::equal("the picture", seen, before.collect())?;
    }
    Ok(())
}

async fn abandoned_scan_leaves_no_trace<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let written = fill(trial).await?;
    for _ in 0..50 {
        drop(store.scan(None, pages_of(1)).await?);
    }
    let Some(key) = written.keys().next() else { return Ok(()) };
    check::applied(store.put(key, permanent("after").fenced(Fence(u64::MAX))).await?)?;
    let seen = scan(trial, &store, pages_of(1_000), None).await?;
    check::equal("keys", seen.len(), written.len())?;
    let shown = seen.get(key).and_then(|records| records.last().cloned());
    check::holds(shown, b"after")?;
    Ok(())
}

async fn scan_skips_what_has_expired<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let lives = [lasting("short", SHORT), lasting("long", LONG), permanent("permanent")];
    for (row, write) in lives.into_iter().cycle().take(30).enumerate() {
        check::applied(store.put(&trial.row("p", format!("{row}")), write).await?)?;
    }
    trial.outlive(ttl(SHORT)).await;
    let seen = scan(trial, &store, pages_of(1_000), None).await?;
    let expired = seen.values().flatten().any(|record| &record.value[..] == b"short");
    check::that(!expired, "an expired record is shown")?;
    check::equal("keys", seen.len(), 20)
}

/// Forty records of all kinds in several partitions.
async fn fill<H: Harness>(trial: &Trial<'_, H>) -> Result<BTreeMap<Key, Record>, CaseError> {
    let store = trial.store();
    let mut written = BTreeMap::new();
    for at in 0..40_u8 {
        let clustering = vec![at % 8; usize::from(at / 8)];
        let key = trial.row(format!("{}", at % 8), clustering);
        let write = if at % 2 == 0 { permanent([at]) } else { lasting("", LONG) };
        let write = write.fenced(Fence(u64::from(at)));
        let expires_at = check::applied(store.put(&key, write.clone()).await?)?;
        let record = Record { value: sample::value(&*write.value), expires_at, fence: write.fence };
        written.insert(key, record);
    }
    Ok(written)
}

/// Scans the store to its end, from the given page on, and keeps what belongs to the trial.
async fn scan<H: Harness>(
    trial: &Trial<'_, H>,
    store: &H::Store,
    limit: PageLimit,
    first: Option<ScanPage<<H::Store as Store>::ScanCursor>>,
) -> Result<Picture, CaseError> {
    let mut picture = Picture::new();
    let mut page = match first {
        Some(page) => page,
        None => store.scan(None, limit).await?,
    };
    loop {
        check::that(page.rows.len() <= limit.rows(), "a page holds more rows than its limit")?;
        let but_last = page.rows.iter().rev().skip(1);
        let bytes: usize = but_last.map(|row| row.key.size() + row.record.value.len()).sum();
        check::that(bytes < PAGE_BYTES, "a page goes on after its keys and values reach 1 MiB")?;
        for Row { key, record } in page.rows {
            if key.partition().starts_with(trial.prefix()) {
                picture.entry(key).or_default().push(record);
            }
        }
        match page.next {
            Some(next) => page = store.scan(Some(next), limit).await?,
            None => return Ok(picture),
        }
    }
}
