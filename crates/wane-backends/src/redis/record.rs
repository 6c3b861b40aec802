//! Records as they are stored, and what scripts answer.
//!
//! The bytes are described in `lua/record.lua`. Whatever is not of that form was written by
//! somebody else, and is reported instead of being read as something.

use bytes::Bytes;
use redis::Value as Reply;
use wane::store::{Fence, Key, Life, Outcome, Record, StoreError, Timestamp, Value};

use super::reply;

/// The bytes before a value.
pub(super) const HEADER: usize = 33;

/// The id of one operation: no other has it.
pub(super) type OperationId = [u8; 16];

/// A life as scripts take it.
pub(super) fn life_argument(life: Life) -> String {
    match life {
        Life::Permanent => "p".to_owned(),
        Life::For(ttl) => format!("f{}", ttl.as_millis()),
        Life::Until(instant) => format!("u{}", instant.as_unix_millis()),
        Life::Keep => "k".to_owned(),
    }
}

/// Takes a stored record apart.
pub(super) fn decode(key: &Key, stored: Vec<u8>) -> Result<Record, StoreError> {
    let Some((1, expires_at)) = kind_and_expiry(&stored) else {
        return Err(unsound(key));
    };
    let fence = Fence(number(&stored[25..]).ok_or_else(|| unsound(key))?);
    let value = Bytes::from(stored).slice(HEADER..);
    let value = Value::new(value).map_err(|_| unsound(key))?;
    Ok(Record { value, expires_at, fence })
}

/// What stands at `key` is nothing that this program writes.
pub(super) fn unsound(key: &Key) -> StoreError {
    let reason = "redis holds something there that was not written as a record".to_owned();
    StoreError::Corrupt { key: key.clone(), reason }
}

/// What became of `operation`, told by what stands at its row: the expiry that it would have been
/// told, or `None` where another operation wrote last.
pub(super) fn applied_by(operation: &OperationId, header: &[u8]) -> Option<Option<Timestamp>> {
    let (kind, expires_at) = kind_and_expiry(header)?;
    if header[1..17] != *operation {
        return None;
    }
    match kind {
        2 => Some(timestamp(number(&header[HEADER..])?)),
        _ => Some(expires_at),
    }
}

/// The kind of what is stored and its expiry, where it has a whole header.
fn kind_and_expiry(stored: &[u8]) -> Option<(u8, Option<Timestamp>)> {
    let header = stored.get(..HEADER)?;
    Some((header[0], timestamp(number(&header[17..])?))).filter(|(kind, _)| [1, 2].contains(kind))
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?))
}

fn timestamp(millis: u64) -> Option<Timestamp> {
    (millis != u64::MAX).then(|| Timestamp::from_unix_millis(millis))
}

/// What a script says of a write, or `None` for what no script says.
pub(super) fn outcome(key: &Key, reply: Reply) -> Option<Result<Outcome, StoreError>> {
    let mut parts = reply::array(reply)?.into_iter();
    match (reply::number(&parts.next()?)?, parts.next()) {
        (0, None) => Some(Ok(Outcome::Refused { current: None })),
        (0, Some(stored)) => {
            let current = decode(key, reply::bytes(stored)?);
            Some(current.map(|record| Outcome::Refused { current: Some(record) }))
        }
        (1, Some(expiry)) => {
            let expiry = reply::number(&expiry)?;
            let expires_at = u64::try_from(expiry).ok().map(Timestamp::from_unix_millis);
            Some(Ok(Outcome::Applied { expires_at }))
        }
        (2, None) => Some(Err(unsound(key))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(kind: u8, expiry: u64, fence: u64, rest: &[u8]) -> Vec<u8> {
        let (expiry, fence) = (expiry.to_be_bytes(), fence.to_be_bytes());
        [&[kind], &[7; 16][..], &expiry, &fence, rest].concat()
    }

    fn key() -> Key {
        Key::new(b"p", b"c").unwrap()
    }

    #[test]
    fn a_record_is_taken_apart() {
        let record = decode(&key(), stored(1, 5_000, u64::MAX, b"value")).unwrap();
        assert_eq!(&*record.value, b"value");
        assert_eq!(record.expires_at, Some(Timestamp::from_unix_millis(5_000)));
        assert_eq!(record.fence, Fence(u64::MAX));
        let permanent = decode(&key(), stored(1, u64::MAX, 0, b"")).unwrap();
        assert_eq!((permanent.expires_at, permanent.value.len()), (None, 0));
    }

    #[test]
    fn what_is_no_record_is_reported() {
        let long = vec![0; wane::store::MAX_VALUE + 1];
        for bytes in [
            vec![],
            b"hello".to_vec(),
            vec![1; HEADER - 1],
            stored(0, 1, 1, b"v"),
            stored(2, 1, 1, b"v"),
            stored(b'{', 1, 1, b"v"),
            stored(1, 1, 1, &long),
        ] {
            let error = decode(&key(), bytes.clone()).unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn only_its_own_id_says_that_an_operation_was_applied() {
        let expiry = Some(Timestamp::from_unix_millis(9));
        let written = stored(1, 9, 0, b"value");
        assert_eq!(applied_by(&[7; 16], &written), Some(expiry));
        assert_eq!(applied_by(&[8; 16], &written), None);
        let deleted = stored(2, 60_000, 0, &9_u64.to_be_bytes());
        assert_eq!(applied_by(&[7; 16], &deleted), Some(expiry), "of what was deleted");
        assert_eq!(applied_by(&[7; 16], &stored(2, 60_000, 0, b"")), None);
        assert_eq!(applied_by(&[7; 16], b""), None);
    }

    #[test]
    fn replies_are_read_or_refused() {
        let (int, bulk) = (Reply::Int, |bytes: Vec<u8>| Reply::BulkString(bytes));
        let array = |parts: &[Reply]| outcome(&key(), Reply::Array(parts.to_vec()));
        let applied = |expires_at| Outcome::Applied { expires_at };
        assert_eq!(array(&[int(1), int(-1)]).unwrap().unwrap(), applied(None));
        let expiry = Some(Timestamp::from_unix_millis(7));
        assert_eq!(array(&[int(1), int(7)]).unwrap().unwrap(), applied(expiry));
        let refused = Outcome::Refused { current: None };
        assert_eq!(array(&[int(0)]).unwrap().unwrap(), refused);
        let current = array(&[int(0), bulk(stored(1, 5, 6, b"v"))]).unwrap().unwrap();
        assert!(matches!(current, Outcome::Refused { current: Some(_) }));
        assert!(array(&[int(2)]).unwrap().is_err());
        for strange in [&[][..], &[int(1)], &[int(3)], &[bulk(vec![])], &[int(0), int(0)]] {
            assert!(array(strange).is_none(), "{strange:?}");
        }
        assert!(outcome(&key(), Reply::Nil).is_none());
    }
}
