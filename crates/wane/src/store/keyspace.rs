//! The only table of partition prefixes: which service owns which partitions.
//!
//! A partition begins with its keyspace as four big-endian bytes. Numbers after it are big-endian
//! too, so that byte order is number order.

use super::{Partition, StoreError};

/// The owner of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Keyspace {
    /// Leader elections: app u32; clustering is the election's name.
    Elections = 1,
    /// Sequencer, offset of a partition: app u32, partition u16; clustering is 4 zero bytes.
    SequencerOffsets = 2,
    /// Sequencer, numbers of a workspace: app u32, workspace u64; clustering is sequence id u16.
    SequencerNumbers = 3,
    /// Application TTL storage: app u32; clustering is the user's key.
    AppTtl = 4,
    /// Temporary BLOBs: app u32, workspace u64, BLOB id, bucket; clustering is the chunk number.
    Blobs = 5,
    /// Device authorization: app u32 (user codes and clients: 0); clustering is kind, then name.
    DeviceAuth = 6,
    /// Pull stream, the log: home region, ISPB, range of sequence; clustering is the row sequence.
    PullStreamLog = 7,
    /// Pull stream, state: home region, ISPB; clustering is state, policy or ownership. With the id
    /// of a replay after them: its record.
    PullStreamState = 8,
    /// Audit rows: chain and range of numbers; clustering is the number.
    Audit = 9,
    /// Settings: apps, credentials, keys.
    Settings = 10,
    /// Named sequences: app u32; clustering is the name.
    Sequences = 11,
}

impl Keyspace {
    /// Every keyspace, by number.
    pub const ALL: [Self; 11] = [
        Self::Elections,
        Self::SequencerOffsets,
        Self::SequencerNumbers,
        Self::AppTtl,
        Self::Blobs,
        Self::DeviceAuth,
        Self::PullStreamLog,
        Self::PullStreamState,
        Self::Audit,
        Self::Settings,
        Self::Sequences,
    ];

    /// The keyspace that a partition belongs to, if any.
    pub fn of(partition: &[u8]) -> Option<Self> {
        let number = u32::from_be_bytes(*partition.first_chunk()?);
        Self::ALL.into_iter().find(|keyspace| *keyspace as u32 == number)
    }

    /// Whether the rows of a partition have nothing to do with each other, so that they may be
    /// spread over many partitions of a backend.
    pub const fn has_independent_keys(self) -> bool {
        match self {
            Self::Elections | Self::AppTtl | Self::DeviceAuth | Self::Sequences => true,
            Self::SequencerOffsets
            | Self::SequencerNumbers
            | Self::Blobs
            | Self::PullStreamLog
            | Self::PullStreamState
            | Self::Audit
            | Self::Settings => false,
        }
    }

    /// The four bytes that every partition of this keyspace begins with.
    pub const fn prefix(self) -> [u8; 4] {
        (self as u32).to_be_bytes()
    }

    /// The partition of this keyspace that goes on with `rest`.
    ///
    /// ```
    /// # use wane::store::Keyspace;
    /// let partition = Keyspace::AppTtl.partition(&7_u32.to_be_bytes())?;
    /// assert_eq!(partition.as_bytes(), [0, 0, 0, 4, 0, 0, 0, 7]);
    /// # Ok::<(), wane::store::StoreError>(())
    /// ```
    pub fn partition(self, rest: &[u8]) -> Result<Partition, StoreError> {
        Partition::new([&self.prefix(), rest].concat())
    }
}
