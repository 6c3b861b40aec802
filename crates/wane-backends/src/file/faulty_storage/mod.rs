//! A disk that fails as told, for the proofs: power cuts, torn writes, fsync errors, a full disk.
//!
//! The disk keeps apart what was synced and what was only written. Cutting its power leaves the
//! former and, by chance, some of the latter: each unsynced write is kept whole, torn into 512-byte
//! sectors, or lost, whatever became of those before it. Nothing is really synced, so that a run
//! costs microseconds.
//!
//! A disk can be used again by a store that is opened after a fault. Where only the process was killed,
//! the next one finds all that was written, and what was not synced can still be lost.

mod platter;
mod points;
mod shelf;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use self::platter::{Platter, Unsynced};
use self::points::Points;
pub use self::points::{DiskStep, FaultPoint};
use self::shelf::{FaultyShelf, is_of_the_log};
use super::disk::{Disk, Storage, ValueStorage, backend};
use super::log::{Folder, Shelf};

/// How long the header of a segment is, and what the name of one that is to be ends with.
const HEADER: usize = 4_096;
const DRAFT: &str = ".draft";

/// Error numbers as Linux reports them.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing works from then on, and what was not synced may be gone.
    PowerCut,
    /// One sync fails, and the store is not told what is on the disk.
    SyncError,
    /// A write ends half way, and none succeeds from then on, until there is room.
    DiskFull,
    /// Reads come back with a flipped bit now and then.
    Rot,
    /// One write panics, as redb does where a page makes no sense to it.
    Panic,
}

/// The disk under a store that was opened with [`FileStore::open_on`](super::FileStore::open_on).
#[derive(Debug, Clone)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
    /// Somebody waits, or need not any more.
    turn: Arc<Condvar>,
}

#[derive(Debug, Clone)]
struct State {
    chance: u64,
    /// What each file holds that was opened.
    platters: BTreeMap<FileId, Platter>,
    /// The files of the log by their names.
    log: BTreeMap<String, FileId>,
    /// Whether they were looked for.
    knows_log: bool,
    /// What was done to the folder of the log and not synced, oldest first.
    unsynced: Vec<FolderChange>,
    files: u64,
    points: Points,
    /// The faults to come, one after the other, and how many calls of its kind succeed before each.
    armed: VecDeque<(Fault, u64)>,
    struck: Vec<Fault>,
    unheeded: Unheeded,
}

/// Which syncs do nothing and succeed, or do it late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unheeded {
    None,
    Tree,
    Log,
    All,
}

/// A file of the disk, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FileId {
    Records,
    Values,
    Log(u64),
}

/// A change of a folder, with what it takes to undo it.
#[derive(Debug, Clone)]
enum FolderChange {
    Created(String),
    Renamed(String, String),
    Removed(String, FileId),
}

/// A call that may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Write,
    Sync,
}

impl FaultyDisk {
    /// A sound disk, whose faults will depend on `seed`.
    pub fn seeded(seed: u64) -> Self {
        let state = State {
            chance: seed,
            platters: BTreeMap::new(),
            log: BTreeMap::new(),
            knows_log: false,
            unsynced: Vec::new(),
            files: 0,
            points: Points::default(),
            armed: VecDeque::new(),
            struck: Vec::new(),
            unheeded: Unheeded::None,
        };
        Self { state: Arc::new(Mutex::new(state)), turn: Arc::default() }
    }

    /// The same disk, whose syncs do nothing and succeed: what no store survives.
    #[must_use]
    pub fn ignoring_syncs(self) -> Self {
        self.unheeding(Unheeded::All)
    }

    /// The same disk, on which a transaction of the tree is durable once the next one is: whole, but
    /// late. A store on it writes over segments of its log too early.
    #[must_use]
    pub fn with_a_late_tree(self) -> Self {
        self.unheeding(Unheeded::Tree)
    }

    /// The same disk, on which a frame of the log seems to be durable before it is. A store on it shows
    /// readers what can still be lost, until [`sync_log`](Self::sync_log).
    #[must_use]
    pub fn ignoring_syncs_of_the_log(self) -> Self {
        self.unheeding(Unheeded::Log)
    }

