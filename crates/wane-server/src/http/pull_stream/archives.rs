//! What operators ask of the archive: to archive a time, what is in it, and whether it is whole.

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::apps::Credential;
use wane::services::pull_stream::{ArchiveReport, Ispb, SegmentName};
use wane::store::Timestamp;

use super::asked::{institution, row_in, times};
use super::operator::operator;
use crate::http::body::{self, ONE_OPERATION, whole_number};
use crate::http::described::{Archiving, OfSystem, Reading};
use crate::http::problem::{Code, Problem};
use crate::http::query::Parameters;
use crate::wiring::Services;

/// Segments that one call writes, unless it says otherwise: 128 MiB of messages.
const USUAL_SEGMENTS: u64 = 16;

/// The most segments that one call writes.
const MOST_SEGMENTS: u64 = 64;

/// Segments that one call reads.
const CHECKED: usize = 8;

/// Segments of one page of the list.
const LISTED: usize = 1_000;

/// What to archive: `{"ispb":"00000208","from":1790000000000,"to":1790003600000}`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct ArchiveBody {
    #[schema(pattern = "^[0-9]{8}$")]
    ispb: String,
    /// When the first messages came in: Unix milliseconds.
    #[schema(value_type = u64)]
    from: Number,
    /// Up to when: Unix milliseconds.
    #[schema(value_type = u64)]
    to: Number,
    /// The most segments to write with this call.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 64, nullable = false)]
    #[serde(default)]
    segments: Option<Number>,
}

/// What was archived.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct ArchivedBody {
    /// Segments that were written.
    segments: u64,
    /// Rows of the log in them.
    rows: u64,
    /// Messages in those.
    messages: u64,
    /// Bytes of the segments.
    bytes: u64,
    /// Rows that cannot be read and are not archived. The audit names the first of them.
    damaged: u64,
    /// Whether all of it is archived. If not, the same call goes on.
    done: bool,
    /// When the last of those messages came in: Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<u64>,
}

impl From<ArchiveReport> for ArchivedBody {
    fn from(report: ArchiveReport) -> Self {
        Self {
            segments: report.segments,
            rows: report.rows,
            messages: report.messages,
            bytes: report.bytes,
            damaged: report.damaged,
            done: report.is_done,
            reached: report.reached.map(Timestamp::as_unix_millis),
        }
    }
}

/// Copies the messages that an institution got at a time to the archive.
///
/// What is archived already is not copied again. A call writes up to 16 segments, unless it says
/// otherwise: the same call goes on until `done` is true.
#[utoipa::path(post, path = "/api/v1/admin/archives", tag = "admin", request_body = ArchiveBody,
    responses((status = 200, description = "what was archived", body = ArchivedBody),
        OfSystem, Reading, Archiving))]
pub(in crate::http) async fn archive_messages(
    State(services): State<Services>,
    Extension(credential): Extension<Credential>,
    request: Request,
) -> Result<Json<ArchivedBody>, Problem> {
    let wanted: ArchiveBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let ispb = wanted.ispb.parse::<Ispb>()?;
    let (times, who) = (times(&wanted.from, &wanted.to)?, operator(&credential)?);
    let segments = wanted.segments.as_ref().map_or(Some(USUAL_SEGMENTS), whole_number);
    let segments = segments.filter(|most| (1..=MOST_SEGMENTS).contains(most));
    let reason = format!("give 1 to {MOST_SEGMENTS}");
    let segments = segments.ok_or_else(|| Problem::invalid("segments", reason))?;
    // Whoever hangs up does not keep the audit from telling of it.
    let archiving = tokio::spawn(async move {
        let report = services.pull_stream.archive(ispb, times, segments, &who).await?;
        services.archive_metrics.archived(ispb, &report);
        Ok::<_, Problem>(Json(report.into()))
    });
    let ended = |_| Problem::new(Code::UnknownOutcome, "the server is stopping; ask again");
    archiving.await.map_err(ended)?
}

/// A segment of the archive.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct SegmentBody {
    /// Where it lies.
    name: String,
    /// Its first row in the log.
    first_row: u64,
    /// Behind its last row.
    end_row: u64,
    /// How many rows it has.
    rows: u64,
    /// When its messages came in: Unix milliseconds.
    from: u64,
    /// Up to when.
    to: u64,
}

impl From<&SegmentName> for SegmentBody {
    fn from(name: &SegmentName) -> Self {
        Self {
            name: name.to_string(),
            first_row: name.rows.start,
            end_row: name.rows.end,
            rows: name.count,
            from: name.times.start.as_unix_millis(),
            to: name.times.end.as_unix_millis(),
        }
    }
}

/// Segments, by their first rows.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct SegmentsBody {
    items: Vec<SegmentBody>,
    /// The row to go on from, for `fromRow`.
    next: Option<u64>,
    /// Where it was asked for: these were read from end to end, and are whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<VerifiedSegmentsBody>,
}

/// What was read.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct VerifiedSegmentsBody {
    segments: u64,
    rows: u64,
    bytes: u64,
}

/// Lists the segments of an institution; with `verify`, those that it lists are read and checked.
#[utoipa::path(get, path = "/api/v1/admin/archives", tag = "admin",
    params(("ispb" = String, Query, pattern = "^[0-9]{8}$"),
        ("fromRow" = Option<u64>, Query, nullable = false, description = "from `next`"),
        ("verify" = Option<bool>, Query, nullable = false,
            description = "read up to eight of them; 502 names the first one that is damaged")),
    responses((status = 200, description = "a page of segments", body = SegmentsBody),
        OfSystem, Archiving))]
pub(in crate::http) async fn list_segments(
    State(services): State<Services>,
    uri: Uri,
) -> Result<Json<SegmentsBody>, Problem> {
    let query = Parameters::of(&uri, &["ispb", "fromRow", "verify"])?;
    let (ispb, from_row) = (institution(&query)?, row_in(&query, "fromRow")?.unwrap_or(0));
    let verify = query.get("verify").map_or(Ok(false), str::parse);
    let verify = verify.map_err(|_| Problem::invalid("verify", "give true or false"))?;
    let most = if verify { CHECKED + LISTED } else { LISTED + 1 };
    let mut segments = services.pull_stream.segments(ispb, from_row, most).await?;
    if verify {
        let check = services.pull_stream.check_archive(ispb, from_row, CHECKED).await?;
        let (verified, next) = (
            VerifiedSegmentsBody { segments: check.segments, rows: check.rows, bytes: check.bytes },
            check.next_row,
        );
        segments.retain(|name| next.is_none_or(|next| name.rows.start < next));
        let items = segments.iter().map(SegmentBody::from).collect();
        return Ok(Json(SegmentsBody { items, next, verified: Some(verified) }));
    }
    let next = segments.get(LISTED).map(|name| name.rows.start);
    segments.truncate(LISTED);
    let items = segments.iter().map(SegmentBody::from).collect();
    Ok(Json(SegmentsBody { items, next, verified: None }))
}
