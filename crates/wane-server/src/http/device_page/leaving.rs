//! Signing in elsewhere: the visitor leaves by a link with a state that only this session knows, and
//! comes back with it, and with a code of the issuer or an assertion of the application.
//!
//! Each application has a way back of its own, which must be that of the application that the
//! visitor left for. So a code that one issuer was made to send here while the visitor is away at
//! another is told to neither of them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use wane::services::ClusterAppId;
use wane::services::device_auth::{AssertionSecret, GuessSettings, SignIn};

use super::assertion::{self, Expected};
use super::deciding::app_name;
use super::form::Fields;
use super::oidc::{Brought, Drawn, OidcError, Party, plain};
use super::session::Person;
use super::shell::Page;
use super::signing_in::{Way, way_of, with_code};
use super::trouble::Trouble;
use super::views::{self, Complaint};
use super::visit::{Answered, Visit};
use crate::wiring::Services;

/// How often issuers may be called on behalf of visitors: by one address, and at all.
pub(super) const LIMITS: GuessSettings =
    GuessSettings { per_address: 40, per_app: 0, budget: 1_000, life: Duration::from_secs(60) };

/// What must not be in an answer twice: of two readings, one may be somebody else's.
const ONCE: [&str; 5] = ["state", "code", "iss", "error", "assertion"];

/// Why nobody is signed in, as the visitor is told it.
struct Failed {
    status: StatusCode,
    complaint: Complaint,
    retry_after: Option<u64>,
}

impl Failed {
    fn new(status: StatusCode, headline: &str, advice: &str) -> Self {
        Self { status, complaint: Complaint::new(headline, advice), retry_after: None }
    }
}

/// `GET /device/sign-in/start`: leaves for the application's sign-in.
pub(in crate::http) async fn start(State(services): State<Services>, request: Request) -> Answered {
    let (visit, _) = Visit::begin(services, request)?;
    let mut asked = with_code(visit)?;
    let app = asked.code.app();
    let way = way_of(&asked.visit, app).await?;
    let Way::Elsewhere(sign_in) = &way else { return Ok(asked.visit.go("/device/sign-in")) };
    let clock = Arc::clone(&asked.visit.services.clock);
    let voucher = way.voucher(&asked.visit);
    let state = asked.visit.session.leaves(app, voucher, &*clock);
    let visit = &asked.visit;
    let way_back = way_back(visit, &app_name(visit, &asked.code).await?);
    let target = match sign_in {
        SignIn::Assertion { url, .. } => Ok(assertion_url(visit, url, &way_back, &state)),
        SignIn::Oidc { .. } => authorization_url(visit, sign_in, way_back, &state).await,
    };
    Ok(match target {
        Ok(url) => visit.leave(&url),
        Err(failed) => failure(visit, &failed),
    })
}

/// Where people come back to who sign in to this application, `owner/app`.
fn way_back(visit: &Visit, app: &str) -> String {
    format!("{}/device/signed-in/{app}", visit.base_url)
}

/// The application's page, told where to send the visitor back to, and with what.
fn assertion_url(visit: &Visit, url: &str, way_back: &str, state: &str) -> String {
    let return_to = utf8_percent_encode(way_back, NON_ALPHANUMERIC);
    let joint = if url.contains('?') { '&' } else { '?' };
    let prompt = if visit.session.as_another { "&prompt=login" } else { "" };
    format!("{url}{joint}return_to={return_to}&state={state}{prompt}")
}

async fn authorization_url(
    visit: &Visit,
    sign_in: &SignIn,
    way_back: String,
    state: &str,
) -> Result<String, Failed> {
    let Some(party) = party(sign_in, way_back) else { return Err(not_under_way()) };
    paced(visit)?;
    let issuers = &visit.services.device_page.issuers;
    let as_another = visit.session.as_another;
    let url = issuers.authorization_url(&party, &drawn(visit, state), as_another).await;
    url.map_err(|error| told(&error))
}

/// `GET /device/signed-in/{owner}/{app}`: back from the application's sign-in.
pub(in crate::http) async fn returned(
    State(services): State<Services>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Answered {
    let (visit, _) = Visit::begin(services, request)?;
    let query = Fields::of_query(&visit.parts.uri);
    if visit.session.asked.is_none() && query.get("state").is_some() {
        return Ok(failure(&visit, &not_under_way()));
    }
    let mut asked = with_code(visit)?;
    let name = app_name(&asked.visit, &asked.code).await?;
    let is_way_back = path.is_ok_and(|Path((owner, app))| format!("{owner}/{app}") == name);
    let (session, app) = (&asked.visit.session, asked.code.app());
    let leaving = session.leaving.clone().filter(|leaving| leaving.app() == app);
    let leaving = leaving.filter(|_| is_way_back && !query.repeats(&ONCE));
    let brought = query.get("state").unwrap_or_default();
    let Some(leaving) = leaving.filter(|leaving| leaving.state == brought) else {
        // Loaded again after it worked.
        if session.who(app, asked.visit.now).is_some() {
            return Ok(asked.visit.go("/device/confirm"));
        }
        return Ok(failure(&asked.visit, &not_under_way()));
    };
    // Whatever comes of it: another answer to the same question is not asked for.
    asked.visit.session.leaving = None;
    let way = way_of(&asked.visit, app).await?;
    let voucher = way.voucher(&asked.visit);
    if leaving.voucher != voucher {
        return Ok(failure(&asked.visit, &not_under_way()));
    }
    let Way::Elsewhere(sign_in) = &way else { return Ok(asked.visit.go("/device/sign-in")) };
    let way_back = way_back(&asked.visit, &name);
    let back = Back { visit: &asked.visit, way_back, query: &query, state: &leaving.state };
    let person = vouched(sign_in, back).await;
    Ok(match person {
        Ok(person) => {
            let clock = Arc::clone(&asked.visit.services.clock);
            asked.visit.session.signed_in(app, person, voucher, &*clock);
            asked.visit.go("/device/confirm")
        }
        Err(failed) => failure(&asked.visit, &failed),
    })
}

/// A visitor who is back with the state that they left with.
struct Back<'a> {
    visit: &'a Visit,
    way_back: String,
    query: &'a Fields,
    state: &'a str,
}

