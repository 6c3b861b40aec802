//! How cost grows: the same operations on stores of 10 k, 100 k, 1 M and 10 M records.
//!
//! The largest stores also tell how long opening takes, so nothing is loaded twice.

use std::path::Path;
use std::time::Duration;

use super::contest::{Contestant, Operation, Trial};
use super::peers::WaneFile;
use super::{contestants, opening};
use crate::measured::Measured;
use crate::plot::{Chart, Scale};
use crate::report::{Report, Row};
use crate::{BoxError, Options, timing};

const CELLS: [(Operation, usize); 4] =
    [(Operation::Insert, 16), (Operation::Renew, 16), (Operation::Get, 2), (Operation::Range, 2)];

const MILLION: u64 = 1_000_000;

/// Measures wane at each size, and with time to spare its peers.
pub(super) fn run(
    scratch: &Path,
    bbolt: Option<&Path>,
    options: &Options,
    report: &mut Report,
) -> Result<(), BoxError> {
    let sizes: &[u64] = if options.quick {
        &[10_000, 100_000, MILLION]
    } else {
        &[10_000, 100_000, MILLION, 10 * MILLION]
    };
    for records in sizes {
        let directory = scratch.join(format!("growth-{records}"));
        let stores: Vec<Box<dyn Contestant>> = if options.quick {
            vec![Box::new(WaneFile::open(&directory.join("wane"))?)]
        } else {
            contestants(&directory, bbolt)?
        };
        for store in stores {
            timing::stage(&format!("file: {} with {} k records", store.name(), records / 1_000));
            store.load(0..*records)?;
            measure(&*store, *records, options.quick, report)?;
        }
        if *records >= MILLION {
            timing::stage("file: open");
            opening::run(&directory.join("wane"), *records, report)?;
        }
        std::fs::remove_dir_all(&directory)?;
    }
    options.write_plot("file-growth", &chart(report, sizes));
    Ok(())
}

fn measure(
    store: &dyn Contestant,
    records: u64,
    quick: bool,
    report: &mut Report,
) -> Result<(), BoxError> {
    let (rounds, slice) = if quick { (1, 300) } else { (3, 1_000) };
    let slice = Duration::from_millis(slice);
    for (operation, callers) in CELLS {
        let trial = Trial { operation, callers, slice, records };
        let measured = (0..rounds).map(|_| store.run(trial)).collect::<Result<Vec<_>, _>>()?;
        let measured = Measured::median(&measured).ok_or("no rounds")?;
        report.row(Row {
            table: "file: how cost grows".into(),
            subject: store.name().into(),
            setting: setting(operation, callers, records),
            measures: measured.columns(),
            note: None,
        });
    }
    Ok(())
}

fn setting(operation: Operation, callers: usize, records: u64) -> String {
    format!("{} k records, {}, {callers} callers", records / 1_000, operation.name())
}

fn chart(report: &Report, sizes: &[u64]) -> Chart {
    let group = |(operation, callers): &(Operation, usize)| {
        let rate =
            |records: &u64| report.find("wane", &setting(*operation, *callers, *records), "ops/s");
        (format!("{}\n{callers} callers", operation.name()), sizes.iter().map(rate).collect())
    };
    Chart {
        title: "file: wane by number of records in the store (level is better)".into(),
        y_label: "operations a second, log scale".into(),
        scale: Scale::Log,
        series: sizes.iter().map(|records| format!("{} k records", records / 1_000)).collect(),
        groups: CELLS.iter().map(group).collect(),
    }
}
