//! `wane blob put`: a file piece by piece, a pipe in one go.
//!
//! The sum of the file is taken as it is read, whatever part of it an earlier run has sent, and
//! compared with that of the BLOB in the end: what was put together of two states of a file is
//! removed again.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Map;
use wane::services::blobs::{BlobTtl, MAX_NAME, NewBlob};
use wane::store::Timestamp;

use super::memory::{self, Memory, Remembered, Stamp};
use super::summed_file::SummedFile;
use super::{BlobCommandError, is_standard, piped};
use crate::cli::failure::Failure;
use crate::cli::lifetime;
use crate::cli::output::{Output, Table, put_expiry};
use crate::cli::progress::Meter;
use crate::client::{Blobs, ClientError, ResumableUpload, Source, UploadedBlob};

#[derive(Debug, Args)]
pub(super) struct PutArguments {
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Its name [that of the file]
    #[arg(long)]
    name: Option<String>,
    /// Its media type
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream")]
    content_type: String,
    /// How long it lives: seconds, or with a unit
    #[arg(long, value_name = "S", value_parser = life, default_value = "1d")]
    ttl: BlobTtl,
    /// How often it can be downloaded before it is removed [any number of times]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    downloads: Option<u32>,
    /// Begin anew where an earlier put of the file stopped
    #[arg(long)]
    restart: bool,
}

/// A life of whole seconds.
fn life(text: &str) -> Result<BlobTtl, String> {
    let millis = lifetime::parse(text)?.as_millis();
    if millis % 1_000 != 0 {
        return Err("a BLOB lives for whole seconds".into());
    }
    BlobTtl::from_secs(millis / 1_000).map_err(|error| error.to_string())
}

impl PutArguments {
    fn blob(&self, output: &mut Output<'_>) -> io::Result<NewBlob> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => self.name_of_file(output)?,
        };
        let (content_type, ttl) = (self.content_type.clone(), self.ttl);
        Ok(NewBlob { name, content_type, ttl, downloads: self.downloads, ..NewBlob::default() })
    }

    fn name_of_file(&self, output: &mut Output<'_>) -> io::Result<String> {
        if is_standard(&self.file) {
            return Ok(String::new());
        }
        let name = self.file.file_name().unwrap_or_default().to_str();
        let fits = |name: &&str| name.len() <= MAX_NAME && !name.chars().any(char::is_control);
        match name.filter(fits) {
            Some(name) => Ok(name.to_owned()),
            None => {
                output.note("the name of the file cannot be kept; give another one with --name")?;
                Ok(String::new())
            }
        }
    }
}

pub(super) async fn run(
    arguments: &PutArguments,
    blobs: &Blobs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let blob = arguments.blob(output)?;
    let path = &arguments.file;
    let uploaded = if is_standard(path) {
        put_piped(&blob, blobs, output.take_input()).await?
    } else {
        let file = File::open(path).map_err(BlobCommandError::io(path))?;
        let kind = file.metadata().map_err(BlobCommandError::io(path))?.file_type();
        if kind.is_dir() {
            let is_directory = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(BlobCommandError::io(path)(is_directory).into());
        }
        match kind.is_file() {
            true => put_file(arguments, blob, blobs, file, output).await?,
            false => put_piped(&blob, blobs, Box::new(file)).await?,
        }
    };
    print(&uploaded, output)
}

fn print(uploaded: &UploadedBlob, output: &mut Output<'_>) -> Result<(), Failure> {
    let (id, secret) = (uploaded.id.to_string(), uploaded.delete_secret.reveal());
    if output.is_json {
        let mut object = Map::from_iter([
            ("blobSUUID".to_owned(), id.into()),
            ("deleteSecret".to_owned(), secret.into()),
        ]);
        put_expiry(&mut object, Some(uploaded.expires_at));
        return Ok(output.json(object)?);
    }
    let left = output.left(Some(uploaded.expires_at));
    let mut table = Table::default();
    for (name, value) in [("id", id), ("delete secret", secret), ("left", left)] {
        table.push(vec![name.into(), value]);
    }
    output.table(&table)?;
    Ok(output.note("keep the delete secret: it is shown this once")?)
}

