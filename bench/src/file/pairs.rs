//! Wane beside the peer that shares its syncs as well, where the other stores have no part: leases
//! that are renewed, rows that were just written, large values, a slow disk.

use std::path::Path;
use std::time::Duration;

use wane_backends::file::SlowDisk;

use super::contest::{Operation, Trial};
use super::peers::{RedbGroup, WaneFile};
use super::tasks::{Load, TaskContestant};
use super::{GROUP, rate_bar, records, setting};
use crate::measured::Measured;
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// What the slow disk adds to each sync.
const SYNC_PAUSE: Duration = Duration::from_millis(2);

/// A value that lies beside the tree.
const LARGE_VALUE: usize = 100 << 10;

/// How many leases are kept alive, all over a store of other records.
const LEASES: u64 = 10_000;

/// The rows of a range over young rows.
const YOUNG_RANGE: usize = 100;

/// Reads of young rows, and the bar of each.
const YOUNG_CELLS: [(Operation, usize, f64); 4] = [
    (Operation::Get, 1, 0.9),
    (Operation::Get, 2, 0.9),
    (Operation::Range, 1, 0.8),
    (Operation::Range, 2, 0.8),
];

/// Wane and its peer, in directories of their own.
type Pair = [Box<dyn TaskContestant>; 2];

/// Compares them in a directory of its own, adds the rows and the bars.
type Comparison = fn(&Path, bool, &mut Report) -> Result<(), BoxError>;

/// Runs each comparison on stores of its own.
pub(super) fn run(scratch: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let directory = scratch.join("pairs");
    let comparisons: [Comparison; 4] = [leases, young_rows, large_values, slow_disk];
    for compare in comparisons {
        compare(&directory, quick, report)?;
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(())
}

fn open(directory: &Path) -> Result<Pair, BoxError> {
    let [wane, group] = places(directory)?;
    Ok([Box::new(WaneFile::open(&wane)?), Box::new(RedbGroup::open(&group)?)])
}

fn open_on_slow(disk: SlowDisk, directory: &Path) -> Result<Pair, BoxError> {
    let [wane, group] = places(directory)?;
    let wane = WaneFile::open_on_slow(disk, &wane)?;
    Ok([Box::new(wane), Box::new(RedbGroup::open_on_slow(disk, &group)?)])
}

fn places(directory: &Path) -> std::io::Result<[std::path::PathBuf; 2]> {
    std::fs::create_dir_all(directory)?;
    Ok(["wane", "group"].map(|name| directory.join(name)))
}

fn leases(directory: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let (pair, records) = (open(directory)?, records(quick));
    load(&pair, records)?;
    let trial = Trial {
        operation: Operation::Renew,
        callers: 128,
        slice: write_slice(quick),
        records: LEASES,
    };
    let setting = format!(
        "{} of {} k leases among {} k records",
        setting(trial.operation, 128),
        LEASES / 1_000,
        records / 1_000
    );
    let leases = Load { every: records / LEASES, ..Load::default() };
    compare(&pair, &setting, (trial, &leases), report)?;
    rate_bar(report, &setting, GROUP, 10.0);
    Ok(())
}

fn large_values(directory: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let pair = open(directory)?;
    let trial =
        Trial { operation: Operation::Insert, callers: 16, slice: write_slice(quick), records: 0 };
    let setting = format!("{}, {} KiB values", setting(trial.operation, 16), LARGE_VALUE >> 10);
    compare(&pair, &setting, (trial, &Load::of_bytes(LARGE_VALUE)?), report)?;
    rate_bar(report, &setting, GROUP, 1.0);
    Ok(())
}

fn slow_disk(directory: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let pair = open_on_slow(SlowDisk { pause: SYNC_PAUSE }, directory)?;
    load(&pair, records(quick))?;
    let trial = Trial {
        operation: Operation::Insert,
        callers: 128,
        slice: write_slice(quick),
        records: records(quick),
    };
    let setting =
        format!("{}, {} ms more a sync", setting(trial.operation, 128), SYNC_PAUSE.as_millis());
    compare(&pair, &setting, (trial, &Load::default()), report)?;
    rate_bar(report, &setting, GROUP, 1.5);
    Ok(())
}

/// Reads right after the rows were written, round after round: they age while they are read.
fn young_rows(directory: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let (records, rounds, slice) = if quick { (50_000, 3, 100) } else { (500_000, 5, 300) };
    let slice = Duration::from_millis(slice);
    let load = Load { rows: YOUNG_RANGE, ..Load::default() };
    let pair = open(directory)?;
    timing::stage(&format!("file: reads of {} k young rows", records / 1_000));
    let mut measured = YOUNG_CELLS.map(|_| [Vec::new(), Vec::new()]);
    for _ in 0..rounds {
        for (store, contestant) in pair.iter().enumerate() {
            contestant.load(0..records)?;
            for (cell, (operation, callers, _)) in YOUNG_CELLS.into_iter().enumerate() {
                let trial = Trial { operation, callers, slice, records };
                measured[cell][store].push(contestant.run_with(trial, &load)?.measured);
            }
        }
    }
    for ((operation, callers, at_least), measured) in YOUNG_CELLS.into_iter().zip(&measured) {
        let callers = setting(operation, callers);
        let callers = callers.replacen("range", &format!("range({YOUNG_RANGE})"), 1);
        let setting = format!("{callers}, {} k young rows", records / 1_000);
        add_rows(report, &pair, &setting, measured)?;
        rate_bar(report, &setting, GROUP, at_least);
    }
    Ok(())
}

fn load(pair: &Pair, records: u64) -> Result<(), BoxError> {
    pair.iter().try_for_each(|contestant| contestant.load(0..records))
}

fn write_slice(quick: bool) -> Duration {
    Duration::from_millis(if quick { 300 } else { 1_000 })
}

/// Lets both take turns and adds their rows.
fn compare(
    pair: &Pair,
    setting: &str,
    (trial, load): (Trial, &Load),
    report: &mut Report,
) -> Result<(), BoxError> {
    const ROUNDS: usize = 5;
    timing::stage(&format!("file: {setting}"));
    let mut measured = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (contestant, measured) in pair.iter().zip(&mut measured) {
            measured.push(contestant.run_with(trial, load)?.measured);
        }
    }
    add_rows(report, pair, setting, &measured)
}

fn add_rows(
    report: &mut Report,
    pair: &Pair,
    setting: &str,
    measured: &[Vec<Measured>; 2],
) -> Result<(), BoxError> {
    for (contestant, rounds) in pair.iter().zip(measured) {
        let median = Measured::median(rounds).ok_or("no rounds")?;
        report.row(Row {
            table: format!("file: wane and {GROUP}"),
            subject: contestant.name().into(),
            setting: setting.into(),
            measures: median.columns(),
            note: None,
        });
    }
    Ok(())
}
