//! Whether a GET is answered at all: `If-Match` and `If-None-Match` (RFC 9110, section 13).
//!
//! They are looked at before a download is taken: a client that has the bytes spends none.

use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName};

/// What the conditions of a request come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Go on.
    Go,
    /// The client has it already.
    NotModified,
    /// The client wants another one.
    Failed,
}

/// Compares the conditions with the strong validator of what is there.
pub(super) fn verdict(headers: &HeaderMap, etag: &str) -> Verdict {
    let named = |header: HeaderName, weak: bool| {
        let mut lines = headers.get_all(header).iter().peekable();
        lines.peek()?;
        Some(lines.any(|line| names(line.as_bytes(), etag.as_bytes(), weak)))
    };
    match (named(IF_MATCH, false), named(IF_NONE_MATCH, true)) {
        (Some(false), _) => Verdict::Failed,
        (_, Some(true)) => Verdict::NotModified,
        _ => Verdict::Go,
    }
}

/// Whether a list of validators, or `*`, names this one. Commas within one are not looked for: ours
/// have none.
fn names(list: &[u8], etag: &[u8], weak: bool) -> bool {
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|given| {
        let compared = if weak { given.strip_prefix(b"W/").unwrap_or(given) } else { given };
        compared == etag || given == b"*"
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(name: HeaderName, value: &'static str) -> Verdict {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        verdict(&headers, "\"e\"")
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        for value in ["\"e\"", "W/\"e\"", "\"x\", \"e\"", "*"] {
            assert_eq!(with(IF_NONE_MATCH, value), Verdict::NotModified, "{value}");
        }
        assert_eq!(with(IF_NONE_MATCH, "\"x\""), Verdict::Go);
    }

    #[test]
    fn another_one_is_not_sent_for_it() {
        for value in ["\"x\"", "W/\"e\"", ""] {
            assert_eq!(with(IF_MATCH, value), Verdict::Failed, "{value}");
        }
        for value in ["\"e\"", "*", "\"x\",\"e\""] {
            assert_eq!(with(IF_MATCH, value), Verdict::Go, "{value}");
        }
        assert_eq!(verdict(&HeaderMap::new(), "\"e\""), Verdict::Go);
    }
}
