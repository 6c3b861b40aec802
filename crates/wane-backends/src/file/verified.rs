//! What the files of a store hold, once they were found sound.
//!
//! Opening finds whatever is not as it was written: pages, frames and values have checksums. Files
//! that are each whole can still contradict each other, by a fault of this program or by files that
//! were put together from several copies. `wane verify` looks for that too.

/// What the files of a store hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedFiles {
    /// The format that they are in.
    pub format: u64,
    /// The tree, and the large values beside it.
    pub tree: VerifiedTree,
    /// The log in front of it.
    pub log: VerifiedLog,
}

/// What a tree holds. Its records can be read, each that expires is in the expiry index under an
/// instant no later than that, each large value is listed where its record says that it lies, and
/// neither list has anything else in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifiedTree {
    /// The number of its last commit.
    pub commit: u64,
    /// Records, those that have expired and were not removed yet included.
    pub records: u64,
    /// Those of them that expire.
    pub expiring: u64,
    /// Values that lie in a file of their own.
    pub large_values: u64,
    /// Their bytes.
    pub large_bytes: u64,
}

/// What a log holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifiedLog {
    /// Its files.
    pub segments: u64,
    /// Their bytes, unused ones included.
    pub bytes: u64,
    /// The number of the last frame that was ever logged.
    pub last_frame: u64,
    /// Keys whose last change has not reached the tree, counted once in each segment.
    pub young: u64,
}