    fn unheeding(self, unheeded: Unheeded) -> Self {
        self.state.lock().unheeded = unheeded;
        self
    }

    /// Makes all that was logged durable, on a disk that does not do so by itself.
    pub fn sync_log(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(fault) = state.takes(DiskStep::FrameSynced) {
            return Err(fault.error());
        }
        let files: Vec<_> = state.log.values().copied().collect();
        files.into_iter().for_each(|file| state.platter(file).sync());
        Ok(())
    }

    /// Has the calls that come next noted under the name of what the store does.
    pub fn begin(&self, phase: &'static str) {
        self.state.lock().points.begin(phase);
    }

    /// How many times each point was passed.
    pub fn passed(&self) -> BTreeMap<FaultPoint, u64> {
        self.state.lock().points.passed()
    }

    /// Lets a power cut strike at `point`, once that was passed so many times.
    pub fn arm_at(&self, point: FaultPoint, after: u64) {
        self.state.lock().points.arm(point, after);
    }

    /// Has whoever writes or syncs a file wait at this step, until it is released.
    pub fn hold(&self, step: DiskStep) {
        self.state.lock().points.hold(step, true);
    }

    /// Lets those who wait at a step go on.
    pub fn release(&self, step: DiskStep) {
        self.state.lock().points.hold(step, false);
        self.turn.notify_all();
    }

    /// Waits until somebody waits at a step that is held.
    pub fn await_held(&self) {
        let mut state = self.state.lock();
        while !state.points.has_waiting() {
            self.turn.wait(&mut state);
        }
    }

    /// Waits where the step is held.
    fn pass(&self, state: &mut MutexGuard<'_, State>, step: DiskStep) {
        while state.points.is_held(step) {
            self.turn.notify_all();
            self.turn.wait(state);
        }
    }

    /// Another disk with the same on it, for a copy of the store. What becomes of it depends on `seed`.
    #[must_use]
    pub fn copied(&self, seed: u64) -> Self {
        let state = State { chance: seed, ..self.state.lock().clone() };
        Self { state: Arc::new(Mutex::new(state)), turn: Arc::default() }
    }

    /// Lets the disk be used again after a fault, by whoever opens the store next.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.armed.clear();
        state.struck.clear();
    }

    /// Lets `fault` strike after so many more calls that it can strike.
    pub fn arm(&self, fault: Fault, after: u64) {
        self.state.lock().armed = [(fault, after)].into();
    }

    /// Lets `fault` strike as well: so many calls that it can strike after the fault before it.
    pub fn arm_next(&self, fault: Fault, after: u64) {
        self.state.lock().armed.push_back((fault, after));
    }

    /// The fault that struck last.
    pub fn struck(&self) -> Option<Fault> {
        self.state.lock().struck.last().copied()
    }

    /// Makes room on a disk that was full, or was about to be.
    pub fn make_room(&self) {
        let mut state = self.state.lock();
        state.armed.retain(|(fault, _)| *fault != Fault::DiskFull);
        state.struck.retain(|fault| *fault != Fault::DiskFull);
    }

    /// The same, for so many changes of the disk: it is full again at the next one.
    pub fn make_room_for(&self, calls: u64) {
        let mut state = self.state.lock();
        state.armed = [(Fault::DiskFull, calls)].into();
        state.struck.clear();
    }

    /// Leaves in the files of the store in `directory` what a power cut at this moment leaves, by
    /// chance.
    pub fn lose_what_was_not_synced(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        fs::write(directory.join("records.redb"), state.remains(FileId::Records))?;
        let values = directory.join("values");
        if values.exists() {
            fs::write(values, state.remains(FileId::Values))?;
        }
        if !state.knows_log {
            return Ok(());
        }
        state.undo_folder_changes();
        let log = directory.join("log");
        for name in Folder::new(&log).names()? {
            // A note of the writer's is none of it.
            if is_of_the_log(&name) {
                fs::remove_file(log.join(name))?;
            }
        }
        let files: Vec<_> = state.log.clone().into_iter().collect();
        files
            .into_iter()
            .try_for_each(|(name, file)| fs::write(log.join(name), state.remains(file)))
    }

    fn put(&self, id: FileId, file: FileBackend) -> io::Result<Arc<FaultyStorage>> {
        let mut bytes = vec![0; file.len()? as usize];
        file.read(0, &mut bytes)?;
        let mut state = self.state.lock();
        // What a process that was killed has left is not durable because another one opens it.
        if state.platter(id).written() != bytes {
            *state.platter(id) = Platter::of(bytes);
        }
        drop(state);
        Ok(Arc::new(FaultyStorage { file, id, disk: self.clone() }))
    }
}

