//! bbolt itself, through the Go program in `bench/bbolt`, which uses it as the reference system
//! does. Each trial is a process; the database stays in its directory between them.

use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::file::contest::{Contestant, FIRST_ABSENT, Trial};
use crate::measured::Measured;
use crate::{BoxError, out_directory};

/// A bbolt database and the program that works on it.
#[derive(Debug)]
pub(crate) struct Bbolt {
    program: PathBuf,
    directory: PathBuf,
    next_absent: Cell<u64>,
}

impl Bbolt {
    /// The name in tables.
    pub(crate) const NAME: &str = "bbolt";

    /// Builds the program; an error says why there is none.
    pub(crate) fn build() -> Result<PathBuf, BoxError> {
        let program = out_directory().join("bbolt-bench");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bbolt");
        let mut build = Command::new("go");
        build.arg("build").arg("-o").arg(&program).arg(".").current_dir(source);
        let output = build.output().map_err(|error| format!("go does not run: {error}"))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!("go build failed: {reason}").into());
        }
        Ok(program)
    }

    /// A database in the directory, which the first load creates.
    pub(crate) fn new(program: PathBuf, directory: &Path) -> Self {
        Self { program, directory: directory.into(), next_absent: Cell::new(FIRST_ABSENT) }
    }

    fn call(&self, operation: &str, arguments: &[(&str, String)]) -> Result<Vec<u8>, BoxError> {
        let mut command = Command::new(&self.program);
        command.arg("-dir").arg(&self.directory).arg("-op").arg(operation);
        for (name, value) in arguments {
            command.arg(name).arg(value);
        }
        let output = command.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(output.stdout)
    }
}

impl Contestant for Bbolt {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn load(&self, records: Range<u64>) -> Result<(), BoxError> {
        let count = records.end - records.start;
        let arguments = [("-first", records.start.to_string()), ("-records", count.to_string())];
        self.call("load", &arguments).map(drop)
    }

    fn run(&self, trial: Trial) -> Result<Measured, BoxError> {
        let arguments = [
            ("-callers", trial.callers.to_string()),
            ("-seconds", trial.slice.as_secs_f64().to_string()),
            ("-records", trial.records.to_string()),
            ("-first", self.next_absent.get().to_string()),
        ];
        let answer: Value =
            serde_json::from_slice(&self.call(trial.operation.name(), &arguments)?)?;
        let number = |name: &str| {
            answer[name].as_f64().ok_or_else(|| format!("bbolt-bench did not report {name}"))
        };
        // Calls that were under way at the end are not counted, but may have been written.
        let tried = number("done")? as u64 + trial.callers as u64;
        self.next_absent.set(self.next_absent.get() + tried);
        Ok(Measured {
            rate: number("opsPerSecond")?,
            p50: number("p50")?,
            p99: number("p99")?,
            p999: number("p999")?,
        })
    }
}
