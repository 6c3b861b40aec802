//! `wane stream push`: files as messages, up to ten in a request, in the order in which they are
//! given.
//!
//! What can be known of the files is looked at before the first is sent. Where sending stops, it is
//! told of each file whether it was sent, was not, or may have been.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Map;
use wane::services::pull_stream::{Batch, MAX_BATCH, MAX_MESSAGE, Message, ResourceId};

use super::error::PushReport;
use super::{IspbFlag, StreamCommandError};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, shown_text};
use crate::client::{ClientError, PullStream};

/// The name that stands for standard input.
const STANDARD: &str = "-";

#[derive(Debug, Args)]
pub(super) struct PushArguments {
    #[command(flatten)]
    pub(super) who: IspbFlag,
    /// The files, a message each; - is one message from standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Send them compressed
    #[arg(long)]
    gzip: bool,
}

pub(super) async fn run(
    arguments: &PushArguments,
    stream: &PullStream,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    check(&arguments.files)?;
    let mut report = PushReport::default();
    let mut printed = Ok(());
    for (number, files) in arguments.files.chunks(MAX_BATCH).enumerate() {
        let ids = match send(files, arguments.gzip, stream, output).await {
            Ok(ids) => ids,
            Err(source) => {
                let rest = &arguments.files[number * MAX_BATCH..];
                return Err(stopped(source, rest, report, output));
            }
        };
        for (file, id) in files.iter().zip(ids) {
            // Whoever reads the ids may have read enough; the files are sent all the same.
            printed = printed.and_then(|()| print(file, id, output));
            report.sent.push((name(file), id));
        }
    }
    Ok(printed?)
}

/// Sends up to ten files.
async fn send(
    files: &[PathBuf],
    is_gzipped: bool,
    stream: &PullStream,
    output: &mut Output<'_>,
) -> Result<Vec<ResourceId>, StreamCommandError> {
    let messages: Result<_, _> = files.iter().map(|file| read(file, output)).collect();
    let batch = Batch::new(messages?).map_err(|error| StreamCommandError::NoMessage {
        file: "the batch".into(),
        reason: error.to_string(),
    })?;
    let sent = stream.push(&batch, is_gzipped).await;
    sent.map_err(|source| StreamCommandError::Server { source })
}

/// Says of each file what became of it: of those that follow the ones that were sent, the first
/// may be the cause.
fn stopped(
    source: StreamCommandError,
    rest: &[PathBuf],
    mut report: PushReport,
    output: &mut Output<'_>,
) -> Failure {
    let is_unknown = matches!(source.client_error(), Some(ClientError::UnknownOutcome { .. }));
    let unknown = if is_unknown { rest.len().min(MAX_BATCH) } else { 0 };
    report.unknown = rest[..unknown].iter().map(|file| name(file)).collect();
    report.unsent = rest[unknown..].iter().map(|file| name(file)).collect();
    if report.files() > 1
        && let Err(error) = list(&report, output)
    {
        return error.into();
    }
    StreamCommandError::Push { source: Box::new(source), report }.into()
}

/// Every file and what became of it, on standard error.
fn list(report: &PushReport, output: &mut Output<'_>) -> io::Result<()> {
    let mut table = Table::default();
    for (file, id) in &report.sent {
        table.push(vec!["sent".into(), shown_text(file), id.to_string()]);
    }
    for file in &report.unknown {
        table.push(vec!["unknown".into(), shown_text(file)]);
    }
    for file in &report.unsent {
        table.push(vec!["not sent".into(), shown_text(file)]);
    }
    output.note(table.layout(false).trim_end())
}

fn print(file: &Path, id: ResourceId, output: &mut Output<'_>) -> io::Result<()> {
    let id = id.to_string();
    if !output.is_json {
        return output.line(&id);
    }
    let object = [("id".to_owned(), id.into()), ("file".to_owned(), name(file).into())];
    output.json(Map::from_iter(object))
}

fn name(file: &Path) -> String {
    file.display().to_string()
}

/// Finds what is wrong with files before any is sent. Pipes are looked at when they are read.
fn check(files: &[PathBuf]) -> Result<(), Failure> {
    if files.iter().filter(|file| is_standard(file)).count() > 1 {
        return Err(Failure::Usage {
            what: "standard input is one message".into(),
            advice: "give - once, and the other messages as files".into(),
        });
    }
    for file in files.iter().filter(|file| !is_standard(file)) {
        let metadata = fs::metadata(file).map_err(StreamCommandError::io(file))?;
        if metadata.is_dir() {
            let is_directory = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(StreamCommandError::io(file)(is_directory).into());
        }
        if metadata.is_file() {
            check_length(file, metadata.len())?;
        }
    }
    Ok(())
}

/// The bytes of a file, or of standard input.
fn read(file: &Path, output: &mut Output<'_>) -> Result<Message, StreamCommandError> {
    let failed = StreamCommandError::io(file);
    let mut bytes = Vec::new();
    // One more than is legal shows that there are more.
    let longest = MAX_MESSAGE as u64 + 1;
    let read = match is_standard(file) {
        true => output.input().take(longest).read_to_end(&mut bytes),
        false => File::open(file).and_then(|it| it.take(longest).read_to_end(&mut bytes)),
    };
    read.map_err(failed)?;
    check_length(file, bytes.len() as u64)?;
    Message::new(bytes).map_err(|error| no_message(file, error.to_string()))
}

fn check_length(file: &Path, length: u64) -> Result<(), StreamCommandError> {
    match length {
        0 => Err(no_message(file, "it is empty".into())),
        _ if length > MAX_MESSAGE as u64 => {
            Err(no_message(file, format!("it has more than {MAX_MESSAGE} bytes")))
        }
        _ => Ok(()),
    }
}

fn no_message(file: &Path, reason: String) -> StreamCommandError {
    let file = if is_standard(file) { "standard input".into() } else { name(file) };
    StreamCommandError::NoMessage { file, reason }
}

fn is_standard(file: &Path) -> bool {
    file == Path::new(STANDARD)
}
