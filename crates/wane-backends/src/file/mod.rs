//! The file backend: one machine, durable, nothing to install.
//!
//! Callers hand changes to one writer thread, which decides a group of them, logs what keys come to
//! hold with one sync, and answers. What is young is kept in memory; what lives long enough reaches a
//! tree, in the background. Readers see both as one and wait for nobody. What was acknowledged
//! survives a kill and a power cut; files that are not as they were written refuse to open.
//!
//! | file | what |
//! |---|---|
//! | `directory` | create, open, verify, share within the process |
//! | `settings` | what can be set |
//! | `queue` | jobs on their way to the writer, taken in groups |
//! | `waiting` | callers that wait for their answers, asleep or awake |
//! | `writer` | deciding a group, logging it, answering |
//! | `log` | the log: frames in segments |
//! | `replay` | what the log holds when a store is opened |
//! | `young` | what was logged and has not reached the tree |
//! | `view` | reading what is young and the tree at one instant |
//! | `checkpoint` | bringing the tree up to date, sweeping and compaction |
//! | `room` | a disk without room: when to look and when to try |
//! | `reserve` | room set aside, for what has expired to leave a full disk |
//! | `engine` | the tree: redb behind two verbs, apply a batch, show a snapshot |
//! | `cache_size` | how much of the tree is kept in memory |
//! | `format` | the bytes on disk |
//! | `large` | large values, before they are logged |
//! | `beside` | large values within a transaction of the tree |
//! | `values` | large values, in a file beside the tree |
//! | `space` | the room in that file |
//! | `verified` | what files hold that were found sound |
//! | `acknowledged` | the last of something that callers were told of |
//! | `disk` | the file system, or what stands in for it |
//! | `lent_storage` | the file, which outlives an engine that ran out of room |
//! | `tentative_storage` | a file that is refused stays as it was found |
//! | `checked_storage` | blocks that rot while the store is open |
//! | `faulty_storage` | a disk that fails as told, for the proofs |
//! | `slow_storage` | a disk whose syncs take longer, for benchmarks |

mod acknowledged;
mod beside;
mod cache_size;
mod checked_storage;
mod checkpoint;
mod directory;
mod disk;
mod engine;
#[cfg(feature = "testing")]
mod faulty_storage;
pub mod format;
mod large;
mod lent_storage;
pub mod log;
mod queue;
mod replay;
mod reserve;
mod room;
mod settings;
#[cfg(feature = "testing")]
mod slow_storage;
mod space;
mod tentative_storage;
mod values;
mod verified;
mod view;
mod waiting;
mod writer;
mod young;

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use wane::clock::SharedClock;
use wane::store::{
    Change, ClusteringRange, Fence, Key, Outcome, Page, PageFill, PageLimit, Partition, Record,
    Remaining, Row, ScanPage, Store, StoreError, Write,
};

use self::checkpoint::Checkpointer;
use self::directory::{Directory, OpenedStore, Register};
use self::disk::{Disk, FileSystem};
use self::engine::{ReadError, Walk};
#[cfg(feature = "testing")]
pub use self::faulty_storage::{DiskStep, Fault, FaultPoint, FaultyDisk};
use self::format::{decode_key, encode_key, partition_prefix};
use self::log::Log;
use self::queue::{Job, KeyedChange};
pub use self::settings::FileSettings;
#[cfg(feature = "testing")]
pub use self::slow_storage::{SlowDisk, SlowStorage};
pub use self::verified::{VerifiedFiles, VerifiedLog, VerifiedTree};
use self::view::{ActiveRows, Below, Group, Shared, View};
use self::writer::Writer;
use self::young::{Generation, Row as Young};
use crate::OpenError;

/// Rows that one page looks at before it goes on elsewhere, so that a stretch of expired rows
/// cannot hold up a reader's thread.
const PAGE_WALK: usize = 20_000;

/// A durable store in a directory of its own.
///
/// A handle is a cheap clone. When the last one is dropped, the writer finishes what it was given,
/// all that is young goes into the tree, and the files are closed.
#[derive(Debug, Clone)]
pub struct FileStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    path: PathBuf,
    closing: Arc<AtomicBool>,
    threads: Mutex<Option<Threads>>,
}

