//! Replies of a server, taken apart. Each function has `None` for a reply of another kind.

use redis::Value as Reply;

/// What a reply that no script gives is called.
pub(super) const STRANGE: &str = "the server gave an answer that none of our scripts gives";

pub(super) fn number(reply: &Reply) -> Option<i64> {
    if let Reply::Int(number) = reply { Some(*number) } else { None }
}

pub(super) fn array(reply: Reply) -> Option<Vec<Reply>> {
    if let Reply::Array(parts) = reply { Some(parts) } else { None }
}

pub(super) fn bytes(reply: Reply) -> Option<Vec<u8>> {
    if let Reply::BulkString(bytes) = reply { Some(bytes) } else { None }
}

/// Bytes, or that there are none.
pub(super) fn bytes_or_none(reply: Reply) -> Option<Option<Vec<u8>>> {
    if matches!(reply, Reply::Nil) { Some(None) } else { bytes(reply).map(Some) }
}

/// The milliseconds of a `TIME`.
pub(super) fn time(reply: Reply) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value(reply).ok()?;
    Some(seconds * 1_000 + micros / 1_000)
}
