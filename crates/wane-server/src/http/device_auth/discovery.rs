//! Discovery (RFC 8414): where the endpoints of an application are, and what they understand.
//!
//! The same for every name that an application could have: who has one is nobody else's business.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::header::ACCESS_CONTROL_ALLOW_ORIGIN;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use wane::services::apps::AppName;

use super::token::DEVICE_CODE;
use crate::http::problem::Problem;
use crate::wiring::Services;

/// What a client needs to know.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct MetadataBody {
    issuer: String,
    device_authorization_endpoint: String,
    token_endpoint: String,
    introspection_endpoint: String,
    revocation_endpoint: String,
    grant_types_supported: [&'static str; 1],
    /// None: there is no authorization endpoint.
    response_types_supported: [&'static str; 0],
    token_endpoint_auth_methods_supported: [&'static str; 3],
    introspection_endpoint_auth_methods_supported: [&'static str; 3],
    revocation_endpoint_auth_methods_supported: [&'static str; 3],
    service_documentation: String,
}

/// Says where everything is.
#[utoipa::path(get, path = "/.well-known/oauth-authorization-server/oauth/{owner}/{app}",
    tag = "device login", params(("owner" = String, Path), ("app" = String, Path)),
    responses((status = 200, description = "where everything is", body = MetadataBody),
        (status = 404, description = "no application can have this name",
            body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        crate::http::described::Fronting))]
pub(in crate::http) async fn metadata(
    State(services): State<Services>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let name = path.ok().and_then(|Path((owner, app))| AppName::new(&owner, &app).ok());
    let name = name.ok_or_else(Problem::absent)?;
    let base = services.origin.base_url(&request.into_parts().0)?;
    let issuer = format!("{base}/oauth/{}/{}", name.owner(), name.app());
    let of_clients = ["none", "client_secret_basic", "client_secret_post"];
    let metadata = MetadataBody {
        device_authorization_endpoint: format!("{issuer}/device_authorization"),
        token_endpoint: format!("{issuer}/token"),
        introspection_endpoint: format!("{issuer}/introspect"),
        revocation_endpoint: format!("{issuer}/revoke"),
        grant_types_supported: [DEVICE_CODE],
        response_types_supported: [],
        token_endpoint_auth_methods_supported: of_clients,
        introspection_endpoint_auth_methods_supported: [
            "Bearer",
            "client_secret_basic",
            "client_secret_post",
        ],
        revocation_endpoint_auth_methods_supported: of_clients,
        service_documentation: format!("{base}/api/docs"),
        issuer,
    };
    // A page of any origin may be a client.
    Ok(([(ACCESS_CONTROL_ALLOW_ORIGIN, "*")], Json(metadata)).into_response())
}

/// The same where OpenID clients look for it.
#[utoipa::path(get, path = "/oauth/{owner}/{app}/.well-known/oauth-authorization-server",
    tag = "device login", params(("owner" = String, Path), ("app" = String, Path)),
    responses((status = 200, description = "where everything is", body = MetadataBody),
        (status = 404, description = "no application can have this name",
            body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        crate::http::described::Fronting))]
pub(in crate::http) async fn metadata_below(
    services: State<Services>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    metadata(services, path, request).await
}
