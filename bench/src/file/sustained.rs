//! Writes that go on for a minute: what is left of the rate, how long a caller is ever left alone,
//! and what the store takes of memory.
//!
//! Each store runs in a process of its own, which this program starts from itself, so that one
//! finds nothing of what the other left in caches and in the allocator. Memory is compared after
//! the same records, not after the same time: a tree of more records has more pages in its cache,
//! and that is not what is asked.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde_json::{Value, json};

use super::GROUP;
use super::contest::{Operation, Trial};
use super::peers::{RedbGroup, WaneFile};
use super::tasks::{Load, TaskContestant};
use crate::measured::Measured;
use crate::report::{Report, Row};
use crate::{BoxError, machine, timing};

/// The argument that makes this program the child.
pub(crate) const SUSTAIN: &str = "sustain";

/// How many callers overload the store.
const CALLERS: usize = 128;

/// The longest that a caller may be left without an answer.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// What a store may keep of young records, by default.
const YOUNG_BYTES: u64 = 256 << 20;

/// What it may take beyond that and beyond the peer: a group in the making and one on its way to
/// the disk, 8 MiB each, a log's buffers, and freed pages that the allocator holds on to for
/// seconds while records move from one place to the other. Two stores that keep nothing but pages
/// differed by 4 MiB after 4 M records.
const SLACK_BYTES: u64 = 64 << 20;

/// What the child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Inserts for so long, of records that outlive the run.
    Lasting(Duration),
    /// Inserts for so long, of records that live a twelfth to a half of that.
    Brief(Duration),
    /// Writes so many records in bulk.
    Records(u64),
}

impl Work {
    /// As an argument of the child.
    fn argument(self) -> String {
        match self {
            Self::Lasting(time) => format!("lasting:{}", time.as_millis()),
            Self::Brief(time) => format!("brief:{}", time.as_millis()),
            Self::Records(records) => format!("records:{records}"),
        }
    }

    fn parse(argument: &str) -> Option<Self> {
        let (name, number) = argument.split_once(':')?;
        let number = number.parse().ok()?;
        match name {
            "lasting" => Some(Self::Lasting(Duration::from_millis(number))),
            "brief" => Some(Self::Brief(Duration::from_millis(number))),
            "records" => Some(Self::Records(number)),
            _ => None,
        }
    }

    fn lives(time: Duration) -> (Duration, Duration) {
        (time / 12, time / 2)
    }

    fn setting(self) -> String {
        match self {
            Self::Lasting(time) => {
                format!("insert for {} s, {CALLERS} callers, long lives", time.as_secs())
            }
            Self::Brief(time) => {
                let (shortest, longest) = Self::lives(time);
                let lives = format!("{:.1}-{:.1} s", shortest.as_secs_f64(), longest.as_secs_f64());
                format!("insert for {} s, {CALLERS} callers, lives of {lives}", time.as_secs())
            }
            Self::Records(records) => format!("{} k records in bulk", records / 1_000),
        }
    }
}

/// Runs each work with both stores, adds the rows and the bars.
pub(super) fn run(scratch: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let time = Duration::from_secs(if quick { 5 } else { 60 });
    let records = if quick { 400_000 } else { 4_000_000 };
    for (work, at_least) in [(Work::Lasting(time), 2.5), (Work::Brief(time), 5.0)] {
        let setting = work.setting();
        for store in ["wane", GROUP] {
            let answer = in_a_process(store, work, scratch)?;
            report.row(inserting_row(store, setting.clone(), &answer)?);
        }
        super::rate_bar(report, &setting, GROUP, at_least);
        let longest = report.find("wane", &setting, LONGEST_COLUMN);
        report.bar(
            format!("file {setting}: 250 ms / longest wait of a caller (under 250 ms)"),
            (Some(timing::millis(LONGEST_WAIT)), longest),
            1.0,
        );
    }
    memory(scratch, Work::Records(records), report)
}

const LONGEST_COLUMN: &str = "longest wait ms";
const MEMORY_COLUMN: &str = "RSS grown by MiB";

fn inserting_row(store: &str, setting: String, answer: &Value) -> Result<Row, BoxError> {
    let measured = Measured {
        rate: number(answer, "rate")?,
        p50: number(answer, "p50")?,
        p99: number(answer, "p99")?,
        p999: number(answer, "p999")?,
    };
    let mut measures = measured.columns();
    measures.push((LONGEST_COLUMN.into(), Some(number(answer, "longestWaitMs")?)));
    measures.push((MEMORY_COLUMN.into(), Some(mebibytes(number(answer, "memory")?))));
    let table = "file: inserts that go on".into();
    Ok(Row { table, subject: store.into(), setting, measures, note: None })
}