/// Who came back, by what the application's sign-in says.
async fn vouched(sign_in: &SignIn, back: Back<'_>) -> Result<Person, Failed> {
    if let Some(error) = back.query.get("error") {
        tracing::info!(error = %plain(error), "a sign-in was not completed");
        return Err(Failed::new(
            StatusCode::FORBIDDEN,
            "You are not signed in",
            "The sign-in was cancelled or refused there. You can try again.",
        ));
    }
    if let SignIn::Assertion { secret, .. } = sign_in {
        return by_assertion(secret, &back);
    }
    let Back { visit, way_back, query, state } = back;
    let Some(party) = party(sign_in, way_back) else { return Err(not_under_way()) };
    paced(visit)?;
    let brought = Brought { code: query.get("code").unwrap_or_default(), iss: query.get("iss") };
    let issuers = &visit.services.device_page.issuers;
    let person = issuers.redeem(&party, brought, &drawn(visit, state)).await;
    person.map_err(|error| told(&error))
}

/// Lets an issuer be called for this visitor, who may not have that done without bound.
fn paced(visit: &Visit) -> Result<(), Failed> {
    // Each call counts, whatever it is about.
    let mut drawn = [0; 32];
    visit.services.clock.fill_random(&mut drawn);
    let departures = &visit.services.device_page.departures;
    match departures.admit(visit.guesser(), ClusterAppId::NONE, drawn) {
        Ok(attempt) => {
            drop(attempt);
            Ok(())
        }
        Err(wait) => {
            Err(Failed { retry_after: Some(Trouble::Limited(wait).retry_after()), ..too_many() })
        }
    }
}

fn too_many() -> Failed {
    Failed::new(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many sign-ins from your network",
        "Please wait a minute and try again.",
    )
}

fn by_assertion(secret: &AssertionSecret, back: &Back<'_>) -> Result<Person, Failed> {
    let Back { visit, query, state, .. } = back;
    let audience = format!("{}/device", visit.base_url);
    let expected = Expected { secret, audience: &audience, state, now: visit.now };
    let assertion = query.get("assertion").unwrap_or_default();
    assertion::check(assertion, &expected).map_err(|flaw| {
        tracing::warn!(%flaw, "an assertion was refused");
        Failed::new(
            StatusCode::FORBIDDEN,
            "You are not signed in",
            "What the application says about you is not valid. You can try again; if it stays so, \
             tell those who run it.",
        )
    })
}

fn party(sign_in: &SignIn, redirect_uri: String) -> Option<Party<'_>> {
    let SignIn::Oidc { issuer, client_id, client_secret } = sign_in else { return None };
    Some(Party { issuer, client_id, client_secret: client_secret.as_ref(), redirect_uri })
}

/// Nonce and verifier follow from the session and its state, and are in no cookie.
fn drawn(visit: &Visit, state: &str) -> Drawn {
    let derived = |purpose| visit.session.derived(purpose, state, &visit.key);
    Drawn { state: state.to_owned(), nonce: derived("nonce"), verifier: derived("verifier") }
}

fn told(error: &OidcError) -> Failed {
    tracing::warn!(%error, "nobody could sign in at an issuer");
    match error {
        OidcError::Unanswered(_) => Failed::new(
            StatusCode::BAD_GATEWAY,
            "The sign-in does not work right now",
            "The place where you sign in does not answer as it should. Please try again in a \
             moment.",
        ),
        OidcError::Refused(_) | OidcError::NotGood(_) => Failed::new(
            StatusCode::FORBIDDEN,
            "You are not signed in",
            "The place where you sign in did not confirm who you are. You can try again.",
        ),
        OidcError::OfAnother => not_under_way(),
        OidcError::Busy => Failed {
            retry_after: Some(5),
            ..Failed::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many people sign in right now",
                "Please try again in a moment.",
            )
        },
    }
}

fn not_under_way() -> Failed {
    Failed::new(
        StatusCode::BAD_REQUEST,
        "This sign-in is not under way",
        "It took longer than 15 minutes, began in another browser, or your browser does not keep \
         our cookie. Please sign in again.",
    )
}

fn failure(visit: &Visit, failed: &Failed) -> Response {
    let page = views::sign_in_failed(visit.prefix(), failed.status, &failed.complaint);
    visit.show(Page { retry_after: failed.retry_after, ..page })
}
