//! How long opening takes, after a clean close and after a kill in the middle of writes.
//!
//! The kill is real: this program starts itself as a child that opens the store and writes, waits
//! until acknowledged writes are under way, and ends it with SIGKILL.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use wane::store::{Life, Write};

use super::contest::{Contestant, Operation, Trial};
use super::peers::WaneFile;
use super::sweep::bytes_in;
use super::tasks::Load;
use crate::report::{Report, Row};
use crate::workload::long_life;
use crate::{BoxError, timing};

/// The argument that makes this program the child.
pub(crate) const WRITE_UNTIL_KILLED: &str = "write-until-killed";

/// What the killed writer had accepted of keys and values: what a log may hold by default.
const ACCEPTED: u64 = 256 << 20;

/// Bytes of one record that it wrote, and those of them that are its key.
const ENTRY: u64 = 256;
const KEY: u64 = 24;

/// What opening may take then.
const LONGEST: Duration = Duration::from_secs(3);

/// Opens the store of so many records in both states and adds the rows.
pub(super) fn run(directory: &Path, records: u64, report: &mut Report) -> Result<(), BoxError> {
    let (store, clean) = timing::timed(|| WaneFile::open(directory));
    drop(store?);
    kill_a_writer(directory, 0, Duration::from_millis(200))?;
    let (store, killed) = timing::timed(|| WaneFile::open(directory));
    drop(store?);
    report.row(Row {
        table: "file: time to open".into(),
        subject: "wane".into(),
        setting: format!("{} k records", records / 1_000),
        measures: vec![
            ("clean ms".into(), Some(timing::millis(clean))),
            ("after kill ms".into(), Some(timing::millis(killed))),
        ],
        note: None,
    });
    Ok(())
}

/// Opens a store whose writer was killed just after it had accepted as much as a log may hold.
pub(super) fn after_a_long_log(scratch: &Path, report: &mut Report) -> Result<(), BoxError> {
    timing::stage("file: open after a kill");
    let directory = scratch.join("killed");
    kill_a_writer(&directory, ACCEPTED / ENTRY, Duration::from_millis(20))?;
    let weight = bytes_in(&directory)?;
    let (store, time) = timing::timed(|| WaneFile::open(&directory));
    let store = store?;
    // Every read finds its record.
    let slice = Duration::from_millis(100);
    let trial = Trial { operation: Operation::Get, callers: 1, slice, records: ACCEPTED / ENTRY };
    store.run(trial)?;
    drop(store);
    std::fs::remove_dir_all(&directory)?;
    let setting = format!("{} MiB accepted", ACCEPTED >> 20);
    report.bar(
        format!("file open after a kill, {setting}: 3 s / time (under 3 s)"),
        (Some(LONGEST.as_secs_f64()), Some(time.as_secs_f64())),
        1.0,
    );
    report.row(Row {
        table: "file: time to open after a kill".into(),
        subject: "wane".into(),
        setting,
        measures: vec![
            ("MiB on disk".into(), Some(weight as f64 / f64::from(1 << 20))),
            ("ms".into(), Some(timing::millis(time))),
        ],
        note: None,
    });
    Ok(())
}

/// Lets a child write so many records and then some more, and kills it after the pause.
fn kill_a_writer(directory: &Path, records: u64, pause: Duration) -> Result<(), BoxError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(WRITE_UNTIL_KILLED).arg(directory).arg(records.to_string());
    command.stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    // Held open until the kill: a child that cannot print would end by itself.
    let mut output = child.stdout.take().map(BufReader::new);
    if let Some(output) = &mut output {
        output.read_line(&mut line)?;
    }
    timing::pause(pause);
    child.kill()?;
    let status = child.wait()?;
    if line.trim() != "writing" || status.code().is_some() {
        return Err(format!("the writer to be killed ended by itself: {status}").into());
    }
    Ok(())
}

/// The child: writes so many records in bulk, then in short trials for ever. Says so once the
/// former are accepted, or the first trial has passed.
pub(crate) fn write_until_killed(directory: &Path, records: u64) -> Result<ExitCode, BoxError> {
    let store = WaneFile::open(directory)?;
    store.skip_to(1 << 40);
    let trial = Trial {
        operation: Operation::Insert,
        callers: 16,
        slice: Duration::from_millis(100),
        records: 0,
    };
    if records == 0 {
        store.run(trial)?;
    } else {
        let value = Load::of_bytes((ENTRY - KEY) as usize)?.value;
        store.load_with(0..records, || Write::new(value.clone(), Life::For(long_life())))?;
    }
    loop {
        writeln!(std::io::stdout(), "writing")?;
        store.run(trial)?;
    }
}