impl Disk for FaultyDisk {
    fn records(&self, file: FileBackend) -> io::Result<Storage> {
        Ok(self.put(FileId::Records, file)?)
    }

    fn values(&self, file: File) -> io::Result<Arc<dyn ValueStorage>> {
        Ok(self.put(FileId::Values, backend(file)?)?)
    }

    fn shelf(&self, folder: Folder) -> Arc<dyn Shelf> {
        Arc::new(FaultyShelf { folder, disk: self.clone() })
    }
}

impl State {
    /// A number below `bound`, by SplitMix64.
    fn draw(&mut self, bound: usize) -> usize {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    /// Counts a call, and says which fault strikes it: a new one, or one that goes on.
    fn strikes(&mut self, call: Call) -> Option<Fault> {
        if self.struck.contains(&Fault::PowerCut) {
            return Some(Fault::PowerCut);
        }
        if let Some((fault, after)) = self.armed.front_mut().filter(|(it, _)| it.can_strike(call)) {
            if *after == 0 {
                let fault = *fault;
                self.armed.pop_front();
                self.struck.push(fault);
                return Some(fault);
            }
            *after -= 1;
        }
        let goes_on = |fault: &Fault| match fault {
            Fault::DiskFull => call == Call::Write,
            Fault::Rot => call == Call::Read,
            Fault::PowerCut | Fault::SyncError | Fault::Panic => false,
        };
        self.struck.iter().copied().find(goes_on)
    }

    /// The same for a step of the store.
    fn takes(&mut self, step: DiskStep) -> Option<Fault> {
        if self.struck.is_empty() && self.points.pass(step) {
            self.armed = [(Fault::PowerCut, 0)].into();
        }
        self.strikes(if step.is_sync() { Call::Sync } else { Call::Write })
    }

    /// What a write of so many bytes is for.
    fn writes(&self, file: FileId, offset: u64, len: usize) -> DiskStep {
        match file {
            FileId::Records => DiskStep::TreeWritten,
            FileId::Values => DiskStep::ValuesWritten,
            FileId::Log(_) if !self.is_draft(file) => DiskStep::FrameWritten,
            FileId::Log(_) if (offset, len) == (0, HEADER) => DiskStep::HeaderWritten,
            FileId::Log(_) => DiskStep::DraftFilled,
        }
    }

    fn is_draft(&self, file: FileId) -> bool {
        self.log.iter().any(|(name, known)| *known == file && name.ends_with(DRAFT))
    }

    /// Whether a sync of this file makes durable what came before the last one.
    fn is_late(&self, file: FileId) -> bool {
        self.unheeded == Unheeded::Tree && file == FileId::Records
    }

    /// Whether a sync of this file does nothing.
    fn is_unheeded(&self, file: FileId) -> bool {
        match self.unheeded {
            Unheeded::None | Unheeded::Tree => false,
            Unheeded::Log => matches!(file, FileId::Log(_)) && !self.is_draft(file),
            Unheeded::All => true,
        }
    }

    fn platter(&mut self, file: FileId) -> &mut Platter {
        self.platters.entry(file).or_default()
    }

    /// Undoes the last of the folder's changes that were not synced, by chance some or all: a file
    /// system keeps them in order.
    fn undo_folder_changes(&mut self) {
        let undone = self.draw(self.unsynced.len() + 1);
        let kept = self.unsynced.len() - undone;
        for change in self.unsynced.split_off(kept).into_iter().rev() {
            match change {
                FolderChange::Created(name) => drop(self.log.remove(&name)),
                FolderChange::Removed(name, file) => drop(self.log.insert(name, file)),
                FolderChange::Renamed(from, to) => {
                    if let Some(file) = self.log.remove(&to) {
                        self.log.insert(from, file);
                    }
                }
            }
        }
        self.settle_folder();
    }

    /// Makes durable which files there are.
    fn settle_folder(&mut self) {
        self.unsynced.clear();
        let Self { platters, log, .. } = self;
        platters
            .retain(|id, _| !matches!(id, FileId::Log(_)) || log.values().any(|known| known == id));
    }

    fn remains(&mut self, part: FileId) -> Vec<u8> {
        let is_late = self.is_late(part);
        let Platter { synced: mut bytes, unsynced, .. } = std::mem::take(self.platter(part));
        // Of four cuts one loses everything, one loses nothing, and two mix.
        let mixed = self.draw(4);
        for write in unsynced.iter().filter(|_| !is_late) {
            let fate = if mixed < 2 { mixed * 2 } else { self.draw(3) };
            write.apply(&mut bytes, |_| match fate {
                0 => false,
                1 => self.draw(2) == 1,
                _ => true,
            });
        }
        self.platter(part).synced.clone_from(&bytes);
        bytes
    }
}

impl Fault {
    fn can_strike(self, call: Call) -> bool {
        match self {
            Self::PowerCut => call != Call::Read,
            Self::SyncError => call == Call::Sync,
            Self::DiskFull | Self::Panic => call == Call::Write,
            Self::Rot => call == Call::Read,
        }
    }

    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(if self == Self::DiskFull { ENOSPC } else { EIO })
    }
}

