//! Archives: where rows of the log go before their retention ends, and come back from for a replay.
//!
//! An archive keeps segments: rows of one institution that lie side by side, as bytes that say
//! themselves what they are. It knows nothing of messages, and the log knows nothing of buckets and
//! directories.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::str::FromStr;

use bytes::Bytes;

use super::Ispb;
use crate::store::Timestamp;

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

    /// It holds rows of another log under the names of this one's. An operator must move them away.
    #[error(
        "the archive has row {row} of {ispb}, and this log did not archive it: the store was \
         restored from a backup, or another one archives there; move the segments from that row on \
         away"
    )]
    Foreign { ispb: Ispb, row: u64 },
}

/// The name of a segment, from which alone is known what is in it.
///
/// Rows only ever become fewer, by expiring: the range and how many there are say which ones. So a
/// segment is never replaced by one with other rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SegmentName {
    /// The home region of the institution.
    pub region: String,
    /// The institution.
    pub ispb: Ispb,
    /// The rows, by their sequences: from the first one to behind the last one.
    pub rows: Range<u64>,
    /// When they came in: from the earliest to a millisecond after the latest.
    pub times: Range<Timestamp>,
    /// How many rows of the range are in it. The others had expired.
    pub count: u64,
}

impl SegmentName {
    /// Whether a row of these times may be in it.
    pub fn is_within(&self, times: &Range<Timestamp>) -> bool {
        self.times.start < times.end && times.start < self.times.end
    }
}

/// `region/ispb/FIRST-END_FROM-TO_COUNT`: names of an institution sort like their rows.
impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, ispb, rows, times, count } = self;
        let (from, to) = (times.start.as_unix_millis(), times.end.as_unix_millis());
        let Range { start, end } = rows;
        write!(f, "{region}/{ispb}/{start:020}-{end:020}_{from:013}-{to:013}_{count}")
    }
}

/// The text is not the name of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not the name of a segment")]
pub struct NoSegmentName;

impl FromStr for SegmentName {
    type Err = NoSegmentName;

    /// Reads a name back, as it is written and not otherwise.
    fn from_str(text: &str) -> Result<Self, NoSegmentName> {
        let read = || {
            let (region, rest) = text.split_once('/')?;
            let (ispb, rest) = rest.split_once('/')?;
            let (rows, rest) = rest.split_once('_')?;
            let (times, count) = rest.split_once('_')?;
            let times = range(times)?;
            let moment = Timestamp::from_unix_millis;
            Some(Self {
                region: region.to_owned(),
                ispb: ispb.parse().ok()?,
                rows: range(rows)?,
                times: moment(times.start)..moment(times.end),
                count: count.parse().ok()?,
            })
        };
        read().filter(|name| name.to_string() == text).ok_or(NoSegmentName)
    }
}

fn range(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once('-')?;
    Some(start.parse().ok()?..end.parse().ok()?)
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

    /// The segments of an institution that begin at a row or behind it, by their first and last rows:
    /// the first `most` of them.
    fn list(
        &self,
        region: &str,
        ispb: Ispb,
        from_row: u64,
        most: usize,
    ) -> ArchiveFuture<'_, Vec<SegmentName>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(rows: Range<u64>) -> SegmentName {
        let moment = Timestamp::from_unix_millis;
        let times = moment(1_800_000_000_000)..moment(1_800_000_000_501);
        SegmentName {
            region: "local".into(),
            ispb: "00000208".parse().unwrap(),
            count: rows.end - rows.start,
            rows,
            times,
        }
    }

    #[test]
    fn names_sort_like_their_rows_and_are_read_back() {
        let text = "local/00000208/00000000000000000000-00000000000000000256\
                    _1800000000000-1800000000501_256";
        assert_eq!(name(0..256).to_string(), text);
        assert_eq!(text.parse(), Ok(name(0..256)));
        let (earlier, later) = (name(900..1_000).to_string(), name(1_000..1_100).to_string());
        assert!(earlier < later, "numbers have their zeros in front");
    }

    #[test]
    fn what_is_written_otherwise_is_no_name() {
        let legal = name(0..256).to_string();
        let shortened = legal.replace("00000000000000000256", "256");
        let doubled = format!("{legal}_1");
        for wrong in ["", "local/00000208", "x", &legal[1..5], &shortened, &doubled, &legal[6..]] {
            assert_eq!(wrong.parse::<SegmentName>(), Err(NoSegmentName), "{wrong:?}");
        }
    }
}
