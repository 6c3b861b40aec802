//! Elections over HTTP: parse, call, answer.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::elections::{
    Campaigned, ElectionsError, Lease, LeaseId, Renewed, Resigned, Standing, Token,
};

use super::body::{self, ONE_OPERATION, whole_number};
use super::caller::Caller;
use super::described::{Contesting, OfApp, Reading, ServerSentBody};
use super::lasting::{Lasted, kept_alive};
use super::path::Name;
use super::problem::{Code, Problem};
use super::taken::Lasting;
use crate::wiring::{AppElections, ElectionWatch, Services};

/// The pause of a watch whose store does not answer.
const PAUSE: Duration = Duration::from_secs(1);

impl Services {
    /// The elections of the calling application.
    pub(super) fn elections(&self, caller: &Caller) -> AppElections {
        self.elections.of(caller.app.id)
    }
}

/// `{"holder":"node-1","ttlMillis":10000}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CampaignBody {
    /// Who campaigns, for people: 1 to 1,024 bytes.
    #[schema(min_length = 1, max_length = 1024)]
    holder: String,
    /// How long the lease lasts, in whole milliseconds. Stores that many nodes share have longer
    /// shortest leases: redis and cassandra 3,000, dynamodb 10,000.
    #[schema(value_type = u64, minimum = 1_000, maximum = 3_600_000)]
    ttl_millis: Option<Number>,
}

impl CampaignBody {
    fn ttl(&self) -> Result<Duration, Problem> {
        let millis = self.ttl_millis.as_ref().and_then(whole_number);
        millis.map(Duration::from_millis).ok_or_else(|| {
            Problem::new(Code::InvalidTtl, "give ttlMillis in whole milliseconds, 1000 to 3600000")
        })
    }
}

/// `{"leaseId":"..","token":17}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LeaseBody {
    /// The lease, as the campaign answered it.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    lease_id: String,
    /// Its token.
    #[schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: Number,
}

impl LeaseBody {
    fn read(&self) -> Result<(LeaseId, Token), Problem> {
        let token = whole_number(&self.token).and_then(Token::new);
        let invalid = || Problem::invalid("token", "give the number that the campaign answered");
        Ok((self.lease_id.parse()?, token.ok_or_else(invalid)?))
    }
}

/// A lease that was won or renewed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WonBody {
    /// The fencing token: hand it to whatever the leader changes.
    token: u64,
    /// The lease, to renew and to resign.
    lease_id: String,
    /// When the lease ends at the server, in Unix milliseconds.
    expires_at: u64,
    /// How long the holder may act on it, counted from when it sent the request. Renew at a quarter
    /// of the lease, and stop when this has passed without a renewal.
    renew_within_millis: u64,
}

impl From<Lease> for WonBody {
    fn from(lease: Lease) -> Self {
        Self {
            token: lease.token.get(),
            lease_id: lease.id.to_string(),
            expires_at: lease.expires_at.as_unix_millis(),
            renew_within_millis: millis(lease.right),
        }
    }
}

/// Where an election stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StandingBody {
    /// Who holds it; null where the lease has ended.
    #[schema(required)]
    holder: Option<String>,
    /// The newest token.
    token: u64,
    /// What is left of the lease.
    remaining_millis: u64,
}

