//! Paths: segments as bytes, decoded once.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use wane::services::apps::AppName;

use super::problem::Problem;

/// The segments of a path, decoded once each. A slash written `%2F` is part of its segment.
pub(super) fn segments(path: &str) -> impl Iterator<Item = impl Iterator<Item = u8>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split('/').map(|segment| percent_decode_str(segment))
}

/// Whether the path names this application, at the segment `at` and the next.
pub(super) fn names_app(path: &str, at: usize, name: &AppName) -> bool {
    let mut segments = segments(path).skip(at);
    segments.next().is_some_and(|owner| owner.eq(name.owner().bytes()))
        && segments.next().is_some_and(|app| app.eq(name.app().bytes()))
}

/// The last segment of the path: the user's key.
#[derive(Debug)]
pub(super) struct LastSegment(pub(super) Vec<u8>);

impl<S: Send + Sync> FromRequestParts<S> for LastSegment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let raw = parts.uri.path().rsplit('/').next().unwrap_or_default();
        check_escapes("key", raw)?;
        Ok(Self(percent_decode_str(raw).collect()))
    }
}

/// Where `/api/v2/apps/{owner}/{app}/{service}/{name}` has the name.
const NAME: usize = 6;

/// The name of a thing of a service, as text.
#[derive(Debug)]
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let path = parts.uri.path();
        let raw = path.trim_start_matches('/').split('/').nth(NAME).unwrap_or_default();
        check_escapes("name", raw)?;
        let name = percent_decode_str(raw).decode_utf8();
        let name = name.map_err(|_| Problem::invalid("name", "it is not UTF-8"))?;
        Ok(Self(name.into_owned()))
    }
}

/// A name that is missing.
pub(super) async fn no_name() -> Problem {
    Problem::invalid("name", "it is empty; give 1 to 1024 bytes of UTF-8")
}

/// A percent sign is followed by two hex digits. Anything else has two readings.
pub(super) fn check_escapes(field: &str, raw: &str) -> Result<(), Problem> {
    let bytes = raw.as_bytes();
    let is_escape = |at: usize| {
        bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    };
    let broken = (0..bytes.len()).find(|at| bytes[*at] == b'%' && !is_escape(*at));
    broken.map_or(Ok(()), |at| {
        let reason = format!("the % at byte {at} is not followed by two hex digits; write %25");
        Err(Problem::invalid(field, reason))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_decoded_once() {
        let found: Vec<_> = segments("/a%2Fb/%252F/%FF").map(Vec::from_iter).collect();
        assert_eq!(found, [b"a/b".to_vec(), b"%2F".to_vec(), vec![0xFF]]);
    }

    #[test]
    fn a_bare_percent_sign_is_refused() {
        for path in ["100%", "%2", "%zz", "a%%41"] {
            assert!(check_escapes("key", path).is_err(), "{path}");
        }
        check_escapes("key", "100%25%2f").unwrap();
    }
}
