//! The file backend: one machine, durable, nothing to install.
//!
//! Callers hand changes to one writer thread, which decides a group of them in one redb
//! transaction, syncs once, and answers. Readers share the snapshot of the last commit and wait
//! for nobody. What was acknowledged survives a kill and a power cut; a file that is not as it was
//! written refuses to open.
//!
//! | file | what |
//! |---|---|
//! | `directory` | create, open, verify, share within the process |
//! | `queue` | jobs on their way to the writer, taken in groups |
//! | `writer` | the group commit, sweeping and compaction |
//! | `room` | a disk without room: when to look and when to try |
//! | `reserve` | room set aside, for what has expired to leave a full disk |
//! | `engine` | redb behind two verbs: apply a batch, show a snapshot |
//! | `view` | reading a snapshot at one instant |
//! | `format` | the bytes on disk |
//! | `beside` | large values within a transaction |
//! | `values` | large values, in a file beside the tree |
//! | `space` | the room in that file |
//! | `acknowledged` | the last commit that callers were told of |
//! | `lent_storage` | the file, which outlives an engine that ran out of room |
//! | `tentative_storage` | a file that is refused stays as it was found |
//! | `checked_storage` | blocks that rot while the store is open |
//! | `faulty_storage` | a disk that fails as told, for the proofs |
//! | `slow_storage` | a disk whose syncs take longer, for benchmarks |

mod acknowledged;
mod beside;
mod checked_storage;
mod directory;
mod engine;
#[cfg(feature = "testing")]
mod faulty_storage;
pub mod format;
mod lent_storage;
mod page_cache;
mod queue;
mod reserve;
mod room;
#[cfg(feature = "testing")]
mod slow_storage;
mod space;
mod tentative_storage;
mod values;
mod view;
mod writer;

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::FileBackend;
use tokio::sync::oneshot;
use wane::clock::SharedClock;
use wane::store::{
    Change, ClusteringRange, Fence, Key, Outcome, Page, PageFill, PageLimit, Partition, Record,
    Remaining, Row, ScanPage, Store, StoreError, Write,
};

use self::directory::{Directory, Register};
use self::engine::{KeyedChange, ReadError, Walk};
#[cfg(feature = "testing")]
pub use self::faulty_storage::{Fault, FaultyDisk};
use self::format::{decode_key, encode_key, partition_prefix};
use self::queue::Job;
#[cfg(feature = "testing")]
pub use self::slow_storage::{SlowDisk, SlowStorage};
use self::view::{Group, Shared, View};
use self::writer::Writer;
use crate::OpenError;

/// Rows that one page looks at before it goes on elsewhere, so that a stretch of expired rows
/// cannot hold up a reader's thread.
const PAGE_WALK: usize = 20_000;

/// The files of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The tree.
    Records,
    /// The large values beside it.
    Values,
}

/// A durable store in a directory of its own.
///
/// A handle is a cheap clone. When the last one is dropped, the writer finishes what it was given
/// and the file is closed; that takes about as long as a commit.
#[derive(Debug, Clone)]
pub struct FileStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    path: PathBuf,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl FileStore {
    /// Opens the store in `directory`. Opening it twice in one process gives the same store.
    pub fn open(directory: &Path, clock: SharedClock) -> Result<Self, OpenError> {
        Self::open_with(directory, clock, |_, file| Ok(file))
    }

    /// Opens the store in `directory` on a disk that fails as told.
    #[cfg(feature = "testing")]
    pub fn open_on(
        disk: &FaultyDisk,
        directory: &Path,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        let disk = disk.clone();
        Self::open_with(directory, clock, move |part, file| disk.under(part, file))
    }

    /// Opens the store in `directory` on a disk whose syncs take longer.
    #[cfg(feature = "testing")]
    pub fn open_on_slow(
        disk: SlowDisk,
        directory: &Path,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        Self::open_with(directory, clock, move |_, file| Ok(disk.under(file)))
    }

