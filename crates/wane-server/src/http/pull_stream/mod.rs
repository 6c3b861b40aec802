//! The pull stream over HTTP, in the words of the Central Bank's ICOM interface: messages come in,
//! institutions pull them in batches and acknowledge a batch by asking for the next one.
//!
//! `arriving` reads what producers send, `form` what readers want it in, `delivering` writes what
//! they are sent; `counted` is what operators see of it, `operator` what they ask and set, `holds` what
//! they keep, `archives` what they copied, `regions` where it is served, `replays` are read beside it, and `auditor` is what auditors
//! read. `icom` is how answers are put where the real interface is to be met, with its `problem_xml`.
//! Rules of all of it are in `wane::services::pull_stream`.

pub(super) mod archives;
mod arriving;
mod asked;
pub(super) mod auditor;
mod counted;
mod delivering;
mod form;
pub(super) mod holds;
mod icom;
mod multipart;
pub(super) mod operator;
mod problem_xml;
pub(super) mod regions;
pub(super) mod replays;

pub(crate) use arriving::MOST_ARRIVING;
pub(crate) use counted::StreamMetrics;
pub(super) use icom::Dialect;

use axum::extract::{Request, State};
use axum::http::header::{ALLOW, HeaderMap, InvalidHeaderValue};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use wane::services::pull_stream::{Ispb, PullStreamError, Pulled, Reader, ResourceId};

use self::counted::Call;
use self::delivering::delivered;
use super::described::{Choosing, OfInstitution, Pulling, Reading};
use super::institution::{InPath, Institution};
use super::problem::{Code, Problem};
use crate::wiring::Services;

/// The name of a message.
const RESOURCE_ID: HeaderName = HeaderName::from_static("pi-resourceid");

/// Where to ask for what comes next.
const PULL_NEXT: HeaderName = HeaderName::from_static("pi-pull-next");

/// Takes in one to ten messages for an institution.
///
/// They are stored as they came, byte by byte, and durable when this answers. After 504 some of them
/// may be in.
#[utoipa::path(post, path = "/api/v1/in/{ispb}/msgs", tag = "pull_stream",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$", description = "the receiver, eight digits"),
        ("Content-Encoding" = Option<String>, Header, nullable = false, pattern = "^(gzip|identity)$",
            description = "`gzip` for a compressed body")),
    request_body(description = "one message, or one to ten as parts of `multipart/mixed`; \
        200 KiB each", content((String = "application/xml"), (Vec<u8> = "multipart/mixed"))),
    responses((status = 201, description = "they are in; their names are in `PI-ResourceId`, in \
        their order and with commas between them"),
        OfInstitution, Reading))]
pub(super) async fn ingest(
    State(services): State<Services>,
    InPath(ispb): InPath,
    request: Request,
) -> Result<Response, Problem> {
    let (batch, _permit) = arriving::batch(request, &services).await?;
    let count = batch.messages().len();
    let ids = services.pull_stream.ingest(ispb, batch).await;
    services.stream_metrics.took_in(ispb, count, &ids);
    let ids: Vec<String> = ids?.iter().map(ResourceId::to_string).collect();
    let names = HeaderValue::from_str(&ids.join(",")).map_err(unspeakable)?;
    Ok((StatusCode::CREATED, [(RESOURCE_ID, names)]).into_response())
}

/// Takes a reader's slot and delivers the first batch.
///
/// Held until there is a message, for 5 s unless the operator says otherwise.
#[utoipa::path(get, path = "/api/v1/out/{ispb}/stream/start", tag = "pull_stream",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$"),
        ("PI-Client-Id" = Option<String>, Header, nullable = false, pattern = "^[!-~]{1,64}$",
            description = "who reads, for the audit")),
    responses(Pulling, OfInstitution, Choosing))]
pub(super) async fn start(
    State(services): State<Services>,
    institution: Institution,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    refuse_head(&method, "GET, DELETE")?;
    let Institution { ispb, client } = institution;
    let reader = Reader { form: form::wanted(&headers)?, client };
    // They are slices of what was read, all of which would stay while the call is held.
    drop(headers);
    let pulled = services.pull_stream.start(ispb, &reader).await;
    answered(&services, Call::Start, ispb, pulled).await
}

/// Acknowledges what was delivered with the token, and delivers what comes next.
///
/// The same token again gets the same bytes, until the next one is used.
#[utoipa::path(get, path = "/api/v1/out/{ispb}/stream/{token}", tag = "pull_stream",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$"),
        ("token" = String, Path, description = "from `PI-Pull-Next`"),
        ("PI-Client-Id" = Option<String>, Header, nullable = false, pattern = "^[!-~]{1,64}$",
            description = "who reads, for the audit")),
    responses(Pulling, OfInstitution, Choosing))]
pub(super) async fn next(
    State(services): State<Services>,
    institution: Institution,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    refuse_head(&method, "GET, DELETE")?;
    let Institution { ispb, client } = institution;
    let reader = Reader { form: form::wanted(&headers)?, client };
    let token = token_in(&uri).to_owned();
    drop((headers, uri));
    let pulled = services.pull_stream.next(ispb, &token, &reader).await;
    answered(&services, Call::Next, ispb, pulled).await
}

/// Acknowledges what was delivered with the token, and gives the slot back.
#[utoipa::path(delete, path = "/api/v1/out/{ispb}/stream/{token}", tag = "pull_stream",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$"),
        ("token" = String, Path, description = "from `PI-Pull-Next`"),
        ("PI-Client-Id" = Option<String>, Header, nullable = false, pattern = "^[!-~]{1,64}$",
            description = "who reads, for the audit")),
    responses((status = 200, description = "the slot is free"), OfInstitution))]
pub(super) async fn end(
    State(services): State<Services>,
    institution: Institution,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let Institution { ispb, client } = institution;
    let ended = services.pull_stream.end(ispb, token_in(&uri), &client).await;
    services.stream_metrics.ended(ispb, &ended);
    ended?;
    Ok(StatusCode::OK)
}

/// The answer to a pull, counted.
async fn answered(
    services: &Services,
    call: Call,
    ispb: Ispb,
    pulled: Result<Pulled, PullStreamError>,
) -> Result<Response, Problem> {
    services.stream_metrics.pulled(call, ispb, &pulled, services.clock.now());
    delivered(&format!("/api/v1/out/{ispb}/stream"), &pulled?).await
}

/// The token, as it stands in the path: escapes are no part of it.
fn token_in(uri: &Uri) -> &str {
    uri.path().rsplit('/').next().unwrap_or_default()
}

/// A pull changes the stream, which nobody expects of HEAD.
fn refuse_head(method: &Method, allowed: &'static str) -> Result<(), Problem> {
    if method != Method::HEAD {
        return Ok(());
    }
    let problem = Problem::new(Code::MethodNotAllowed, "a pull has effects; use GET");
    Err(problem.with_header(ALLOW, HeaderValue::from_static(allowed)))
}

/// Names of messages and tokens are ASCII: this cannot be, and is said if it is.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn unspeakable(error: InvalidHeaderValue) -> Problem {
    tracing::error!(%error, "a name is no header");
    Problem::new(Code::Unavailable, "the answer cannot be written; tell the operator")
}
