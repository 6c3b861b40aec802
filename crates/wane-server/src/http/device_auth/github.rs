//! The same endpoints where clients made for GitHub look for them: form or JSON, and no application
//! in the path, for a client's id says which it is.
//!
//! Off unless the setting `github_aliases` is on.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use wane::services::device_auth::Client;

use super::authorization::started;
use super::form::Form;
use super::refusal::Refusal;
use super::token::{check_grant_type, polled};
use crate::http::no_route;
use crate::wiring::{AppDeviceAuth, Services};

/// `POST /login/device/code`
pub(in crate::http) async fn device_code(
    State(services): State<Services>,
    request: Request,
) -> Result<Response, Response> {
    let (parts, form) = read(&services, request).await?;
    let answer = async {
        let (app, client) = client_of(&form, &services).await?;
        started(&services, &parts, &form, &app, &client).await
    };
    answer.await.map_err(IntoResponse::into_response)
}

/// `POST /login/oauth/access_token`
pub(in crate::http) async fn access_token(
    State(services): State<Services>,
    request: Request,
) -> Result<Response, Response> {
    let (_, form) = read(&services, request).await?;
    let answer = async {
        check_grant_type(&form)?;
        let (app, client) = client_of(&form, &services).await?;
        polled(&form, &app, &client).await
    };
    answer.await.map_err(IntoResponse::into_response)
}

async fn read(services: &Services, request: Request) -> Result<(Parts, Form), Response> {
    if !services.device_login.has_github_aliases {
        return Err(no_route().await.into_response());
    }
    let (parts, body) = request.into_parts();
    let form = Form::read_or_json(&parts.headers, body, &services.clock).await;
    form.map(|form| (parts, form)).map_err(IntoResponse::into_response)
}

async fn client_of(form: &Form, services: &Services) -> Result<(AppDeviceAuth, Client), Refusal> {
    let id = form.required("client_id")?;
    let app = services.device_auth.of(services.device_auth.app_of_client(id).await?);
    let client = app.authenticate(id, form.get("client_secret")).await?;
    Ok((app, client))
}