impl From<Standing> for StandingBody {
    fn from(standing: Standing) -> Self {
        Self {
            holder: standing.holder,
            token: standing.token.get(),
            remaining_millis: millis(standing.remaining),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Takes the election where nobody holds it.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/elections/{name}/campaign",
    tag = "elections",
    params(("owner" = String, Path), ("app" = String, Path),
        ("name" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded")),
    request_body = CampaignBody,
    responses((status = 200, description = "the election is won", body = WonBody),
        OfApp, Reading, Contesting))]
pub(super) async fn campaign(
    State(services): State<Services>,
    caller: Caller,
    Name(name): Name,
    request: Request,
) -> Result<Json<WonBody>, Problem> {
    let body: CampaignBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let ttl = body.ttl()?;
    match services.elections(&caller).campaign(&name, &body.holder, ttl).await? {
        Campaigned::Won(lease) => Ok(Json(lease.into())),
        Campaigned::Held(standing) => {
            Err(refused("somebody else holds the election; wait for its end", Some(standing)))
        }
    }
}

/// Moves the end of a lease that has not ended.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/elections/{name}/renew", tag = "elections",
    params(("owner" = String, Path), ("app" = String, Path),
        ("name" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded")),
    request_body = LeaseBody,
    responses((status = 200, description = "the lease goes on", body = WonBody),
        OfApp, Reading, Contesting))]
pub(super) async fn renew(
    State(services): State<Services>,
    caller: Caller,
    Name(name): Name,
    request: Request,
) -> Result<Json<WonBody>, Problem> {
    let body: LeaseBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let (id, token) = body.read()?;
    match services.elections(&caller).renew(&name, id, token).await? {
        Renewed::Renewed(lease) => Ok(Json(lease.into())),
        Renewed::Lost(standing) => {
            Err(refused("the lease has ended; stop, and campaign", standing))
        }
    }
}

/// Ends a lease. Stop acting on it first.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/elections/{name}/resign", tag = "elections",
    params(("owner" = String, Path), ("app" = String, Path),
        ("name" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded")),
    request_body = LeaseBody,
    responses((status = 204, description = "the lease has ended"), OfApp, Reading, Contesting))]
pub(super) async fn resign(
    State(services): State<Services>,
    caller: Caller,
    Name(name): Name,
    request: Request,
) -> Result<StatusCode, Problem> {
    let body: LeaseBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let (id, token) = body.read()?;
    match services.elections(&caller).resign(&name, id, token).await? {
        Resigned::Resigned => Ok(StatusCode::NO_CONTENT),
        Resigned::Lost(standing) => Err(refused("this is not the lease of the election", standing)),
    }
}

/// Says who holds the election.
#[utoipa::path(get, path = "/api/v2/apps/{owner}/{app}/elections/{name}", tag = "elections",
    params(("owner" = String, Path), ("app" = String, Path),
        ("name" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded")),
    responses((status = 200, description = "where it stands", body = StandingBody), OfApp))]
pub(super) async fn observe(
    State(services): State<Services>,
    caller: Caller,
    Name(name): Name,
) -> Result<Json<StandingBody>, Problem> {
    let standing = services.elections(&caller).observe(&name).await?;
    standing.map(|standing| Json(standing.into())).ok_or_else(Problem::absent)
}

/// Streams `changed`, with where the election stands: at first now, if anybody ever campaigned,
/// then whenever it changes hands.
#[utoipa::path(get, path = "/api/v2/apps/{owner}/{app}/elections/{name}/watch", tag = "elections",
    params(("owner" = String, Path), ("app" = String, Path),
        ("name" = String, Path, min_length = 1, max_length = 1024,
            description = "1 to 1,024 bytes of UTF-8, percent-encoded")),
    responses((status = 200, description = "events as they happen",
        content_type = "text/event-stream", body = ServerSentBody), OfApp))]
pub(super) async fn watch(
    State(services): State<Services>,
    caller: Caller,
    Name(name): Name,
) -> Result<(Lasting, Sse<impl Stream<Item = Result<Event, Infallible>>>), Problem> {
    let lasted = Lasted::begin(&services, &caller)?;
    let watch = services.elections(&caller).watch(&name).await?;
    Ok((Lasting, kept_alive(events(services, watch, lasted))))
}

/// The changes of an election, until something ends the watch.
fn events(
    services: Services,
    watch: ElectionWatch,
    lasted: Lasted,
) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold((services, watch, lasted), |(services, mut watch, mut lasted)| async move {
        let standing = tokio::select! {
            biased;
            () = lasted.ended() => return None,
            standing = next(&services, &mut watch) => standing?,
        };
        let body = serde_json::to_string(&StandingBody::from(standing)).unwrap_or_default();
        Some((Ok(Event::default().event("changed").data(body)), (services, watch, lasted)))
    })
}

/// The next change. A store that does not answer is waited out; the watch misses nothing by it.
async fn next(services: &Services, watch: &mut ElectionWatch) -> Option<Standing> {
    loop {
        match watch.changed().await {
            Ok(standing) => return Some(standing),
            Err(ElectionsError::Closed) => return None,
            Err(error) => {
                tracing::warn!(%error, "a watched election cannot be read");
                services.clock.sleep(PAUSE).await;
            }
        }
    }
}

/// A refusal that says where the election stands.
fn refused(detail: &str, standing: Option<Standing>) -> Problem {
    let standing = standing.map(StandingBody::from);
    let problem = Problem::new(Code::Refused, detail);
    match standing {
        Some(StandingBody { holder, token, remaining_millis }) => problem
            .with("holder", holder)
            .with("token", token)
            .with("remainingMillis", remaining_millis),
        None => problem,
    }
}
