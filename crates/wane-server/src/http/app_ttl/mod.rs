//! Application TTL storage over HTTP: parse, call, answer.

pub(super) mod batch;
mod bodies;
pub(super) mod watch;

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

pub(super) use self::bodies::CurrentBody;
use self::bodies::{
    DeleteBody, EntryBody, InsertBody, ItemBody, PageBody, Put, PutBody, TouchBody, WrittenBody,
    key_text, written,
};
use super::body::{self, ONE_OPERATION};
use super::caller::Caller;
use super::described::{Choosing, Guarding, OfApp, Reading, Refusing};
use super::guard::Guarded;
use super::path::LastSegment;
use super::problem::{Code, Problem};
use super::query::Parameters;
use crate::wiring::{AppReads, AppStorage, Services};

const OCTETS: &str = "application/octet-stream";

impl Services {
    /// The storage of the calling application.
    fn storage(&self, caller: &Caller) -> AppStorage {
        self.app_ttl.of(caller.app.id, caller.app.limits.quota())
    }

    /// The same storage for one write, which carries the fence of its guard.
    async fn writes(&self, caller: &Caller, guarded: &Guarded) -> Result<AppStorage, Problem> {
        Ok(self.storage(caller).fenced(guarded.fence(self, caller).await?))
    }

    /// The same storage for plain reads, which may be as old as the operator allows.
    fn reads(&self, caller: &Caller) -> AppReads {
        self.app_ttl_reads.of(caller.app.id, caller.app.limits.quota())
    }
}

/// Returns the live entry, as JSON or as raw bytes.
#[utoipa::path(get, path = "/api/v2/apps/{owner}/{app}/ttl/{key}", tag = "app_ttl",
    params(("owner" = String, Path), ("app" = String, Path),
        ("key" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded")),
    responses((status = 200, description = "the live entry", content((EntryBody = "application/json"),
        (Vec<u8> = "application/octet-stream"))), OfApp, Choosing))]
pub(super) async fn get(
    State(services): State<Services>,
    caller: Caller,
    LastSegment(key): LastSegment,
    form: Form,
) -> Result<Response, Problem> {
    let entry = services.reads(&caller).ttl_get(&key).await?.ok_or_else(Problem::absent)?;
    Ok(match form {
        Form::Json => Json(EntryBody::from(&entry)).into_response(),
        Form::Octets => ([(CONTENT_TYPE, OCTETS)], entry.value.into_bytes()).into_response(),
    })
}

/// The forms in which an entry can be had.
pub(super) enum Form {
    Json,
    Octets,
}

impl<S: Sync> FromRequestParts<S> for Form {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::wanted(&parts.headers)
    }
}

impl Form {
    /// The first form that the caller accepts.
    fn wanted(headers: &HeaderMap) -> Result<Self, Problem> {
        let given = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let given: Vec<_> = given.flat_map(|value| value.split(',')).collect();
        if given.is_empty() {
            return Ok(Self::Json);
        }
        let known = given.iter().find_map(|range| {
            match range.split(';').next().unwrap_or_default().trim() {
                "application/json" | "application/*" | "*/*" => Some(Self::Json),
                OCTETS => Some(Self::Octets),
                _ => None,
            }
        });
        let detail = format!("accept application/json or {OCTETS}");
        known.ok_or_else(|| Problem::new(Code::NotAcceptable, detail))
    }
}

/// Writes where no live entry is.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/ttl/{key}", tag = "app_ttl",
    params(("owner" = String, Path), ("app" = String, Path),
        ("key" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded"),
        ("Wane-Guard" = Option<String>, Header, nullable = false,
            pattern = "^[A-Za-z0-9._~-]{1,255};[1-9][0-9]{0,14}$",
            description = "election, other characters percent-encoded, and token of the leader that writes")),
    request_body = InsertBody,
    responses((status = 201, description = "it was written", body = WrittenBody),
        OfApp, Reading, Refusing, Guarding))]
pub(super) async fn insert(
    State(services): State<Services>,
    caller: Caller,
    LastSegment(key): LastSegment,
    guarded: Guarded,
    request: Request,
) -> Result<Response, Problem> {
    let body: InsertBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let (value, ttl) = body.read()?;
    let storage = services.writes(&caller, &guarded).await?;
    let outcome = storage.insert_if_not_exists(&key, value, ttl).await?;
    Ok((StatusCode::CREATED, Json(written(outcome, &caller)?)).into_response())
}

/// Swaps the value that must be there, or writes over whatever is.
#[utoipa::path(put, path = "/api/v2/apps/{owner}/{app}/ttl/{key}", tag = "app_ttl",
    params(("owner" = String, Path), ("app" = String, Path),
        ("key" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded"),
        ("Wane-Guard" = Option<String>, Header, nullable = false,
            pattern = "^[A-Za-z0-9._~-]{1,255};[1-9][0-9]{0,14}$",
            description = "election, other characters percent-encoded, and token of the leader that writes")),
    request_body = PutBody,
    responses((status = 200, description = "it was written", body = WrittenBody),
        OfApp, Reading, Refusing, Guarding))]
