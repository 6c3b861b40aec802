//! What happens when a million records expire at the same moment: does the memory come back, and
//! how long does a writer wait meanwhile.
//!
//! A writer renews a small set of records all the while, as fast as every 50 us. Its longest wait
//! is compared with the same time before the expiry, and with how long the scheduler kept the
//! thread from running: on a busy machine that part is not the store's.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wane::clock::SystemClock;
use wane::store::{Key, Ttl};

use super::peer::{Contestant, Named};
use super::peers::{Moka, Wane};
use crate::machine::ThreadWaits;
use crate::report::{Report, Row};
use crate::{BoxError, heap, timing, workload};

const RECORDS: u64 = 1_000_000;

/// How long after the expiry the memory must be back.
const GRACE: Duration = Duration::from_secs(5);

/// The writer's records lie beyond those that expire.
const RENEWED: std::ops::Range<u64> = 10 * RECORDS..10 * RECORDS + 1_000;

/// The longest waits of a writer.
#[derive(Debug, Default, Clone, Copy)]
struct Stall {
    /// By the clock on the wall.
    longest: Duration,
    /// Of which the thread was ready to run and did not.
    unscheduled: Duration,
    writes: u64,
}

/// The argument that makes this program the child that measures one store.
pub(crate) const EXPIRE_IN_MEMORY: &str = "expire-in-memory";

const SETTING: &str = "1 M records expire at once";

/// Runs the benchmark for wane and, unless `quick`, for moka.
pub(super) fn run(quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let names: &[&str] = if quick { &["wane"] } else { &["wane", "moka"] };
    for name in names {
        let measures = measure_in_child(name)?;
        report.row(Row {
            table: "memory: expiry".into(),
            subject: (*name).into(),
            setting: SETTING.into(),
            measures,
            note: None,
        });
    }
    bars(report);
    Ok(())
}

fn bars(report: &mut Report) {
    let find = |column| report.find("wane", SETTING, column);
    let (empty, full, after) = (find("empty KiB"), find("full KiB"), find("5 s later KiB"));
    let longest = find("longest write ms");
    report.bar(
        "memory expiry: 1.1 x heap of the empty store / heap 5 s after (within 10 % of empty)",
        (empty.map(|empty| 1.1 * empty), after),
        1.0,
    );
    let freed = full.zip(after).map(|(full, after)| full - after);
    let added = full.zip(empty).map(|(full, empty)| full - empty);
    report.ratio("memory expiry: freed after 5 s / added by 1 M records", (freed, added));
    report.bar(
        "memory expiry: 5 ms / longest write meanwhile (under 5 ms)",
        (Some(5.0), longest),
        1.0,
    );
}

/// Readings of the same empty store differed by hundreds of KiB between runs while the allocator
/// kept a cache for each thread, and that is more than the bar allows. So the measurement has a
/// process of its own, without those caches.
fn measure_in_child(name: &str) -> Result<Vec<(String, Option<f64>)>, BoxError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(EXPIRE_IN_MEMORY).arg(name).env("_RJEM_MALLOC_CONF", "tcache:false");
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the expiry of {name} was not measured: {}", output.status).into());
    }
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    Ok(COLUMNS.map(|column| (column.to_owned(), answer[column].as_f64())).to_vec())
}

/// The child: measures one store and prints the columns as JSON.
pub(crate) fn expire(name: &str) -> Result<ExitCode, BoxError> {
    let values = match name {
        "wane" => measure(|| Named("wane", Wane::new(SystemClock::shared()))),
        "moka" => measure(|| Named("moka", Moka::new())),
        _ => return Err(format!("there is no store {name}").into()),
    };
    let columns = COLUMNS.iter().zip(values);
    let columns = columns.map(|(column, value)| ((*column).to_owned(), json!(value)));
    println!("{}", Value::Object(columns.collect()));
    Ok(ExitCode::SUCCESS)
}

const COLUMNS: [&str; 7] = [
    "empty KiB",
    "full KiB",
    "5 s later KiB",
    "longest write ms",
    "of it off the core ms",
    "longest before ms",
    "writes",
];

/// The values of [`COLUMNS`].
fn measure<C: Contestant>(open: impl FnOnce() -> C) -> [f64; 7] {
    let keys: Vec<Key> = RENEWED.map(workload::key).collect();
    let before_store = heap::live_bytes();
    let contestant = &open();
    keys.iter().for_each(|key| contestant.rewrite(key));
    contestant.settle();
    let empty = heap::live_bytes() - before_store;
    let deadline = load(contestant);
    let full = heap::live_bytes() - before_store;
    let calm = renew_until(deadline - Duration::from_millis(50), contestant, &keys);
    let storm = renew_until(deadline + GRACE, contestant, &keys);
    let after = heap::live_bytes() - before_store;
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    [
        kib(empty),
        kib(full),
        kib(after),
        timing::millis(storm.longest),
        timing::millis(storm.unscheduled),
        timing::millis(calm.longest),
        storm.writes as f64,
    ]
}

/// Loads records that all expire at the instant returned.
fn load(contestant: &dyn Contestant) -> Instant {
    let budget = Duration::from_secs(10);
    let deadline = timing::now() + budget;
    let life = || {
        let left = deadline.saturating_duration_since(timing::now());
        Ttl::try_from(left.max(Duration::from_millis(1))).expect("a few seconds are a legal life")
    };
    contestant.load(RECORDS, &life);
    contestant.settle();
    assert!(timing::now() < deadline, "the load takes less than {budget:?}");
    deadline
}

/// Renews record after record until the deadline, with a short rest between writes.
fn renew_until(deadline: Instant, contestant: &dyn Contestant, keys: &[Key]) -> Stall {
    const NOTABLE: Duration = Duration::from_micros(200);
    let waits = ThreadWaits::open();
    let mut stall = Stall::default();
    for key in keys.iter().cycle() {
        let waited_before = waits.total();
        let ((), took) = timing::timed(|| contestant.rewrite(key));
        stall.writes += 1;
        if took > stall.longest {
            let unscheduled = if took > NOTABLE {
                waits.total().saturating_sub(waited_before)
            } else {
                Duration::ZERO
            };
            stall = Stall { longest: took, unscheduled, ..stall };
        }
        if timing::now() >= deadline {
            break;
        }
        timing::pause(Duration::from_micros(50));
    }
    stall
}
