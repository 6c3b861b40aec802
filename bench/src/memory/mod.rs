//! The memory benchmark: [`MemoryStore`](wane::store) against caches and maps that hold the same.
//!
//! All contestants of one size are loaded side by side and take turns, round after round, so that
//! whatever else the machine does hits all of them; the median round counts. Values are owned by
//! the store, keys are made while the clock stands, and every write brings a value in memory of
//! its own.

mod expiry;
mod futures;
mod peer;
mod peers;

use std::time::Duration;

use wane::clock::{SharedClock, SystemClock};
use wane::store::Key;

pub(crate) use self::expiry::{EXPIRE_IN_MEMORY, expire};
use self::peer::{Contestant, Named, Operation, Trial};
use self::peers::{Dashmap, Moka, NestedMaps, QuickCache, Wane};
use crate::plot::{Chart, Scale};
use crate::report::{Report, Row};
use crate::workload::{key, long_life};
use crate::{BoxError, Options, heap, timing};

const OPERATIONS: [(Operation, &str); 5] = [
    (Operation::Get, "get k/s"),
    (Operation::Insert, "insert k/s"),
    (Operation::Swap, "swap k/s"),
    (Operation::Range(10), "range(10) k/s"),
    (Operation::Range(100), "range(100) k/s"),
];

const THREADS: [usize; 2] = [1, 2];

const MILLION: u64 = 1_000_000;

/// Runs everything and returns what came out.
pub(crate) fn run(options: &Options) -> Result<Report, BoxError> {
    let mut report = Report::default();
    let sizes: &[u64] =
        if options.quick { &[10_000, MILLION] } else { &[10_000, MILLION, 5 * MILLION] };
    for records in sizes {
        compare(*records, options.quick, &mut report);
    }
    bars(&mut report);
    futures::run(&mut report);
    timing::stage("memory: expiry");
    expiry::run(options.quick, &mut report)?;
    report.note(
        "memory: time that a thread waited for a core is taken out, so on a busy machine two threads \
         may meet less often than they would; all contestants use jemalloc, whose counting is free of shared counters; RAM is \
         the live heap bytes of keys, values and structure. 'read' is RAM once every record was \
         read: the first clone of a Bytes allocates its reference count.",
    );
    options.write_plot("memory", &speed_chart(&report));
    options.write_plot("memory-ram", &ram_chart(&report));
    Ok(report)
}

fn contestants(records: u64, clock: &SharedClock) -> Vec<Box<dyn Contestant>> {
    let clock = || SharedClock::clone(clock);
    type Fold = foldhash::fast::RandomState;
    vec![
        Box::new(Named("wane", Wane::new(clock()))),
        Box::new(Named("dashmap", Dashmap::<std::hash::RandomState>::new(clock()))),
        Box::new(Named("dashmap+foldhash", Dashmap::<Fold>::new(clock()))),
        Box::new(Named("moka", Moka::new())),
        Box::new(Named("quick_cache", QuickCache::new(records, clock()))),
        Box::new(Named("nested maps", NestedMaps::new(clock()))),
    ]
}

fn compare(records: u64, quick: bool, report: &mut Report) {
    let absent = absent_keys(records);
    let clock = SystemClock::shared();
    let contestants = contestants(records, &clock);
    let ram: Vec<[f64; 2]> =
        contestants.iter().map(|contestant| load(&**contestant, records)).collect();
    for threads in THREADS {
        let speeds = take_turns(&contestants, records, &absent, threads, quick);
        for (place, contestant) in contestants.iter().enumerate() {
            let speeds = OPERATIONS.iter().zip(&speeds).map(|((_, name), speeds)| {
                (name.to_string(), speeds[place].map(|speed| speed / 1e3))
            });
            let ram = ["RAM B/entry", "read B/entry"].into_iter().zip(ram[place]);
            let ram = ram.map(|(name, bytes)| (name.to_owned(), Some(bytes)));
            report.row(Row {
                table: "memory: thousands of operations a second, bytes for each record".into(),
                subject: contestant.name().into(),
                setting: setting(records, threads),
                measures: speeds.chain(ram).collect(),
                note: None,
            });
        }
    }
}

/// Keys of records that are not there, a share for each thread.
fn absent_keys(records: u64) -> Vec<Vec<Key>> {
    let threads = THREADS[THREADS.len() - 1] as u64;
    let share = (records / 4).min(50_000);
    let keys = |thread: u64| {
        let first = records + thread * share;
        (first..first + share).map(key).collect()
    };
    (0..threads).map(keys).collect()
}

