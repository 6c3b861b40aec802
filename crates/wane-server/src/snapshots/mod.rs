//! Snapshots: a backup of the whole store every night, which was restored once before it counts.
//!
//! A snapshot is written under a name of its own, read back, restored into a store that is thrown away
//! again, made durable, and then given its name. Only then the oldest ones are removed. One that was
//! missed, as the server was down, is made up for at the next start.
//!
//! Of several nodes on a shared store one takes snapshots: the leader of an election. Where it ends,
//! another one goes on, in its own directory.
//!
//! Invariant: a file with the name of a snapshot is whole, whatever ends when. A snapshot that fails is
//! logged and counted; serving goes on.
//!
//! Not here: the bytes, which are `wane::services::backup`'s, and restoring, which is `wane restore`.

mod counts;
mod directory;
mod schedule;

pub(crate) use counts::SnapshotCounts;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Handle;
use wane::services::ClusterAppId;
use wane::services::backup::{BackupError, Summary, Verifier, restore};
use wane::services::elections::Leader;
use wane::store::Timestamp;

use self::directory::Directory;
use self::schedule::Schedule;
use crate::cli::backup::{BackupCommandError, DraftStore, PartFile};
use crate::settings::Settings;
use crate::shutdown::Closing;
use crate::wiring::Services;

/// The election of who takes snapshots of a shared store.
const ELECTION: &str = "wane/snapshots";

/// Somebody else takes over so long after the leader has vanished.
const LEASE: Duration = Duration::from_secs(30);

/// How long a node waits whose campaign failed for a reason that may last.
const CAMPAIGN_AGAIN: Duration = Duration::from_secs(60);

/// Snapshots as the settings ask for them.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotPlan {
    directory: Directory,
    schedule: Schedule,
    keep: usize,
}

impl SnapshotPlan {
    /// `None` where no directory is named.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let every = Duration::from_secs(settings.backup_every_seconds as u64);
        Some(Self {
            directory: Directory::new(settings.backup_dir.as_deref()?),
            schedule: Schedule::new(settings.backup_at.since_midnight(), every),
            keep: settings.backup_keep,
        })
    }
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    #[error(transparent)]
    File(#[from] BackupCommandError),

    #[error(transparent)]
    Backup(#[from] BackupError),

    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },

    #[error("the trial restored {restored} of {written} records; the snapshot is thrown away")]
    Unequal { restored: u64, written: u64 },

    #[error("it was ended: {0}")]
    Ended(#[from] tokio::task::JoinError),
}

impl SnapshotError {
    fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { path: path.to_path_buf(), source }
    }
}

/// Takes snapshots until the server stops.
pub(crate) async fn keep(services: Services, plan: SnapshotPlan) {
    let closing = services.closing.clone();
    while !closing.has_begun() {
        let leader = tokio::select! {
            biased;
            () = closing.wait() => return,
            leader = leadership(&services) => leader,
        };
        let is_ours = || leader.as_ref().is_none_or(Leader::is_leader);
        while is_ours() && !closing.has_begun() {
            take_if_due(&services, &plan).await;
            tokio::select! {
                biased;
                () = closing.wait() => {}
                () = lost(leader.as_ref()) => {}
                () = services.clock.sleep(plan.schedule.left(services.clock.now())) => {}
            }
        }
        if let Some(leader) = leader {
            // Where the store does not confirm it, the lease ends by itself.
            drop(leader.resign().await);
        }
    }
}

/// Waits until this node is the one that takes snapshots: at once, where no other has the store.
async fn leadership(services: &Services) -> Option<Leader> {
    if !services.is_shared {
        return None;
    }
    let elections = services.elections.of(ClusterAppId::NONE);
    let holder = format!("process {}", std::process::id());
    loop {
        match elections.lead(ELECTION, &holder, LEASE).await {
            Ok(leader) => {
                tracing::info!("this node takes the snapshots of the store");
                return Some(leader);
            }
            Err(error) => {
                tracing::warn!(%error, "no node can be told to take snapshots; trying again");
                services.clock.sleep(CAMPAIGN_AGAIN).await;
            }
        }
    }
}

async fn lost(leader: Option<&Leader>) {
    match leader {
        Some(leader) => drop(leader.lost().await),
        None => std::future::pending().await,
    }
}

