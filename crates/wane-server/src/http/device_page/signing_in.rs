//! Signing in, to the application of the code: alice of one application is nobody in another.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use wane::services::ClusterAppId;
use wane::services::device_auth::SignIn;

use super::deciding::{app_name, in_trouble};
use super::password;
use super::session::{AskedCode, Form, Who};
use super::views::{self, Complaint, Elsewhere};
use super::visit::{Answered, Instead, Visit};
use crate::settings::DevUsers;
use crate::wiring::Services;

/// How the people of an application sign in here.
pub(super) enum Way {
    Elsewhere(SignIn),
    Password(DevUsers),
    Nowhere,
}

impl Way {
    /// What a sign-in by this way is bound to: the way as it is set, and where the page is. It says
    /// nothing about the secret to who has no key of ours.
    pub(super) fn voucher(&self, visit: &Visit) -> String {
        let base_url = visit.base_url.as_bytes();
        let mac = match self {
            Self::Elsewhere(SignIn::Oidc { issuer, client_id, client_secret }) => {
                let secret = client_secret.as_ref().map_or("", |it| it.reveal());
                let (issuer, client_id) = (issuer.as_bytes(), client_id.as_bytes());
                let parts = [base_url, issuer, client_id, secret.as_bytes()];
                visit.key.mac("by an issuer", &parts)
            }
            Self::Elsewhere(SignIn::Assertion { url, secret }) => {
                let parts = [base_url, url.as_bytes(), secret.reveal().as_bytes()];
                visit.key.mac("by assertion", &parts)
            }
            Self::Password(_) => visit.key.mac("by password", &[base_url]),
            Self::Nowhere => visit.key.mac("by nobody", &[base_url]),
        };
        URL_SAFE_NO_PAD.encode(&mac[..16])
    }
}

/// A visitor with a code that has not expired.
pub(super) struct Asked {
    pub(super) visit: Visit,
    pub(super) code: AskedCode,
}

/// The visit and its code, or the page that is right instead.
pub(super) fn with_code(visit: Visit) -> Result<Asked, Instead> {
    let Some(code) = visit.session.asked.clone() else { return Err(visit.go("/device").into()) };
    if code.has_expired(visit.now) {
        return Err(visit.show(views::expired(visit.prefix())).into());
    }
    Ok(Asked { visit, code })
}

/// How the people of an application sign in: what the operator said about it, or else about the
/// server.
pub(super) async fn way_of(visit: &Visit, app: ClusterAppId) -> Result<Way, Instead> {
    let Visit { services, parts, .. } = visit;
    let sign_in = services.device_auth.of(app).sign_in().await;
    let sign_in = sign_in.map_err(|error| in_trouble(visit, error))?;
    match (sign_in, &services.device_login.dev_users) {
        (Some(_), _) if !services.origin.is_settled(parts) => {
            // Where people come back to, and whom an assertion is for, would be what the request
            // says.
            tracing::warn!("nobody can sign in: public_url is not set");
            Err(visit.show(views::not_here(visit.prefix())).into())
        }
        (Some(sign_in), _) => Ok(Way::Elsewhere(sign_in)),
        (None, Some(_)) if !services.origin.is_reached_here(parts) => {
            tracing::warn!("dev_users is for requests to 127.0.0.1, [::1] or localhost");
            Err(visit.show(views::not_here(visit.prefix())).into())
        }
        (None, Some(users)) => Ok(Way::Password(users.clone())),
        (None, None) => Ok(Way::Nowhere),
    }
}

/// Who signed in to this application, by the way that it has now.
pub(super) async fn signed_in_to(visit: &Visit, app: ClusterAppId) -> Result<Option<Who>, Instead> {
    let Some(who) = visit.session.who(app, visit.now) else { return Ok(None) };
    let voucher = way_of(visit, app).await?.voucher(visit);
    Ok((who.voucher == voucher).then(|| who.clone()))
}

