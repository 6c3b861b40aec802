//! Calls of application TTL storage: one method per operation, values as bytes.
//!
//! A value that is UTF-8 travels as itself, any other in base64.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value};
use wane::services::app_ttl::Renewal;
use wane::services::apps::AppName;
use wane::services::elections::Guard;
use wane::store::Timestamp;

use super::exchange::{Call, Effect, LONG};
use super::{Client, ClientError, Current};

/// What is written as `%XX` in a key: all but what RFC 3986 leaves unreserved. A dot is written so
/// too, lest a key of dots be taken for a step up.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

pub(super) const GUARD: HeaderName = HeaderName::from_static("wane-guard");

pub(super) type Json = Map<String, Value>;

/// A live entry as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Bytes,
    /// When it expires; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// What was left of its life, by the server's clock; `None` for no end.
    pub remaining: Option<Duration>,
}

/// An entry of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// When it expires; `None` for never.
    pub expires_at: Option<Timestamp>,
}

/// Entries in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPage {
    /// The entries.
    pub items: Vec<Item>,
    /// The key to go on after; `None` on the last page.
    pub next: Option<String>,
}

/// Which entries a scan asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanRange {
    /// What their keys begin with.
    pub prefix: String,
    /// The key that they come after.
    pub after: Option<String>,
    /// How many; the server's choice where it is `None`.
    pub limit: Option<usize>,
}

/// The TTL storage of one application, over HTTP.
#[derive(Debug, Clone)]
pub struct AppTtl {
    pub(super) client: Client,
    pub(super) path: String,
    guard: Option<HeaderValue>,
}

impl AppTtl {
    pub(super) fn new(client: Client, app: &AppName) -> Self {
        let path = format!("/api/v2/apps/{}/{}/ttl", app.owner(), app.app());
        Self { client, path, guard: None }
    }

    /// The same storage, whose writes stand on the token of a leader.
    #[must_use]
    pub fn guarded(self, guard: &Guard) -> Self {
        Self { guard: guard_value(guard), ..self }
    }

    /// The live entry at `key`.
    pub async fn get(&self, key: &str) -> Result<Entry, ClientError> {
        let answer = self.client.exchange(Call::get(self.at(key), Effect::Read)).await?;
        answer.read_as(EntryForm::meaning)
    }

    /// The value at `key` and nothing else, as the bytes that it is.
    pub async fn get_bytes(&self, key: &str) -> Result<Bytes, ClientError> {
        const RAW: &str = "application/octet-stream";
        let answer =
            self.client.exchange(Call::get(self.at(key), Effect::Read).accept(RAW)).await?;
        if answer.headers.get(CONTENT_TYPE).is_none_or(|it| it != RAW) {
            return Err(ClientError::Protocol { reason: format!("the answer is not {RAW}") });
        }
        Ok(answer.body)
    }