/// The threads of an open store.
#[derive(Debug)]
struct Threads {
    writer: JoinHandle<()>,
    checkpointer: JoinHandle<()>,
}

impl FileStore {
    /// Opens the store in `directory`. Opening it twice in one process gives the same store.
    pub fn open(directory: &Path, clock: SharedClock) -> Result<Self, OpenError> {
        Self::open_as(directory, FileSettings::default(), clock)
    }

    /// Opens the store in `directory`. Where this process has it open, it stays as it was set.
    pub fn open_as(
        directory: &Path,
        settings: FileSettings,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        Self::open_with(directory, settings, clock, &(Arc::new(FileSystem) as Arc<dyn Disk>))
    }

    /// Opens the store in `directory` on a disk that fails as told.
    #[cfg(feature = "testing")]
    pub fn open_on(
        disk: &FaultyDisk,
        directory: &Path,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        Self::open_on_as(disk, directory, FileSettings::default(), clock)
    }

    /// The same with settings.
    #[cfg(feature = "testing")]
    pub fn open_on_as(
        disk: &FaultyDisk,
        directory: &Path,
        settings: FileSettings,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
        Self::open_with(directory, settings, clock, &disk)
    }

    /// Opens the store in `directory` on a disk whose syncs take longer.
    #[cfg(feature = "testing")]
    pub fn open_on_slow(
        disk: SlowDisk,
        directory: &Path,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        let disk = Arc::new(disk) as Arc<dyn Disk>;
        Self::open_with(directory, FileSettings::default(), clock, &disk)
    }

    fn open_with(
        directory: &Path,
        settings: FileSettings,
        clock: SharedClock,
        disk: &Arc<dyn Disk>,
    ) -> Result<Self, OpenError> {
        let mut register = Register::lock();
        let Ok(path) = directory.canonicalize() else {
            return Err(OpenError::Absent { path: directory.to_path_buf() });
        };
        if let Some(inner) = register.find(&path) {
            return Ok(Self { inner });
        }
        let inner = Arc::new(Inner::start(path.clone(), settings, clock, disk)?);
        register.insert(path, Arc::downgrade(&inner));
        Ok(Self { inner })
    }

    /// Creates a store in `directory`, and the directory itself where it is missing.
    pub fn create(directory: &Path, clock: SharedClock) -> Result<Self, OpenError> {
        Directory::new(directory).create(&*clock)?;
        Self::open(directory, clock)
    }

    /// Opens the store in `directory`, after creating it where there is none.
    pub fn open_or_create(directory: &Path, clock: SharedClock) -> Result<Self, OpenError> {
        Self::open_or_create_as(directory, FileSettings::default(), clock)
    }

    fn open_or_create_as(
        directory: &Path,
        settings: FileSettings,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        match Self::open_as(directory, settings, Arc::clone(&clock)) {
            Err(OpenError::Absent { .. }) => {}
            opened => return opened,
        }
        match Directory::new(directory).create(&*clock) {
            Ok(()) | Err(OpenError::Exists { .. }) => Self::open_as(directory, settings, clock),
            Err(error) => Err(error),
        }
    }

    /// [`open_or_create`](Self::open_or_create) on a thread where it may block: opening reads the
    /// whole file.
    pub async fn open_or_create_aside(
        directory: PathBuf,
        settings: FileSettings,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        let path = directory.clone();
        let opened = move || Self::open_or_create_as(&directory, settings, clock);
        let opened = tokio::task::spawn_blocking(opened).await;
        opened.unwrap_or_else(|ended| Err(OpenError::Io { path, source: ended.into() }))
    }

    /// Checks the files of the closed store in `directory`, each by itself and against each other, and
    /// says what they hold. They are left as they are, also where they are refused.
    pub fn verify(directory: &Path) -> Result<VerifiedFiles, OpenError> {
        let mut register = Register::lock();
        let Ok(path) = directory.canonicalize() else {
            return Err(OpenError::Absent { path: directory.to_path_buf() });
        };
        if let Some(open) = register.find(&path) {
            // A handle that was found is dropped without the register, which closing a store takes.
            drop(register);
            drop(open);
            return Err(OpenError::InUse { path });
        }
        Directory::new(&path).verify(&(Arc::new(FileSystem) as Arc<dyn Disk>))
    }

