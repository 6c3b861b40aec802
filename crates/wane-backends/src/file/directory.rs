//! The directory of a file store: how it is created, opened, and shared within a process.
//!
//! ```text
//! DIR/records.redb    the tree
//! DIR/log/            what was logged and may not have reached it
//! DIR/values          large values, once there was one
//! DIR/acknowledged    the last commit of the tree that anything depends on
//! DIR/reserve         room set aside, once there was a large value or the log has grown
//! ```
//!
//! A store appears whole or not at all: it is written under another name, synced, and then linked.
//! A store that was filled in another directory, as by a restoration, takes its place the same way.
//! Within a process a directory opens once; everyone who opens it shares that store. Between
//! processes redb's lock on the file decides.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use redb::backends::FileBackend;
use wane::clock::Clock;
use wane::store::{BoxError, Timestamp};

use super::acknowledged::Acknowledged;
use super::checked_storage::CheckedStorage;
use super::checkpoint::OpenFile;
use super::disk::Disk;
use super::engine::{Batch, Chores, Engine, Found};
use super::format::{FORMAT_VERSION, LOG_FORMAT};
use super::lent_storage::{Lender, LentStorage, is_lack_of_room};
use super::log::{Folder, Unread};
use super::replay::Replayed;
use super::reserve::Reserve;
use super::space::Space;
use super::tentative_storage::TentativeStorage;
use super::values::ValuesFile;
use super::verified::VerifiedFiles;
use super::view::SharedSpace;
use super::{Inner, room};
use crate::OpenError;

/// The stores that this process has open, by canonical directory.
type OpenStores = HashMap<PathBuf, Weak<Inner>>;

static OPEN_STORES: Mutex<Option<OpenStores>> = Mutex::new(None);
static CLOSED_ONE: Condvar = Condvar::new();

/// The newest file format of the redb that this is built with.
const ENGINE_FORMAT: u64 = 3;

/// How long an opener waits for a store of this process that is just being closed.
const CLOSING: Duration = Duration::from_secs(10);

/// A directory that holds a store, or may.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    path: PathBuf,
}

/// An engine whose file is as it was found until `storage` is accepted.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) engine: Engine,
    pub(super) found: Found,
    pub(super) storage: TentativeStorage<LentStorage>,
}

/// Files that were read and found to be as they were written. They still are what they were.
#[derive(Debug)]
struct Whole {
    lender: Lender,
    opened: Opened,
    acknowledged: Acknowledged,
    replayed: Replayed,
    space: SharedSpace,
}

