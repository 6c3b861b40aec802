//! Where the people of an application sign in, as the operator says it, on the admin listener.
//!
//! Secrets go one way: an issuer's is given and never told again; that of assertions is drawn here
//! and told once.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wane::services::apps::{AppName, AppsError};
use wane::services::device_auth::{NewSignIn, OidcSecret, SignIn};

use crate::http::body::{self, ONE_OPERATION};
use crate::http::described::{OfSystem, Reading};
use crate::http::problem::Problem;
use crate::wiring::{AppDeviceAuth, Services};

type AppPath = Result<Path<(String, String)>, PathRejection>;

/// `{"oidc":{"issuer":"https://accounts.example","clientId":"wane","clientSecret":".."}}` or
/// `{"assertion":{"url":"https://app.example/link-device"}}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct SignInBody {
    /// At an OpenID Connect issuer.
    oidc: Option<OidcBody>,
    /// At the application's own page, which hands people back with a signed assertion.
    assertion: Option<AssertionBody>,
}

/// An issuer, and who we are there.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OidcBody {
    /// Its URL: https, or of this machine.
    #[schema(
        min_length = 1,
        max_length = 1_024,
        pattern = r"^https://[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?(/[A-Za-z0-9._~-]{0,100})?$"
    )]
    issuer: String,
    #[schema(min_length = 1, max_length = 1_024, pattern = "^[ -~]+$")]
    client_id: String,
    /// Left out for a public client.
    #[schema(min_length = 1, max_length = 1_024, pattern = "^[ -~]+$")]
    client_secret: Option<String>,
}

impl std::fmt::Debug for OidcBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OidcBody").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// The application's own page.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AssertionBody {
    /// Its URL: https, or of this machine.
    #[schema(
        min_length = 1,
        max_length = 1_024,
        pattern = r"^https://[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?(/[A-Za-z0-9._~-]{0,100})?$"
    )]
    url: String,
}

/// Where the people of an application sign in.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct SignInAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    oidc: Option<OidcAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    assertion: Option<AssertionAnswer>,
}

/// An issuer, without the secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OidcAnswer {
    issuer: String,
    client_id: String,
    /// Whether we have a secret there.
    confidential: bool,
}

/// The application's own page.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AssertionAnswer {
    url: String,
    /// What assertions are to be signed with, told where it is set, this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    secret: Option<String>,
}

impl std::fmt::Debug for AssertionAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AssertionAnswer").field("url", &self.url).finish_non_exhaustive()
    }
}

impl SignInAnswer {
    fn of(sign_in: SignIn, tells_secret: bool) -> Self {
        match sign_in {
            SignIn::Oidc { issuer, client_id, client_secret } => {
                let confidential = client_secret.is_some();
                let oidc = Some(OidcAnswer { issuer, client_id, confidential });
                Self { oidc, assertion: None }
            }
            SignIn::Assertion { url, secret } => {
                let secret = tells_secret.then(|| secret.reveal().to_owned());
                Self { oidc: None, assertion: Some(AssertionAnswer { url, secret }) }
            }
        }
    }
}

/// Sets where the people of an application sign in on the page, in place of what was set before.
#[utoipa::path(put, path = "/api/v1/admin/apps/{owner}/{app}/sign-in", tag = "admin",
    params(("owner" = String, Path), ("app" = String, Path)), request_body = SignInBody,
    responses((status = 200, description = "it is set; the secret of assertions is told this once",
        body = SignInAnswer), OfSystem, Reading))]
pub(in crate::http) async fn set_sign_in(
    State(services): State<Services>,
    path: AppPath,
    request: Request,
) -> Result<Json<SignInAnswer>, Problem> {
    let body: SignInBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let new = match (body.oidc, body.assertion) {
        (Some(oidc), None) => NewSignIn::Oidc {
            issuer: oidc.issuer,
            client_id: oidc.client_id,
            client_secret: oidc.client_secret.map(OidcSecret::new),
        },
        (None, Some(assertion)) if says_what_we_say(&assertion.url) => {
            let reason = "leave out return_to, state and prompt: they are added";
            return Err(Problem::invalid("url", reason));
        }
        (None, Some(assertion)) => NewSignIn::Assertion { url: assertion.url },
        (Some(_), Some(_)) | (None, None) => {
            return Err(Problem::invalid("oidc, assertion", "give one of them"));
        }
    };
    let sign_in = app_of(&services, path).await?.set_sign_in(new).await?;
    Ok(Json(SignInAnswer::of(sign_in, true)))
}

/// Says where the people of an application sign in on the page, without secrets.
#[utoipa::path(get, path = "/api/v1/admin/apps/{owner}/{app}/sign-in", tag = "admin",
    params(("owner" = String, Path), ("app" = String, Path)),
    responses((status = 200, description = "where they sign in", body = SignInAnswer), OfSystem))]
pub(in crate::http) async fn show_sign_in(
    State(services): State<Services>,
    path: AppPath,
) -> Result<Json<SignInAnswer>, Problem> {
    let sign_in = app_of(&services, path).await?.sign_in().await?;
    let sign_in = sign_in.ok_or_else(Problem::absent)?;
    Ok(Json(SignInAnswer::of(sign_in, false)))
}

/// Forgets where the people of an application sign in: it approves devices itself again.
#[utoipa::path(delete, path = "/api/v1/admin/apps/{owner}/{app}/sign-in", tag = "admin",
    params(("owner" = String, Path), ("app" = String, Path)),
    responses((status = 204, description = "it is forgotten"), OfSystem))]
pub(in crate::http) async fn remove_sign_in(
    State(services): State<Services>,
    path: AppPath,
) -> Result<StatusCode, Problem> {
    let was_known = app_of(&services, path).await?.remove_sign_in().await?;
    if was_known { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::absent()) }
}

/// Whether a URL has a parameter that the page adds, which would then be there twice.
fn says_what_we_say(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let names = query.split(['&', ';']).map(|pair| pair.split('=').next().unwrap_or_default());
    names.into_iter().any(|name| {
        let name = percent_decode_str(name).decode_utf8_lossy();
        ["return_to", "state", "prompt"].contains(&&*name)
    })
}

async fn app_of(services: &Services, path: AppPath) -> Result<AppDeviceAuth, Problem> {
    let Path((owner, app)) = path.map_err(|error| Problem::invalid("path", error.body_text()))?;
    let name = AppName::new(&owner, &app)?;
    let app = services.apps.find(&name).await?.ok_or(AppsError::NoApp { name })?;
    Ok(services.device_auth.of(app.id))
}
