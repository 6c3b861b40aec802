//! Which bytes a GET asks for: `Range` and `If-Range` (RFC 9110, section 14).
//!
//! One range is answered with those bytes. Several are answered with the whole, as the RFC allows,
//! and so is what is not a range of bytes at all.

use std::ops::Range;

use axum::http::HeaderMap;
use axum::http::header::{IF_RANGE, RANGE};

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// These bytes, at least one.
    Bytes(Range<u64>),
    /// No byte of the BLOB is in the range.
    Outside,
}

/// The part of a BLOB with this size and validator that the request is for.
pub(super) fn asked(headers: &HeaderMap, size: u64, etag: &str) -> Part {
    let mut given = headers.get_all(RANGE).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return Part::Whole };
    // Only the same strong validator: whoever has another one gets all of what is there now.
    let holds = headers.get_all(IF_RANGE).iter().all(|condition| condition == etag);
    let text = value.to_str().ok().filter(|_| holds);
    text.and_then(|text| read(text, size)).unwrap_or(Part::Whole)
}

/// `None` where it is no single range of bytes.
fn read(text: &str, size: u64) -> Option<Part> {
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let part = match (position(first)?, position(last)?) {
        (Some(first), Some(last)) if last < first => return None,
        (Some(first), _) if first >= size => Part::Outside,
        (Some(first), last) => {
            Part::Bytes(first..last.map_or(size, |last| last.saturating_add(1).min(size)))
        }
        (None, Some(0)) => Part::Outside,
        // There is nothing to take the last bytes of, and nothing missing either.
        (None, Some(_)) if size == 0 => Part::Whole,
        (None, Some(last)) => Part::Bytes(size.saturating_sub(last)..size),
        (None, None) => return None,
    };
    Some(part)
}

/// A position, which may be left out. More than 64 bits are beyond every BLOB.
fn position(digits: &str) -> Option<Option<u64>> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn of(range: &str, size: u64) -> Part {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_str(range).unwrap());
        asked(&headers, size, "\"e\"")
    }

    #[test]
    fn one_range_is_those_bytes() {
        for (range, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-", 0..10),
            ("bytes=3-5", 3..6),
            ("bytes=9-9", 9..10),
            ("bytes=5-99999999999999999999999", 5..10),
            ("bytes=-3", 7..10),
            ("bytes=-99", 0..10),
            ("Bytes= 1-2", 1..3),
        ] {
            assert_eq!(of(range, 10), Part::Bytes(expected), "{range}");
        }
    }

    #[test]
    fn no_byte_of_it_is_outside() {
        for range in ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=99999999999999999999-"] {
            assert_eq!(of(range, 10), Part::Outside, "{range}");
        }
        assert_eq!(of("bytes=0-", 0), Part::Outside);
        assert_eq!(of("bytes=-5", 0), Part::Whole);
    }

    #[test]
    fn anything_else_is_the_whole() {
        for range in [
            "bytes=",
            "bytes=-",
            "bytes=5-3",
            "lines=1-2",
            "bytes=1-2,4-5",
            "bytes=+1-2",
            "1-2",
            "",
        ] {
            assert_eq!(of(range, 10), Part::Whole, "{range}");
        }
    }

    #[test]
    fn a_condition_that_does_not_hold_makes_it_the_whole() {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_static("bytes=1-2"));
        for (condition, expected) in [
            ("\"e\"", Part::Bytes(1..3)),
            ("\"f\"", Part::Whole),
            ("W/\"e\"", Part::Whole),
            ("Sun, 15 Nov 2026 00:00:00 GMT", Part::Whole),
        ] {
            headers.insert(IF_RANGE, HeaderValue::from_static(condition));
            assert_eq!(asked(&headers, 10, "\"e\""), expected, "{condition}");
        }
    }
}