/// What comes from a pipe can be read once, so that it cannot be resumed.
async fn put_piped(
    blob: &NewBlob,
    blobs: &Blobs,
    input: Box<dyn Read + Send>,
) -> Result<UploadedBlob, Failure> {
    let meter = Meter::of_bytes("put", None);
    let source = Source::of(piped::pieces(input)?).heard_by(meter.counter());
    blobs.upload(blob, source).await.map_err(BlobCommandError::of_upload)
}

/// A file on its way.
struct Put<'a> {
    blobs: &'a Blobs,
    path: &'a Path,
    reader: SummedFile,
    stamp: Stamp,
    memory: Option<Memory>,
}

async fn put_file(
    arguments: &PutArguments,
    mut blob: NewBlob,
    blobs: &Blobs,
    file: File,
    output: &mut Output<'_>,
) -> Result<UploadedBlob, Failure> {
    let path = &*arguments.file;
    let stamp = Stamp::of(&file).map_err(BlobCommandError::io(path))?;
    blob.length = Some(stamp.size);
    let memory = remembering(&blob, blobs, path, output)?;
    let reader = SummedFile::new(file);
    let mut put = Put { blobs, path, reader, stamp, memory };
    let (uploaded, mut upload) = put.begin(&blob, arguments.restart, output).await?;
    let meter = Meter::of_bytes("put", Some(upload.length()));
    meter.begin_at(upload.offset());
    while !upload.is_complete() {
        put.append(&mut upload, &meter).await?;
    }
    drop(meter);
    put.confirm(&upload).await?;
    if let Err(error) = put.forget() {
        output.note(&format!("given again, this command answers the same: {error}"))?;
    }
    Ok(uploaded)
}

/// The memory of this command line. Without one the file can be put all the same.
fn remembering(
    blob: &NewBlob,
    blobs: &Blobs,
    path: &Path,
    output: &mut Output<'_>,
) -> Result<Option<Memory>, Failure> {
    let whole_path = path.canonicalize().map_err(BlobCommandError::io(path))?;
    let downloads = blob.downloads.unwrap_or_default().to_string();
    let words = [
        &*path.to_string_lossy(),
        &whole_path.to_string_lossy(),
        &blobs.url(),
        &blob.name,
        &blob.content_type,
        &blob.ttl.to_string(),
        &downloads,
    ];
    let opened = memory::directory(output).map(|directory| {
        memory::sweep(&directory, output.now());
        Memory::open(&directory, &words)
    });
    let why = match opened {
        Some(Ok(memory)) => return Ok(Some(memory)),
        Some(Err(error @ BlobCommandError::Busy { .. })) => return Err(error.into()),
        Some(Err(error)) => error.to_string(),
        None => "neither XDG_STATE_HOME nor HOME is set".to_owned(),
    };
    output.note(&format!("it cannot be resumed if it stops: {why}"))?;
    Ok(None)
}

