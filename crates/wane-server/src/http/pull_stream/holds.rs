//! Legal holds: placed, listed and released by operators.

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::apps::Credential;
use wane::services::pull_stream::{Hold, HoldId, HoldState, Ispb};

use super::asked::{institution, times};
use super::operator::operator;
use crate::http::body::{self, ONE_OPERATION};
use crate::http::described::{OfSystem, Reading};
use crate::http::path::LastSegment;
use crate::http::problem::Problem;
use crate::http::query::Parameters;
use crate::wiring::Services;

/// What is to be held, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct NewHoldBody {
    /// The institution: eight digits.
    #[schema(pattern = "^[0-9]{8}$")]
    ispb: String,
    /// The first moment, in Unix milliseconds.
    #[schema(value_type = u64)]
    from: Number,
    /// The first moment after it. It may be later than now.
    #[schema(value_type = u64)]
    to: Number,
    /// Why, for the audit.
    #[schema(min_length = 1, max_length = 512)]
    reason: String,
}

/// A hold that was placed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct HeldBody {
    /// Its name.
    hold_id: String,
    /// Rows of the log that are under it so far, of up to ten messages each.
    rows: u64,
}

/// Holds of an institution.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct HoldsBody {
    items: Vec<HoldBody>,
}

/// A hold.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct HoldBody {
    hold_id: String,
    from: u64,
    to: u64,
    reason: String,
    /// Who asked for it.
    who: String,
    placed_at: u64,
    rows: u64,
    /// Those of them that cannot be read. They are held as they are.
    damaged: u64,
    /// `placing` until all rows that it covers are under it, `releasing` until they are let go.
    state: &'static str,
}

impl From<Hold> for HoldBody {
    fn from(hold: Hold) -> Self {
        Self {
            hold_id: hold.id.to_string(),
            from: hold.from,
            to: hold.to,
            reason: hold.reason,
            who: hold.who.as_str().to_owned(),
            placed_at: hold.placed_at,
            rows: hold.rows,
            damaged: hold.damaged,
            state: match hold.state {
                HoldState::Placing => "placing",
                HoldState::Placed => "placed",
                // Those that are released are not listed.
                HoldState::Releasing | HoldState::Released => "releasing",
            },
        }
    }
}

/// Keeps the messages of a time whatever their retention, until the hold is released.
#[utoipa::path(post, path = "/api/v1/admin/holds", tag = "admin",
    request_body = NewHoldBody,
    responses((status = 201, description = "they are held", body = HeldBody), OfSystem, Reading))]
pub(in crate::http) async fn place_hold(
    State(services): State<Services>,
    Extension(credential): Extension<Credential>,
    request: Request,
) -> Result<(StatusCode, Json<HeldBody>), Problem> {
    let wanted: NewHoldBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let ispb: Ispb = wanted.ispb.parse()?;
    let times = times(&wanted.from, &wanted.to)?;
    let who = operator(&credential)?;
    let hold = services.pull_stream.hold(ispb, times, &wanted.reason, &who).await?;
    if let Some(row) = hold.first_damaged {
        tracing::error!(%ispb, row, rows = hold.damaged, "rows under a hold cannot be read");
    }
    let body = HeldBody { hold_id: hold.id.to_string(), rows: hold.rows };
    Ok((StatusCode::CREATED, Json(body)))
}

/// Lists the holds of an institution.
#[utoipa::path(get, path = "/api/v1/admin/holds", tag = "admin",
    params(("ispb" = String, Query, pattern = "^[0-9]{8}$")),
    responses((status = 200, description = "its holds", body = HoldsBody), OfSystem))]
pub(in crate::http) async fn list_holds(
    State(services): State<Services>,
    uri: Uri,
) -> Result<Json<HoldsBody>, Problem> {
    let ispb = institution(&Parameters::of(&uri, &["ispb"])?)?;
    let holds = services.pull_stream.holds(ispb).await?;
    Ok(Json(HoldsBody { items: holds.into_iter().map(HoldBody::from).collect() }))
}

/// Ends a hold. Its messages have what is left of their retention again.
#[utoipa::path(delete, path = "/api/v1/admin/holds/{holdId}", tag = "admin",
    params(("holdId" = String, Path, pattern = "^[0-9]{8}-[0-9a-f]{16}$")),
    responses((status = 204, description = "it is released"), OfSystem))]
pub(in crate::http) async fn release_hold(
    State(services): State<Services>,
    Extension(credential): Extension<Credential>,
    LastSegment(segment): LastSegment,
) -> Result<StatusCode, Problem> {
    let id: HoldId = String::from_utf8_lossy(&segment).parse()?;
    services.pull_stream.release(&id, &operator(&credential)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
