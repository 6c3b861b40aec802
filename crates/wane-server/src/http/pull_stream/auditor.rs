//! What auditors read: what happened to the stream of an institution, and whether the account of it is
//! whole.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use utoipa::ToSchema;
use wane::services::pull_stream::{Action, AuditCheck, AuditQuery, Chain, ListedEntry, Verdict};

use super::asked::{institution, moment_in};
use crate::http::described::{Auditing, OfSystem};
use crate::http::problem::Problem;
use crate::http::query::Parameters;
use crate::wiring::Services;

/// Entries of the audit, and what to go on with.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct AuditBody {
    entries: Vec<AuditEntryBody>,
    /// To be given as `after` for the next page; null at the end.
    next: Option<String>,
}

/// One thing that happened.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AuditEntryBody {
    /// When, in Unix milliseconds.
    at: u64,
    /// Who says it was.
    who: String,
    /// What was done.
    #[schema(value_type = String)]
    action: Action,
    /// Why, in the words of who asked for it.
    reason: Option<String>,
    /// What came of it.
    #[schema(value_type = String)]
    outcome: Verdict,
    /// The hash of the token that was used; where none was, of the one that was issued.
    hash: Option<String>,
    /// The hash of the token that was issued.
    #[serde(skip_serializing_if = "Option::is_none")]
    issued_hash: Option<String>,
    /// The slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<u8>,
    /// Messages that were delivered or, where a slot was ended, requeued.
    messages: u64,
    /// Calls like it that came before it and have no entry.
    unnoted: u64,
    chain: LinkBody,
}

/// Where an entry stands.
#[derive(Debug, Serialize, ToSchema)]
struct LinkBody {
    /// The chain: transitions or remarks.
    #[schema(value_type = String)]
    name: Chain,
    /// The row of the chain.
    row: u64,
    /// The hash of the row, which the next row holds.
    hash: String,
}

impl From<ListedEntry> for AuditEntryBody {
    fn from(listed: ListedEntry) -> Self {
        let ListedEntry { entry, chain, row, row_hash } = listed;
        Self {
            at: entry.at,
            who: entry.who.to_string(),
            action: entry.action,
            outcome: entry.verdict,
            hash: entry.used_hash().or_else(|| entry.issued_hash()),
            issued_hash: entry.issued_hash(),
            thread: entry.thread,
            messages: entry.messages,
            unnoted: entry.unnoted,
            reason: entry.reason,
            chain: LinkBody { name: chain, row, hash: row_hash },
        }
    }
}

/// Lists what happened to the stream of an institution.
///
/// From both chains, in the order of time, from `from` to before `to`.
#[utoipa::path(get, path = "/api/v1/admin/audit", tag = "admin",
    params(("ispb" = String, Query, pattern = "^[0-9]{8}$"),
        ("from" = Option<u64>, Query, nullable = false, description = "Unix milliseconds"),
        ("to" = Option<u64>, Query, nullable = false, description = "Unix milliseconds, later than `from`"),
        ("after" = Option<String>, Query, nullable = false, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, nullable = false, minimum = 1, maximum = 1000)),
    responses((status = 200, description = "what happened", body = AuditBody), OfSystem, Auditing))]
pub(in crate::http) async fn list_audit(
    State(services): State<Services>,
    uri: Uri,
) -> Result<Json<AuditBody>, Problem> {
    let given = Parameters::of(&uri, &["ispb", "from", "to", "after", "limit"])?;
    let query = AuditQuery {
        from: moment_in(&given, "from")?,
        to: moment_in(&given, "to")?,
        after: given.get("after").map(ToOwned::to_owned),
        limit: given.page_limit()?.rows(),
    };
    let listing = services.pull_stream.list_audit(institution(&given)?, &query).await?;
    let entries = listing.entries.into_iter().map(Into::into).collect();
    Ok(Json(AuditBody { entries, next: listing.next }))
}

/// That the audit of an institution is whole.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct VerifiedBody {
    chains: Vec<VerifiedChainBody>,
    /// To be given as `after` to go on; null where all of it was read.
    next: Option<String>,
}

/// A chain that is whole.
#[derive(Debug, Serialize, ToSchema)]
struct VerifiedChainBody {
    /// Transitions or remarks.
    #[schema(value_type = String)]
    chain: Chain,
    /// How many rows it has.
    rows: u64,
    /// How many entries they have.
    entries: u64,
}

/// Checks that nothing of the audit of an institution was changed, moved, taken out or cut off.
///
/// Reads all of it, or about as many rows as `limit` says: the same call with `after` goes on then.
#[utoipa::path(get, path = "/api/v1/admin/audit/verify", tag = "admin",
    params(("ispb" = String, Query, pattern = "^[0-9]{8}$"),
        ("after" = Option<String>, Query, nullable = false, description = "`next` of the answer before"),
        ("limit" = Option<usize>, Query, nullable = false, minimum = 1, maximum = 1000)),
    responses((status = 200, description = "it is whole, as far as it was read", body = VerifiedBody),
        OfSystem, Auditing))]
pub(in crate::http) async fn verify_audit(
    State(services): State<Services>,
    uri: Uri,
) -> Result<Json<VerifiedBody>, Problem> {
    let given = Parameters::of(&uri, &["ispb", "after", "limit"])?;
    let (ispb, after) = (institution(&given)?, given.get("after"));
    let most_rows = match given.get("limit") {
        Some(_) => given.page_limit()?.rows() as u64,
        None => u64::MAX,
    };
    let checked = services.pull_stream.verify_audit_on(ispb, after, most_rows).await?;
    let chain = |(chain, AuditCheck { rows, entries })| VerifiedChainBody { chain, rows, entries };
    let chains = checked.chains.into_iter().map(chain).collect();
    Ok(Json(VerifiedBody { chains, next: checked.next }))
}
