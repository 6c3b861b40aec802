//! The folder of a log on a disk that fails as told: its changes can be lost too.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::points::DiskStep;
use super::{DRAFT, FaultyDisk, FaultyStorage, FileId, FolderChange, Unheeded};
use crate::file::disk::Storage;
use crate::file::lent_storage::is_lack_of_room;
use crate::file::log::{Folder, Shelf};

/// Whether a file in the folder is one of the log, and not a note beside it.
pub(super) fn is_of_the_log(name: &str) -> bool {
    name.contains('.')
}

/// The folder of a log on a [`FaultyDisk`].
#[derive(Debug)]
pub(super) struct FaultyShelf {
    pub(super) folder: Folder,
    pub(super) disk: FaultyDisk,
}

impl FaultyShelf {
    /// Counts a change of the folder, which the disk may refuse.
    fn change(&self, step: DiskStep) -> io::Result<()> {
        let struck = self.disk.state.lock().takes(step);
        struck.map_or(Ok(()), |fault| Err(fault.error()))
    }

    /// Opens a file of the log, and takes it for durable where it was not known.
    fn known(&self, name: &str) -> io::Result<Storage> {
        let file = self.folder.open_file(name)?;
        let mut state = self.disk.state.lock();
        if let Some(id) = state.log.get(name).copied() {
            return Ok(Arc::new(FaultyStorage { file, id, disk: self.disk.clone() }));
        }
        state.files += 1;
        let id = FileId::Log(state.files);
        state.log.insert(name.to_owned(), id);
        drop(state);
        Ok(self.disk.put(id, file)?)
    }
}

impl Shelf for FaultyShelf {
    fn names(&self) -> io::Result<Vec<String>> {
        let names = self.folder.names()?;
        let mut state = self.disk.state.lock();
        state.log.retain(|name, _| names.contains(name));
        state.knows_log = true;
        drop(state);
        for name in names.iter().filter(|name| is_of_the_log(name)) {
            self.known(name)?;
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Storage> {
        let is_new = !self.folder.path(name).exists();
        if is_new {
            self.change(DiskStep::DraftCreated)?;
        }
        let storage = self.known(name)?;
        if is_new {
            let created = FolderChange::Created(name.to_owned());
            self.disk.state.lock().unsynced.push(created);
        }
        Ok(storage)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let is_reused = to.ends_with(DRAFT);
        self.change(if is_reused { DiskStep::SegmentReused } else { DiskStep::SegmentNamed })?;
        self.folder.rename(from, to)?;
        let mut state = self.disk.state.lock();
        if let Some(id) = state.log.remove(from) {
            state.log.insert(to.to_owned(), id);
            state.unsynced.push(FolderChange::Renamed(from.to_owned(), to.to_owned()));
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let is_draft = name.ends_with(DRAFT);
        let step = if is_draft { DiskStep::DraftRemoved } else { DiskStep::SegmentRemoved };
        match self.change(step) {
            // What is removed needs no room.
            Err(error) if is_lack_of_room(&error) => {}
            changed => changed?,
        }
        self.folder.remove(name)?;
        let mut state = self.disk.state.lock();
        if let Some(id) = state.log.remove(name) {
            state.unsynced.push(FolderChange::Removed(name.to_owned(), id));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        match state.takes(DiskStep::FolderSynced) {
            Some(fault) => return Err(fault.error()),
            None if state.unheeded == Unheeded::All => {}
            None => state.settle_folder(),
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }
}
