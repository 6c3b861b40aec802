//! The same endpoints where clients made for GitHub look for them, and in the manner of GitHub.
//!
//! No application is in the path, for a client's id says which it is. Parameters come as a form, as
//! JSON or in the query. What a device is to be told comes with status 200, as a form unless JSON is
//! asked for; `scope` is always there, and `slow_down` says the interval. Off unless the setting
//! `github_aliases` is on.

use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use wane::services::device_auth::Client;

use super::authorization::started;
use super::form::Form;
use super::refusal::{Refusal, unkept};
use super::token::{check_grant_type, polled};
use crate::http::no_route;
use crate::wiring::{AppDeviceAuth, Services};

/// `POST /login/device/code`
pub(in crate::http) async fn device_code(
    State(services): State<Services>,
    request: Request,
) -> Response {
    if !services.device_login.has_github_aliases {
        return no_route().await.into_response();
    }
    let (parts, body) = request.into_parts();
    let answer = async {
        let form = Form::read_anywhere(&parts, body, &services.clock).await?;
        let (app, client) = client_of(&form, &services).await?;
        started(&services, &parts, &form, &app, &client).await
    };
    in_their_manner(&parts, answer.await)
}

/// `POST /login/oauth/access_token`
pub(in crate::http) async fn access_token(
    State(services): State<Services>,
    request: Request,
) -> Response {
    if !services.device_login.has_github_aliases {
        return no_route().await.into_response();
    }
    let (parts, body) = request.into_parts();
    let answer = async {
        let form = Form::read_anywhere(&parts, body, &services.clock).await?;
        check_grant_type(&form)?;
        let (app, client) = client_of(&form, &services).await?;
        polled(&form, &app, &client).await
    };
    let answer = answer.await.map(|token| json!(token)).map(|mut token| {
        token["scope"] = token["scope"].as_str().unwrap_or_default().into();
        token
    });
    in_their_manner(&parts, answer)
}

async fn client_of(form: &Form, services: &Services) -> Result<(AppDeviceAuth, Client), Refusal> {
    let (id, secret) = (form.required("client_id")?, form.get("client_secret"));
    let (app, client) = services.device_auth.authenticate(id, secret).await?;
    Ok((services.device_auth.of(app), client))
}

fn in_their_manner<T: Serialize>(parts: &Parts, answer: Result<T, Refusal>) -> Response {
    let refusal = match answer {
        Ok(body) => return written(&parts.headers, StatusCode::OK, &json!(body)),
        Err(refusal) => refusal,
    };
    let (status, error, description, interval) = refusal.facts();
    let is_told = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED);
    if !is_told {
        return refusal.into_response();
    }
    let mut body = Map::new();
    body.insert("error".into(), error.into());
    body.insert("error_description".into(), description.into());
    body.extend(interval.map(|interval| ("interval".to_owned(), interval.into())));
    written(&parts.headers, StatusCode::OK, &Json::Object(body))
}

/// JSON where it is asked for, else a form.
fn written(headers: &HeaderMap, status: StatusCode, body: &Json) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    if accepted.is_some_and(|accept| accept.contains("json")) {
        return unkept(status, axum::Json(body));
    }
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pair = |(name, value): (&String, &Json)| {
        format!("{name}={}", utf8_percent_encode(&text(value), NON_ALPHANUMERIC))
    };
    let pairs: Vec<String> = body.as_object().into_iter().flatten().map(pair).collect();
    let form = [(CONTENT_TYPE, "application/x-www-form-urlencoded; charset=utf-8")];
    unkept(status, (form, pairs.join("&")))
}
