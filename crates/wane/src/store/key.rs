//! Keys: a partition and a clustering, both byte strings, their limits and their order.
//!
//! Limits are checked once, where a key is made. A [`Key`] that exists is legal on every backend,
//! so no store checks again. The lengths are what DynamoDB's sort keys leave after escaping.
//!
//! A wrapper may append a bucket to the partition on its way to a backend. Such a key is up to two
//! bytes longer than callers may make one: see [`Key::stored`].

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use super::StoreError;
use super::inline::InlineBytes;

/// The longest partition, in bytes. The shortest is 1.
pub const MAX_PARTITION: usize = 1_024;

/// Bytes of the bucket that a wrapper may append to a partition.
pub(super) const BUCKET_BYTES: usize = size_of::<u16>();

/// The longest partition that reaches a backend: [`MAX_PARTITION`] and a bucket.
pub const MAX_STORED_PARTITION: usize = MAX_PARTITION + BUCKET_BYTES;

/// The longest clustering, in bytes; one byte less where it begins with 0x00.
pub const MAX_CLUSTERING: usize = 1_024;

/// The name of a partition: 1 to 1,024 bytes. Rows of one partition are ordered by clustering.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(Bytes);

impl Partition {
    /// Takes the bytes as a partition, or says which limit they break.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, StoreError> {
        let bytes = bytes.into();
        check_partition(&bytes, MAX_PARTITION)?;
        Ok(Self(bytes))
    }

    /// Takes the bytes of a partition as a backend holds it: up to [`MAX_STORED_PARTITION`]. For
    /// backends that read keys back; callers use [`Partition::new`].
    pub fn stored(bytes: impl Into<Bytes>) -> Result<Self, StoreError> {
        let bytes = bytes.into();
        check_partition(&bytes, MAX_STORED_PARTITION)?;
        Ok(Self(bytes))
    }

    /// The bytes of the partition.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// This partition's part in a bucket.
    pub(super) fn in_bucket(&self, bucket: u16) -> Self {
        Self([&self.0, &bucket.to_be_bytes()[..]].concat().into())
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
        check_partition(partition, MAX_PARTITION)?;
        check_clustering("clustering", clustering)?;
        Ok(Self::join(partition, clustering))
    }

    /// Joins parts as a backend holds them: the partition may have up to
    /// [`MAX_STORED_PARTITION`] bytes. For backends that read keys back; callers use [`Key::new`].
    #[inline]
    pub fn stored(partition: &[u8], clustering: &[u8]) -> Result<Self, StoreError> {
        check_partition(partition, MAX_STORED_PARTITION)?;
        check_clustering("clustering", clustering)?;
        Ok(Self::join(partition, clustering))
    }

    /// Joins parts that were a key before.
    #[inline]
    pub(super) fn join(partition: &[u8], clustering: &[u8]) -> Self {
        // Within MAX_STORED_PARTITION, so the length fits.
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

    /// Bytes that the key takes outside of itself.
    pub(super) fn bytes_outside(&self) -> usize {
        self.bytes.bytes_outside()
    }

    /// The key under which a backend holds this one in a bucket.
    pub(super) fn in_bucket(&self, bucket: u16) -> Self {
        let bucket = bucket.to_be_bytes();
        let bytes = InlineBytes::join_three(self.partition(), &bucket, self.clustering());
        Self { bytes, partition_len: self.partition_len + BUCKET_BYTES as u16 }
    }

    /// The key that a backend holds as this one, and its bucket; none where the partition is too
    /// short to end with one.
    pub(super) fn out_of_bucket(&self) -> Option<(Self, u16)> {
        let (partition, bucket) = self.partition().split_last_chunk()?;
        if partition.is_empty() {
            return None;
        }
        Some((Self::join(partition, self.clustering()), u16::from_be_bytes(*bucket)))
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

    /// The one row with this clustering.
    pub fn only(clustering: impl Into<Bytes>) -> Result<Self, StoreError> {
        let start = clustering.into();
        check_clustering("clustering", &start)?;
        let end = next_clustering(&start).unwrap_or_default();
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

    /// What is left of this range beyond the row `clustering`, if any row can be.
    ///
    /// ```
    /// # use wane::store::{ClusteringRange, MAX_CLUSTERING};
    /// let after = |clustering: &[u8]| {
    ///     ClusteringRange::ALL.after(clustering).map(|rest| rest.start().to_vec())
    /// };
    /// assert_eq!(after(b"a"), Some(b"a\0".to_vec()));
    /// let (mut longest, last) = ([b'a'; MAX_CLUSTERING], [0xFF; MAX_CLUSTERING]);
    /// longest[1..].fill(0xFF);
    /// assert_eq!(after(&longest), Some(b"b".to_vec()), "no longer key begins with it");
    /// assert_eq!(after(&last), None, "nothing lies beyond the last of all keys");
    /// ```
    pub fn after(&self, clustering: &[u8]) -> Option<Self> {
        let next = Self { start: next_clustering(clustering)?, end: self.end.clone() };
        let is_left = next.end().is_none_or(|end| next.start() < end);
        is_left.then_some(next)
    }

    /// The part of this range before `end`, which must lie in it and not be empty.
    pub(super) fn ending_at(&self, end: &[u8]) -> Self {
        Self { start: self.start.clone(), end: Bytes::copy_from_slice(end) }
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
    #[inline]
    pub fn contains(&self, clustering: &[u8]) -> bool {
        clustering >= self.start() && self.end().is_none_or(|end| clustering < end)
    }
}

#[inline]
fn check_partition(bytes: &[u8], limit: usize) -> Result<(), StoreError> {
    match bytes.len() {
        0 => Err(StoreError::invalid("partition", "it is empty; give 1 to 1024 bytes")),
        len if len <= limit => Ok(()),
        len => Err(too_long("partition", len, limit)),
    }
}

/// The least legal clustering beyond this one.
fn next_clustering(clustering: &[u8]) -> Option<Bytes> {
    if clustering.len() < longest_clustering(clustering) {
        return Some([clustering, &[0]].concat().into());
    }
    // The longest ones have no extension: the next is the least string beyond all of them.
    let last = clustering.iter().rposition(|byte| *byte != 0xFF)?;
    let mut next = clustering[..=last].to_vec();
    next[last] += 1;
    Some(next.into())
}

fn longest_clustering(clustering: &[u8]) -> usize {
    if clustering.first() == Some(&0) { MAX_CLUSTERING - 1 } else { MAX_CLUSTERING }
}

fn check_clustering(field: &'static str, bytes: &[u8]) -> Result<(), StoreError> {
    let limit = longest_clustering(bytes);
    if bytes.len() > limit { Err(too_long(field, bytes.len(), limit)) } else { Ok(()) }
}

fn too_long(field: &'static str, len: usize, limit: usize) -> StoreError {
    StoreError::invalid(field, format!("it has {len} bytes, the limit is {limit}; shorten it"))
}