    /// Whether there is a store in `directory`, sound or not.
    pub fn exists(directory: &Path) -> bool {
        Directory::new(directory).exists()
    }

    /// Moves the closed store of `draft` into `directory`, which exists on the same file system and
    /// holds none: at one instant, and never in place of another.
    pub fn place(draft: &Path, directory: &Path) -> Result<(), OpenError> {
        let mut register = Register::lock();
        let open = draft.canonicalize().ok().and_then(|path| register.find(&path));
        // A handle that was found is dropped without the register, which closing a store takes.
        drop(register);
        if open.is_some() {
            return Err(OpenError::InUse { path: draft.to_path_buf() });
        }
        Directory::new(directory).take_over(&Directory::new(draft))
    }

    /// The size of its files, in bytes.
    pub fn size_on_disk(&self) -> std::io::Result<u64> {
        self.inner.shared.file_size()
    }

    /// The records that are stored, those that expired and were not yet removed included. One that
    /// is in the tree and young again counts twice.
    pub async fn stored_records(&self) -> Result<u64, StoreError> {
        self.inner.shared.stored().await
    }

    /// How many rows of the tree are kept in memory, as they were read more than once.
    #[cfg(feature = "testing")]
    pub fn kept_rows(&self) -> usize {
        self.inner.shared.kept_rows()
    }

    /// How many generations of young rows wait to be brought into the tree.
    #[cfg(feature = "testing")]
    pub fn waiting_generations(&self) -> usize {
        self.inner.shared.sealed().len()
    }

    /// Brings everything that is young into the tree, and returns once it is there. Nothing depends
    /// on it; opening the store takes less time afterwards.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.inner.shared.flush().await
    }

    async fn submit(&self, changes: Vec<KeyedChange>) -> queue::Answers {
        let shared = &self.inner.shared;
        shared.check()?;
        let (reply, answers) = oneshot::channel();
        if shared.queue.push(Job { changes, reply }).is_err() {
            return Err(shared.failure());
        }
        shared.waiting.answered(answers, &shared.clock).await.unwrap_or_else(|| {
            let source = "the writer stopped before it answered".into();
            Err(StoreError::Unknown { backend: "file", source })
        })
    }

    async fn change(&self, key: &Key, change: Change<'_>) -> Result<Outcome, StoreError> {
        let mut answers = self.submit(vec![self.keyed(key, change.into_owned())?]).await?;
        answers.pop().unwrap_or_else(|| Err(self.inner.shared.failure()))
    }

    /// A change on its way to the writer, with what it will meet in the tree.
    fn keyed(&self, key: &Key, change: Change<'static>) -> Result<KeyedChange, StoreError> {
        let key = encode_key(key);
        let lookup = self.inner.shared.look_up(&key)?;
        Ok(KeyedChange { key: key.into(), change, lookup })
    }

    fn now(&self) -> wane::store::Timestamp {
        self.inner.shared.clock.now()
    }
}

