//! Archives: where rows of the log go before their retention ends, and come back from for a replay.
//!
//! An archive keeps segments: rows of one institution that lie side by side, as bytes that say
//! themselves what they are. It knows nothing of messages, and the log knows nothing of buckets and
//! directories.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;

use super::Ispb;

/// What an archive answers, later.
pub type ArchiveFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ArchiveError>> + Send + 'a>>;

/// Why an archive did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum ArchiveError {
    /// It does not answer, or did not confirm: ask again, which is harmless.
    #[error("the archive does not answer: {source}")]
    Unavailable { source: Box<dyn std::error::Error + Send + Sync> },

    /// What it holds is not what was put there.
    #[error("the segment {segment} is damaged: {reason}")]
    Damaged { segment: SegmentName, reason: String },
}

/// The name of a segment. Segments of one institution do not overlap.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SegmentName {
    /// The home region of the institution.
    pub region: String,
    /// The institution.
    pub ispb: Ispb,
    /// The rows, by their sequences.
    pub rows: Range<u64>,
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, ispb, rows } = self;
        write!(f, "{region}/{ispb}/{:020}-{:020}", rows.start, rows.end)
    }
}

/// Somewhere that segments are kept.
///
/// - **Whole or not at all.** A segment that can be read is all of what was put.
/// - **Again is harmless.** To put a segment that is there replaces it with the same bytes.
pub trait Archive: fmt::Debug + Send + Sync + 'static {
    /// Keeps a segment, and returns once it is as durable as the archive promises.
    fn put(&self, name: &SegmentName, segment: Bytes) -> ArchiveFuture<'_, ()>;

    /// The bytes of a segment; `None` where there is none.
    fn get(&self, name: &SegmentName) -> ArchiveFuture<'_, Option<Bytes>>;

    /// The segments of an institution, by their first row.
    fn list(&self, region: &str, ispb: Ispb) -> ArchiveFuture<'_, Vec<SegmentName>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_like_their_rows() {
        let name = |rows| {
            let ispb = "00000208".parse().unwrap();
            SegmentName { region: "local".into(), ispb, rows }.to_string()
        };
        assert_eq!(name(0..256), "local/00000208/00000000000000000000-00000000000000000256");
        assert!(name(900..1_000) < name(1_000..1_100), "numbers have their zeros in front");
    }
}
