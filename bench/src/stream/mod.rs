//! The pull stream benchmark: the server as it is shipped, on the file backend, over loopback.
//!
//! The server has a core, the load generator another. The generator is one thread: kept connections,
//! requests written by hand, messages made before, answers read no further than needed to count their
//! messages. Everything that is acknowledged is durable.
//!
//! Invariant: what is counted is right. An answer that is not what it should be ends the run, batches
//! are counted by their parts, and the storm compares ids.
//!
//! Flow: `through` puts messages in and takes them out; `latency` times the way of a batch; `parked`,
//! `storm`, `token`, `tier` and, when it is asked for, `archive` are bars of their own; `growth` repeats
//! `through` with more of everything, and `cassandra` on another store.

mod archive;
mod cassandra;
mod cores;
mod growth;
mod latency;
mod line;
mod message;
mod parked;
mod parts;
mod producers;
mod readers;
mod server;
mod storm;
mod through;
mod tier;
mod token;

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::cores::Cores;
use crate::report::Report;
use crate::{BoxError, Options};

/// Institutions of the bars, and readers of each.
const INSTITUTIONS: usize = 200;
const READERS: usize = 6;

/// A reader that finds nothing is told so at once, which is how it is known that nothing is left.
const NO_HOLD: [(&str, &str); 1] = [("stream-hold-ms", "0")];

/// A part of the benchmark, which tells its bars.
type Part = fn(&Bench, &mut Report) -> Result<(), BoxError>;

/// What all parts of the benchmark share.
struct Bench {
    /// One thread, and it is this one.
    runtime: Runtime,
    cores: Cores,
    scratch: PathBuf,
    quick: bool,
    soak: bool,
    /// How long a bar is measured.
    slice: Duration,
}

impl Bench {
    /// An empty directory, removed when it is dropped: messages take gigabytes.
    fn directory(&self) -> Result<TempDir, BoxError> {
        Ok(tempfile::tempdir_in(&self.scratch)?)
    }
}

/// Runs everything and returns what came out.
pub(crate) fn run(options: &Options) -> Result<Report, BoxError> {
    let mut report = Report::default();
    let scratch = options.scratch()?;
    let bench = Bench {
        runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        cores: Cores::divided(),
        scratch: scratch.path().to_path_buf(),
        quick: options.quick,
        soak: options.soak,
        slice: Duration::from_secs(if options.quick { 3 } else { 20 }),
    };
    let parts: &[Part] = &[
        token::run,
        tier::run,
        through::run,
        latency::run,
        storm::run,
        parked::run,
        growth::run,
        cassandra::run,
    ];
    let parts = if options.archive { &[archive::run as Part] } else { parts };
    for part in parts {
        if let Err(error) = part(&bench, &mut report) {
            // What was measured until then took minutes.
            print!("{}", report.to_text());
            return Err(error);
        }
    }
    report.note(format!(
        "stream: {}; everything is durable before it is answered; an answer acknowledges the one \
         before it. Writes are calls of the store: those who come together share one, and several \
         calls share a sync.",
        bench.cores.note()
    ));
    Ok(report)
}

/// Completes after so long.
async fn pause(duration: Duration) {
    // What never comes is waited for that long.
    tokio::time::timeout(duration, std::future::pending::<()>()).await.unwrap_or(());
}