/// A store whose files were opened and found whole.
#[derive(Debug)]
pub(super) struct OpenedStore {
    pub(super) engine: Engine,
    pub(super) found: Found,
    pub(super) file: OpenFile,
    pub(super) reserve: Reserve,
    pub(super) replayed: Replayed,
    pub(super) space: SharedSpace,
}

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    pub(super) fn records(&self) -> PathBuf {
        self.path.join("records.redb")
    }

    fn values(&self) -> PathBuf {
        self.path.join("values")
    }

    fn reserve(&self) -> PathBuf {
        self.path.join("reserve")
    }

    fn acknowledged(&self) -> PathBuf {
        self.path.join("acknowledged")
    }

    fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Whether its disk has room.
    pub(super) fn has_room(&self) -> bool {
        room::look(&self.path)
    }

    pub(super) fn exists(&self) -> bool {
        self.records().exists()
    }

    /// Writes an empty store.
    pub(super) fn create(&self, clock: &dyn Clock) -> Result<(), OpenError> {
        let ancestors = self.path.ancestors().filter(|path| !path.as_os_str().is_empty());
        let missing: Vec<_> = ancestors.take_while(|path| !path.exists()).collect();
        fs::create_dir_all(&self.path).map_err(|error| self.io(error))?;
        if self.exists() {
            return Err(OpenError::Exists { path: self.path.clone() });
        }
        self.make_log()?;
        let draft = self.path.join(draft_name(clock.now()));
        let linked = self.write_draft(&draft, clock);
        // The draft has served its purpose, or none: either way it goes.
        let removed = fs::remove_file(&draft);
        match linked {
            Err(error) if is_kind(&error, io::ErrorKind::AlreadyExists) => {
                Err(OpenError::Exists { path: self.path.clone() })
            }
            Err(error) => Err(self.io(error)),
            Ok(()) => removed
                .and_then(|()| sync(&self.path))
                .and_then(|()| missing.into_iter().try_for_each(sync_parent))
                .map_err(|error| self.io(error)),
        }
    }

    /// Makes the folder of the log, where no store is yet. An empty one means nothing.
    fn make_log(&self) -> Result<(), OpenError> {
        if Folder::new(&self.log()).has_segments() {
            return Err(self.without_tree());
        }
        match fs::create_dir(self.log()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(self.io(error)),
            _ => sync(&self.path).map_err(|error| self.io(error)),
        }
    }

    fn without_tree(&self) -> OpenError {
        let reason = "it is missing, and the log beside it is there; put it back, restore a backup \
                      elsewhere, or move the log away to begin anew without what is in it";
        OpenError::Damaged { path: self.records(), reason: reason.to_owned() }
    }

    fn write_draft(&self, draft: &Path, clock: &dyn Clock) -> Result<(), BoxError> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(draft)?;
        Engine::create(FileBackend::new(file)?, clock.random_u64(), clock.now())?;
        sync(draft)?;
        // Unlike a rename, a link never replaces what another process has put there meanwhile.
        fs::hard_link(draft, self.records())?;
        Ok(())
    }

    /// Takes over the closed store of `draft`, which holds none from then on.
    pub(super) fn take_over(&self, draft: &Self) -> Result<(), OpenError> {
        if Folder::new(&draft.log()).has_segments() {
            let reason = "the store was not closed; open it and close it before it is placed";
            return Err(OpenError::Damaged { path: draft.log(), reason: reason.to_owned() });
        }
        self.take_values_over(draft)?;
        self.make_log()?;
        // Unlike a rename, a link never replaces what another process has put there meanwhile.
        fs::hard_link(draft.records(), self.records()).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                OpenError::Exists { path: self.path.clone() }
            } else if !draft.exists() {
                OpenError::Absent { path: draft.path.clone() }
            } else {
                self.io(error)
            }
        })?;
        // From here on the store is in its place; without the file beside it, it opens as well.
        sync(&self.path)
            .and_then(|()| if_there(fs::rename(draft.acknowledged(), self.acknowledged())))
            .and_then(|()| fs::remove_file(draft.records()))
            .and_then(|()| if_there(fs::remove_file(draft.values())))
            .and_then(|()| if_there(fs::remove_file(draft.reserve())))
            .and_then(|()| if_there(fs::remove_dir_all(draft.log())))
            .and_then(|()| sync(&draft.path))
            .and_then(|()| sync(&self.path))
            .map_err(|error| self.io(error))
    }

    /// Links the large values first: without the store beside them they mean nothing.
    fn take_values_over(&self, draft: &Self) -> Result<(), OpenError> {
        if self.exists() {
            return Err(OpenError::Exists { path: self.path.clone() });
        }
        // Left behind by another store that was here, or by an attempt that was cut short.
        if_there(fs::remove_file(self.values())).map_err(|error| self.io(error))?;
        if_there(fs::hard_link(draft.values(), self.values())).map_err(|error| self.io(error))
    }

    /// Opens the store that is here, on what `disk` makes of its files, and checks that it is whole.
    pub(super) fn open(&self, disk: &Arc<dyn Disk>) -> Result<OpenedStore, OpenError> {
        let Whole { lender, opened, mut acknowledged, replayed, space } = self.look(disk)?;
        let found = opened.found;
        if found.format < LOG_FORMAT {
            self.make_log()?;
        }
        let listed = opened.engine.listed().map_err(|error| self.refused(error))?;
        *space.lock() = Space::beside(replayed.in_use(listed));
        // Large values that nothing leads to any more are about to go, and a power cut after that must
        // not bring back what led to them: the process that was here may have ended before its sync.
        let durable = lender.sync().and_then(|()| replayed.make_durable());
        durable.map_err(|error| self.io(error))?;
        let (mut engine, reserve) = self.accept(opened).map_err(|error| self.io(error))?;
        let mut commit = found.commit;
        if found.format < LOG_FORMAT {
            commit = self.upgrade(&mut engine, found)?;
        }
        // What is found is shown to callers from here on. It also takes the little room that later
        // numbers need.
        acknowledged.note(commit).map_err(|error| self.io(error))?;
        let directory = self.clone();
        let file = OpenFile { directory, lender, acknowledged };
        Ok(OpenedStore { engine, found, file, reserve, replayed, space })
    }

    /// Checks the files of the store that is here, each by itself and against each other, and leaves
    /// them as they are.
    pub(super) fn verify(&self, disk: &Arc<dyn Disk>) -> Result<VerifiedFiles, OpenError> {
        let Whole { opened, replayed, .. } = self.look(disk)?;
        let tree = shielded(|| opened.engine.tally()).map_err(|error| self.refused(error))?;
        Ok(VerifiedFiles { format: opened.found.format, tree, log: replayed.tally() })
    }

    /// Reads the files of the store that is here, and checks that each is as it was written. Nothing
    /// is changed.
    fn look(&self, disk: &Arc<dyn Disk>) -> Result<Whole, OpenError> {
        let mut lender = self.lender(disk)?;
        let space: SharedSpace = Arc::new(Mutex::new(Space::beside([])));
        let opened = self.open_engine(&mut lender, Arc::clone(&space), 0)?;
        let found = opened.found;
        let (acknowledged, last) = Acknowledged::open(&self.acknowledged(), found.identity)
            .map_err(|error| self.io(error))?;
        if let Some(last) = last.filter(|last| found.commit < *last) {
            return Err(self.damaged(&format!(
                "commit {last} was acknowledged, and the file ends at commit {}; if an older \
                 file was put here on purpose, remove the file `acknowledged` beside it",
                found.commit
            )));
        }
        let replayed = self.replay(disk, &found, &lender)?;
        Ok(Whole { lender, opened, acknowledged, replayed, space })
    }

    /// The files of the store beside its log.
    fn lender(&self, disk: &Arc<dyn Disk>) -> Result<Lender, OpenError> {
        let path = self.records();
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return self.io(error);
            }
            if Folder::new(&self.log()).has_segments() {
                return self.without_tree();
            }
            OpenError::Absent { path: self.path.clone() }
        })?;
        // redb would take an empty file for a new store.
        if file.metadata().map_err(|error| self.io(error))?.len() == 0 {
            return Err(self.damaged("it is empty"));
        }
        let file = FileBackend::new(file).map_err(|error| self.refused(error.into()))?;
        let records = disk.records(file).map_err(|error| self.io(error))?;
        let values = ValuesFile::open(self.values(), Arc::clone(disk));
        Ok(Lender::new(records, values.map_err(|error| self.io(error))?))
    }

    /// Reads back what was logged and has not reached the tree.
    fn replay(
        &self,
        disk: &Arc<dyn Disk>,
        found: &Found,
        lender: &Lender,
    ) -> Result<Replayed, OpenError> {
        let folder = self.log();
        if found.format < LOG_FORMAT {
            if Folder::new(&folder).has_segments() {
                return Err(self.without_tree());
            }
        } else if !folder.is_dir() {
            let reason = "the log of this store is missing, and with it what had not reached the \
                          tree; put it back, or restore a backup"
                .to_owned();
            return Err(OpenError::Damaged { path: folder, reason });
        }
        let shelf = disk.shelf(Folder::new(&folder));
        let replayed = Replayed::read(&folder, shelf, found).map_err(|error| match error {
            Unread::Damaged { path, reason } => OpenError::Damaged { path, reason },
            Unread::Newer { path, found } => OpenError::NewerFormat { path, found, known: 1 },
            Unread::Io(error) => self.io(error),
        })?;
        let has_values = replayed.has_values(&lender.values()).map_err(|error| self.io(error))?;
        if !has_values {
            return Err(self.without_value());
        }
        Ok(replayed)
    }

    /// Makes the tree one that has a log in front of it, and returns its commit.
    fn upgrade(&self, engine: &mut Engine, found: Found) -> Result<u64, OpenError> {
        let applied = engine.apply(Batch::default(), Chores::default(), found.time);
        let applied = applied.map_err(|unapplied| self.io(unapplied.reason))?;
        let (path, before) = (self.path.display(), found.format);
        tracing::info!(
            backend = "file",
            "the store in {path} was upgraded from format {before} to {LOG_FORMAT}, with a log in \
             front of the tree; earlier versions cannot open it any more"
        );
        Ok(applied.commit)
    }

    /// Accepts what was opened. On a full disk that may take what is set aside, which is then
    /// filled up from whatever the last process left beyond its last commit.
    fn accept(&self, opened: Opened) -> io::Result<(Engine, Reserve)> {
        let Opened { mut engine, storage, .. } = opened;
        let mut reserve = Reserve::found(self.reserve());
        match engine.trim_values() {
            Err(error) if is_lack_of_room(&error) => {}
            trimmed => trimmed?,
        }
        loop {
            match storage.accept() {
                Err(error) if is_lack_of_room(&error) && reserve.give_up() => {}
                accepted => break accepted?,
            }
        }
        if engine.values_extent().1 > 0 {
            reserve.fill();
        }
        Ok((engine, reserve))
    }

    /// Opens an engine on a file that this store has open, in place of the one before.
    pub(super) fn open_engine(
        &self,
        lender: &mut Lender,
        space: SharedSpace,
        generation: u64,
    ) -> Result<Opened, OpenError> {
        let (storage, values) = lender.lend();
        let storage = TentativeStorage::new(storage);
        let opened = shielded(|| {
            let checked = CheckedStorage::new(storage.clone());
            let (mut engine, found) = Engine::open(checked, values, space, generation)?;
            // After a crash redb has walked the whole file already.
            let sound = found.verified || engine.verify()?;
            // One that takes the place of another finds values that were verified or written since.
            let has_values = generation > 0 || engine.verify_values()?;
            Ok((engine, found, sound, has_values))
        });
        let (engine, found, sound, has_values) = opened.map_err(|error| self.refused(error))?;
        if !sound {
            return Err(self.damaged("a page does not match its checksum"));
        }
        if !has_values {
            return Err(self.without_value());
        }
        if found.format > FORMAT_VERSION {
            let (path, known) = (self.records(), FORMAT_VERSION);
            return Err(OpenError::NewerFormat { path, found: found.format, known });
        }
        Ok(Opened { engine, found, storage })
    }

    fn refused(&self, error: redb::Error) -> OpenError {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        use redb::Error::{Corrupted, DatabaseAlreadyOpen, Io};
        if let Some(found) = newer_engine_format(&error) {
            return OpenError::NewerFormat { path: self.records(), found, known: ENGINE_FORMAT };
        }
        let foreign = matches!(
            error,
            redb::Error::TableDoesNotExist(_) | redb::Error::TableTypeMismatch { .. }
        );
        let malformed = matches!(&error, Io(e) if [InvalidData, UnexpectedEof].contains(&e.kind()));
        if matches!(error, DatabaseAlreadyOpen) {
            OpenError::InUse { path: self.path.clone() }
        } else if foreign {
            self.damaged(&format!("it is a redb file, but not a store: {error}"))
        } else if malformed || matches!(error, Corrupted(_)) {
            self.damaged(&error.to_string())
        } else {
            self.io(error)
        }
    }

    fn without_value(&self) -> OpenError {
        let reason = "a value does not match its checksum, or is not there".into();
        OpenError::Damaged { path: self.values(), reason }
    }

    fn damaged(&self, reason: &str) -> OpenError {
        OpenError::Damaged { path: self.records(), reason: reason.to_owned() }
    }

    fn io(&self, source: impl Into<BoxError>) -> OpenError {
        OpenError::Io { path: self.path.clone(), source: source.into() }
    }
}

