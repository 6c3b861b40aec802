//! Whether the process lives and whether it can work, and what it has counted.

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use wane::services::apps::AppName;

use super::problem::{Code, Problem, ProblemBody};
use crate::wiring::Services;

/// `{"status":"ok"}`
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HealthBody {
    status: &'static str,
    /// What an operator should look at although it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'static str>,
}

/// The process answers.
#[utoipa::path(get, path = "/livez", tag = "health", 
    responses((status = 200, description = "it does", body = HealthBody)))]
pub(super) async fn livez() -> Json<HealthBody> {
    Json(HealthBody { status: "ok", warning: None })
}

/// The store answers, and the server is not about to stop.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, description = "it can work", body = HealthBody),
        (status = 503, description = "it cannot", content_type = "application/problem+json",
            body = ProblemBody)))]
pub(super) async fn readyz(State(services): State<Services>) -> Result<Json<HealthBody>, Problem> {
    if services.closing.has_begun() {
        return Err(Problem::new(Code::Unavailable, "the server is stopping"));
    }
    // A read that goes all the way to the store.
    services.apps.find(&AppName::new("readyz", "readyz")?).await?;
    Ok(Json(HealthBody { status: "ok", warning: services.warning() }))
}

/// Counters for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "the text format of Prometheus",
        content_type = "text/plain", body = String)))]
pub(super) async fn metrics(State(services): State<Services>) -> Response {
    let text = services.metrics_text().await;
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
