//! `wane-fuzz`: runs fuzz targets for a given time, or one input again.
//!
//! ```text
//! wane-fuzz TARGET|all [--seconds N] [--seed N]
//! wane-fuzz TARGET --replay FILE
//! ```
//!
//! The exit code is 0 if every property held, 1 if one did not, 2 for a command that makes no
//! sense. A failing input is shrunk and kept in `fuzz/artifacts/`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, io, panic};

use wane::clock::SystemClock;
use wane_fuzz::{Campaign, Failure, Target, execute, targets};

const USAGE: &str = "usage: wane-fuzz TARGET|all [--seconds N] [--seed N] [--replay FILE]";

/// What the command line asks for.
struct Command {
    targets: Vec<(&'static str, Target)>,
    seconds: u64,
    seed: Option<u64>,
    replay: Option<PathBuf>,
}

impl Command {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let name = words.next().ok_or(USAGE)?;
        let targets: Vec<_> = targets::ALL
            .into_iter()
            .filter(|(target, _)| name == "all" || name == *target)
            .collect();
        if targets.is_empty() {
            let known = targets::ALL.map(|(target, _)| target).join(", ");
            return Err(format!("there is no target {name}; there are {known}\n{USAGE}"));
        }
        let mut command = Self { targets, seconds: 5, seed: None, replay: None };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"))?;
            let number = || value.parse().map_err(|_| format!("{option} needs a number\n{USAGE}"));
            match &*option {
                "--seconds" => command.seconds = number()?,
                "--seed" => command.seed = Some(number()?),
                "--replay" => command.replay = Some(PathBuf::from(&value)),
                _ => return Err(format!("there is no option {option}\n{USAGE}")),
            }
        }
        Ok(command)
    }
}

fn main() -> ExitCode {
    let outcome = Command::parse(env::args().skip(1)).and_then(|command| {
        let held = match &command.replay {
            Some(file) => replay(&command, file),
            None => fuzz(&command),
        };
        held.map_err(|error| error.to_string())
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Runs one input again, with the panic as Rust reports it. Whether the properties held.
fn replay(command: &Command, file: &Path) -> io::Result<bool> {
    let input = fs::read(file)?;
    let mut held = true;
    for (name, target) in &command.targets {
        let outcome = execute(target, &input);
        println!("{name:<8} {}", if outcome.is_ok() { "holds" } else { "FAILS" });
        held &= outcome.is_ok();
    }
    Ok(held)
}

/// Runs each target for its time, to the end even if one fails. Whether all properties held.
fn fuzz(command: &Command) -> io::Result<bool> {
    let clock = SystemClock::shared();
    // Shrinking panics thousands of times.
    panic::set_hook(Box::new(|_| {}));
    let mut held = true;
    for (name, target) in &command.targets {
        let seed = command.seed.unwrap_or_else(|| clock.random_u64());
        let budget = Duration::from_secs(command.seconds);
        let corpus = read_corpus(name)?;
        let report = Campaign { seed, budget, corpus }.run(*target, &*clock);
        let rate = report.executions as f64 / report.elapsed.as_secs_f64().max(1e-6);
        let verdict = if report.failure.is_none() { "holds" } else { "FAILS" };
        let executions = report.executions;
        println!("{name:<8} {verdict}  {executions:>10} executions  {rate:>9.0}/s  --seed {seed}");
        if let Some(failure) = report.failure {
            held = false;
            keep(name, &failure)?;
        }
    }
    Ok(held)
}

/// The committed seeds of a target, in the order of their names.
fn read_corpus(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    files.sort();
    files.into_iter().map(fs::read).collect()
}

/// Writes a failing input to a file and says how to run it again.
fn keep(target: &str, failure: &Failure) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts");
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{target}-{:08x}", crc32fast::hash(&failure.input)));
    fs::write(&file, &failure.input)?;
    println!("  {}", failure.message.replace('\n', "\n  "));
    println!(
        "  input, {} bytes of {}: {}",
        failure.input.len(),
        failure.found_len,
        hex(&failure.input)
    );
    println!(
        "  replay: cargo run --profile fuzz -p wane-fuzz -- {target} --replay {}",
        file.display()
    );
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
