//! Expiry on disk: what writers feel when 100,000 records expire at once, and what the file weighs
//! before and after.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use wane::store::{Life, Ttl};

use super::contest::{Contestant, Operation, Trial};
use super::peers::WaneFile;
use super::tasks::plain;
use super::{NAMES, records};
use crate::plot::{Chart, Scale};
use crate::report::{Report, Row};
use crate::{BoxError, timing};

const EXPIRING: u64 = 100_000;
const WRITERS: usize = 16;

/// Runs both parts in directories of their own.
pub(super) fn run(scratch: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    under_load(&scratch.join("sweep"), quick, report)?;
    weight(&scratch.join("weight"), quick, report)
}

/// The same writers before the expiry and right from it on.
fn under_load(directory: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let window = Duration::from_millis(if quick { 1_000 } else { 5_000 });
    let store = WaneFile::open(directory)?;
    let deadline = load_and_leave(&store, EXPIRING, window)?;
    let trial =
        Trial { operation: Operation::Insert, callers: WRITERS, slice: window, records: EXPIRING };
    let calm = store.run(trial)?;
    timing::pause_until(deadline);
    let storm = store.run(trial)?;
    for (setting, measured) in [("before", calm), ("while 100 k expire", storm)] {
        report.row(Row {
            table: "file: 16 durable writers and the sweep".into(),
            subject: "wane".into(),
            setting: setting.into(),
            measures: measured.columns(),
            note: None,
        });
    }
    report.bar(
        "file p99 of 16 durable writers: 3 x before / while 100 k expire (at most 3 x)",
        (Some(3.0 * calm.p99), Some(storm.p99)),
        1.0,
    );
    Ok(())
}

/// The file after a load, and how far it falls once all of it has expired.
fn weight(directory: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let (records, patience) = if quick { (EXPIRING, 4) } else { (10 * EXPIRING, 90) };
    let store = WaneFile::open(directory)?;
    let deadline = load_and_leave(&store, records, Duration::ZERO)?;
    let loaded = bytes_in(directory)?;
    timing::pause_until(deadline);
    let give_up = deadline + Duration::from_secs(patience);
    let mut after = loaded;
    while after > loaded / 4 && timing::now() < give_up {
        timing::pause(Duration::from_millis(100));
        after = bytes_in(directory)?;
    }
    let mib = |bytes: u64| Some(bytes as f64 / f64::from(1 << 20));
    report.row(Row {
        table: "file: weight on disk when everything expires".into(),
        subject: "wane".into(),
        setting: format!("{} k records", records / 1_000),
        measures: vec![
            ("loaded MiB".into(), mib(loaded)),
            ("expired MiB".into(), mib(after)),
            ("records left".into(), Some(store.stored_records()? as f64)),
            ("seconds after expiry".into(), Some(deadline.elapsed().as_secs_f64())),
        ],
        note: None,
    });
    Ok(())
}

/// Loads records that expire together at the instant returned, with at least `window` to go.
/// Nobody knows how long a load takes, so each try that was too slow gives the next one more time.
fn load_and_leave(store: &WaneFile, records: u64, window: Duration) -> Result<Instant, BoxError> {
    let mut allowance = Duration::from_millis(records / 50);
    loop {
        let deadline = timing::now() + allowance + window;
        store.load_with(0..records, || plain(Life::For(life_until(deadline))))?;
        if deadline.saturating_duration_since(timing::now()) >= window {
            return Ok(deadline);
        }
        allowance *= 2;
    }
}

/// Adds what a contestant occupies after its load.
pub(super) fn report_size(
    report: &mut Report,
    name: &str,
    directory: &Path,
    records: u64,
) -> Result<(), BoxError> {
    let bytes = bytes_in(directory)? as f64;
    report.row(Row {
        table: "file: size on disk after the load (24 bytes of key, 32 of value)".into(),
        subject: name.into(),
        setting: size_setting(records),
        measures: vec![
            ("MiB".into(), Some(bytes / f64::from(1 << 20))),
            ("bytes/record".into(), Some(bytes / records as f64)),
        ],
        note: None,
    });
    Ok(())
}

fn size_setting(records: u64) -> String {
    format!("{} k records loaded", records / 1_000)
}

/// Bytes for each record by contestant.
pub(super) fn size_chart(report: &Report, quick: bool) -> Chart {
    let setting = size_setting(records(quick));
    let bytes = |name: &&str| report.find(name, &setting, "bytes/record");
    Chart {
        title: "file: bytes on disk for each record of 56 bytes, after the load (less is better)"
            .into(),
        y_label: "bytes for each record".into(),
        scale: Scale::Linear,
        series: NAMES.map(str::to_owned).to_vec(),
        groups: vec![(setting.clone(), NAMES.iter().map(bytes).collect())],
    }
}

fn life_until(deadline: Instant) -> Ttl {
    let left = deadline.saturating_duration_since(timing::now());
    Ttl::try_from(left.max(Duration::from_millis(1))).expect("a few seconds are a legal life")
}

/// Bytes that the files below `directory` occupy on disk, holes left out.
pub(super) fn bytes_in(directory: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_in(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}