/// A file on a [`FaultyDisk`].
#[derive(Debug)]
struct FaultyStorage {
    file: FileBackend,
    id: FileId,
    disk: FaultyDisk,
}

impl ValueStorage for FaultyStorage {}

impl StorageBackend for FaultyStorage {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)?;
        let mut state = self.disk.state.lock();
        match state.strikes(Call::Read) {
            Some(Fault::Rot) if state.draw(4) == 0 && !out.is_empty() => {
                let bit = state.draw(out.len() * 8);
                out[bit / 8] ^= 1 << (bit % 8);
                Ok(())
            }
            Some(Fault::Rot) | None => Ok(()),
            Some(fault) => Err(fault.error()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let step = match self.id {
            FileId::Records => DiskStep::TreeResized,
            FileId::Values => DiskStep::ValuesCut,
            FileId::Log(_) => DiskStep::DraftSized,
        };
        let mut state = self.disk.state.lock();
        if let Some(fault) = state.takes(step) {
            return Err(fault.error());
        }
        state.platter(self.id).unsynced.push(Unsynced::Length(len as usize));
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let step = match self.id {
            FileId::Records => DiskStep::TreeSynced,
            FileId::Values => DiskStep::ValuesSynced,
            FileId::Log(_) if state.is_draft(self.id) => DiskStep::HeaderSynced,
            FileId::Log(_) => DiskStep::FrameSynced,
        };
        self.disk.pass(&mut state, step);
        match state.takes(step) {
            Some(fault) => return Err(fault.error()),
            None if state.is_late(self.id) => state.platter(self.id).sync_late(),
            None if state.is_unheeded(self.id) => {}
            None => state.platter(self.id).sync(),
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let step = state.writes(self.id, offset, data.len());
        self.disk.pass(&mut state, step);
        let struck = state.takes(step);
        assert_ne!(struck, Some(Fault::Panic), "a panic as told");
        let written = match struck {
            None => data,
            Some(Fault::PowerCut) => &[],
            Some(_) => &data[..data.len() / 2],
        };
        let write = Unsynced::Write(offset as usize, written.to_vec());
        state.platter(self.id).unsynced.push(write);
        self.file.write(offset, written)?;
        struck.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
