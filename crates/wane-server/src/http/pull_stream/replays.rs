//! Compliance replays over HTTP: an operator asks for one and says why, and the institution reads it
//! like its stream, under a path of its own.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::header::HeaderMap;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::apps::Credential;
use wane::services::pull_stream::{Ispb, PullStreamError, Reader, Refusal};

use super::asked::times;
use super::delivering::delivered;
use super::operator::operator;
use super::{form, refuse_head, token_in};
use crate::http::body::{self, ONE_OPERATION};
use crate::http::described::{Choosing, OfInstitution, OfSystem, Pulling, Reading};
use crate::http::institution::Institution;
use crate::http::problem::{Code, Problem};
use crate::wiring::Services;

/// What is to be replayed: `{"ispb":"00000208","from":1700000000000,"to":1700003600000,"reason":".."}`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ReplayOrderBody {
    #[schema(pattern = "^[0-9]{8}$")]
    ispb: String,
    /// When the messages came in: from then on, in Unix milliseconds.
    #[schema(value_type = u64)]
    from: Number,
    /// Up to before then, in Unix milliseconds.
    #[schema(value_type = u64)]
    to: Number,
    /// Why, for the audit: 1 to 512 bytes.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
}

/// A replay that can be read.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct ReplayBody {
    /// Where its first batch is.
    start: String,
    /// Until when it can be read, in Unix milliseconds.
    expires_at: u64,
}

/// Makes what came in between two moments readable once more, by one reader.
///
/// It is read at `start` with the credential or certificate of the institution. The stream itself is
/// not touched.
#[utoipa::path(post, path = "/api/v1/admin/replays", tag = "admin",
    request_body = ReplayOrderBody,
    responses((status = 201, description = "it can be read", body = ReplayBody),
        (status = 404, description = "nothing came in in that time", body = crate::http::problem::ProblemBody,
            content_type = "application/problem+json"),
        OfSystem, Reading))]
pub(in crate::http) async fn order_replay(
    State(services): State<Services>,
    Extension(credential): Extension<Credential>,
    request: Request,
) -> Result<(StatusCode, Json<ReplayBody>), Problem> {
    let order: ReplayOrderBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let ispb = order.ispb.parse::<Ispb>()?;
    let (times, who) = (times(&order.from, &order.to)?, operator(&credential)?);
    let started = services.pull_stream.replay(ispb, times, &order.reason, &who).await;
    services.stream_metrics.replay_ordered(&started);
    let started = started?;
    let body = ReplayBody {
        start: format!("{}/{}", prefix(ispb), started.token),
        expires_at: started.expires_at.as_unix_millis(),
    };
    Ok((StatusCode::CREATED, Json(body)))
}

/// Delivers what comes next of a replay; 204 at its end.
///
/// The same token again gets the same bytes, until the next one is used.
#[utoipa::path(get, path = "/api/v1/out/{ispb}/replay/{token}", tag = "pull_stream",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$"),
        ("token" = String, Path, description = "from `start` or `PI-Pull-Next`"),
        ("PI-Client-Id" = Option<String>, Header, nullable = false, pattern = "^[!-~]{1,64}$",
            description = "who reads, for the audit")),
    responses(Pulling, OfInstitution, Choosing))]
pub(in crate::http) async fn read_replay(
    State(services): State<Services>,
    institution: Institution,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    refuse_head(&method, "GET")?;
    let Institution { ispb, client } = institution;
    let reader = Reader { form: form::wanted(&headers)?, client };
    let pulled = services.pull_stream.replay_next(ispb, token_in(&uri), &reader).await;
    services.stream_metrics.replayed(&pulled);
    delivered(&prefix(ispb), &pulled.map_err(told)?).await
}

fn prefix(ispb: Ispb) -> String {
    format!("/api/v1/out/{ispb}/replay")
}

/// A refusal in the words of replays: the stream is of no use to who reads one.
fn told(error: PullStreamError) -> Problem {
    if let PullStreamError::Refused(Refusal::Tampered) = error {
        let detail = "the token is not valid; go on with the one that came last";
        return Problem::new(Code::InvalidToken, detail);
    }
    if let PullStreamError::Refused(Refusal::Expired) = error {
        let detail = "the replay is over; ask the operator for another one";
        return Problem::new(Code::TokenExpired, detail);
    }
    error.into()
}
