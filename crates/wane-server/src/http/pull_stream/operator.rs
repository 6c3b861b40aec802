//! What operators ask and set: how far a stream is, and the policy of an institution.

use axum::extract::{Request, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::apps::Credential;
use wane::services::pull_stream::{Client, Ispb, MAX_READERS, Policy};
use wane::store::Ttl;

use crate::http::body::{self, ONE_OPERATION, whole_number};
use crate::http::described::{OfSystem, Reading};
use crate::http::path::LastSegment;
use crate::http::problem::{Code, Problem};
use crate::wiring::Services;

/// How far a stream is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct StreamBody {
    ispb: String,
    /// Readers that hold a lease.
    live_readers: usize,
    /// Messages that were delivered and are not acknowledged.
    in_flight: usize,
    /// Messages that wait to be delivered again.
    requeued: usize,
    /// The row of the log that is delivered next.
    head_row: u64,
    /// Where the log ended at least.
    tail_row: u64,
    /// How long the oldest message that was never delivered has waited.
    lag_millis: u64,
}

/// Says how far the stream of an institution is.
#[utoipa::path(get, path = "/api/v1/admin/streams/{ispb}", tag = "admin",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$")),
    responses((status = 200, description = "how far it is", body = StreamBody), OfSystem))]
pub(in crate::http) async fn status(
    State(services): State<Services>,
    segment: LastSegment,
) -> Result<Json<StreamBody>, Problem> {
    let ispb = institution(&segment)?;
    let status = services.pull_stream.status(ispb).await?;
    Ok(Json(StreamBody {
        ispb: ispb.to_string(),
        live_readers: status.live_readers,
        in_flight: status.in_flight,
        requeued: status.requeued,
        head_row: status.head_row,
        tail_row: status.tail_row,
        lag_millis: status.lag.as_millis() as u64,
    }))
}

/// What holds for an institution.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct PolicyBody {
    /// How long messages are kept that come in from now on.
    retention_seconds: u64,
    /// Readers that may have a lease at a time.
    max_readers: usize,
}

impl From<Policy> for PolicyBody {
    fn from(policy: Policy) -> Self {
        let retention_seconds = policy.retention.as_duration().as_secs();
        Self { retention_seconds, max_readers: policy.max_readers }
    }
}

/// What is to hold: `{"retentionSeconds":2592000,"maxReaders":6}`. What is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct PolicyChangeBody {
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000)]
    retention_seconds: Option<Number>,
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 6)]
    max_readers: Option<Number>,
}

/// Says what holds for an institution.
#[utoipa::path(get, path = "/api/v1/admin/policies/{ispb}", tag = "admin",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$")),
    responses((status = 200, description = "what holds", body = PolicyBody), OfSystem))]
pub(in crate::http) async fn show_policy(
    State(services): State<Services>,
    segment: LastSegment,
) -> Result<Json<PolicyBody>, Problem> {
    let ispb = institution(&segment)?;
    Ok(Json(services.pull_stream.policy(ispb).await?.into()))
}

/// Sets what holds for an institution. Messages that are in already keep their retention.
#[utoipa::path(put, path = "/api/v1/admin/policies/{ispb}", tag = "admin",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$")),
    request_body = PolicyChangeBody,
    responses((status = 200, description = "what holds now", body = PolicyBody),
        OfSystem, Reading))]
pub(in crate::http) async fn set_policy(
    State(services): State<Services>,
    Extension(credential): Extension<Credential>,
    segment: LastSegment,
    request: Request,
) -> Result<Json<PolicyBody>, Problem> {
    let ispb = institution(&segment)?;
    let change: PolicyChangeBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let mut policy = services.pull_stream.policy(ispb).await?;
    if let Some(seconds) = change.retention_seconds {
        let seconds = whole_number(&seconds).unwrap_or(u64::MAX);
        policy.retention = Ttl::from_secs(seconds).map_err(|error| {
            Problem::new(Code::InvalidTtl, format!("retentionSeconds: {error}"))
        })?;
    }
    if let Some(readers) = change.max_readers {
        let readers = whole_number(&readers).and_then(|readers| usize::try_from(readers).ok());
        let legal = readers.filter(|readers| (1..=MAX_READERS).contains(readers));
        let reason = format!("give 1 to {MAX_READERS}");
        policy.max_readers = legal.ok_or_else(|| Problem::invalid("maxReaders", reason))?;
    }
    services.pull_stream.set_policy(ispb, policy, &operator(&credential)?).await?;
    Ok(Json(policy.into()))
}

/// Whoever asks, as the audit tells it.
pub(super) fn operator(credential: &Credential) -> Result<Client, Problem> {
    Ok(Client::new(&format!("key {}", credential.id()))?)
}

fn institution(LastSegment(segment): &LastSegment) -> Result<Ispb, Problem> {
    Ok(String::from_utf8_lossy(segment).parse::<Ispb>()?)
}
