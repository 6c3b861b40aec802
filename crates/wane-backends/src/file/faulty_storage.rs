//! A disk that fails as told, for the proofs: power cuts, torn writes, fsync errors, a full disk.
//!
//! The disk keeps apart what was synced and what was only written. Cutting its power leaves the
//! former and, by chance, some of the latter: each unsynced write is kept whole, torn into 512-byte
//! sectors, or lost, whatever became of those before it. Nothing is really synced, so that a run
//! costs microseconds.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::disk::{Disk, Part, Storage};
use super::log::{Folder, Shelf};

/// What a disk writes in one piece.
const SECTOR: usize = 512;

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
}

#[derive(Debug)]
struct State {
    chance: u64,
    /// What each file holds that was opened.
    platters: BTreeMap<FileId, Platter>,
    /// The files of the log by their names.
    log: BTreeMap<String, FileId>,
    /// What was done to the folder of the log and not synced, oldest first.
    unsynced: Vec<FolderChange>,
    files: u64,
    /// The fault, and how many calls of its kind succeed before it.
    armed: Option<(Fault, u64)>,
    struck: Option<Fault>,
    ignores_syncs: bool,
}

/// A file of the disk, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FileId {
    Records,
    Values,
    Log(u64),
}

/// A change of a folder, with what it takes to undo it.
#[derive(Debug)]
enum FolderChange {
    Created(String),
    Renamed(String, String),
    Removed(String, FileId),
}

/// What one file holds.
#[derive(Debug, Default)]
struct Platter {
    synced: Vec<u8>,
    unsynced: Vec<Unsynced>,
}

#[derive(Debug)]
enum Unsynced {
    Write(usize, Vec<u8>),
    Length(usize),
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
            unsynced: Vec::new(),
            files: 0,
            armed: None,
            struck: None,
            ignores_syncs: false,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The same disk, whose syncs do nothing and succeed: what no store survives.
    #[must_use]
    pub fn ignoring_syncs(self) -> Self {
        self.state.lock().ignores_syncs = true;
        self
    }

    /// Lets `fault` strike after so many more calls that it can strike.
    pub fn arm(&self, fault: Fault, after: u64) {
        self.state.lock().armed = Some((fault, after));
    }

    /// The fault that has struck.
    pub fn struck(&self) -> Option<Fault> {
        self.state.lock().struck
    }

    /// Makes room on a disk that was full, or was about to be.
    pub fn make_room(&self) {
        let mut state = self.state.lock();
        state.armed = state.armed.filter(|(fault, _)| *fault != Fault::DiskFull);
        state.struck = state.struck.filter(|fault| *fault != Fault::DiskFull);
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
        state.undo_folder_changes();
        let log = directory.join("log");
        for name in Folder::new(&log).names()? {
            // A note of the writer's is none of the log.
            if name.contains('.') {
                fs::remove_file(log.join(name))?;
            }
        }
        let files: Vec<_> = state.log.clone().into_iter().collect();
        files
            .into_iter()
            .try_for_each(|(name, file)| fs::write(log.join(name), state.remains(file)))
    }

    fn put(&self, id: FileId, file: FileBackend) -> io::Result<Storage> {
        let mut bytes = vec![0; file.len()? as usize];
        file.read(0, &mut bytes)?;
        let mut state = self.state.lock();
        state.platters.insert(id, Platter { synced: bytes, unsynced: Vec::new() });
        drop(state);
        Ok(Arc::new(FaultyStorage { file, id, disk: self.clone() }))
    }
}

impl Disk for FaultyDisk {
    fn file(&self, part: Part, file: FileBackend) -> io::Result<Storage> {
        let id = match part {
            Part::Records => FileId::Records,
            Part::Values => FileId::Values,
        };
        self.put(id, file)
    }

    fn shelf(&self, folder: Folder) -> Arc<dyn Shelf> {
        Arc::new(FaultyShelf { folder, disk: self.clone() })
    }
}

/// The folder of a log on a [`FaultyDisk`].
#[derive(Debug)]
struct FaultyShelf {
    folder: Folder,
    disk: FaultyDisk,
}

impl FaultyShelf {
    /// Counts a change of the folder, which the disk may refuse.
    fn change(&self) -> io::Result<()> {
        let struck = self.disk.state.lock().strikes(Call::Write);
        struck.map_or(Ok(()), |fault| Err(fault.error()))
    }
}