    /// Writes a value where no live one is, and says when it expires.
    pub async fn insert(
        &self,
        key: &str,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<Timestamp, ClientError> {
        self.expiring(Method::POST, key, valued(value.as_ref(), ttl)).await
    }

    /// Replaces `expected` by `new`, and says when that expires; `None` for never.
    pub async fn swap(
        &self,
        key: &str,
        expected: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
        renewal: Renewal,
    ) -> Result<Option<Timestamp>, ClientError> {
        let mut body = Json::new();
        put_bytes(&mut body, "expectedValue", expected.as_ref());
        put_bytes(&mut body, "newValue", new.as_ref());
        put_renewal(&mut body, renewal);
        let answer = self.write(Method::PUT, key, Some(body)).await?;
        answer.read_as(|written: WrittenForm| Ok(instant(written.expires_at)))
    }

    /// Deletes the entry if its value is `expected`.
    pub async fn compare_and_delete(
        &self,
        key: &str,
        expected: impl AsRef<[u8]>,
    ) -> Result<(), ClientError> {
        let mut body = Json::new();
        put_bytes(&mut body, "expectedValue", expected.as_ref());
        self.write(Method::DELETE, key, Some(body)).await.map(drop)
    }

    /// Deletes whatever is there, also nothing.
    pub async fn delete(&self, key: &str) -> Result<(), ClientError> {
        self.write(Method::DELETE, key, None).await.map(drop)
    }

    /// Writes a value over whatever is there, and says when it expires.
    pub async fn set(
        &self,
        key: &str,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<Timestamp, ClientError> {
        self.expiring(Method::PUT, key, valued(value.as_ref(), ttl)).await
    }

    /// Gives a live entry another life, and says when that ends.
    pub async fn touch(&self, key: &str, ttl: Duration) -> Result<Timestamp, ClientError> {
        let mut body = Json::new();
        put_ttl(&mut body, ttl);
        self.expiring(Method::PATCH, key, body).await
    }

    /// A page of entries.
    pub async fn scan(&self, range: &ScanRange) -> Result<ScanPage, ClientError> {
        let mut path = format!("{}?prefix={}", self.path, escaped(&range.prefix));
        if let Some(limit) = range.limit {
            path += &format!("&limit={limit}");
        }
        if let Some(after) = &range.after {
            path += &format!("&after={}", escaped(after));
        }
        let answer = self.client.exchange(Call::get(path, Effect::Read).up_to(LONG)).await?;
        answer.read_as(|page: ScanForm| {
            let items: Result<_, _> = page.items.into_iter().map(ItemForm::meaning).collect();
            Ok(ScanPage { items: items?, next: page.next })
        })
    }

    fn at(&self, key: &str) -> String {
        format!("{}/{}", self.path, escaped(key))
    }

    async fn write(
        &self,
        method: Method,
        key: &str,
        body: Option<Json>,
    ) -> Result<super::exchange::Answer, ClientError> {
        let mut call = Call::new(method, self.at(key), Effect::Write);
        if let Some(guard) = &self.guard {
            call = call.header(GUARD, guard.clone());
        }
        let call = match body {
            Some(body) => call.json(body),
            None => call,
        };
        self.client.exchange(call).await
    }

    async fn expiring(
        &self,
        method: Method,
        key: &str,
        body: Json,
    ) -> Result<Timestamp, ClientError> {
        let answer = self.write(method, key, Some(body)).await?;
        answer.read_as(|written: WrittenForm| {
            instant(written.expires_at).ok_or_else(|| "expiresAt is missing".into())
        })
    }
}

/// A guard as its header carries it. Whatever the name, what is escaped can be sent.
pub(super) fn guard_value(guard: &Guard) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{};{}", escaped(&guard.election), guard.token)).ok()
}

pub(super) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

pub(super) fn put_bytes(body: &mut Json, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => body.insert(name.into(), text.into()),
        Err(_) => body.insert(format!("{name}Base64"), STANDARD.encode(bytes).into()),
    };
}

/// The body of a write of a value with its life.
fn valued(value: &[u8], ttl: Duration) -> Json {
    let mut body = Json::new();
    put_bytes(&mut body, "value", value);
    put_ttl(&mut body, ttl);
    body
}

pub(super) fn put_ttl(body: &mut Json, ttl: Duration) {
    // Rounded up, so that nothing lives shorter than was asked for.
    let millis = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    body.insert("ttlMillis".into(), millis.into());
}

pub(super) fn put_renewal(body: &mut Json, renewal: Renewal) {
    match renewal {
        Renewal::For(ttl) => put_ttl(body, ttl),
        Renewal::Keep => {
            body.insert("keepExpiry".into(), true.into());
        }
    }
}

pub(super) fn instant(millis: Option<u64>) -> Option<Timestamp> {
    millis.map(Timestamp::from_unix_millis)
}

/// A value in one of its two forms, and its expiry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StandingForm {
    value: Option<String>,
    value_base64: Option<String>,
    expires_at: Option<u64>,
}

impl StandingForm {
    pub(super) fn meaning(self) -> Result<Current, String> {
        let value = match (self.value, self.value_base64) {
            (Some(text), None) => Bytes::from(text),
            (None, Some(text)) => STANDARD
                .decode(text)
                .map(Bytes::from)
                .map_err(|error| format!("valueBase64 is not base64: {error}"))?,
            (Some(_), Some(_)) => return Err("both value and valueBase64 are there".into()),
            (None, None) => return Err("value is missing".into()),
        };
        Ok(Current { value, expires_at: instant(self.expires_at) })
    }
}

/// An entry as it is answered.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryForm {
    #[serde(flatten)]
    standing: StandingForm,
    ttl_millis: Option<u64>,
}

impl EntryForm {
    pub(super) fn meaning(self) -> Result<Entry, String> {
        let Current { value, expires_at } = self.standing.meaning()?;
        if expires_at.is_some() != self.ttl_millis.is_some() {
            return Err("of expiresAt and ttlMillis only one is there".into());
        }
        Ok(Entry { value, expires_at, remaining: self.ttl_millis.map(Duration::from_millis) })
    }
}

/// An entry with its key, in scans and watches.
#[derive(Deserialize)]
pub(super) struct ItemForm {
    key: String,
    #[serde(flatten)]
    standing: StandingForm,
}

impl ItemForm {
    pub(super) fn meaning(self) -> Result<Item, String> {
        let Current { value, expires_at } = self.standing.meaning()?;
        Ok(Item { key: self.key, value, expires_at })
    }
}

#[derive(Deserialize)]
struct ScanForm {
    items: Vec<ItemForm>,
    next: Option<String>,
}

/// The answer to a write.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WrittenForm {
    pub(super) expires_at: Option<u64>,
}
