//! Revocation (RFC 7009): a device gives its token back, and is unlinked.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::client::authenticated;
use super::form::Form;
use super::introspection::TokenOnlyForm;
use super::refusal::{Refusal, unkept};
use crate::http::described::Refusals;
use crate::wiring::Services;

/// Ends a token of the client that asks. One that is not good, or another's, is answered alike.
#[utoipa::path(post, path = "/oauth/{owner}/{app}/revoke", tag = "device login",
    params(("owner" = String, Path), ("app" = String, Path)),
    request_body(content = TokenOnlyForm, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "it opens nothing any more, if it ever did"), Refusals))]
pub(in crate::http) async fn revoke(
    State(services): State<Services>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let form = Form::read(&parts.headers, body, &services.clock).await?;
    let (app, client) = authenticated(&parts, &form, &services).await?;
    let _was_good = app.revoke_token(&client, form.required("token")?).await?;
    Ok(unkept(StatusCode::OK, ()))
}