/// Fills a contestant; bytes for each record after the load, and after a read of each.
fn load(contestant: &dyn Contestant, records: u64) -> [f64; 2] {
    timing::stage(&format!(
        "memory: load {} k records into {}",
        records / 1_000,
        contestant.name()
    ));
    let ((), loaded) = heap::added_by(|| {
        contestant.load(records, &long_life);
        contestant.settle();
    });
    let (found, promoted) = heap::added_by(|| contestant.read_all(records));
    assert_eq!(found as u64, records, "{} keeps what it was given", contestant.name());
    [loaded as f64 / records as f64, (loaded + promoted) as f64 / records as f64]
}

/// For each operation and contestant the median of the rounds.
fn take_turns(
    contestants: &[Box<dyn Contestant>],
    records: u64,
    absent: &[Vec<Key>],
    threads: usize,
    quick: bool,
) -> Vec<Vec<Option<f64>>> {
    let (rounds, slice) = if quick { (3, 50) } else { (7, 200) };
    let slice = Duration::from_millis(slice);
    let turns = |(operation, _): &(Operation, &str)| {
        timing::stage(&format!("memory: {operation:?} by {threads} threads"));
        let mut speeds = vec![Vec::new(); contestants.len()];
        for round in 0..rounds {
            for (contestant, speeds) in contestants.iter().zip(&mut speeds) {
                let operation = *operation;
                let trial = Trial { operation, threads, slice, records, round, absent };
                speeds.extend(contestant.run(trial));
            }
        }
        speeds.into_iter().map(median).collect()
    };
    OPERATIONS.iter().map(turns).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn setting(records: u64, threads: usize) -> String {
    let size = if records >= MILLION {
        format!("{} M", records / MILLION)
    } else {
        format!("{} k", records / 1_000)
    };
    let plural = if threads == 1 { "" } else { "s" };
    format!("{size} entries, {threads} thread{plural}")
}

fn bars(report: &mut Report) {
    let (one, two) = (setting(MILLION, 1), setting(MILLION, 2));
    let pair = |report: &Report, peer: &str, column: &str| {
        (report.find("wane", &two, column), report.find(peer, &two, column))
    };
    for (operation, column, dashmap_bar) in [("get", "get k/s", 0.9), ("swap", "swap k/s", 1.0)] {
        let name = |peer| format!("memory {operation}, {two}: wane / {peer}");
        let (dashmap, moka) = (pair(report, "dashmap", column), pair(report, "moka", column));
        report.bar(name("dashmap"), dashmap, dashmap_bar);
        report.bar(name("moka"), moka, 3.0);
        let foldhash = pair(report, "dashmap+foldhash", column);
        report.ratio(name("dashmap+foldhash"), foldhash);
    }
    let (wane, moka) = pair(report, "moka", "RAM B/entry");
    report.bar(
        "memory RAM per entry, 1 M entries: 0.6 x moka / wane (at most 0.6 of moka)",
        (moka.map(|bytes| 0.6 * bytes), wane),
        1.0,
    );
    let (wane, moka) = pair(report, "moka", "read B/entry");
    report.ratio(
        "memory RAM per entry once read, 1 M entries: 0.6 x moka / wane",
        (moka.map(|bytes| 0.6 * bytes), wane),
    );
    let micros = report.find("wane", &one, "range(10) k/s").map(|rate| 1e3 / rate);
    report.bar(
        "memory range(10) in a partition of 100 k: 5 us / wane (under 5 us)",
        (Some(5.0), micros),
        1.0,
    );
}

fn names() -> Vec<String> {
    ["wane", "dashmap", "dashmap+foldhash", "moka", "quick_cache", "nested maps"]
        .map(str::to_owned)
        .to_vec()
}

fn speed_chart(report: &Report) -> Chart {
    let mut groups = Vec::new();
    for (_, column) in OPERATIONS {
        for threads in THREADS {
            let setting = setting(MILLION, threads);
            let values = names().iter().map(|name| report.find(name, &setting, column)).collect();
            let operation = column.split(' ').next().unwrap_or(column);
            let plural = if threads == 1 { "" } else { "s" };
            groups.push((format!("{operation}\n{threads} thread{plural}"), values));
        }
    }
    Chart {
        title: "memory: operations at 1 M entries (more is better)".into(),
        y_label: "thousand operations a second, log scale".into(),
        scale: Scale::Log,
        series: names(),
        groups,
    }
}

fn ram_chart(report: &Report) -> Chart {
    let setting = setting(MILLION, 1);
    let group = |(label, column): (&str, &str)| {
        let values = names().iter().map(|name| report.find(name, &setting, column)).collect();
        (label.to_owned(), values)
    };
    Chart {
        title: "memory: heap bytes for each record at 1 M entries (less is better)".into(),
        y_label: "bytes for each record".into(),
        scale: Scale::Linear,
        series: names(),
        groups: [("loaded", "RAM B/entry"), ("once read", "read B/entry")].map(group).to_vec(),
    }
}