impl Put<'_> {
    /// Goes on with what an earlier run began, or begins.
    async fn begin(
        &mut self,
        blob: &NewBlob,
        restart: bool,
        output: &mut Output<'_>,
    ) -> Result<(UploadedBlob, ResumableUpload), Failure> {
        let remembered = self.memory.as_mut().map(Memory::recall).transpose()?.flatten();
        if let Some((earlier, stamp)) = remembered.and_then(|it| understood(&it)) {
            if stamp == self.stamp && !restart {
                match self.blobs.resume(earlier.id).await {
                    Ok(upload) if upload.length() == self.stamp.size => {
                        output.note(&format!("going on at byte {}", upload.offset()))?;
                        return Ok((earlier, upload));
                    }
                    Ok(_) | Err(ClientError::Absent) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            // What was begun is of no use any more, and counts among what the app may hold.
            if let Err(error) = self.remove(&earlier).await {
                output
                    .note(&format!("what an earlier put left stays until it expires: {error}"))?;
            }
        }
        let created = self.blobs.create(blob).await;
        let (uploaded, upload) = created.map_err(BlobCommandError::of_upload)?;
        if let Some(memory) = &mut self.memory {
            memory.remember(&Remembered {
                file: self.stamp.clone(),
                id: uploaded.id.to_string(),
                delete_secret: uploaded.delete_secret.reveal(),
                expires_at: uploaded.expires_at.as_unix_millis(),
            })?;
        }
        Ok((uploaded, upload))
    }

    async fn append(&mut self, upload: &mut ResumableUpload, meter: &Meter) -> Result<(), Failure> {
        let (kept, stride) = (upload.offset(), upload.stride());
        let piece = match self.reader.read(kept, stride) {
            Ok(piece) => piece,
            Err(error) if is_shorter(&error) => return Err(self.give_up(upload).await),
            Err(error) => return Err(BlobCommandError::io(self.path)(error).into()),
        };
        let is_last = kept + piece.len() as u64 == self.stamp.size;
        let appended = upload.append(piece, meter.listener()).await;
        appended.map_err(|error| self.stopped(error, kept, is_last))
    }

    /// What came of a failure, and whether the same command goes on from there.
    fn stopped(&self, source: ClientError, kept: u64, is_last: bool) -> Failure {
        let size = self.stamp.size;
        let is_over = matches!(&source, ClientError::Absent)
            || matches!(&source, ClientError::Problem { code, .. } if code == "gone");
        if is_over || self.memory.is_none() {
            return source.into();
        }
        BlobCommandError::Stopped { source, kept, size, is_last }.into()
    }

    /// Compares the BLOB with the file, and removes it where they differ.
    async fn confirm(&mut self, upload: &ResumableUpload) -> Result<(), Failure> {
        let sum = match self.reader.sum_to(self.stamp.size) {
            Ok(sum) => sum,
            Err(error) if is_shorter(&error) => return Err(self.give_up(upload).await),
            Err(error) => return Err(BlobCommandError::io(self.path)(error).into()),
        };
        let is_same = match self.blobs.info(upload.id()).await {
            Ok(details) => details.sha256 == sum,
            // A key that can only write. Every piece had its sum, and the file stayed as it was.
            Err(ClientError::Problem { status: 403, .. }) => true,
            Err(error) => return Err(self.stopped(error, self.stamp.size, true)),
        };
        let stamp = Stamp::of(self.reader.file()).map_err(BlobCommandError::io(self.path))?;
        match is_same && stamp == self.stamp {
            true => Ok(()),
            false => Err(self.give_up(upload).await),
        }
    }

    /// Removes what was sent of a file that did not stay what it was.
    async fn give_up(&mut self, upload: &ResumableUpload) -> Failure {
        if let Err(error) = self.blobs.terminate(upload.id()).await {
            return error.into();
        }
        if let Err(error) = self.forget() {
            return error.into();
        }
        BlobCommandError::Changed { path: self.path.to_path_buf() }.into()
    }

    async fn remove(&self, earlier: &UploadedBlob) -> Result<(), ClientError> {
        match self.blobs.terminate(earlier.id).await {
            Ok(()) | Err(ClientError::Absent) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn forget(&mut self) -> Result<(), BlobCommandError> {
        self.memory.take().map_or(Ok(()), Memory::forget)
    }
}

/// What is remembered, where it is what it should be.
fn understood(remembered: &Remembered) -> Option<(UploadedBlob, Stamp)> {
    let uploaded = UploadedBlob {
        id: remembered.id.parse().ok()?,
        delete_secret: remembered.delete_secret.parse().ok()?,
        expires_at: Timestamp::from_unix_millis(remembered.expires_at),
    };
    Some((uploaded, remembered.file.clone()))
}

fn is_shorter(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}
