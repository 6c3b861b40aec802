//! The file benchmark: [`FileStore`](wane_backends::file::FileStore) against embedded stores that
//! sync every write to disk.
//!
//! All contestants live in one directory, hold the same records, and take turns round after round;
//! the median round counts. Writes of every contestant are on disk before they are counted.
//!
//! | file | what |
//! |---|---|
//! | `contest`, `tasks` | what contestants can do; their callers, as threads and as tasks |
//! | `peers` | the contestants |
//! | `pairs` | wane and the peer that shares syncs: leases, young rows, large values, a slow disk |
//! | `sustained` | the same two for a minute: rates, stalls, memory |
//! | `sweep` | expiry on disk |
//! | `growth`, `opening` | larger stores; the time to open them, also after a kill |

mod contest;
mod growth;
mod opening;
mod pairs;
mod peers;
mod sustained;
mod sweep;
mod tasks;

use std::path::Path;
use std::time::Duration;

use self::contest::{Blocking, Contestant, Operation, Trial};
use self::peers::{Bbolt, FjallOptimistic, FjallPersist, Lmdb, Redb, RedbGroup, WaneFile};
use crate::measured::Measured;
use crate::plot::{Chart, Scale};
use crate::report::{Report, Row};
use crate::{BoxError, Options, timing};

pub(crate) use self::opening::{WRITE_UNTIL_KILLED, write_until_killed};
pub(crate) use self::sustained::{SUSTAIN, sustain};

/// The peer that shares its syncs between callers, as wane does.
const GROUP: &str = "redb group";

const NAMES: [&str; 7] =
    ["wane", GROUP, "redb", "fjall persist", "fjall optimistic", "lmdb", Bbolt::NAME];

/// Operations and how many callers each is tried with. Two readers are one for each core.
const CELLS: [(Operation, &[usize]); 4] = [
    (Operation::Insert, &[1, 16, 128]),
    (Operation::Renew, &[1, 16, 128]),
    (Operation::Get, &[1, 2, 16, 128]),
    (Operation::Range, &[1, 16, 128]),
];

/// Runs everything and returns what came out.
pub(crate) fn run(options: &Options) -> Result<Report, BoxError> {
    let mut report = Report::default();
    let scratch = options.scratch()?;
    if options.pairs {
        pairs::run(scratch.path(), options.quick, &mut report)?;
        return Ok(report);
    }
    let bbolt = Bbolt::build();
    if let Err(reason) = &bbolt {
        report.note(format!("file: bbolt was not measured: {reason}"));
    }
    let bbolt = bbolt.ok();
    let compared = scratch.path().join("compared");
    let contestants = contestants(&compared, bbolt.as_deref())?;
    compare(&contestants, &compared, options.quick, &mut report)?;
    drop(contestants);
    bars(&mut report);
    options.write_plot("file", &chart(&report));
    options.write_plot("file-size", &sweep::size_chart(&report, options.quick));
    timing::stage("file: sweep");
    sweep::run(scratch.path(), options.quick, &mut report)?;
    pairs::run(scratch.path(), options.quick, &mut report)?;
    sustained::run(scratch.path(), options.quick, &mut report)?;
    growth::run(scratch.path(), bbolt.as_deref(), options, &mut report)?;
    opening::after_a_long_log(scratch.path(), &mut report)?;
    report.note(
        "file: every write synced before it is counted; wane and redb group are called by tasks on \
         two threads, stores that block by a thread for each caller, bbolt by goroutines on two \
         threads. redb group is one redb transaction for all who wait.",
    );
    Ok(report)
}

/// One of each, in directories of their own below `directory`; bbolt if its program was built.
fn contestants(
    directory: &Path,
    bbolt: Option<&Path>,
) -> Result<Vec<Box<dyn Contestant>>, BoxError> {
    let place = |name: &str| {
        let place = directory.join(name.replace(' ', "-"));
        std::fs::create_dir_all(&place).map(|()| place)
    };
    let mut contestants: Vec<Box<dyn Contestant>> = vec![
        // It makes its directory itself.
        Box::new(WaneFile::open(&directory.join("wane"))?),
        Box::new(RedbGroup::open(&place(GROUP)?)?),
        Box::new(Blocking::new("redb", Redb::create(&place("redb")?)?)),
        Box::new(Blocking::new("fjall persist", FjallPersist::create(&place("fjall persist")?)?)),
        Box::new(Blocking::new(
            "fjall optimistic",
            FjallOptimistic::create(&place("fjall optimistic")?)?,
        )),
        Box::new(Blocking::new("lmdb", Lmdb::create(&place("lmdb")?)?)),
    ];
    if let Some(program) = bbolt {
        contestants.push(Box::new(Bbolt::new(program.into(), &place(Bbolt::NAME)?)));
    }
    Ok(contestants)
}

