//! The command line: what is typed, where it goes, and the exit code that comes back.
//!
//! ```text
//! arguments -> connection (which server, which key) -> ttl, election, .., stream, app -> output
//!                                                     what failed -> failure (two lines, exit code)
//! ```
//!
//! Everything outside of the process is in [`Surroundings`]: the environment, the three streams and
//! the clock. Answers go to standard output, everything else to standard error.

mod app;
mod audit;
pub mod backup;
mod blobs;
mod completions;
mod connection;
mod devices;
mod elections;
mod failure;
mod lifetime;
mod oauth_clients;
mod output;
mod progress;
mod sequences;
mod serve;
mod store;
mod streams;
mod ttl;

#[cfg(test)]
mod tests;

pub use failure::Exit;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal, Read, Write};

use clap::{Parser, Subcommand};
use rustix::termios::tcgetwinsize;
use wane::clock::{SharedClock, SystemClock};

use crate::settings::ServeFlags;
use connection::{ConnectionFlags, Place};
use failure::Failure;
use output::OutputFlags;

/// Shown after the list of commands, and in docs/cli.md.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed: the server cannot be reached, or says no; nothing was applied
  2  wrong usage: arguments, or a key, value or life outside of the limits
  3  refused: the condition did not hold, nothing was applied
  4  absent: no such live entry, app, key, device or code
  5  unknown outcome: the write may or may not have been applied; read before deciding
  `election campaign --exec CMD` ends with the exit code of CMD, or with 3 if it lost the election
  `device start` ends with 3 if it was denied, with 4 if the code expired, with 130 after Ctrl-C
  `stream pull` ends with 0 after a Ctrl-C, as it ends in good order, and with 130 after a second

Where the server and the key come from, the first that is there:
  server  --url, WANE_URL, http://127.0.0.1:8628
          for operators: --admin-url, WANE_ADMIN_URL, http://127.0.0.1:8629
  key     --key, WANE_KEY, DATA/demo.key (for operators: DATA/admin.key; for streams: none)
  DATA    --data, WANE_DATA, ./wane-data";

/// A store for state that expires.
#[derive(Debug, Parser)]
#[command(name = "wane", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    connection: ConnectionFlags,
    #[command(flatten)]
    output: OutputFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve over HTTP
    Serve(Box<ServeFlags>),
    #[command(flatten)]
    Remote(RemoteCommand),
    #[command(flatten)]
    Store(store::StoreCommand),
    /// Print the completions of a shell
    Completions(completions::CompletionsArguments),
    /// Run a command until its time is up, as told on standard input
    #[command(hide = true)]
    ElectionKeeper(elections::keeper::KeeperArguments),
}

/// Commands that ask a server.
#[derive(Debug, Subcommand)]
enum RemoteCommand {
    /// Read and write the entries of an app
    Ttl(ttl::TtlArguments),
    /// Elect a leader, and run a command while leading
    Election(elections::ElectionArguments),
    /// Take numbers that nobody else has
    Sequence(sequences::SequenceArguments),
    /// Upload and download files that disappear on time
    Blob(blobs::BlobArguments),
    /// Link devices by a code that somebody approves elsewhere
    Device(devices::DeviceArguments),
    /// Send messages to institutions, and read their streams
    Stream(streams::StreamArguments),
    /// Check and export the audit of institutions' streams (for operators)
    Audit(audit::AuditArguments),
    /// Make apps, their keys, limits and clients (for operators)
    App(app::AppArguments),
}

/// Looks up a variable of the environment.
pub type Variables = Box<dyn Fn(&str) -> Option<OsString>>;