pub(super) async fn put(
    State(services): State<Services>,
    caller: Caller,
    LastSegment(key): LastSegment,
    guarded: Guarded,
    request: Request,
) -> Result<Json<WrittenBody>, Problem> {
    let body: PutBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let put = body.read()?;
    let storage = services.writes(&caller, &guarded).await?;
    let outcome = match put {
        Put::Set { value, ttl } => storage.set(&key, value, ttl).await?,
        Put::Swap { expected, new, renewal } => {
            storage.compare_and_swap(&key, expected, new, renewal).await?
        }
    };
    Ok(Json(written(outcome, &caller)?))
}

/// Deletes the value that must be there or, without a body, whatever is.
#[utoipa::path(delete, path = "/api/v2/apps/{owner}/{app}/ttl/{key}", tag = "app_ttl",
    params(("owner" = String, Path), ("app" = String, Path),
        ("key" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded"),
        ("Wane-Guard" = Option<String>, Header, nullable = false,
            pattern = "^[A-Za-z0-9._~-]{1,255};[1-9][0-9]{0,14}$",
            description = "election, other characters percent-encoded, and token of the leader that writes")),
    request_body = Option<DeleteBody>,
    responses((status = 204, description = "it is not there any more"), OfApp, Reading, Refusing, Guarding))]
pub(super) async fn delete(
    State(services): State<Services>,
    caller: Caller,
    LastSegment(key): LastSegment,
    guarded: Guarded,
    request: Request,
) -> Result<StatusCode, Problem> {
    let body: Option<DeleteBody> = body::json(request, ONE_OPERATION, &services.clock).await?;
    let expected = body.map(DeleteBody::read).transpose()?;
    let storage = services.writes(&caller, &guarded).await?;
    match expected {
        Some(expected) => {
            written(storage.compare_and_delete(&key, expected).await?, &caller)?;
        }
        None => {
            storage.delete(&key).await?;
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Gives a live entry another life.
#[utoipa::path(patch, path = "/api/v2/apps/{owner}/{app}/ttl/{key}", tag = "app_ttl",
    params(("owner" = String, Path), ("app" = String, Path),
        ("key" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded"),
        ("Wane-Guard" = Option<String>, Header, nullable = false,
            pattern = "^[A-Za-z0-9._~-]{1,255};[1-9][0-9]{0,14}$",
            description = "election, other characters percent-encoded, and token of the leader that writes")),
    request_body = TouchBody,
    responses((status = 200, description = "it has another life", body = WrittenBody), OfApp, Reading, Guarding))]
pub(super) async fn touch(
    State(services): State<Services>,
    caller: Caller,
    LastSegment(key): LastSegment,
    guarded: Guarded,
    request: Request,
) -> Result<Json<WrittenBody>, Problem> {
    let body: TouchBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let ttl = body.read()?;
    let storage = services.writes(&caller, &guarded).await?;
    let outcome = storage.touch(&key, ttl).await?;
    written(outcome, &caller).map(Json).map_err(|_| Problem::absent())
}

/// A key that is missing.
pub(super) async fn no_key() -> Problem {
    wane::services::app_ttl::AppTtlError::KeyEmpty.into()
}

/// Lists the entries whose key begins with a prefix, ascending by bytes.
#[utoipa::path(get, path = "/api/v2/apps/{owner}/{app}/ttl", tag = "app_ttl",
    params(("owner" = String, Path), ("app" = String, Path),
        ("prefix" = Option<String>, Query, max_length = 1024, nullable = false,
            description = "the beginning of the keys"),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, nullable = false,
            description = "how many; 100 unless given"),
        ("after" = Option<String>, Query, max_length = 1024, nullable = false,
            description = "the key to go on after")),
    responses((status = 200, description = "a page of entries", body = PageBody), OfApp))]
pub(super) async fn scan(
    State(services): State<Services>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<PageBody>, Problem> {
    let query = Parameters::of(&uri, &["prefix", "limit", "after"])?;
    let limit = query.page_limit()?;
    let (prefix, after) = (query.get("prefix").unwrap_or_default(), query.get("after"));
    let page = services.storage(&caller).scan(prefix, after.map(str::as_bytes), limit).await?;
    let items = page.entries.iter().map(|(key, entry)| ItemBody {
        key: key_text(key),
        entry: CurrentBody::new(&entry.value, entry.expires_at),
    });
    Ok(Json(PageBody { items: items.collect(), next: page.next.as_ref().map(key_text) }))
}
