//! What one file of the disk holds: what was synced, and what was only written.

/// What a disk writes in one piece.
const SECTOR: usize = 512;

/// What one file holds.
#[derive(Debug, Default, Clone)]
pub(super) struct Platter {
    pub(super) synced: Vec<u8>,
    /// What was synced on a disk that does so late.
    late: Vec<Unsynced>,
    /// In the order in which it came.
    pub(super) unsynced: Vec<Unsynced>,
}

/// A change that was not synced.
#[derive(Debug, Clone)]
pub(super) enum Unsynced {
    /// Bytes at an offset.
    Write(usize, Vec<u8>),
    /// Another length.
    Length(usize),
}

impl Platter {
    /// What is durable from the beginning.
    pub(super) fn of(synced: Vec<u8>) -> Self {
        Self { synced, ..Self::default() }
    }

    /// Makes everything durable.
    pub(super) fn sync(&mut self) {
        for unsynced in std::mem::take(&mut self.unsynced) {
            unsynced.apply(&mut self.synced, |_| true);
        }
    }

    /// Makes durable what was written before the last time.
    pub(super) fn sync_late(&mut self) {
        let late = std::mem::replace(&mut self.late, std::mem::take(&mut self.unsynced));
        late.iter().for_each(|late| late.apply(&mut self.synced, |_| true));
    }

    /// What a process reads from it.
    pub(super) fn written(&self) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let unsynced = self.late.iter().chain(&self.unsynced);
        unsynced.for_each(|unsynced| unsynced.apply(&mut bytes, |_| true));
        bytes
    }
}

impl Unsynced {
    /// Writes those sectors to `bytes` that `keep` wants.
    pub(super) fn apply(&self, bytes: &mut Vec<u8>, mut keep: impl FnMut(usize) -> bool) {
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