impl Shelf for FaultyShelf {
    fn names(&self) -> io::Result<Vec<String>> {
        self.folder.names()
    }

    fn open(&self, name: &str) -> io::Result<Storage> {
        let is_new = !self.folder.path(name).exists();
        if is_new {
            self.change()?;
        }
        let file = self.folder.open_file(name)?;
        let mut state = self.disk.state.lock();
        let known = state.log.get(name).copied();
        if let Some(id) = known {
            return Ok(Arc::new(FaultyStorage { file, id, disk: self.disk.clone() }));
        }
        state.files += 1;
        let id = FileId::Log(state.files);
        state.log.insert(name.to_owned(), id);
        if is_new {
            state.unsynced.push(FolderChange::Created(name.to_owned()));
        }
        drop(state);
        self.disk.put(id, file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change()?;
        self.folder.rename(from, to)?;
        let mut state = self.disk.state.lock();
        if let Some(id) = state.log.remove(from) {
            state.log.insert(to.to_owned(), id);
            state.unsynced.push(FolderChange::Renamed(from.to_owned(), to.to_owned()));
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change()?;
        self.folder.remove(name)?;
        let mut state = self.disk.state.lock();
        if let Some(id) = state.log.remove(name) {
            state.unsynced.push(FolderChange::Removed(name.to_owned(), id));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        match state.strikes(Call::Sync) {
            Some(fault) => return Err(fault.error()),
            None if state.ignores_syncs => {}
            None => state.unsynced.clear(),
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
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

    /// Counts a call, and says which fault strikes it.
    fn strikes(&mut self, call: Call) -> Option<Fault> {
        match self.struck {
            Some(Fault::PowerCut) => return Some(Fault::PowerCut),
            Some(Fault::DiskFull) if call == Call::Write => return Some(Fault::DiskFull),
            Some(Fault::Rot) if call == Call::Read => return Some(Fault::Rot),
            Some(_) | None => {}
        }
        let (fault, after) = self.armed.filter(|(fault, _)| fault.can_strike(call))?;
        if after > 0 {
            self.armed = Some((fault, after - 1));
            return None;
        }
        self.armed = None;
        self.struck = Some(fault);
        Some(fault)
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
    }

    fn remains(&mut self, part: FileId) -> Vec<u8> {
        let Platter { synced: mut bytes, unsynced } = std::mem::take(self.platter(part));
        let synced = bytes.clone();
        // Of four cuts one loses everything, one loses nothing, and two mix.
        let mixed = self.draw(4);
        for write in &unsynced {
            let fate = if mixed < 2 { mixed * 2 } else { self.draw(3) };
            write.apply(&mut bytes, |_| match fate {
                0 => false,
                1 => self.draw(2) == 1,
                _ => true,
            });
        }
        *self.platter(part) = Platter { synced, unsynced };
        bytes
    }
}

impl Platter {
    fn sync(&mut self) {
        for unsynced in std::mem::take(&mut self.unsynced) {
            unsynced.apply(&mut self.synced, |_| true);
        }
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

impl Unsynced {
    /// Writes those sectors to `bytes` that `keep` wants.
    fn apply(&self, bytes: &mut Vec<u8>, mut keep: impl FnMut(usize) -> bool) {
        match self {
            Self::Length(len) => {
                if keep(0) {
                    bytes.resize(*len, 0);
                }
            }
            Self::Write(offset, data) => {
                let mut at = 0;
                while at < data.len() {
                    let start = offset + at;
                    let end = (start / SECTOR + 1) * SECTOR;
                    let sector = &data[at..data.len().min(at + end - start)];
                    if keep(start / SECTOR) {
                        bytes.resize(bytes.len().max(start + sector.len()), 0);
                        bytes[start..start + sector.len()].copy_from_slice(sector);
                    }
                    at += sector.len();
                }
            }
        }
    }
}

/// A file on a [`FaultyDisk`].
#[derive(Debug)]
struct FaultyStorage {
    file: FileBackend,
    id: FileId,
    disk: FaultyDisk,
}

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
        let mut state = self.disk.state.lock();
        if let Some(fault) = state.strikes(Call::Write) {
            return Err(fault.error());
        }
        state.platter(self.id).unsynced.push(Unsynced::Length(len as usize));
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        match state.strikes(Call::Sync) {
            Some(fault) => return Err(fault.error()),
            None if state.ignores_syncs => {}
            None => state.platter(self.id).sync(),
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let struck = state.strikes(Call::Write);
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
