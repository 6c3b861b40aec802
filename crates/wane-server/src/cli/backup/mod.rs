//! `wane backup`, `wane restore` and `wane verify`: a whole store to a file and back, whole or not
//! at all.
//!
//! A backup reads a stopped store (`--data DIR`) or whatever bytes a running server sends; either
//! way they are checked as they pass, and the file gets its name only when all of it is sound and
//! durable (see `part_file`). A restoration fills a store beside the place where it will be (see
//! `draft_store`) and moves it there at the end. So a failure, a full disk or a kill never leaves a
//! half backup under its name, nor half a store.
//!
//! Each command returns a report: people see its `Display`, programs its JSON. Progress is shown on
//! a terminal only. Reading and writing files blocks the thread, which has nothing else to do.
//!
//! Not here: the bytes, which are `wane::services::backup`'s, and the connection to a server.

mod draft_store;
pub(super) mod part_file;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use draft_store::DraftStore;
pub(crate) use part_file::PartFile;
pub use report::{BackupReport, Files, RestoreReport, Summary, VerifyReport};

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use futures_util::{Stream, StreamExt};
use wane::clock::{Clock, SharedClock};
use wane::services::backup::{
    Backup, BackupError, Chunks, ReadChunks, Restored, Verifier, restore, restore_stream, verify,
};
use wane::store::BoxError;
use wane_backends::OpenError;
use wane_backends::file::FileStore;

use super::progress::Meter;

/// The name that stands for the standard input.
const STDIN: &str = "-";

/// Write a whole store to a file.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    /// The file to write; it gets this name once it is complete.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Read the stopped store in this directory instead of a running server.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Replace FILE if it exists.
    #[arg(long)]
    pub force: bool,
}

/// Restore a backup into a directory that holds no store.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// The backup, or - for the standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the store shall be.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

/// Check a backup or a stopped store, and say what it holds.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct VerifyArgs {
    /// The backup, or - for the standard input.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The directory of a stopped store.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// A backup as a running server sends it.
pub type RemoteBackup = Pin<Box<dyn Stream<Item = Result<Bytes, BoxError>> + Send>>;

/// Where a backup comes from.
pub enum Source {
    /// The stopped store in this directory.
    Store(PathBuf),
    /// A running server.
    Remote(RemoteBackup),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(directory) => f.debug_tuple("Store").field(directory).finish(),
            Self::Remote(_) => f.write_str("Remote"),
        }
    }
}

/// Why a command failed, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum BackupCommandError {
    /// The file to write is there already.
    #[error("{} exists; give --force to replace it, or another name", path.display())]
    FileExists { path: PathBuf },

    /// Another backup is being written there, or was killed.
    #[error(
        "{} exists: another backup is writing it, or was killed; in that case delete it",
        path.display()
    )]
    PartExists { path: PathBuf },

    /// Another restoration is under way there, or was killed.
    #[error(
        "{} exists: another restoration is filling it, or was killed; in that case delete it",
        path.display()
    )]
    DraftExists { path: PathBuf },

    /// A server has the store open.
    #[error(
        "{source}, or back it up as it runs: `wane backup FILE` without --data asks the server at \
         its admin address"
    )]
    InUse { source: OpenError },

    /// The store could not be opened or created.
    #[error(transparent)]
    Open(OpenError),

    /// A file could not be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },

    /// The backup could not be made, read or restored.
    #[error("{}: {source}", path.display())]
    Backup { path: PathBuf, source: BackupError },
}

impl From<OpenError> for BackupCommandError {
    fn from(source: OpenError) -> Self {
        let in_use = matches!(source, OpenError::InUse { .. });
        if in_use { Self::InUse { source } } else { Self::Open(source) }
    }
}

impl BackupCommandError {
    /// The exit code that tells this error: 3 refused, 4 absent, 1 anything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::FileExists { .. }
            | Self::PartExists { .. }
            | Self::DraftExists { .. }
            | Self::InUse { .. }
            | Self::Open(OpenError::Exists { .. })
            | Self::Backup { source: BackupError::NotEmpty { .. }, .. } => 3,
            Self::Open(OpenError::Absent { .. }) => 4,
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => 4,
            Self::Open(_) | Self::Io { .. } | Self::Backup { .. } => 1,
        }
    }

    fn io(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_path_buf(), source }
    }

    fn backup(path: &Path) -> impl Fn(BackupError) -> Self {
        move |source| Self::Backup { path: path.to_path_buf(), source }
    }
}

/// Writes the backup that `source` yields to the file that `args` name.
pub async fn run_backup(
    args: &BackupArgs,
    source: Source,
    clock: &SharedClock,
) -> Result<BackupReport, BackupCommandError> {
    let part = PartFile::create(&args.file, args.force)?;
    let sink = part.sink()?;
    match source {
        Source::Store(directory) => {
            let store = FileStore::open(&directory, Arc::clone(clock))?;
            let backup = Backup::begin(store, &**clock, "file").await;
            let mut backup = backup.map_err(BackupCommandError::backup(&directory))?;
            save(part, sink, &mut backup, &**clock).await
        }
        Source::Remote(stream) => {
            save(part, sink, &mut RemoteChunks { stream, offset: 0 }, &**clock).await
        }
    }
}