impl Inner {
    fn start(
        path: PathBuf,
        settings: FileSettings,
        clock: SharedClock,
        disk: &Arc<dyn Disk>,
    ) -> Result<Self, OpenError> {
        let directory = Directory::new(&path);
        let OpenedStore { engine, found, file, reserve, mut replayed, space } =
            directory.open(disk)?;
        clock.never_before(found.time.max(replayed.recovered.time.unwrap_or(found.time)));
        let io = |source| OpenError::Io { path: path.clone(), source };
        let snapshot = engine.snapshot().map_err(|error| io(error.into()))?;
        let next_due = engine.next_due().map_err(io)?;
        let young_bytes = settings.young_bytes();
        let log = Log::go_on(Arc::clone(&replayed.segments), &replayed.recovered, young_bytes);
        let log = log.map_err(|error| io(error.into()))?;
        replayed.note_last().map_err(|error| io(error.into()))?;
        let below = Below::new(replayed.generations, snapshot);
        let (records, values) = (directory.records(), file.lender.values());
        let shared = Shared::new(clock, records, replayed.segments, space, values, reserve, below);
        let shared = Arc::new(shared);
        let closing = Arc::new(AtomicBool::new(false));
        let writer = Writer::new(log, replayed.acknowledged, Arc::clone(&shared), young_bytes);
        let writer = thread("wane-file-writer", move |runtime| writer.run(runtime)).map_err(io)?;
        let (seen, told) = (Arc::clone(&shared), Arc::clone(&closing));
        let checkpointer = Checkpointer::new(engine, file, seen, told, next_due);
        let checkpointer = thread("wane-file-tree", move |runtime| checkpointer.run(runtime));
        let threads = Threads { writer, checkpointer: checkpointer.map_err(io)? };
        Ok(Self { shared, path, closing, threads: Mutex::new(Some(threads)) })
    }
}

/// Starts a thread that can wait for what tasks do.
fn thread(
    name: &str,
    work: impl FnOnce(&tokio::runtime::Runtime) + Send + 'static,
) -> Result<JoinHandle<()>, wane::store::BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let thread = std::thread::Builder::new().name(name.into());
    Ok(thread.spawn(move || work(&runtime))?)
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut register = Register::lock();
        self.shared.queue.close();
        if let Some(Threads { writer, checkpointer }) = self.threads.lock().take() {
            // One that panicked has already left its callers without an answer.
            drop(writer.join());
            self.closing.store(true, Ordering::SeqCst);
            self.shared.wake.notify_one();
            drop(checkpointer.join());
        }
        register.remove(&self.path);
    }
}

/// Where a scan of a file goes on: after a key, in the picture that the scan began with.
#[derive(Debug)]
pub struct FileScanCursor {
    /// The store that the scan is of.
    shared: Arc<Shared>,
    view: View,
    after: Vec<u8>,
}

