//! How long opening takes, after a clean close and after a kill in the middle of writes.
//!
//! The kill is real: this program starts itself as a child that opens the store and writes, waits
//! until acknowledged writes are under way, and ends it with SIGKILL.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use super::contest::{Contestant, Operation, Trial};
use super::peers::WaneFile;
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// The argument that makes this program the child.
pub(crate) const WRITE_UNTIL_KILLED: &str = "write-until-killed";

/// Opens the store of so many records in both states and adds the rows.
pub(super) fn run(directory: &Path, records: u64, report: &mut Report) -> Result<(), BoxError> {
    let (store, clean) = timing::timed(|| WaneFile::open(directory));
    drop(store?);
    kill_a_writer(directory)?;
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

fn kill_a_writer(directory: &Path) -> Result<(), BoxError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(WRITE_UNTIL_KILLED).arg(directory).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    // Held open until the kill: a child that cannot print would end by itself.
    let mut output = child.stdout.take().map(BufReader::new);
    if let Some(output) = &mut output {
        output.read_line(&mut line)?;
    }
    timing::pause(Duration::from_millis(200));
    child.kill()?;
    let status = child.wait()?;
    if line.trim() != "writing" || status.code().is_some() {
        return Err(format!("the writer to be killed ended by itself: {status}").into());
    }
    Ok(())
}

/// The child: writes in short trials for ever, and says so once the first has passed.
pub(crate) fn write_until_killed(directory: &Path) -> Result<ExitCode, BoxError> {
    let store = WaneFile::open(directory)?;
    store.skip_to(1 << 40);
    let trial = Trial {
        operation: Operation::Insert,
        callers: 16,
        slice: Duration::from_millis(100),
        records: 0,
    };
    loop {
        store.run(trial)?;
        writeln!(std::io::stdout(), "writing")?;
    }
}