    fn open_with<S: StorageBackend>(
        directory: &Path,
        clock: SharedClock,
        storage: impl Fn(Part, FileBackend) -> std::io::Result<S> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let mut register = Register::lock();
        let Ok(path) = directory.canonicalize() else {
            return Err(OpenError::Absent { path: directory.to_path_buf() });
        };
        if let Some(inner) = register.find(&path) {
            return Ok(Self { inner });
        }
        let inner = Arc::new(Inner::start(path.clone(), clock, storage)?);
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
        match Self::open(directory, Arc::clone(&clock)) {
            Err(OpenError::Absent { .. }) => {}
            opened => return opened,
        }
        match Directory::new(directory).create(&*clock) {
            Ok(()) | Err(OpenError::Exists { .. }) => Self::open(directory, clock),
            Err(error) => Err(error),
        }
    }

    /// [`open_or_create`](Self::open_or_create) on a thread where it may block: opening reads the
    /// whole file.
    pub async fn open_or_create_aside(
        directory: PathBuf,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        let path = directory.clone();
        let opened = move || Self::open_or_create(&directory, clock);
        let opened = tokio::task::spawn_blocking(opened).await;
        opened.unwrap_or_else(|ended| Err(OpenError::Io { path, source: ended.into() }))
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

    /// The records in the file, those that expired and were not yet removed included.
    pub async fn stored_records(&self) -> Result<u64, StoreError> {
        self.inner.shared.read(|_| false, |view| view.snapshot.len()).await
    }

    async fn submit(&self, changes: Vec<KeyedChange>) -> queue::Answers {
        let shared = &self.inner.shared;
        shared.check()?;
        let (reply, answers) = oneshot::channel();
        if shared.queue.push(Job { changes, reply }).is_err() {
            return Err(shared.failure());
        }
        answers.await.unwrap_or_else(|_| {
            let source = "the writer stopped before it answered".into();
            Err(StoreError::Unknown { backend: "file", source })
        })
    }

    async fn change(&self, key: &Key, change: Change<'_>) -> Result<Outcome, StoreError> {
        let change = change.into_owned();
        let mut answers = self.submit(vec![KeyedChange { key: encode_key(key), change }]).await?;
        answers.pop().unwrap_or_else(|| Err(self.inner.shared.failure()))
    }

    fn now(&self) -> wane::store::Timestamp {
        self.inner.shared.clock.now()
    }
}

impl Inner {
    fn start<S: StorageBackend>(
        path: PathBuf,
        clock: SharedClock,
        storage: impl Fn(Part, FileBackend) -> std::io::Result<S> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let directory = Directory::new(&path);
        let (engine, found, file) = directory.open(storage)?;
        clock.never_before(found.time);
        let io = |source| OpenError::Io { path: path.clone(), source };
        let snapshot = engine.snapshot().map_err(|error| io(error.into()))?;
        let next_due = engine.next_due().map_err(io)?;
        let shared =
            Arc::new(Shared::new(clock, directory.records(), file.lender.values(), snapshot));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| io(error.into()))?;
        let writer = Writer::new(engine, file, Arc::clone(&shared), next_due);
        let thread = std::thread::Builder::new().name("wane-file-writer".into());
        let thread =
            thread.spawn(move || writer.run(&runtime)).map_err(|error| io(error.into()))?;
        Ok(Self { shared, path, writer: Mutex::new(Some(thread)) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut register = Register::lock();
        self.shared.queue.close();
        if let Some(thread) = self.writer.lock().take() {
            // A writer that panicked has already left its callers without an answer.
            drop(thread.join());
        }
        register.remove(&self.path);
    }
}

/// Where a scan of a file goes on: after a key, in the picture that the scan began with.
#[derive(Debug)]
pub struct FileScanCursor {
    view: View,
    after: Vec<u8>,
}

impl Store for FileStore {
    type ScanCursor = FileScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let stored = encode_key(key);
        let concerns = |group: &Group| group.touches(&stored);
        self.inner.shared.read(concerns, |view| point(view, &stored)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let stored: Vec<_> = keys.iter().map(encode_key).collect();
        let concerns = |group: &Group| stored.iter().any(|key| group.touches(key));
        let points = |view: &View| stored.iter().map(|key| point(view, key)).collect();
        self.inner.shared.read(concerns, points).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let prefix = partition_prefix(partition.as_bytes());
        let concerns = |group: &Group| {
            let mut clusterings = group.keys().filter_map(|key| key.strip_prefix(&*prefix));
            clusterings.any(|clustering| range.contains(clustering))
        };
        self.inner.shared.read(concerns, |view| page(view, &prefix, range, limit)).await
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
                FileScanCursor { view, after: Vec::new() }
            }
        };
        let shared = &self.inner.shared;
        shared.check()?;
        match scan_page(&cursor, limit) {
            Ok((page, after)) => {
                let next = after.map(|after| FileScanCursor { view: cursor.view, after });
                Ok(ScanPage { rows: page, next })
            }
            Err(ReadError::Engine(_)) if shared.is_replaced(&cursor.view).await => {
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
        let keyed = |(key, write)| {
            let change = Change::put(write, || self.now())?;
            Ok(KeyedChange { key: encode_key(&key), change })
        };
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
        let remaining = |view: &View| {
            let record = point(view, &stored)?;
            Ok(record.map_or(Remaining::Absent, |record| record.remaining(view.now)))
        };
        self.inner.shared.read(|group| group.touches(&stored), remaining).await
    }
}

fn point(view: &View, key: &[u8]) -> Result<Option<Record>, ReadError> {
    match view.snapshot.get(key)? {
        Some(record) => Ok(view.live(record)),
        None => Ok(None),
    }
}

fn page(
    view: &View,
    prefix: &[u8],
    range: &ClusteringRange,
    limit: PageLimit,
) -> Result<Page, ReadError> {
    let start = [prefix, range.start()].concat();
    let mut fill = PageFill::new(limit);
    let mut rest = None;
    let mut walked = 0;
    view.snapshot.walk(Bound::Included(&start), |stored, record| {
        let Some(clustering) = stored.strip_prefix(prefix) else { return Ok(Walk::Stop) };
        if !range.contains(clustering) {
            return Ok(Walk::Stop);
        }
        walked += 1;
        if fill.is_full() || walked > PAGE_WALK {
            rest = Some(range.starting_at(clustering.to_vec()));
            return Ok(Walk::Stop);
        }
        if let Some(record) = view.live(record) {
            fill.push(stored_key(stored)?, record);
        }
        Ok(Walk::On)
    })?;
    Ok(Page { rows: fill.into_rows(), rest })
}

/// The rows of a page, and the key after which the next one begins.
fn scan_page(
    cursor: &FileScanCursor,
    limit: PageLimit,
) -> Result<(Vec<Row>, Option<Vec<u8>>), ReadError> {
    let FileScanCursor { view, after } = cursor;
    let mut fill = PageFill::new(limit);
    let mut last = None;
    let mut walked = 0;
    // No stored key is empty, so the first page leaves nothing out.
    view.snapshot.walk(Bound::Excluded(after), |stored, record| {
        if fill.is_full() || walked >= PAGE_WALK {
            return Ok(Walk::Stop);
        }
        walked += 1;
        if let Some(record) = view.live(record) {
            fill.push(stored_key(stored)?, record);
        }
        last = Some(stored.to_vec());
        Ok(Walk::On)
    })?;
    let ended = !fill.is_full() && walked < PAGE_WALK;
    Ok((fill.into_rows(), last.filter(|_| !ended)))
}

fn stored_key(stored: &[u8]) -> Result<Key, ReadError> {
    decode_key(stored).map_err(|error| ReadError::Engine(error.into()))
}