/// Takes the snapshot of the last instant, unless it is there. Says and counts what became of it.
async fn take_if_due(services: &Services, plan: &SnapshotPlan) {
    let due = plan.schedule.last(services.clock.now());
    let (job, handle) = ((services.clone(), plan.clone()), Handle::current());
    // Files block the thread, which has nothing else to do.
    let taken = tokio::task::spawn_blocking(move || handle.block_on(take(&job.0, &job.1, due)));
    let file = plan.directory.file(due);
    let file = file.display();
    match taken.await.map_err(SnapshotError::from).flatten() {
        Ok(None) => {}
        Ok(Some(summary)) => {
            let Summary { records, bytes, .. } = summary;
            tracing::info!(%file, records, bytes, "a snapshot was taken, and restored for a trial");
            services.snapshots.done(services.clock.now(), bytes);
        }
        Err(_) if services.closing.has_begun() => {
            tracing::info!(%file, "the snapshot is left to the next start");
        }
        Err(error) => {
            tracing::error!(%file, %error, "no snapshot was taken; the ones before are kept");
            services.snapshots.failed();
        }
    }
}

/// Takes the snapshot of an instant; `None` where it is there already.
async fn take(
    services: &Services,
    plan: &SnapshotPlan,
    due: Timestamp,
) -> Result<Option<Summary>, SnapshotError> {
    let directory = &plan.directory;
    let target = directory.file(due);
    if target.exists() {
        return Ok(None);
    }
    directory.prepare().map_err(SnapshotError::io(directory.path()))?;
    let part = PartFile::create(&target, false)?;
    let summary = write(services, &part).await?;
    try_out(services, part.path(), &directory.trial(), &summary).await?;
    part.publish()?;
    if let Err(error) = directory.prune(plan.keep) {
        tracing::warn!(%error, directory = %directory.path().display(), "old snapshots stay");
    }
    Ok(Some(summary))
}

/// Writes the whole store, and checks the bytes as they pass.
async fn write(services: &Services, part: &PartFile) -> Result<Summary, SnapshotError> {
    let mut sink = part.sink()?;
    let mut backup = services.backup().await?;
    let mut verifier = Verifier::new(services.clock.now());
    while let Some(chunk) = backup.next().await {
        let chunk = chunk?;
        check_open(&services.closing).map_err(SnapshotError::io(part.path()))?;
        verifier.push(&chunk)?;
        sink.write_all(&chunk).map_err(SnapshotError::io(part.path()))?;
    }
    let summary = verifier.finish()?;
    sink.flush().map_err(SnapshotError::io(part.path()))?;
    Ok(summary)
}

/// Restores what was written into a store that is thrown away, and compares.
async fn try_out(
    services: &Services,
    file: &Path,
    trial: &Path,
    written: &Summary,
) -> Result<(), SnapshotError> {
    let opened = File::open(file).map_err(SnapshotError::io(file))?;
    let mut opened = WhileOpen { file: opened, closing: services.closing.clone() };
    let (draft, store) = DraftStore::create(trial, &services.clock)?;
    let restored = restore(&store, &*services.clock, &mut opened, |_| {}).await;
    // Closed before it is removed.
    drop(store);
    drop(draft);
    let restored = restored?;
    let found = restored.records + restored.expired;
    // A record of a shared store that changed meanwhile is written more than once.
    let is_whole = found == written.records || (services.is_shared && found < written.records);
    if !is_whole || restored.bytes != written.bytes {
        return Err(SnapshotError::Unequal { restored: found, written: written.records });
    }
    Ok(())
}

/// A file that cannot be read any more once the server stops: nobody waits for a trial then.
struct WhileOpen {
    file: File,
    closing: Closing,
}

impl Read for WhileOpen {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        check_open(&self.closing)?;
        self.file.read(buffer)
    }
}

impl Seek for WhileOpen {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

fn check_open(closing: &Closing) -> io::Result<()> {
    if closing.has_begun() { Err(io::Error::other("the server stops")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use wane::clock::SystemClock;

    use super::*;
    use crate::settings::Storage;

    /// The control of the trial: what is damaged, or has other records than were written, is found.
    #[tokio::test]
    async fn a_snapshot_that_cannot_be_restored_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            storage: Storage::Mem,
            backup_dir: Some(folder.path().join("snapshots")),
            ..Settings::default()
        };
        let services = Services::open(&settings, SystemClock::shared()).await.unwrap();
        let plan = SnapshotPlan::of(&settings).unwrap();
        let due = plan.schedule.last(services.clock.now());
        let summary = take(&services, &plan, due).await.unwrap().expect("it is the first one");
        assert!(take(&services, &plan, due).await.unwrap().is_none(), "none is taken twice");

        let (file, trial) = (plan.directory.file(due), plan.directory.trial());
        try_out(&services, &file, &trial, &summary).await.unwrap();
        let more = Summary { records: summary.records + 1, ..summary.clone() };
        let unequal = try_out(&services, &file, &trial, &more).await;
        assert!(matches!(unequal, Err(SnapshotError::Unequal { .. })), "{unequal:?}");
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let damaged = try_out(&services, &file, &trial, &summary).await;
        assert!(matches!(damaged, Err(SnapshotError::Backup(_))), "{damaged:?}");
        assert!(!trial.exists(), "nothing is left of a trial");
    }
}
