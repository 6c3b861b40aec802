//! `wane blob get`: a BLOB to a file, whole or not at all, or to standard output.
//!
//! What an earlier run left in `FILE.part` is continued: its last bytes are asked for again and
//! must be the same, then come the missing ones, and the sum of all decides. So it needs no memory,
//! and a file of something else is neither continued nor overwritten.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use wane::services::blobs::Suuid;

use super::arriving_file::ArrivingFile;
use super::safe_name::safe_name;
use super::{BlobCommandError, is_standard, object};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, shown_text};
use crate::cli::progress::Meter;
use crate::client::{BlobDetails, Blobs, ClientError, Download};

#[derive(Debug, Args)]
pub(super) struct GetArguments {
    /// The id, as put printed it; one that begins with a dash comes after --
    #[arg(value_name = "SUUID", allow_hyphen_values = true)]
    id: Suuid,
    /// The file to write, or - for standard output [the name of the BLOB, in this directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace FILE if it exists, and begin FILE.part anew where it cannot be continued
    #[arg(long)]
    force: bool,
}

pub(super) async fn run(
    arguments: &GetArguments,
    blobs: &Blobs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    match &arguments.output {
        Some(path) if is_standard(path) => print(arguments.id, blobs, output).await,
        Some(path) => {
            let file = ArrivingFile::open(path, arguments.force)?;
            let getting = Getting { arguments, blobs, file, details: None };
            getting.finish(path, output).await
        }
        None => {
            let details = blobs.info(arguments.id).await?;
            let path = PathBuf::from(safe_name(&details.name, &details.id.to_string()));
            let file = ArrivingFile::open(&path, arguments.force)?;
            let getting = Getting { arguments, blobs, file, details: Some(details) };
            getting.finish(&path, output).await
        }
    }
}

/// Writes a BLOB to standard output.
async fn print(id: Suuid, blobs: &Blobs, output: &mut Output<'_>) -> Result<(), Failure> {
    if output.is_json {
        return Err(Failure::Usage {
            what: "--json and the bytes of a BLOB cannot both go to standard output".into(),
            advice: "leave --json out, or name a file with -o".into(),
        });
    }
    let mut download = blobs.download(id).await?;
    // On a terminal the bytes themselves show how far it has come.
    let size = download.details().size;
    let meter = (!output.is_terminal()).then(|| Meter::of_bytes("get", Some(size)));
    while let Some(bytes) = download.chunk().await? {
        output.bytes(&bytes)?;
        if let Some(meter) = &meter {
            meter.advance(bytes.len() as u64);
        }
    }
    Ok(())
}

/// A BLOB on its way into a file.
struct Getting<'a> {
    arguments: &'a GetArguments,
    blobs: &'a Blobs,
    file: ArrivingFile,
    /// Where they were asked for.
    details: Option<BlobDetails>,
}

impl Getting<'_> {
    async fn finish(mut self, path: &Path, output: &mut Output<'_>) -> Result<(), Failure> {
        let (mut download, first) = self.begin(output).await?;
        let details = download.details().clone();
        let meter = Meter::of_bytes("get", Some(details.size));
        meter.begin_at(self.file.length());
        self.file.write(&first)?;
        loop {
            match download.chunk().await {
                Ok(Some(bytes)) => {
                    self.file.write(&bytes)?;
                    meter.advance(bytes.len() as u64);
                }
                Ok(None) => break,
                Err(error) => return Err(self.stopped(error, details.size)),
            }
        }
        drop(meter);
        self.file.publish()?;
        let shown = path.display().to_string();
        let line =
            format!("{}, {} bytes, SHA-256 {}", shown_text(&shown), details.size, details.sha256);
        let mut answer = object(&details);
        answer.insert("file".into(), shown.into());
        Ok(output.answer(answer, &line)?)
    }

    /// The download, and bytes of it that came and are not in the file yet.
    async fn begin(&mut self, output: &mut Output<'_>) -> Result<(Download, Bytes), Failure> {
        if self.file.length() > 0 {
            match self.go_on().await {
                Ok(begun) => {
                    output.note(&format!("going on at byte {}", self.file.length()))?;
                    return Ok(begun);
                }
                Err(Failure::Blob(
                    BlobCommandError::PartOfAnother { .. } | BlobCommandError::NotResumed { .. },
                )) if self.arguments.force => self.file.begin_anew()?,
                Err(failure) => return Err(failure),
            }
        }
        Ok((self.blobs.download(self.arguments.id).await?, Bytes::new()))
    }

    /// Goes on with what an earlier run left, if its last bytes are those of the BLOB.
    async fn go_on(&mut self) -> Result<(Download, Bytes), Failure> {
        let details = match self.details.clone() {
            Some(details) => details,
            None => self.blobs.info(self.arguments.id).await?,
        };
        let path = self.file.path().to_path_buf();
        if details.downloads_left.is_some() {
            return Err(BlobCommandError::NotResumed { path }.into());
        }
        if self.file.length() > details.size {
            return Err(BlobCommandError::PartOfAnother { path }.into());
        }
        let earlier = self.file.earlier()?;
        let mut download = self.blobs.download_on(details, earlier.received);
        let mut tail = &*earlier.tail;
        while !tail.is_empty() {
            let mut bytes = match download.chunk().await {
                Ok(Some(bytes)) => bytes,
                // The sum of all is another one: its beginning is of something else.
                Ok(None) | Err(ClientError::DigestMismatch { .. }) => {
                    return Err(BlobCommandError::PartOfAnother { path }.into());
                }
                Err(error) => return Err(error.into()),
            };
            let compared = bytes.split_to(tail.len().min(bytes.len()));
            if !tail.starts_with(&compared) {
                return Err(BlobCommandError::PartOfAnother { path }.into());
            }
            tail = &tail[compared.len()..];
            if tail.is_empty() {
                return Ok((download, bytes));
            }
        }
        Ok((download, Bytes::new()))
    }

    /// What came stays where it can be continued.
    fn stopped(self, source: ClientError, size: u64) -> Failure {
        if matches!(source, ClientError::DigestMismatch { .. } | ClientError::Spent { .. }) {
            return match self.file.discard() {
                Ok(()) => source.into(),
                Err(error) => error.into(),
            };
        }
        if matches!(source, ClientError::Unreachable { .. }) {
            let kept = self.file.length();
            return BlobCommandError::Stopped { source, kept, size, is_last: false }.into();
        }
        source.into()
    }
}
