//! Keys: a partition and a clustering, both byte strings, their limits and their order.
//!
//! Limits are checked once, where a key is made. A [`Key`] that exists is legal on every backend,
//! so no store checks again. The lengths are what DynamoDB's sort keys leave after escaping.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use super::StoreError;
use super::inline::InlineBytes;

/// The longest partition, in bytes. The shortest is 1.
pub const MAX_PARTITION: usize = 1_024;

/// The longest clustering, in bytes; one byte less where it begins with 0x00.
pub const MAX_CLUSTERING: usize = 1_024;

/// The name of a partition: 1 to 1,024 bytes. Rows of one partition are ordered by clustering.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(Bytes);

impl Partition {
    /// Takes the bytes as a partition, or says which limit they break.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, StoreError> {
        let bytes = bytes.into();
        check_partition(&bytes)?;
        Ok(Self(bytes))
    }

    /// The bytes of the partition.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// The key of one record. Keys compare by partition first, then by clustering, byte by byte.
///
/// Short keys are kept in place; a clone of a long one is a reference count.
#[derive(Clone)]
pub struct Key {
    bytes: InlineBytes<38>,
    partition_len: u16,
}

impl Key {
    /// Joins the two parts, or says which limit they break.
    ///
    /// ```
    /// # use wane::store::Key;
    /// assert!(Key::new(b"apps", b"").is_ok(), "an empty clustering is a key like any other");
    /// assert!(Key::new(b"", b"row").is_err(), "an empty partition is not");
    /// ```
    pub fn new(partition: &[u8], clustering: &[u8]) -> Result<Self, StoreError> {
        check_partition(partition)?;
        check_clustering("clustering", clustering)?;
        Ok(Self::join(partition, clustering))
    }

    /// Joins parts that were a key before.
    pub(super) fn join(partition: &[u8], clustering: &[u8]) -> Self {
        // Within MAX_PARTITION, so the length fits.
        let partition_len = partition.len() as u16;
        Self { bytes: InlineBytes::join(partition, clustering), partition_len }
    }

    /// The partition's bytes.
    pub fn partition(&self) -> &[u8] {
        &self.joined()[..usize::from(self.partition_len)]
    }

    /// The clustering's bytes; empty where there is none.
    pub fn clustering(&self) -> &[u8] {
        &self.joined()[usize::from(self.partition_len)..]
    }

    /// The length of both parts together, in bytes.
    pub fn size(&self) -> usize {
        self.joined().len()
    }

    /// Both parts as one string.
    pub(super) fn joined(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.partition_len == other.partition_len && self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The length is left out: keys that differ only in where they are split are rare, and
        // equality tells them apart.
        state.write(self.joined());
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.partition_len == other.partition_len {
            return self.bytes.cmp(&other.bytes);
        }
        let partitions = self.partition().cmp(other.partition());
        partitions.then_with(|| self.clustering().cmp(other.clustering()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition().escape_ascii(), self.clustering().escape_ascii())
    }
}

/// A half-open range of clusterings within a partition, ordered by bytes.
///
/// An empty start is the first row, an empty end is past the last one. A start at or beyond the
/// end is an empty range, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusteringRange {
    start: Bytes,
    end: Bytes,
}

impl ClusteringRange {
    /// Every row of the partition.
    pub const ALL: Self = Self { start: Bytes::new(), end: Bytes::new() };

    /// The rows from `start` on, up to but without `end`; either may be empty.
    pub fn new(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Result<Self, StoreError> {
        let (start, end) = (start.into(), end.into());
        check_clustering("start", &start)?;
        check_clustering("end", &end)?;
        Ok(Self { start, end })
    }

    /// The rows whose clustering begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Result<Self, StoreError> {
        let start = prefix.into();
        // The least string after all those with the prefix: drop trailing 0xFF, then add one.
        let kept = start.iter().rposition(|byte| *byte != 0xFF).map_or(0, |last| last + 1);
        let mut end = start[..kept].to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Self::new(start, end)
    }

    /// What is left of this range from `start` on.
    #[must_use]
    pub fn starting_at(&self, start: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: self.end.clone() }
    }

    /// The first clustering that may be in the range.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// The first clustering beyond the range, unless the range is open.
    pub fn end(&self) -> Option<&[u8]> {
        (!self.end.is_empty()).then_some(&*self.end)
    }

    /// Whether `clustering` lies in the range.
    pub fn contains(&self, clustering: &[u8]) -> bool {
        clustering >= self.start() && self.end().is_none_or(|end| clustering < end)
    }
}

fn check_partition(bytes: &[u8]) -> Result<(), StoreError> {
    match bytes.len() {
        0 => Err(StoreError::invalid("partition", "it is empty; give 1 to 1024 bytes")),
        1..=MAX_PARTITION => Ok(()),
        len => Err(too_long("partition", len, MAX_PARTITION)),
    }
}

fn check_clustering(field: &'static str, bytes: &[u8]) -> Result<(), StoreError> {
    let limit = if bytes.first() == Some(&0) { MAX_CLUSTERING - 1 } else { MAX_CLUSTERING };
    if bytes.len() > limit { Err(too_long(field, bytes.len(), limit)) } else { Ok(()) }
}

fn too_long(field: &'static str, len: usize, limit: usize) -> StoreError {
    StoreError::invalid(field, format!("it has {len} bytes, the limit is {limit}; shorten it"))
}