/// Writes the chunks to `sink`, the bytes of `part`, which gets its name if all of it is sound.
async fn save(
    part: PartFile,
    mut sink: impl Write + Send,
    chunks: &mut impl Chunks,
    clock: &dyn Clock,
) -> Result<BackupReport, BackupCommandError> {
    let meter = Meter::of_records("backup", None);
    let mut verifier = Verifier::new(clock.now());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(BackupCommandError::backup(part.target()))?;
        verifier.push(&chunk).map_err(BackupCommandError::backup(part.target()))?;
        sink.write_all(&chunk).map_err(BackupCommandError::io(part.path()))?;
        meter.show(verifier.progress());
    }
    let summary = verifier.finish().map_err(BackupCommandError::backup(part.target()))?;
    sink.flush().map_err(BackupCommandError::io(part.path()))?;
    let file = part.publish()?;
    Ok(BackupReport { file, summary: summary.into() })
}

/// Restores the backup that `args` name into the directory that they name.
pub async fn run_restore(
    args: &RestoreArgs,
    clock: &SharedClock,
) -> Result<RestoreReport, BackupCommandError> {
    let failed = BackupCommandError::backup(&args.file);
    if args.file == Path::new(STDIN) {
        let meter = Meter::of_records("restore", None);
        let mut chunks = ReadChunks::new(std::io::stdin());
        return fill(&args.data, clock, async |store| {
            let listen = |progress| meter.show(progress);
            restore_stream(store, &**clock, &mut chunks, listen).await.map_err(&failed)
        })
        .await;
    }
    let (mut file, meter) = open_backup(&args.file, "restore")?;
    fill(&args.data, clock, async |store| {
        let listen = |progress| meter.show(progress);
        restore(store, &**clock, &mut file, listen).await.map_err(&failed)
    })
    .await
}

/// Makes a store of `directory` by `restoring` into an empty one elsewhere; none if that fails.
async fn fill(
    directory: &Path,
    clock: &SharedClock,
    restoring: impl AsyncFnOnce(&FileStore) -> Result<Restored, BackupCommandError>,
) -> Result<RestoreReport, BackupCommandError> {
    let (draft, store) = DraftStore::create(directory, clock)?;
    let restored = restoring(&store).await;
    // Closed before it is moved, or removed.
    drop(store);
    let restored = restored?;
    draft.place()?;
    Ok(RestoreReport::new(directory, restored))
}

/// Checks what `args` name, and says what it holds.
pub async fn run_verify(
    args: &VerifyArgs,
    clock: &SharedClock,
) -> Result<VerifyReport, BackupCommandError> {
    let now = clock.now();
    if let Some(directory) = &args.data {
        // Before it is opened, which brings what was logged into the tree.
        let files = FileStore::verify(directory)?;
        let failed = BackupCommandError::backup(directory);
        let store = FileStore::open(directory, Arc::clone(clock))?;
        let mut backup = Backup::begin(store, &**clock, "file").await.map_err(&failed)?;
        let meter = Meter::of_records("verify", None);
        let summary = verify(&mut backup, now, |progress| meter.show(progress)).await;
        return Ok(VerifyReport::of_store(directory, files, summary.map_err(&failed)?));
    }
    let path = args.file.as_deref().unwrap_or(Path::new(STDIN));
    let summary = if path == Path::new(STDIN) {
        let meter = Meter::of_records("verify", None);
        let listen = |progress| meter.show(progress);
        verify(&mut ReadChunks::new(std::io::stdin()), now, listen).await
    } else {
        let (file, meter) = open_backup(path, "verify")?;
        let listen = |progress| meter.show(progress);
        verify(&mut ReadChunks::new(file), now, listen).await
    };
    Ok(VerifyReport::of_backup(path, summary.map_err(BackupCommandError::backup(path))?))
}

/// Opens a file to read, and a meter over its length.
fn open_backup(path: &Path, what: &'static str) -> Result<(File, Meter), BackupCommandError> {
    let file = File::open(path).map_err(BackupCommandError::io(path))?;
    let length = file.metadata().map_err(BackupCommandError::io(path))?.len();
    Ok((file, Meter::of_records(what, Some(length))))
}

/// The bytes that a server sends.
struct RemoteChunks {
    stream: RemoteBackup,
    offset: u64,
}

impl Chunks for RemoteChunks {
    async fn next(&mut self) -> Option<Result<Bytes, BackupError>> {
        match self.stream.next().await? {
            Ok(bytes) => {
                self.offset += bytes.len() as u64;
                Some(Ok(bytes))
            }
            Err(source) => Some(Err(BackupError::Read { offset: self.offset, source })),
        }
    }
}