/// `GET /device/sign-in`: how to sign in.
pub(in crate::http) async fn sign_in(
    State(services): State<Services>,
    request: Request,
) -> Answered {
    let (visit, _) = Visit::begin(services, request)?;
    let asked = with_code(visit)?;
    let Asked { visit, code } = &asked;
    if visit.session.has_decided(&code.code) {
        return Ok(visit.go("/device/done"));
    }
    if signed_in_to(visit, code.app()).await?.is_some() {
        return Ok(visit.go("/device/confirm"));
    }
    let (way, app) = (way_of(visit, code.app()).await?, app_name(visit, code).await?);
    let prefix = visit.prefix();
    Ok(visit.show(match way {
        Way::Elsewhere(sign_in) => {
            let host = host_of(&sign_in);
            views::elsewhere(&Elsewhere { prefix, app: &app, host })
        }
        Way::Password(_) => views::password(prefix, &visit.token(Form::SignIn), &app, "", None),
        Way::Nowhere => views::no_sign_in(prefix, &app),
    }))
}

/// The host that people will see.
fn host_of(sign_in: &SignIn) -> &str {
    let (SignIn::Oidc { issuer: url, .. } | SignIn::Assertion { url, .. }) = sign_in;
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default()
}

/// `POST /device/sign-in`: name and password.
pub(in crate::http) async fn by_password(
    State(services): State<Services>,
    request: Request,
) -> Answered {
    let (visit, body) = Visit::begin(services, request)?;
    let fields = visit.form(body).await?;
    let is_own = visit.is_own(&fields, Form::SignIn);
    let mut asked = with_code(visit)?;
    let way = way_of(&asked.visit, asked.code.app()).await?;
    let users = match &way {
        Way::Password(users) => users,
        Way::Elsewhere(_) | Way::Nowhere => return Ok(asked.visit.go("/device/sign-in")),
    };
    let name = fields.get("name").unwrap_or_default();
    if !is_own {
        let complaint = Complaint::new("Please sign in once more.", "This page was out of date.");
        return refused(&asked, name, &complaint, StatusCode::OK, None).await;
    }
    let given = fields.get("password").unwrap_or_default();
    match password::check(&asked.visit, users, name, given) {
        Ok(Some(person)) => {
            let clock = std::sync::Arc::clone(&asked.visit.services.clock);
            let voucher = way.voucher(&asked.visit);
            asked.visit.session.signed_in(asked.code.app(), person, voucher, &*clock);
            Ok(asked.visit.go("/device/confirm"))
        }
        Ok(None) => {
            let advice = "Please check both and try again.";
            let complaint = Complaint::of_input("Name or password are wrong.", advice);
            refused(&asked, name, &complaint, StatusCode::UNPROCESSABLE_ENTITY, None).await
        }
        Err(trouble) => {
            let (headline, advice) = trouble.words();
            let complaint = Complaint::new(headline, advice);
            let wait = Some(trouble.retry_after());
            refused(&asked, name, &complaint, trouble.status(), wait).await
        }
    }
}

/// The form again, with what was wrong.
async fn refused(
    asked: &Asked,
    name: &str,
    complaint: &Complaint,
    status: StatusCode,
    retry_after: Option<u64>,
) -> Answered {
    let Asked { visit, code } = asked;
    let app = app_name(visit, code).await?;
    let (token, name) = (visit.token(Form::SignIn), name.chars().take(255).collect::<String>());
    let page = views::password(visit.prefix(), &token, &app, &name, Some(complaint));
    let page = page.status(status);
    Ok(visit.show(match retry_after {
        Some(seconds) => page.retry_after(seconds),
        None => page,
    }))
}

/// `POST /device/sign-out`: to sign in as somebody else.
pub(in crate::http) async fn sign_out(
    State(services): State<Services>,
    request: Request,
) -> Answered {
    let (mut visit, body) = Visit::begin(services, request)?;
    let fields = visit.form(body).await?;
    if !visit.is_own(&fields, Form::Decision) {
        return Ok(visit.show(views::stale(visit.prefix())));
    }
    let clock = std::sync::Arc::clone(&visit.services.clock);
    visit.session.signed_out(&*clock);
    Ok(visit.go("/device/sign-in"))
}