/// What both take of memory for the same records.
fn memory(scratch: &Path, work: Work, report: &mut Report) -> Result<(), BoxError> {
    let setting = work.setting();
    let mut grown = Vec::new();
    for store in ["wane", GROUP] {
        let answer = in_a_process(store, work, scratch)?;
        let bytes = number(&answer, "memory")?;
        grown.push(bytes);
        report.row(Row {
            table: "file: memory under overload".into(),
            subject: store.into(),
            setting: setting.clone(),
            measures: vec![
                (MEMORY_COLUMN.into(), Some(mebibytes(bytes))),
                ("seconds".into(), Some(number(&answer, "seconds")?)),
            ],
            note: None,
        });
    }
    let bound = (YOUNG_BYTES + SLACK_BYTES) as f64;
    let name = format!(
        "file memory, {setting}: room left of {} MiB more than {GROUP} ({} for young records)",
        mebibytes(bound),
        YOUNG_BYTES >> 20,
    );
    report.bar(name, (Some(room_left(bound, grown[0], grown[1])), Some(bound)), 0.0);
    Ok(())
}

/// What is left of `bound`, which is what `ours` may be more than `theirs`.
fn room_left(bound: f64, ours: f64, theirs: f64) -> f64 {
    bound - (ours - theirs)
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

fn number(answer: &Value, name: &str) -> Result<f64, BoxError> {
    Ok(answer[name].as_f64().ok_or_else(|| format!("the process did not report {name}"))?)
}

/// Starts the child on a new store and reads what it prints.
fn in_a_process(store: &str, work: Work, scratch: &Path) -> Result<Value, BoxError> {
    timing::stage(&format!("file: {store}, {}", work.setting()));
    let directory = scratch.join("sustained");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SUSTAIN).arg(store).arg(&directory).arg(work.argument());
    let output = command.output()?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{store}: {reason}").into());
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The child: does the work and prints what came out.
pub(crate) fn sustain(store: &str, directory: &Path, work: &str) -> Result<ExitCode, BoxError> {
    let work = Work::parse(work).ok_or_else(|| format!("there is no work {work:?}"))?;
    let contestant: Box<dyn TaskContestant> = match store {
        "wane" => Box::new(WaneFile::open(directory)?),
        GROUP => Box::new(RedbGroup::open(directory)?),
        _ => return Err(format!("there is no store {store:?}").into()),
    };
    let before = machine::memory_of(std::process::id(), "VmRSS")?;
    let (answer, time) = timing::timed(|| carry_out(&*contestant, work));
    let mut answer = answer?;
    let most = machine::memory_of(std::process::id(), "VmHWM")?;
    answer["memory"] = json!(most.saturating_sub(before));
    answer["seconds"] = json!(time.as_secs_f64());
    println!("{answer}");
    Ok(ExitCode::SUCCESS)
}

fn carry_out(contestant: &dyn TaskContestant, work: Work) -> Result<Value, BoxError> {
    let (slice, load) = match work {
        Work::Lasting(time) => (time, Load::default()),
        Work::Brief(time) => {
            let (shortest, longest) = Work::lives(time);
            (time, Load::living(shortest, longest)?)
        }
        Work::Records(records) => {
            contestant.load(0..records)?;
            return Ok(json!({}));
        }
    };
    let trial = Trial { operation: Operation::Insert, callers: CALLERS, slice, records: 0 };
    let ran = contestant.run_with(trial, &load)?;
    let Measured { rate, p50, p99, p999 } = ran.measured;
    let longest = timing::millis(ran.longest_wait);
    Ok(json!({ "rate": rate, "p50": p50, "p99": p99, "p999": p999, "longestWaitMs": longest }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_is_told_what_was_meant() {
        let time = Duration::from_secs(60);
        for work in [Work::Lasting(time), Work::Brief(time), Work::Records(7)] {
            assert_eq!(Work::parse(&work.argument()), Some(work));
        }
        for nonsense in ["lasting", "lasting:", "long:5", "records:-1"] {
            assert_eq!(Work::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn in_a_minute_brief_lives_are_five_to_thirty_seconds() {
        let (shortest, longest) = Work::lives(Duration::from_secs(60));
        assert_eq!((shortest.as_secs(), longest.as_secs()), (5, 30));
        assert!(Work::Brief(Duration::from_secs(60)).setting().ends_with("lives of 5.0-30.0 s"));
    }

    #[test]
    fn room_is_left_until_the_store_takes_more_than_the_peer_and_the_bound() {
        assert_eq!(room_left(320.0, 500.0, 300.0), 120.0);
        assert_eq!(room_left(320.0, 300.0, 500.0), 520.0);
        assert!(room_left(320.0, 700.0, 300.0) < 0.0);
    }
}