/// Reads a file that nobody has verified yet: redb panics at pages that make no sense to it.
fn shielded<T>(read: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(redb::Error::Corrupted("a page cannot be read".into())))
}

/// The version that redb found where it is beyond what redb knows, which it only says in words.
fn newer_engine_format(error: &redb::Error) -> Option<u64> {
    let redb::Error::Corrupted(reason) = error else { return None };
    reason.strip_prefix("Expected file format version <= ")?.rsplit(' ').next()?.parse().ok()
}

fn is_kind(error: &BoxError, kind: io::ErrorKind) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == kind)
}

/// What was done to a file, which need not have been there.
fn if_there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// A name that no other draft has: several threads, or processes that cannot see each other's
/// numbers, may be creating a store in one place.
fn draft_name(now: Timestamp) -> String {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let (process, draft) = (std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed));
    format!("records.{process}-{draft}-{}.draft", now.as_unix_millis())
}

/// Makes the entry of a new directory durable, which a sync of the directory itself need not.
fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync(Path::new(".")),
        Some(parent) => sync(parent),
        None => Ok(()),
    }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The register of open stores, held while one is opened or closed.
pub(super) struct Register {
    stores: MutexGuard<'static, Option<OpenStores>>,
}

impl Register {
    pub(super) fn lock() -> Self {
        Self { stores: OPEN_STORES.lock() }
    }

    /// The store that this process has open in `path`, after waiting for one that is closing.
    pub(super) fn find(&mut self, path: &Path) -> Option<Arc<Inner>> {
        loop {
            let entry = self.stores.get_or_insert_default().get(path)?;
            if let Some(open) = entry.upgrade() {
                return Some(open);
            }
            if CLOSED_ONE.wait_for(&mut self.stores, CLOSING).timed_out() {
                return None;
            }
        }
    }

    pub(super) fn insert(&mut self, path: PathBuf, store: Weak<Inner>) {
        self.stores.get_or_insert_default().insert(path, store);
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.stores.get_or_insert_default().remove(path);
        CLOSED_ONE.notify_all();
    }
}
