//! `wane blob`: files to a server and back, whole or not at all, and on from where it stopped.
//!
//! `put` sends a file piece by piece and remembers the upload until it is complete (see `memory`);
//! what comes from a pipe is sent in one go. `get` writes `FILE.part`, which becomes `FILE` once all
//! bytes are there and have the sum of those that were uploaded (see `arriving_file`).
//!
//! Reading and writing files blocks the thread, which has nothing else to do. Pipes may block for
//! ever: they are read by a thread of their own (see `piped`).

mod arriving_file;
mod error;
mod get;
mod memory;
mod piped;
mod put;
mod safe_name;
mod summed_file;

pub(in crate::cli) use error::BlobCommandError;

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use wane::services::apps::AppName;
use wane::services::blobs::{DeleteSecret, Suuid};
use wane::services::sequencer::WorkspaceId;

use super::connection::DataFlag;
use super::failure::Failure;
use super::output::{Output, OutputFlags, Table, put_expiry, shown_text};
use super::{Place, Surroundings};
use crate::client::BlobDetails;

/// The name that stands for standard input or standard output.
const STANDARD: &str = "-";

#[derive(Debug, Args)]
pub(super) struct BlobArguments {
    /// The app whose BLOBs they are
    #[arg(long, global = true, value_name = "OWNER/APP", default_value = "demo/app")]
    pub(super) app: AppName,

    /// The workspace of the app
    #[arg(long, global = true, value_name = "N", default_value_t = 1)]
    workspace: u64,

    #[command(flatten)]
    pub(super) data: DataFlag,

    #[command(subcommand)]
    command: BlobCommand,
}

impl BlobArguments {
    /// Whether a delete secret does instead of a key.
    pub(super) fn has_secret(&self) -> bool {
        matches!(self.command, BlobCommand::Delete { secret: Some(_), .. })
    }
}

#[derive(Debug, Subcommand)]
enum BlobCommand {
    /// Upload a file; prints its id and its delete secret. Given again, goes on where it stopped
    Put(put::PutArguments),
    /// Download a BLOB to a file. Given again, goes on where it stopped
    Get(get::GetArguments),
    /// Say what a BLOB is; takes no download
    Info {
        /// The id, as put printed it; one that begins with a dash comes after --
        #[arg(value_name = "SUUID", allow_hyphen_values = true)]
        id: Suuid,
    },
    /// Remove a BLOB
    Delete {
        /// The id, as put printed it; one that begins with a dash comes after --
        #[arg(value_name = "SUUID", allow_hyphen_values = true)]
        id: Suuid,
        /// The delete secret, as put printed it: then no key is needed
        #[arg(long, value_name = "SECRET", allow_hyphen_values = true)]
        secret: Option<DeleteSecret>,
    },
}

pub(super) async fn run(
    arguments: BlobArguments,
    place: &Place,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<(), Failure> {
    let blobs = place.client.blobs(&arguments.app, WorkspaceId(arguments.workspace));
    let output = &mut Output::new(flags, surroundings);
    match arguments.command {
        BlobCommand::Put(arguments) => put::run(&arguments, &blobs, output).await,
        BlobCommand::Get(arguments) => get::run(&arguments, &blobs, output).await,
        BlobCommand::Info { id } => show(&blobs.info(id).await?, output),
        BlobCommand::Delete { id, secret } => {
            match secret {
                Some(secret) => blobs.delete_with(id, &secret).await?,
                None => blobs.delete(id).await?,
            }
            Ok(output.answer(Map::new(), "deleted")?)
        }
    }
}

fn show(details: &BlobDetails, output: &mut Output<'_>) -> Result<(), Failure> {
    if output.is_json {
        return Ok(output.json(object(details))?);
    }
    let downloads = details.downloads_left.map_or("any number".into(), |left| left.to_string());
    let mut table = Table::default();
    for (name, value) in [
        ("id", details.id.to_string()),
        ("name", shown_text(&details.name)),
        ("type", shown_text(&details.content_type)),
        ("size", details.size.to_string()),
        ("sha256", details.sha256.to_string()),
        ("left", output.left(Some(details.expires_at))),
        ("downloads left", downloads),
    ] {
        table.push(vec![name.into(), value]);
    }
    Ok(output.table(&table)?)
}

fn object(details: &BlobDetails) -> Map<String, Value> {
    let mut object = Map::from_iter([
        ("blobSUUID".to_owned(), details.id.to_string().into()),
        ("name".to_owned(), (&*details.name).into()),
        ("contentType".to_owned(), (&*details.content_type).into()),
        ("size".to_owned(), details.size.into()),
        ("sha256".to_owned(), details.sha256.to_string().into()),
        ("downloadsLeft".to_owned(), details.downloads_left.into()),
    ]);
    put_expiry(&mut object, Some(details.expires_at));
    object
}

fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD)
}
