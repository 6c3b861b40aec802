//! Wane measured against its peers: `wane-bench NAME [--quick] [--json FILE] [--check] [--dir DIR]`.
//!
//! Every claim about speed is a ratio of two numbers of one run. A run prints tables, writes plots
//! into `bench/out/`, says how busy the machine was with other things, and with `--check` fails
//! by name for every ratio below its bar.

mod backends;
mod blobs;
mod coordination;
mod device;
mod file;
mod heap;
mod http;
mod machine;
mod measured;
mod memory;
mod plot;
mod report;
mod stream;
mod timing;
mod workload;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use report::Report;

/// Any failure that ends a run.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "\
usage: wane-bench NAME [--quick | --soak] [--archive] [--pairs] [--json FILE] [--check] [--dir DIR]

  NAME         memory, file, http, backends, coordination, blobs, device, stream, or all
  --quick      smaller sizes and shorter rounds: one to three minutes for each name
  --soak       larger sizes, where a benchmark has them: stream, 10 M messages
  --archive    stream alone: what archiving does to latencies, and nothing else
  --pairs      file alone: wane and the peer that shares syncs too, and nothing else
  --json FILE  write ratios and rows as JSON
  --check      exit with 1 and name every ratio below its bar
  --dir DIR    where the stores on disk are put meanwhile (default: bench/out)
";

/// What the command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    names: Vec<Benchmark>,
    /// Smaller sizes and shorter rounds.
    pub(crate) quick: bool,
    /// Larger sizes, where there are any.
    pub(crate) soak: bool,
    /// Of the pull stream, what archiving does to it and nothing else.
    pub(crate) archive: bool,
    /// Of the file store, what is compared with the peer that shares syncs and nothing else.
    pub(crate) pairs: bool,
    check: bool,
    json: Option<PathBuf>,
    directory: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
enum Benchmark {
    Memory,
    File,
    Http,
    Backends,
    Coordination,
    Blobs,
    Device,
    Stream,
}

#[derive(Debug)]
enum Command {
    Measure(Options),
    /// Started by the file benchmark itself: write so many records into this store, and then more
    /// until killed.
    WriteUntilKilled(PathBuf, u64),
    /// Started by the file benchmark itself: do this work on this store in this directory.
    Sustain(String, PathBuf, String),
    /// Started by the memory benchmark itself: let a million records of this store expire.
    ExpireInMemory(String),
    /// Started by the HTTP benchmark itself: serve this kind, with data in this directory.
    Serve(String, PathBuf),
    Help,
}

fn main() -> ExitCode {
    let command = match parse(lexopt::Parser::from_env()) {
        Ok(command) => command,
        Err(error) => {
            eprint!("wane-bench: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let result = match command {
        Command::Measure(options) => measure(&options),
        Command::WriteUntilKilled(path, records) => file::write_until_killed(&path, records),
        Command::Sustain(store, path, work) => file::sustain(&store, &path, &work),
        Command::ExpireInMemory(name) => memory::expire(&name),
        Command::Serve(kind, data) => http::serve(&kind, &data).map(|()| ExitCode::SUCCESS),
        Command::Help => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("wane-bench: {error}");
        ExitCode::FAILURE
    })
}

fn parse(mut parser: lexopt::Parser) -> Result<Command, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("quick") => options.quick = true,
            Long("soak") => options.soak = true,
            Long("archive") => options.archive = true,
            Long("pairs") => options.pairs = true,
            Long("check") => options.check = true,
            Long("json") => options.json = Some(parser.value()?.into()),
            Long("dir") => options.directory = Some(parser.value()?.into()),
            Long("help") | Short('h') => return Ok(Command::Help),
            Value(name) if name == file::WRITE_UNTIL_KILLED => {
                let path = parser.value()?.into();
                return Ok(Command::WriteUntilKilled(path, parser.value()?.parse()?));
            }
            Value(name) if name == file::SUSTAIN => {
                let (store, path) = (parser.value()?.string()?, parser.value()?.into());
                return Ok(Command::Sustain(store, path, parser.value()?.string()?));
            }
            Value(name) if name == memory::EXPIRE_IN_MEMORY => {
                return Ok(Command::ExpireInMemory(parser.value()?.string()?));
            }
            Value(name) if name == http::SERVE => {
                return Ok(Command::Serve(parser.value()?.string()?, parser.value()?.into()));
            }
            Value(name) => options.names.extend(benchmarks(&name)?),
            Long(_) | Short(_) => return Err(argument.unexpected()),
        }
    }
    if options.names.is_empty() {
        return Err("name a benchmark".into());
    }
    Ok(Command::Measure(options))
}

