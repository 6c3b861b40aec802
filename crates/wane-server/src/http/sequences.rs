//! Named sequences over HTTP: parse, call, answer.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::sequences::IdempotencyKey;

use super::body::{self, ONE_OPERATION, whole_number};
use super::caller::Caller;
use super::described::{Guarding, OfApp, Reading};
use super::guard::Guarded;
use super::header;
use super::path::Name;
use super::problem::Problem;
use crate::wiring::{AppSequences, Services};

/// The header that makes a call repeatable.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

impl Services {
    /// The sequences of the calling application.
    fn sequences(&self, caller: &Caller) -> AppSequences {
        self.sequences.of(caller.app.id)
    }
}

/// `{"count":100}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NextBody {
    /// How many numbers.
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000)]
    count: Number,
}

/// Numbers that nobody else has.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BlockBody {
    /// The first one.
    first: u64,
    /// How many, one after the other.
    count: u64,
}

/// Where a sequence stands.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SequenceBody {
    /// The number that the next call is given.
    next: u64,
}

/// Takes the next numbers of a sequence, the first time from 1 on.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/sequences/{name}/next", tag = "sequences",
    params(("owner" = String, Path), ("app" = String, Path),
        ("name" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded"),
        ("Idempotency-Key" = Option<String>, Header, nullable = false,
            pattern = "^[!-~]{1,255}$", description = "1 to 255 visible characters of ASCII: the \
            same block for the same key, as long as it is among the last 16 of the sequence"),
        ("Wane-Guard" = Option<String>, Header, nullable = false,
            pattern = "^[A-Za-z0-9._~-]{1,255};[1-9][0-9]{0,14}$",
            description = "election, other characters percent-encoded, and token of the leader that asks")),
    request_body = NextBody,
    responses((status = 200, description = "numbers that nobody else has", body = BlockBody),
        OfApp, Reading, Guarding))]
pub(super) async fn next(
    State(services): State<Services>,
    caller: Caller,
    Name(name): Name,
    headers: HeaderMap,
    guarded: Guarded,
    request: Request,
) -> Result<Json<BlockBody>, Problem> {
    let key = idempotency_key(&headers)?;
    let body: NextBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let count = whole_number(&body.count);
    let count =
        count.ok_or_else(|| Problem::invalid("count", "give a whole number, 1 to 1000000"))?;
    let fence = guarded.fence(&services, &caller).await?;
    let block = services.sequences(&caller).next_fenced(&name, count, key, fence).await?;
    Ok(Json(BlockBody { first: block.first, count: block.count }))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(key) = header::once(headers, IDEMPOTENCY_KEY)? else { return Ok(None) };
    Ok(Some(IdempotencyKey::new(key.as_bytes())?))
}

/// Says which number comes next.
#[utoipa::path(get, path = "/api/v2/apps/{owner}/{app}/sequences/{name}", tag = "sequences",
    params(("owner" = String, Path), ("app" = String, Path),
        ("name" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded")),
    responses((status = 200, description = "where it stands", body = SequenceBody), OfApp))]
pub(super) async fn show(
    State(services): State<Services>,
    caller: Caller,
    Name(name): Name,
) -> Result<Json<SequenceBody>, Problem> {
    let next = services.sequences(&caller).show(&name).await?;
    next.map(|next| Json(SequenceBody { next })).ok_or_else(Problem::absent)
}