impl Store for FileStore {
    type ScanCursor = FileScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let stored = encode_key(key);
        let concerns = |group: &Group| group.touches(&stored);
        let copy = |active: &Generation, _| active.get(&stored).cloned();
        let point = |view: &View, active: &Option<Young>| view.point(&stored, active.as_ref());
        self.inner.shared.read(concerns, copy, point).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let stored: Vec<_> = keys.iter().map(encode_key).collect();
        let concerns = |group: &Group| stored.iter().any(|key| group.touches(key));
        let copy = |active: &Generation, _| -> Vec<_> {
            stored.iter().map(|key| active.get(key).cloned()).collect()
        };
        let points = |view: &View, active: &Vec<Option<Young>>| {
            let keys = stored.iter().zip(active);
            keys.map(|(key, active)| view.point(key, active.as_ref())).collect()
        };
        self.inner.shared.read(concerns, copy, points).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let prefix = partition_prefix(partition.as_bytes());
        let is_within = |key: &[u8]| {
            key.strip_prefix(&*prefix).is_some_and(|clustering| range.contains(clustering))
        };
        let concerns = |group: &Group| group.keys().any(is_within);
        let start = [&prefix, range.start()].concat();
        let copy = |active: &Generation, now| {
            ActiveRows::copy((active, now), Bound::Included(&start), limit, is_within)
        };
        let page = |view: &View, active: &ActiveRows| page(view, active, &prefix, range, limit);
        self.inner.shared.read(concerns, copy, page).await
    }

    async fn scan(
        &self,
        after: Option<FileScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<FileScanCursor>, StoreError> {
        let cursor = match after {
            Some(cursor) => cursor,
            None => {
                let view = self.inner.shared.settled_view().await?;
                FileScanCursor { shared: Arc::clone(&self.inner.shared), view, after: Vec::new() }
            }
        };
        let shared = &self.inner.shared;
        shared.check()?;
        if !Arc::ptr_eq(shared, &cursor.shared) {
            let source = "the scan is of a store that was closed; begin a new one".into();
            return Err(StoreError::Unavailable { backend: "file", source });
        }
        match scan_page(&cursor, limit) {
            Ok((page, after)) => {
                let FileScanCursor { shared, view, .. } = cursor;
                let next = after.map(|after| FileScanCursor { shared, view, after });
                Ok(ScanPage { rows: page, next })
            }
            Err(ReadError::Engine(_)) if shared.is_replaced(cursor.view.generation()).await => {
                let source = "the disk became full, which ended the scan; begin a new one".into();
                Err(StoreError::Unavailable { backend: "file", source })
            }
            Err(error) => Err(shared.refused(error)),
        }
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(key, Change::put(write, || self.now())?).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let keyed = |(key, write)| self.keyed(&key, Change::put(write, || self.now())?);
        let changes = writes.into_iter().map(keyed).collect::<Result<Vec<_>, StoreError>>()?;
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        self.submit(changes).await?.into_iter().collect()
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(key, Change::insert(write, || self.now())?).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.change(key, Change::swap(expected, write, || self.now())?).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.change(key, Change::delete(expected, fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        let stored = encode_key(key);
        let copy = |active: &Generation, _| active.get(&stored).cloned();
        let remaining = |view: &View, active: &Option<Young>| {
            let record = view.point(&stored, active.as_ref())?;
            Ok(record.map_or(Remaining::Absent, |record| record.remaining(view.now)))
        };
        self.inner.shared.read(|group| group.touches(&stored), copy, remaining).await
    }
}

fn page(
    view: &View,
    active: &ActiveRows,
    prefix: &[u8],
    range: &ClusteringRange,
    limit: PageLimit,
) -> Result<Page, ReadError> {
    let start = [prefix, range.start()].concat();
    // No key comes from before the start.
    let within = |clustering: &&[u8]| range.end().is_none_or(|end| *clustering < end);
    let is_within = |stored: &[u8]| stored.strip_prefix(prefix).is_some_and(|key| within(&key));
    let mut fill = PageFill::new(limit);
    let mut rest = None;
    let mut walked = 0;
    let cut = view.walk(Bound::Included(&start), active, is_within, |stored, live| {
        let Some(clustering) = stored.strip_prefix(prefix).filter(within) else {
            return Ok(Walk::Stop);
        };
        walked += 1;
        if fill.is_full() || walked > PAGE_WALK {
            rest = Some(range.starting_at(clustering.to_vec()));
            return Ok(Walk::Stop);
        }
        if let Some(held) = live {
            fill.push(stored_key(stored)?, view.record(stored, held)?);
        }
        Ok(Walk::On)
    })?;
    let cut = cut.and_then(|cut| cut.strip_prefix(prefix)).filter(within);
    let rest = rest.or(cut.map(|clustering| range.starting_at(clustering.to_vec())));
    Ok(Page { rows: fill.into_rows(), rest })
}

/// The rows of a page, and the key after which the next one begins.
fn scan_page(
    cursor: &FileScanCursor,
    limit: PageLimit,
) -> Result<(Vec<Row>, Option<Vec<u8>>), ReadError> {
    let FileScanCursor { view, after, .. } = cursor;
    let mut fill = PageFill::new(limit);
    let mut last = None;
    let mut walked = 0;
    // No stored key is empty, so the first page leaves nothing out.
    view.walk(
        Bound::Excluded(after),
        &ActiveRows::none(),
        |_| true,
        |stored, live| {
            if fill.is_full() || walked >= PAGE_WALK {
                return Ok(Walk::Stop);
            }
            walked += 1;
            if let Some(held) = live {
                fill.push(stored_key(stored)?, view.record(stored, held)?);
            }
            last = Some(stored.to_vec());
            Ok(Walk::On)
        },
    )?;
    let ended = !fill.is_full() && walked < PAGE_WALK;
    Ok((fill.into_rows(), last.filter(|_| !ended)))
}

#[inline]
fn stored_key(stored: &[u8]) -> Result<Key, ReadError> {
    decode_key(stored).map_err(|error| ReadError::Engine(error.into()))
}
