//! Records: what a key holds, what a write asks for, and what comes back.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;

use super::{ClusteringRange, Key, Life, Remaining, StoreError, Timestamp};

/// The longest value, in bytes: 256 KiB.
pub const MAX_VALUE: usize = 262_144;

/// The bytes of a record: 0 to 262,144 of them. An empty value is a value.
///
/// Short values are kept in place, so that reading one allocates nothing; a clone of a longer one
/// is a reference count.
#[derive(Clone)]
pub struct Value(Repr);

/// Values up to this size are kept in place. With it a value takes 40 bytes.
const INLINE_VALUE: usize = 38;

#[derive(Clone)]
enum Repr {
    Here { len: u8, bytes: [u8; INLINE_VALUE] },
    Shared(Bytes),
}

impl Value {
    /// Takes the bytes as a value, or says that they are too many.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, StoreError> {
        let bytes = bytes.into();
        if bytes.len() <= INLINE_VALUE {
            return Ok(Self::here(&bytes));
        }
        check_length(bytes.len())?;
        Ok(Self(Repr::Shared(bytes)))
    }

    /// Copies the bytes into a value, or says that they are too many.
    pub fn copy_from_slice(bytes: &[u8]) -> Result<Self, StoreError> {
        if bytes.len() <= INLINE_VALUE {
            return Ok(Self::here(bytes));
        }
        check_length(bytes.len())?;
        Ok(Self(Repr::Shared(Bytes::copy_from_slice(bytes))))
    }

    fn here(value: &[u8]) -> Self {
        let mut bytes = [0; INLINE_VALUE];
        bytes[..value.len()].copy_from_slice(value);
        Self(Repr::Here { len: value.len() as u8, bytes })
    }

    /// The bytes; a long value is not copied.
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Repr::Here { len, bytes } => Bytes::copy_from_slice(&bytes[..usize::from(len)]),
            Repr::Shared(bytes) => bytes,
        }
    }

    /// The same value with memory of its own, which a clone shares with whoever made the value.
    pub(super) fn copied(&self) -> Self {
        match &self.0 {
            Repr::Here { .. } => self.clone(),
            Repr::Shared(bytes) => Self(Repr::Shared(Bytes::copy_from_slice(bytes))),
        }
    }

    /// Bytes that the value takes outside of itself.
    pub(super) fn bytes_outside(&self) -> usize {
        match &self.0 {
            Repr::Here { .. } => 0,
            Repr::Shared(bytes) => bytes.len(),
        }
    }
}

fn check_length(len: usize) -> Result<(), StoreError> {
    if len <= MAX_VALUE {
        return Ok(());
    }
    let reason = format!("it has {len} bytes, the limit is {MAX_VALUE}; split it");
    Err(StoreError::invalid("value", reason))
}

impl Default for Value {
    fn default() -> Self {
        Self::here(&[])
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Here { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 64;
        let shown = &self[..self.len().min(SHOWN)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if self.len() > SHOWN { write!(f, ".. ({} bytes)", self.len()) } else { Ok(()) }
    }
}

/// A fencing number: a write with a lower one than the record's is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(pub u64);

impl Fence {
    /// No fence: the write passes any stamp and leaves it as it is.
    pub const NONE: Self = Self(0);
}

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The bytes.
    pub value: Value,
    /// When the record expires, or `None` for never. It is absent from this instant on.
    pub expires_at: Option<Timestamp>,
    /// The highest fence that a write stamped on it.
    pub fence: Fence,
}

impl Record {
    /// Whether the record is still there at `now`.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expiry| now < expiry)
    }

    /// What is left of its life at `now`.
    pub fn remaining(&self, now: Timestamp) -> Remaining {
        match self.expires_at {
            None => Remaining::Permanent,
            Some(expiry) if now < expiry => Remaining::For(now.until(expiry)),
            Some(_) => Remaining::Absent,
        }
    }

    /// What is left at `now` of the life of a record that was live when it was looked at: at least
    /// 1 ms, however long the look took. For backends whose looks take time.
    pub fn remaining_of_live(&self, now: Timestamp) -> Remaining {
        match self.remaining(now) {
            Remaining::Absent => Remaining::For(Duration::from_millis(1)),
            left @ (Remaining::Permanent | Remaining::For(_)) => left,
        }
    }
}

/// What a write stores: the value, how long it lives, and the fence it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The bytes to store.
    pub value: Value,
    /// How long they live.
    pub life: Life,
    /// The fence, or [`Fence::NONE`].
    pub fence: Fence,
}

impl Write {
    /// A write without a fence.
    pub fn new(value: Value, life: Life) -> Self {
        Self { value, life, fence: Fence::NONE }
    }

    /// The same write, carrying `fence`.
    #[must_use]
    pub fn fenced(self, fence: Fence) -> Self {
        Self { fence, ..self }
    }
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a refused write changed nothing"]
pub enum Outcome {
    /// The write took effect, once.
    Applied {
        /// The expiry of the record as it was written or, by a delete, as it was removed.
        expires_at: Option<Timestamp>,
    },
    /// The condition did not hold, and nothing changed.
    Refused {
        /// What stood in the way: the live record, or `None` where there is none.
        current: Option<Record>,
    },
}

impl Outcome {
    /// Whether the write took effect.
    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Applied { .. })
    }
}

/// A record with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Key,
    /// The record, live when it was read.
    pub record: Record,
}

/// How many rows a page may hold: 1 to 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageLimit(usize);

impl PageLimit {
    /// The largest page.
    pub const MAX: Self = Self(10_000);

    /// Up to this many rows, or [`StoreError::Invalid`] outside of 1..=10,000.
    pub fn new(rows: usize) -> Result<Self, StoreError> {
        if (1..=Self::MAX.0).contains(&rows) {
            return Ok(Self(rows));
        }
        Err(StoreError::invalid("limit", format!("{rows} is outside of 1 to 10000 rows")))
    }

    /// The number of rows.
    pub const fn rows(self) -> usize {
        self.0
    }
}

/// A page ends early once its keys and values reach this many bytes, so that memory stays bounded
/// whatever the limit. It always holds at least one row, if there is one.
pub const PAGE_BYTES: usize = 1 << 20;

/// Rows of one partition in order, and the range that is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The rows, ascending by clustering. Only `rest` tells the end: a page may be short.
    pub rows: Vec<Row>,
    /// Where to go on, or `None` once the range is read to its end.
    pub rest: Option<ClusteringRange>,
}

/// Rows of the whole store in the backend's own order, and where to go on.
#[derive(Debug)]
pub struct ScanPage<C> {
    /// The rows. Only `next` tells the end: a page may be short.
    pub rows: Vec<Row>,
    /// Where to go on, or `None` once the whole store was read.
    pub next: Option<C>,
}

/// Gathers rows until the page is full.
#[derive(Debug)]
pub struct PageFill {
    rows: Vec<Row>,
    limit: PageLimit,
    bytes: usize,
}

impl PageFill {
    /// An empty page of up to `limit` rows.
    pub fn new(limit: PageLimit) -> Self {
        Self { rows: Vec::with_capacity(limit.rows().min(128)), limit, bytes: 0 }
    }

    /// How many more rows the limit allows.
    pub fn room(&self) -> usize {
        self.limit.rows() - self.rows.len()
    }

    /// Whether no further row belongs on the page.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.limit.rows() || self.bytes >= PAGE_BYTES
    }

    /// Adds a row.
    #[inline]
    pub fn push(&mut self, key: Key, record: Record) {
        self.bytes += key.size() + record.value.len();
        self.rows.push(Row { key, record });
    }

    /// The rows gathered.
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}