/// What a run of the command line has around it.
pub struct Surroundings {
    /// The environment.
    pub env: Variables,
    /// Standard input.
    pub input: Box<dyn Read + Send>,
    /// Standard output.
    pub out: Box<dyn Write>,
    /// Standard error.
    pub err: Box<dyn Write>,
    /// Whether a person reads standard output.
    pub out_is_terminal: bool,
    /// Whether a person reads standard error.
    pub err_is_terminal: bool,
    /// How many characters fit into a line of standard error, where that is known.
    pub err_columns: Option<u16>,
    /// Time.
    pub clock: SharedClock,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self {
            env: Box::new(|name| std::env::var_os(name)),
            input: Box::new(io::stdin()),
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            out_is_terminal: io::stdout().is_terminal(),
            err_is_terminal: io::stderr().is_terminal(),
            err_columns: tcgetwinsize(io::stderr()).ok().map(|size| size.ws_col),
            clock: SystemClock::shared(),
        }
    }

    /// A variable that is set to something.
    fn variable(&self, name: &str) -> Option<OsString> {
        (self.env)(name).filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Runs one command line, the name of the program first, and says how it went.
pub fn run<A>(arguments: A, surroundings: &mut Surroundings) -> Exit
where
    A: IntoIterator,
    A::Item: Into<OsString>,
{
    run_line(arguments.into_iter().map(Into::into).collect(), surroundings)
}

/// Not generic, so that the commands are compiled here and not in every caller.
fn run_line(line: Vec<OsString>, surroundings: &mut Surroundings) -> Exit {
    let arguments = match Arguments::try_parse_from(line) {
        Ok(arguments) => arguments,
        Err(error) => return failure::print_usage(&error, surroundings),
    };
    let Arguments { connection, output, command } = arguments;
    let done = match command {
        Command::Serve(flags) => serve::run(&flags, surroundings),
        Command::Completions(shell) => completions::run(&shell, &mut *surroundings.out),
        Command::ElectionKeeper(arguments) => {
            return wait_for(keep(&arguments, &output, surroundings));
        }
        Command::Remote(command) => {
            return wait_for(ask(command, connection, &output, surroundings));
        }
        Command::Store(command) => {
            return wait_for(store::run(command, &connection, &output, surroundings));
        }
    };
    finish(done.map(|()| Exit::Done), None, &output, surroundings)
}

async fn keep(
    arguments: &elections::keeper::KeeperArguments,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Exit {
    let kept = elections::keeper::run(arguments, &*surroundings.clock).await;
    finish(kept, None, flags, surroundings)
}

/// Runs a command on a runtime of its own.
fn wait_for(command: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => {
            // Without a runtime there is nothing to report through.
            eprintln!("cannot start: {error}\nfree some memory");
            Exit::Failed
        }
    }
}

/// Runs a command that asks a server and prints what it answers.
async fn ask(
    command: RemoteCommand,
    connection: ConnectionFlags,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Exit {
    let place = place_of(&command, connection, surroundings);
    let place = match place {
        Ok(place) => place,
        Err(failure) => return finish(Err(failure), None, flags, surroundings),
    };
    let done = match command {
        RemoteCommand::Ttl(command) => {
            ttl::run(command, &place, flags, surroundings).await.map(|()| Exit::Done)
        }
        RemoteCommand::Election(command) => {
            elections::run(command, &place, flags, surroundings).await
        }
        RemoteCommand::Sequence(command) => {
            sequences::run(command, &place, flags, surroundings).await.map(|()| Exit::Done)
        }
        RemoteCommand::Blob(command) => {
            blobs::run(command, &place, flags, surroundings).await.map(|()| Exit::Done)
        }
        RemoteCommand::Device(command) => devices::run(command, &place, flags, surroundings).await,
        RemoteCommand::Stream(command) => {
            streams::run(command, &place, flags, surroundings).await.map(|()| Exit::Done)
        }
        RemoteCommand::Audit(command) => {
            audit::run(command, &place, flags, surroundings).await.map(|()| Exit::Done)
        }
        RemoteCommand::App(command) => {
            app::run(command.command, &place, flags, surroundings).await.map(|()| Exit::Done)
        }
    };
    finish(done, Some(&place), flags, surroundings)
}

/// The server that a command asks, and the key for it.
fn place_of(
    command: &RemoteCommand,
    connection: ConnectionFlags,
    surroundings: &Surroundings,
) -> Result<Place, Failure> {
    match command {
        RemoteCommand::Ttl(command) => {
            connection.with_data(&command.data).app_place(&command.app, surroundings)
        }
        RemoteCommand::Election(command) => {
            connection.with_data(&command.data).app_place(&command.app, surroundings)
        }
        RemoteCommand::Sequence(command) => {
            connection.with_data(&command.data).app_place(&command.app, surroundings)
        }
        RemoteCommand::Blob(command) => {
            let connection = connection.with_data(&command.data);
            match command.has_secret() {
                true => connection.keyless_place(surroundings),
                false => connection.app_place(&command.app, surroundings),
            }
        }
        RemoteCommand::Device(command) => {
            let connection = connection.with_data(&command.data);
            match command.is_device() {
                true => connection.keyless_place(surroundings),
                false => connection.app_place(&command.app, surroundings),
            }
        }
        RemoteCommand::Stream(command) => {
            let connection = connection.with_data(&command.data);
            match command.party() {
                Some(party) => connection.stream_place(party, surroundings),
                None => connection.admin_place(surroundings),
            }
        }
        RemoteCommand::Audit(command) => {
            connection.with_data(&command.data).admin_place(surroundings)
        }
        RemoteCommand::App(command) => {
            connection.with_data(&command.data).admin_place(surroundings)
        }
    }
}

fn finish(
    done: Result<Exit, Failure>,
    place: Option<&Place>,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Exit {
    match done.and_then(|exit| Ok(surroundings.out.flush().map(|()| exit)?)) {
        Ok(exit) => exit,
        Err(failure) => failure::print(&failure, place, flags, surroundings),
    }
}
