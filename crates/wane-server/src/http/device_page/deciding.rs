//! Deciding: who asks, yes or no, and how it ended.
//!
//! Every step follows from the session and from what the store says of its code, so loading a page
//! again, going back and sending a form twice lead to the page that is right now. A form counts only
//! for the code and the person that it showed.
//!
//! The code of a session was found before, and the session is signed: looking at it again is no
//! guess, whatever others behind the same address have tried since.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use wane::services::device_auth::{Approval, Asked, Decided, DeviceAuthError, Guesser, Standing};

use super::session::{AskedCode, DecidedCode, Form, Who};
use super::signing_in::signed_in_to;
use super::trouble::Trouble;
use super::views::{self, Confirmation};
use super::visit::{Answered, Instead, Visit};
use crate::wiring::Services;

/// What the visitor is about to decide.
struct Open {
    code: AskedCode,
    who: Who,
    asked: Asked,
}

/// `GET /device/confirm`: who asks, and for what.
pub(in crate::http) async fn confirm(
    State(services): State<Services>,
    request: Request,
) -> Answered {
    let (visit, _) = Visit::begin(services, request)?;
    let Open { code, who, asked } = open(&visit).await?;
    let app = app_name(&visit, &code).await?;
    let page = views::confirm(&Confirmation {
        prefix: visit.prefix(),
        token: &visit.token(Form::Decision),
        code: &code.code,
        app: &app,
        asked: &asked,
        who: &who,
        address: visit.services.origin.address_of(&visit.parts),
        now: visit.now,
    });
    Ok(visit.show(page))
}

/// `POST /device/decide`: yes or no.
pub(in crate::http) async fn decide(
    State(services): State<Services>,
    request: Request,
) -> Answered {
    let (mut visit, body) = Visit::begin(services, request)?;
    let fields = visit.form(body).await?;
    // Another window of theirs was first: its decision renewed the session, and forms of before are old.
    if visit.session.asked.as_ref().is_some_and(|code| visit.session.has_decided(&code.code)) {
        return Ok(visit.go("/device/done"));
    }
    if !visit.is_own(&fields, Form::Decision) {
        return Ok(visit.show(views::stale(visit.prefix())));
    }
    let is_approved = match fields.get("decision") {
        Some("approve") => true,
        Some("deny") => false,
        Some(_) | None => {
            let page = views::not_understood(visit.prefix());
            return Ok(visit.show(page.status(StatusCode::BAD_REQUEST)));
        }
    };
    let Open { code, who, asked } = open(&visit).await?;
    let code = code.code;
    Ok(match taken(&visit, &code, &who, &asked, is_approved).await {
        Ok(Decided::Done(_)) => {
            let client_name = asked.client_name;
            let clock = std::sync::Arc::clone(&visit.services.clock);
            visit.session.finished(DecidedCode { code, is_approved, client_name }, &*clock);
            visit.go("/device/done")
        }
        Ok(Decided::AlreadyDecided) => answered(&visit, &code, &asked, Some(&who)).await,
        Ok(Decided::NoSuchCode) => visit.show(views::expired(visit.prefix())),
        Err(error) => in_trouble(&visit, error),
    })
}

async fn taken(
    visit: &Visit,
    code: &str,
    who: &Who,
    asked: &Asked,
    is_approved: bool,
) -> Result<Decided, DeviceAuthError> {
    let app = visit.services.device_auth.of(asked.app);
    if is_approved {
        let approval = Approval { subject: who.subject.clone(), link_token: None };
        app.approve(code, &approval, Guesser::Known).await
    } else {
        app.deny(code, Guesser::Known).await
    }
}

/// `GET /device/done`: how it ended.
pub(in crate::http) async fn done(State(services): State<Services>, request: Request) -> Answered {
    let (visit, _) = Visit::begin(services, request)?;
    Ok(match &visit.session.decided {
        Some(decided) => visit.show(views::outcome(visit.prefix(), decided)),
        None => visit.go("/device"),
    })
}

/// The request that is open for a decision of this visitor, or the page that is right instead.
async fn open(visit: &Visit) -> Result<Open, Instead> {
    let (session, prefix) = (&visit.session, visit.prefix());
    let Some(code) = session.asked.clone() else { return Err(visit.go("/device").into()) };
    if session.has_decided(&code.code) {
        return Err(visit.go("/device/done").into());
    }
    if code.has_expired(visit.now) {
        return Err(visit.show(views::expired(prefix)).into());
    }
    let Some(who) = signed_in_to(visit, code.app()).await? else {
        return Err(visit.go("/device/sign-in").into());
    };
    let app = visit.services.device_auth.of(code.app());
    match app.look_up(&code.code, Guesser::Known).await {
        Ok(Some(asked)) if asked.is_decided => {
            Err(answered(visit, &code.code, &asked, Some(&who)).await.into())
        }
        Ok(Some(asked)) => Ok(Open { code, who, asked }),
        Ok(None) => Err(visit.show(views::expired(prefix)).into()),
        Err(error) => Err(in_trouble(visit, error).into()),
    }
}

/// The page about a code that was decided: by this person, or by whomever.
async fn answered(visit: &Visit, code: &str, asked: &Asked, who: Option<&Who>) -> Response {
    let app = visit.services.device_auth.of(asked.app);
    let is_approved = match app.standing(code, Guesser::Known).await {
        Ok(Some(Standing::Denied)) => Some(false),
        Ok(Some(Standing::Approved(subject))) => {
            who.filter(|who| who.subject == subject).map(|_| true)
        }
        Ok(Some(Standing::Open) | None) => None,
        Err(error) => return in_trouble(visit, error),
    };
    let Some(is_approved) = is_approved else {
        return visit.show(views::already_answered(visit.prefix()));
    };
    let client_name = asked.client_name.clone();
    let decided = DecidedCode { code: code.to_owned(), is_approved, client_name };
    visit.show(views::outcome(visit.prefix(), &decided))
}

/// The application of a code, as `owner/app`.
pub(super) async fn app_name(visit: &Visit, code: &AskedCode) -> Result<String, Instead> {
    match visit.services.apps.numbered(code.app()).await {
        Ok(Some(app)) => Ok(app.name.to_string()),
        Ok(None) => Err(visit.show(views::expired(visit.prefix())).into()),
        Err(error) => {
            let page = views::trouble(visit.prefix(), error.into(), "/device/confirm");
            Err(visit.show(page).into())
        }
    }
}

pub(super) fn in_trouble(visit: &Visit, error: impl Into<Trouble>) -> Response {
    visit.show(views::trouble(visit.prefix(), error.into(), "/device/confirm"))
}
