//! `wane stream`: messages to institutions, and out of their streams until they are kept.
//!
//! `push` sends files. `pull` reads a stream: what came is kept first (see `sink`) and acknowledged
//! then, by asking for more (see `pull`). `status`, `credential`, `archive`, holds, regions and the order
//! of a `replay` are the operator's.
//!
//! Reading and writing files blocks the thread, which has nothing else to do.

mod archive;
mod error;
mod exec;
mod holds;
mod message_directory;
mod pull;
mod push;
mod regions;
mod replay;
mod sink;
mod stop;

pub(in crate::cli) use error::StreamCommandError;

use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use wane::services::apps::Scope;
use wane::services::pull_stream::{HoldId, Ispb, StreamStatus};

use super::app::print_key;
use super::connection::{DataFlag, StreamParty};
use super::failure::Failure;
use super::output::{Output, OutputFlags, Table, left};
use super::{Place, Surroundings};

#[derive(Debug, Args)]
pub(super) struct StreamArguments {
    #[command(flatten)]
    pub(super) data: DataFlag,

    #[command(subcommand)]
    command: StreamCommand,
}

impl StreamArguments {
    /// Which side of a stream the command is; `None` for the operator's.
    pub(super) fn party(&self) -> Option<StreamParty> {
        match self.command {
            StreamCommand::Push(_) => Some(StreamParty::Producer),
            StreamCommand::Pull(_) => Some(StreamParty::Reader),
            StreamCommand::Replay(ref arguments) => {
                arguments.reads().then_some(StreamParty::Reader)
            }
            StreamCommand::Status(_)
            | StreamCommand::Credential { .. }
            | StreamCommand::Archive(_)
            | StreamCommand::Hold(_)
            | StreamCommand::Holds(_)
            | StreamCommand::Release { .. }
            | StreamCommand::Region(_)
            | StreamCommand::Failover(_) => None,
        }
    }
}

#[derive(Debug, Subcommand)]
enum StreamCommand {
    /// Send files to an institution, a message each; prints their ids
    Push(push::PushArguments),
    /// Read the stream of an institution, and acknowledge each batch once it is written
    Pull(pull::PullArguments),
    /// Make what came in between two moments readable once more, and print where (for operators);
    /// or read it there
    Replay(replay::ReplayArguments),
    /// Say how far the stream of an institution is (for operators)
    Status(IspbFlag),
    /// Make a credential and print it: for whoever sends messages, or with --ispb for an
    /// institution that reads them (for operators)
    Credential {
        /// The institution that reads its stream with it: eight digits
        #[arg(long, value_name = "N")]
        ispb: Option<Ispb>,
    },
    /// Keep the messages of a time, whatever their retention, until they are released (for
    /// operators)
    Hold(holds::HoldArguments),
    /// List the holds of an institution (for operators)
    Holds(IspbFlag),
    /// End a hold: its messages have what is left of their retention again (for operators)
    Release {
        /// The id that `hold` printed
        hold: HoldId,
    },
    /// Say which region serves an institution, or set it and the one that may take over (for
    /// operators)
    Region(regions::RegionArguments),
    /// Let the other region serve an institution (for operators)
    Failover(regions::FailoverArguments),
    /// Copy messages of an institution to the archive, or check what is there (for operators)
    Archive(archive::ArchiveArguments),
}

/// Whose stream it is.
#[derive(Debug, Clone, Copy, Args)]
struct IspbFlag {
    /// The institution: eight digits
    #[arg(long, value_name = "N")]
    ispb: Ispb,
}

pub(super) async fn run(
    arguments: StreamArguments,
    place: &Place,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<(), Failure> {
    let clock = Arc::clone(&surroundings.clock);
    let output = &mut Output::new(flags, surroundings);
    match arguments.command {
        StreamCommand::Push(arguments) => {
            let stream = place.client.pull_stream(arguments.who.ispb);
            push::run(&arguments, &stream, output).await
        }
        StreamCommand::Pull(arguments) => {
            let stream = place.client.pull_stream(arguments.who.ispb);
            pull::run(&arguments, &stream, clock, output).await
        }
        StreamCommand::Replay(arguments) if arguments.reads() => {
            let stream = place.client.pull_stream(arguments.who.ispb);
            replay::read(&arguments, &stream, clock, output).await
        }
        StreamCommand::Replay(arguments) => {
            replay::order(&arguments, &place.client.admin(), output).await
        }
        StreamCommand::Status(IspbFlag { ispb }) => {
            let status = place.client.admin().stream_status(ispb).await?;
            show(ispb, &status, output)
        }
        StreamCommand::Credential { ispb } => {
            let scope = if ispb.is_some() { Scope::Pull } else { Scope::Produce };
            let ispb = ispb.as_ref().map(Ispb::as_str);
            print_key(&place.client.admin().add_credential(&[scope], ispb).await?, output)
        }
        StreamCommand::Hold(arguments) => {
            holds::place(&arguments, &place.client.admin(), output).await
        }
        StreamCommand::Holds(IspbFlag { ispb }) => {
            holds::list(ispb, &place.client.admin(), output).await
        }
        StreamCommand::Release { hold } => holds::release(&hold, &place.client.admin()).await,
        StreamCommand::Region(arguments) => {
            regions::region(&arguments, &place.client.admin(), output).await
        }
        StreamCommand::Failover(arguments) => {
            regions::failover(&arguments, &place.client.admin(), output).await
        }
        StreamCommand::Archive(arguments) => {
            archive::run(&arguments, &place.client.admin(), &clock, output).await
        }
    }
}

fn show(ispb: Ispb, status: &StreamStatus, output: &mut Output<'_>) -> Result<(), Failure> {
    if output.is_json {
        let lag = u64::try_from(status.lag.as_millis()).unwrap_or(u64::MAX);
        let object: [(String, Value); 7] = [
            ("ispb".to_owned(), ispb.as_str().into()),
            ("liveReaders".to_owned(), status.live_readers.into()),
            ("inFlight".to_owned(), status.in_flight.into()),
            ("requeued".to_owned(), status.requeued.into()),
            ("headRow".to_owned(), status.head_row.into()),
            ("tailRow".to_owned(), status.tail_row.into()),
            ("lagMillis".to_owned(), lag.into()),
        ];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table = Table::default();
    for (name, value) in [
        ("ispb", ispb.to_string()),
        ("live readers", status.live_readers.to_string()),
        ("in flight", status.in_flight.to_string()),
        ("requeued", status.requeued.to_string()),
        ("head row", status.head_row.to_string()),
        ("tail row", status.tail_row.to_string()),
        ("lag", left(Some(status.lag))),
    ] {
        table.push(vec![name.into(), value]);
    }
    Ok(output.table(&table)?)
}
