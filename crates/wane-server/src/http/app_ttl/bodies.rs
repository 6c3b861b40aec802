//! What application TTL storage reads and writes as JSON.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::app_ttl::{Entry, Renewal};
use wane::services::apps::Scope;
use wane::store::{Outcome, Record, Timestamp};

use crate::http::body::{bytes_of, text_or_base64, whole_number};
use crate::http::caller::Caller;
use crate::http::problem::{Code, Problem};

/// The longest life: 365 days.
const MOST_SECONDS: u64 = 31_536_000;

/// `{"value":"v","ttlSeconds":900}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct InsertBody {
    /// The value, where it is UTF-8; up to 65,536 bytes.
    #[schema(max_length = 65_536)]
    value: Option<String>,
    /// The value in Base64. Give one of the two.
    #[schema(format = Byte)]
    value_base64: Option<String>,
    /// The life in whole seconds, 1 to 31,536,000.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000)]
    ttl_seconds: Option<Number>,
    /// The life in whole milliseconds. Give one of the two.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000_000_u64)]
    ttl_millis: Option<Number>,
}

impl InsertBody {
    pub(crate) fn read(self) -> Result<(Vec<u8>, Duration), Problem> {
        let value = needed("value", bytes_of("value", self.value, self.value_base64)?)?;
        Ok((value, life(self.ttl_seconds.as_ref(), self.ttl_millis.as_ref())?))
    }
}

/// `{"expectedValue":"a","newValue":"b","ttlSeconds":900}`, with `"keepExpiry":true` instead of a
/// life, or `{"value":"v","ttlSeconds":900}` for a write over whatever is there.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PutBody {
    /// The value to write over whatever is there.
    #[schema(max_length = 65_536)]
    value: Option<String>,
    /// The same in Base64.
    #[schema(format = Byte)]
    value_base64: Option<String>,
    /// The value that must be there.
    #[schema(max_length = 65_536)]
    expected_value: Option<String>,
    /// The same in Base64.
    #[schema(format = Byte)]
    expected_value_base64: Option<String>,
    /// The value to put in its place.
    #[schema(max_length = 65_536)]
    new_value: Option<String>,
    /// The same in Base64.
    #[schema(format = Byte)]
    new_value_base64: Option<String>,
    /// The life in whole seconds, 1 to 31,536,000.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000)]
    ttl_seconds: Option<Number>,
    /// The life in whole milliseconds.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000_000_u64)]
    ttl_millis: Option<Number>,
    /// Leave the expiry as it is. For a swap, instead of a life.
    keep_expiry: Option<bool>,
}

/// What a PUT asks for.
#[derive(Debug)]
pub(crate) enum Put {
    Set { value: Vec<u8>, ttl: Duration },
    Swap { expected: Vec<u8>, new: Vec<u8>, renewal: Renewal },
}

impl PutBody {
    pub(crate) fn read(self) -> Result<Put, Problem> {
        let value = bytes_of("value", self.value, self.value_base64)?;
        let expected = bytes_of("expectedValue", self.expected_value, self.expected_value_base64)?;
        let new = bytes_of("newValue", self.new_value, self.new_value_base64)?;
        let keeps = self.keep_expiry.unwrap_or(false);
        let life = || life(self.ttl_seconds.as_ref(), self.ttl_millis.as_ref());
        let has_life = self.ttl_seconds.is_some() || self.ttl_millis.is_some();
        match (value, expected, new) {
            (Some(_), None, None) if keeps => {
                Err(Problem::invalid("keepExpiry", "only a swap keeps an expiry; give a TTL"))
            }
            (Some(value), None, None) => Ok(Put::Set { value, ttl: life()? }),
            (None, Some(_), Some(_)) if keeps && has_life => {
                Err(Problem::new(Code::InvalidTtl, "give keepExpiry or a TTL, not both"))
            }
            (None, Some(expected), Some(new)) => {
                let renewal = if keeps { Renewal::Keep } else { Renewal::For(life()?) };
                Ok(Put::Swap { expected, new, renewal })
            }
            (None, None, None) => Err(missing("expectedValue and newValue, or value")),
            (None, Some(_), None) => Err(missing("newValue")),
            (None, None, Some(_)) => Err(missing("expectedValue")),
            (Some(_), _, _) => {
                let field = "value, expectedValue, newValue";
                Err(Problem::invalid(field, "value is for a set, the others are for a swap"))
            }
        }
    }
}

/// `{"expectedValue":"b"}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DeleteBody {
    /// The value that must be there.
    #[schema(max_length = 65_536)]
    expected_value: Option<String>,
    /// The same in Base64.
    #[schema(format = Byte)]
    expected_value_base64: Option<String>,
}