fn benchmarks(name: &OsString) -> Result<Vec<Benchmark>, lexopt::Error> {
    match name.to_str() {
        Some("memory") => Ok(vec![Benchmark::Memory]),
        Some("file") => Ok(vec![Benchmark::File]),
        Some("http") => Ok(vec![Benchmark::Http]),
        Some("backends") => Ok(vec![Benchmark::Backends]),
        Some("coordination") => Ok(vec![Benchmark::Coordination]),
        Some("blobs") => Ok(vec![Benchmark::Blobs]),
        Some("device") => Ok(vec![Benchmark::Device]),
        Some("stream") => Ok(vec![Benchmark::Stream]),
        Some("all") => {
            use Benchmark::{Backends, Blobs, Coordination, Device, File, Http, Memory, Stream};
            Ok(vec![Memory, File, Http, Backends, Coordination, Blobs, Device, Stream])
        }
        Some(_) | None => Err(format!("there is no benchmark {name:?}").into()),
    }
}

fn measure(options: &Options) -> Result<ExitCode, BoxError> {
    std::fs::create_dir_all(out_directory())?;
    let mut whole = Report::default();
    for benchmark in &options.names {
        let (counters, start) = (machine::Counters::read(), timing::now());
        let mut report = match benchmark {
            Benchmark::Memory => memory::run(options)?,
            Benchmark::File => file::run(options)?,
            Benchmark::Http => http::run(options)?,
            Benchmark::Backends => backends::run(options)?,
            Benchmark::Coordination => coordination::run(options)?,
            Benchmark::Blobs => blobs::run(options)?,
            Benchmark::Device => device::run(options)?,
            Benchmark::Stream => stream::run(options)?,
        };
        report.note(machine_note(counters.since(), start.elapsed()));
        print!("{}", report.to_text());
        whole.append(report);
    }
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", whole.to_json()))?;
    }
    let shortfalls = if options.check { whole.shortfalls() } else { Vec::new() };
    for shortfall in &shortfalls {
        eprintln!("below its bar: {shortfall}");
    }
    Ok(if shortfalls.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the machine was busy with, and what that means for the ratios.
fn machine_note(usage: machine::Usage, elapsed: Duration) -> String {
    /// A choice, not a measurement: ratios of runs far above it differed several times over.
    const TRUSTED: f64 = 0.1;
    let warning = if usage.others > TRUSTED {
        "; TOO BUSY: repeat on a quiet machine before trusting a ratio"
    } else {
        ""
    };
    format!(
        "machine: {} cores; in {:.0} s others kept {:.0} % of them busy, this run {:.0} %; \
         load average {}{warning}",
        machine::cores(),
        elapsed.as_secs_f64(),
        usage.others * 100.0,
        usage.own * 100.0,
        machine::load_average(),
    )
}

/// Where plots and built peers go.
pub(crate) fn out_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("out")
}

impl Options {
    /// Writes the chart into the output directory; a plot that cannot be written costs no results.
    pub(crate) fn write_plot(&self, name: &str, chart: &plot::Chart) {
        let path = out_directory().join(name).with_extension("svg");
        match std::fs::write(&path, chart.to_svg()) {
            Ok(()) => println!("plot: bench/out/{name}.svg"),
            Err(error) => eprintln!("wane-bench: {}: {error}", path.display()),
        }
    }

    /// An empty directory for stores, removed when it is dropped.
    pub(crate) fn scratch(&self) -> Result<tempfile::TempDir, BoxError> {
        let parent = self.directory.clone().unwrap_or_else(out_directory);
        std::fs::create_dir_all(&parent)?;
        Ok(tempfile::Builder::new().prefix("stores-").tempdir_in(parent)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Command, lexopt::Error> {
        parse(lexopt::Parser::from_args(arguments))
    }

    #[test]
    fn all_is_every_benchmark() {
        let Ok(Command::Measure(options)) = parsed(&["all", "--quick"]) else {
            panic!("legal arguments");
        };
        assert!(options.quick && !options.check);
        assert_eq!(options.names.len(), 8);
    }

    #[test]
    fn a_busy_machine_is_called_out() {
        let note = |others| machine_note(machine::Usage { others, own: 0.5 }, Duration::ZERO);
        assert!(note(0.3).contains("TOO BUSY"));
        assert!(!note(0.05).contains("TOO BUSY"));
    }

    #[test]
    fn unknown_names_and_no_name_are_refused() {
        assert!(parsed(&["memroy"]).is_err());
        assert!(parsed(&["--quick"]).is_err());
        assert!(parsed(&["memory", "--fast"]).is_err());
    }
}