/// How many records the contestants hold.
fn records(quick: bool) -> u64 {
    if quick { 100_000 } else { 1_000_000 }
}

fn compare(
    contestants: &[Box<dyn Contestant>],
    directory: &Path,
    quick: bool,
    report: &mut Report,
) -> Result<(), BoxError> {
    let records = records(quick);
    for contestant in contestants {
        let name = contestant.name();
        timing::stage(&format!("file: load {} k records into {name}", records / 1_000));
        contestant.load(0..records)?;
        sweep::report_size(report, name, &directory.join(name.replace(' ', "-")), records)?;
    }
    let (rounds, write_slice, read_slice) = if quick { (3, 100, 40) } else { (5, 1_000, 300) };
    for (operation, callers) in CELLS {
        let slice = match operation {
            Operation::Insert | Operation::Renew => Duration::from_millis(write_slice),
            Operation::Get | Operation::Range => Duration::from_millis(read_slice),
        };
        for callers in callers {
            timing::stage(&format!("file: {}", setting(operation, *callers)));
            let trial = Trial { operation, callers: *callers, slice, records };
            let measured = take_turns(contestants, trial, rounds)?;
            add_rows(report, trial, &measured);
        }
    }
    Ok(())
}

/// The median of the rounds for each contestant.
fn take_turns(
    contestants: &[Box<dyn Contestant>],
    trial: Trial,
    rounds: usize,
) -> Result<Vec<Measured>, BoxError> {
    let mut measured = vec![Vec::new(); contestants.len()];
    for _ in 0..rounds {
        for (contestant, measured) in contestants.iter().zip(&mut measured) {
            let round = contestant.run(trial);
            measured.push(round.map_err(|error| format!("{}: {error}", contestant.name()))?);
        }
    }
    let medians = measured.iter().map(|rounds| Measured::median(rounds).ok_or("no rounds"));
    Ok(medians.collect::<Result<_, _>>()?)
}

fn add_rows(report: &mut Report, trial: Trial, measured: &[Measured]) {
    for (place, name) in NAMES.iter().enumerate() {
        let measured = measured.get(place);
        report.row(Row {
            table: format!("file: {}", trial.operation.name()),
            subject: (*name).into(),
            setting: setting(trial.operation, trial.callers),
            measures: measured.map_or_else(Measured::missing, |measured| measured.columns()),
            note: measured.is_none().then(|| "not measured: see below".into()),
        });
    }
}

fn setting(operation: Operation, callers: usize) -> String {
    let plural = if callers == 1 { "" } else { "s" };
    format!("{}, {callers} caller{plural}", operation.name())
}

fn bars(report: &mut Report) {
    let bars = [
        (Operation::Insert, 128, Bbolt::NAME, 8.0),
        (Operation::Insert, 128, "redb", 6.0),
        (Operation::Insert, 1, "redb", 0.8),
        (Operation::Renew, 128, Bbolt::NAME, 8.0),
        (Operation::Get, 2, Bbolt::NAME, 1.5),
        (Operation::Insert, 1, GROUP, 2.0),
        (Operation::Insert, 16, GROUP, 3.0),
        (Operation::Insert, 128, GROUP, 5.0),
        (Operation::Insert, 128, Bbolt::NAME, 40.0),
    ];
    for (operation, callers, peer, at_least) in bars {
        rate_bar(report, &setting(operation, callers), peer, at_least);
    }
}

/// The rate of wane has to be so many times that of the peer.
fn rate_bar(report: &mut Report, setting: &str, peer: &str, at_least: f64) {
    let rate = |name: &str| report.find(name, setting, "ops/s");
    let pair = (rate("wane"), rate(peer));
    report.bar(format!("file {setting}: wane / {peer}"), pair, at_least);
}

fn chart(report: &Report) -> Chart {
    let mut groups = Vec::new();
    for (operation, callers) in CELLS {
        for callers in callers {
            let setting = setting(operation, *callers);
            let rates = NAMES.iter().map(|name| report.find(name, &setting, "ops/s")).collect();
            groups.push((format!("{}\n{callers}", operation.name()), rates));
        }
    }
    Chart {
        title: "file: operations by number of callers, writes synced (more is better)".into(),
        y_label: "operations a second, log scale".into(),
        scale: Scale::Log,
        series: NAMES.map(str::to_owned).to_vec(),
        groups,
    }
}
