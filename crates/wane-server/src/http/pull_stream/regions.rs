//! What operators say of regions: which of two serves an institution, and when the other takes over.
//!
//! Every node answers, whichever region it is of: the one that serves may be gone.

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::apps::Credential;
use wane::services::pull_stream::{Failover, Ispb, RegionMap};
use wane::store::Timestamp;

use super::operator::operator;
use crate::http::body::{self, ONE_OPERATION, whole_number};
use crate::http::described::{OfSystem, Reading};
use crate::http::path;
use crate::http::problem::{Code, Problem};
use crate::wiring::Services;

/// Where `/api/v1/admin/regions/{ispb}` has the institution.
const ISPB: usize = 4;

/// Which regions serve an institution.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct RegionsBody {
    /// The region that does.
    primary: String,
    /// The region that takes over.
    secondary: String,
    /// Grows with every change.
    epoch: u64,
    /// When one took over from the other last, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failed_over_at: Option<u64>,
}

/// Which regions shall: `{"primary":"r1","secondary":"r2"}`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct RegionsChangeBody {
    #[schema(pattern = "^[a-z0-9-]{1,32}$")]
    primary: String,
    #[schema(pattern = "^[a-z0-9-]{1,32}$")]
    secondary: String,
}

/// A failover, with why, and where to: `{"to":"r2","reason":"r1 is dark"}`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct FailoverBody {
    /// The region that takes over. With it, the same call again changes nothing.
    #[schema(nullable = false, pattern = "^[a-z0-9-]{1,32}$")]
    to: Option<String>,
    /// The epoch that whoever asks goes by: at any other one nothing is changed.
    #[schema(value_type = Option<u64>, nullable = false)]
    epoch: Option<Number>,
    /// For the audit.
    #[schema(nullable = false, max_length = 256)]
    reason: Option<String>,
}

/// The epoch that holds.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct EpochBody {
    epoch: u64,
}

impl From<RegionMap> for EpochBody {
    fn from(map: RegionMap) -> Self {
        Self { epoch: map.epoch }
    }
}

/// Says which regions serve an institution: 404 where all do.
#[utoipa::path(get, path = "/api/v1/admin/regions/{ispb}", tag = "admin",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$")),
    responses((status = 200, description = "which regions do", body = RegionsBody), OfSystem))]
pub(in crate::http) async fn show_regions(
    State(services): State<Services>,
    uri: Uri,
) -> Result<Json<RegionsBody>, Problem> {
    let map = services.pull_stream.region_map(institution(&uri)?).await?;
    let map = map.ok_or_else(|| {
        Problem::new(Code::Absent, "the institution has no regions: every region serves it")
    })?;
    Ok(Json(RegionsBody {
        primary: map.primary,
        secondary: map.secondary,
        epoch: map.epoch,
        failed_over_at: map.failed_over_at.map(Timestamp::as_unix_millis),
    }))
}

/// Says which region serves an institution, and which may take over.
#[utoipa::path(put, path = "/api/v1/admin/regions/{ispb}", tag = "admin",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$")),
    request_body = RegionsChangeBody,
    responses((status = 200, description = "the epoch that holds now", body = EpochBody),
        OfSystem, Reading))]
pub(in crate::http) async fn set_regions(
    State(services): State<Services>,
    Extension(credential): Extension<Credential>,
    uri: Uri,
    request: Request,
) -> Result<Json<EpochBody>, Problem> {
    let (ispb, who) = (institution(&uri)?, operator(&credential)?);
    let asked: RegionsChangeBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let RegionsChangeBody { primary, secondary } = asked;
    let map = services.pull_stream.set_regions(ispb, &primary, &secondary, &who).await?;
    Ok(Json(map.into()))
}

/// Lets the other region serve an institution. The region that did refuses readers at once, and
/// producers within a second.
#[utoipa::path(post, path = "/api/v1/admin/regions/{ispb}/failover", tag = "admin",
    params(("ispb" = String, Path, pattern = "^[0-9]{8}$")),
    request_body(content = Option<FailoverBody>),
    responses((status = 200, description = "the epoch that holds now", body = EpochBody),
        OfSystem, Reading))]
pub(in crate::http) async fn fail_over(
    State(services): State<Services>,
    Extension(credential): Extension<Credential>,
    uri: Uri,
    request: Request,
) -> Result<Json<EpochBody>, Problem> {
    let (ispb, who) = (institution(&uri)?, operator(&credential)?);
    let asked = body::json::<FailoverBody>(request, ONE_OPERATION, &services.clock).await?;
    let FailoverBody { to, epoch, reason } = asked.unwrap_or_default();
    let advice = "give the whole number that the regions are shown with";
    let whole =
        |epoch: &Number| whole_number(epoch).ok_or_else(|| Problem::invalid("epoch", advice));
    let epoch = epoch.as_ref().map(whole).transpose()?;
    let failover = Failover { to, epoch, reason };
    Ok(Json(services.pull_stream.fail_over(ispb, &failover, &who).await?.into()))
}

fn institution(uri: &Uri) -> Result<Ispb, Problem> {
    let segment: Option<Vec<u8>> = path::segments(uri.path()).nth(ISPB).map(Iterator::collect);
    Ok(String::from_utf8_lossy(&segment.unwrap_or_default()).parse::<Ispb>()?)
}