impl DeleteBody {
    pub(crate) fn read(self) -> Result<Vec<u8>, Problem> {
        let expected = bytes_of("expectedValue", self.expected_value, self.expected_value_base64)?;
        needed("expectedValue", expected)
    }
}

/// `{"ttlSeconds":60}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TouchBody {
    /// The life in whole seconds, 1 to 31,536,000.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000)]
    ttl_seconds: Option<Number>,
    /// The life in whole milliseconds.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000_000_u64)]
    ttl_millis: Option<Number>,
}

impl TouchBody {
    pub(crate) fn read(&self) -> Result<Duration, Problem> {
        life(self.ttl_seconds.as_ref(), self.ttl_millis.as_ref())
    }
}

/// A life that is given in seconds or in milliseconds, but not in both.
fn life(seconds: Option<&Number>, millis: Option<&Number>) -> Result<Duration, Problem> {
    let invalid = |detail: String| Problem::new(Code::InvalidTtl, detail);
    let whole = |name: &str, number: &Number, most: u64| {
        let value = whole_number(number).filter(|value| (1..=most).contains(value));
        value
            .ok_or_else(|| invalid(format!("{name} is {number}; give a whole number, 1 to {most}")))
    };
    match (seconds, millis) {
        (Some(number), None) => whole("ttlSeconds", number, MOST_SECONDS).map(Duration::from_secs),
        (None, Some(number)) => {
            whole("ttlMillis", number, MOST_SECONDS * 1_000).map(Duration::from_millis)
        }
        (None, None) => Err(invalid("there is no life; give ttlSeconds or ttlMillis".into())),
        (Some(_), Some(_)) => Err(invalid("give ttlSeconds or ttlMillis, not both".into())),
    }
}

fn needed<T>(name: &str, value: Option<T>) -> Result<T, Problem> {
    value.ok_or_else(|| missing(name))
}

fn missing(fields: &str) -> Problem {
    Problem::invalid(fields, "missing")
}

/// An entry.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryBody {
    /// The value, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The value in Base64, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = Byte)]
    value_base64: Option<String>,
    /// When it expires, in Unix milliseconds; null for never.
    #[schema(required)]
    expires_at: Option<u64>,
    /// What is left of its life, in milliseconds; null for no end.
    #[schema(required)]
    ttl_millis: Option<u64>,
}

impl From<&Entry> for EntryBody {
    fn from(entry: &Entry) -> Self {
        let (value, value_base64) = text_or_base64(&entry.value);
        let ttl_millis = entry.remaining.map(|left| left.as_millis() as u64);
        Self { value, value_base64, expires_at: millis(entry.expires_at), ttl_millis }
    }
}

/// What stood in the way.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CurrentBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = Byte)]
    value_base64: Option<String>,
    /// When it expires, in Unix milliseconds; null for never.
    #[schema(required)]
    expires_at: Option<u64>,
}

impl CurrentBody {
    pub(crate) fn new(value: &[u8], expires_at: Option<Timestamp>) -> Self {
        let (value, value_base64) = text_or_base64(value);
        Self { value, value_base64, expires_at: millis(expires_at) }
    }
}

/// One entry of a page.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemBody {
    /// The key.
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) entry: CurrentBody,
}

/// A page of entries, ascending by the bytes of their keys.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageBody {
    /// The entries.
    pub(crate) items: Vec<ItemBody>,
    /// What to give as `after` for the next page; null on the last one.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// What a write leaves.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrittenBody {
    /// When the entry expires, in Unix milliseconds; null for never.
    #[schema(required)]
    pub(crate) expires_at: Option<u64>,
}

/// The expiry that the write left, or the refusal. It shows what is there to those who may read.
pub(crate) fn written(outcome: Outcome, caller: &Caller) -> Result<WrittenBody, Problem> {
    match outcome {
        Outcome::Applied { expires_at } => Ok(WrittenBody { expires_at: millis(expires_at) }),
        Outcome::Refused { current } if caller.may(Scope::Read) => Err(refused(current)),
        Outcome::Refused { current: Some(_) } => {
            let detail = "another value is there; seeing it needs a credential with scope read";
            Err(Problem::new(Code::Refused, detail))
        }
        Outcome::Refused { current: None } => Err(refused(None)),
    }
}

fn refused(current: Option<Record>) -> Problem {
    let detail = match &current {
        Some(_) => "another value is there; see current",
        None => "there is no live record",
    };
    let current = current.map(|record| CurrentBody::new(&record.value, record.expires_at));
    let current = serde_json::to_value(current).unwrap_or_default();
    Problem::new(Code::Refused, detail).with("current", current)
}

/// A key as text. Keys that came in over HTTP are UTF-8; others are shown as well as can be.
pub(crate) fn key_text(key: &Bytes) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn millis(at: Option<Timestamp>) -> Option<u64> {
    at.map(Timestamp::as_unix_millis)
}
