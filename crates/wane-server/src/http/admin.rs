//! Applications and credentials over HTTP, on the admin listener.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::apps::{App, AppName, Limits, LimitsChange, NewKey, Scope};
use wane::store::PageLimit;

use super::body::{self, ONE_OPERATION};
use super::described::{Making, OfSystem, Reading};
use super::path::LastSegment;
use super::problem::{Code, Problem};
use super::query::Parameters;
use crate::wiring::Services;

/// Applications on one page.
const PAGE: usize = 1_000;

/// `{"owner":"acme","app":"two"}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateAppBody {
    /// 1 to 64 letters, digits, dots, dashes and underscores, and not dots alone.
    #[schema(pattern = r"^(?!\.+$)[A-Za-z0-9._-]{1,64}$")]
    owner: String,
    /// Likewise.
    #[schema(pattern = r"^(?!\.+$)[A-Za-z0-9._-]{1,64}$")]
    app: String,
}

/// An application that was made.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreatedAppBody {
    /// Its number.
    cluster_app_id: u32,
    /// Its first key, told this once.
    key: String,
}

/// Makes an application with its first key.
#[utoipa::path(post, path = "/api/v1/admin/apps", tag = "admin", request_body = CreateAppBody,
    responses((status = 201, description = "it was made", body = CreatedAppBody),
        OfSystem, Reading, Making))]
pub(super) async fn create_app(
    State(services): State<Services>,
    request: Request,
) -> Result<(StatusCode, Json<CreatedAppBody>), Problem> {
    let body: CreateAppBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let name = AppName::new(&body.owner, &body.app)?;
    let made = services.apps.create(&name).await?;
    let body = CreatedAppBody { cluster_app_id: made.app.id.0, key: made.key.reveal() };
    Ok((StatusCode::CREATED, Json(body)))
}

/// A page of applications, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AppsBody {
    items: Vec<AppBody>,
    /// What to give as `after` for the next page; null on the last one.
    #[schema(required)]
    next: Option<String>,
}

/// An application.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AppBody {
    owner: String,
    app: String,
    cluster_app_id: u32,
    created_at: u64,
    limits: LimitsBody,
    keys: Vec<KeyBody>,
}

/// A live key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct KeyBody {
    id: String,
    scopes: Vec<String>,
    created_at: u64,
    /// Whether it belongs to a node and is not counted among the two.
    node: bool,
}

impl From<&App> for AppBody {
    fn from(app: &App) -> Self {
        let keys = app.keys.iter().map(|key| KeyBody {
            id: key.id.clone(),
            scopes: key.scopes.iter().map(Scope::to_string).collect(),
            created_at: key.created_at,
            node: key.node,
        });
        Self {
            owner: app.name.owner().to_owned(),
            app: app.name.app().to_owned(),
            cluster_app_id: app.id.0,
            created_at: app.created_at,
            limits: LimitsBody::from(&app.limits),
            keys: keys.collect(),
        }
    }
}

/// Lists applications by name.
#[utoipa::path(get, path = "/api/v1/admin/apps", tag = "admin",
    params(("after" = Option<String>, Query, nullable = false,
        pattern = r"^(?!\.+/)[A-Za-z0-9._-]{1,64}/(?!\.+$)[A-Za-z0-9._-]{1,64}$",
        description = "the name to go on after, owner/app")),
    responses((status = 200, description = "a page of applications", body = AppsBody), OfSystem))]
pub(super) async fn list_apps(
    State(services): State<Services>,
    uri: Uri,
) -> Result<Json<AppsBody>, Problem> {
    let query = Parameters::of(&uri, &["after"])?;
    let after = query.get("after").map(str::parse).transpose()?;
    let (apps, next) = services.apps.list(after.as_ref(), PageLimit::new(PAGE)?).await?;
    let items = apps.iter().map(|app| AppBody::from(&**app)).collect();
    Ok(Json(AppsBody { items, next: next.map(String::from) }))
}

/// The limits in force.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LimitsBody {
    max_keys: u64,
    max_bytes: u64,
    requests_per_second: u32,
    in_flight: u32,
    max_blob_bytes: u64,
    max_blob_ttl_seconds: u64,
    max_blobs: u64,
    max_blob_total_bytes: u64,
    #[schema(required)]
    default_ttl_seconds: Option<u64>,
}

impl From<&Limits> for LimitsBody {
    fn from(limits: &Limits) -> Self {
        Self {
            max_keys: limits.max_keys(),
            max_bytes: limits.max_bytes(),
            requests_per_second: limits.requests_per_second(),
            in_flight: limits.in_flight(),
            max_blob_bytes: limits.max_blob_bytes(),
            max_blob_ttl_seconds: limits.max_blob_ttl_seconds(),
            max_blobs: limits.max_blobs(),
            max_blob_total_bytes: limits.max_blob_total_bytes(),
            default_ttl_seconds: limits.default_ttl_seconds(),
        }
    }
}

/// Limits to change: what is left out stays, null gives the default again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LimitsChangeBody {
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    max_keys: Option<Option<u64>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    max_bytes: Option<Option<u64>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 4_294_967_295_u64)]
    requests_per_second: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 4_294_967_295_u64)]
    in_flight: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    max_blob_bytes: Option<Option<u64>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000)]
    max_blob_ttl_seconds: Option<Option<u64>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    max_blobs: Option<Option<u64>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    max_blob_total_bytes: Option<Option<u64>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000)]
    default_ttl_seconds: Option<Option<u64>>,
}

/// A field that is there, be it null.
fn given<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(Some(None)) };
    let whole = body::whole_number(&number).and_then(|whole| T::try_from(whole).ok());
    let bits = 8 * size_of::<T>();
    let wrong = || D::Error::custom(format!("{number} is not a whole number of {bits} bits"));
    whole.map(|whole| Some(Some(whole))).ok_or_else(wrong)
}

impl From<LimitsChangeBody> for LimitsChange {
    fn from(body: LimitsChangeBody) -> Self {
        Self {
            max_keys: body.max_keys,
            max_bytes: body.max_bytes,
            requests_per_second: body.requests_per_second,
            in_flight: body.in_flight,
            max_blob_bytes: body.max_blob_bytes,
            max_blob_ttl_seconds: body.max_blob_ttl_seconds,
            max_blobs: body.max_blobs,
            max_blob_total_bytes: body.max_blob_total_bytes,
            default_ttl_seconds: body.default_ttl_seconds,
        }
    }
}

/// Changes limits and returns all of them.
#[utoipa::path(put, path = "/api/v1/admin/apps/{owner}/{app}/limits", tag = "admin",
    params(("owner" = String, Path), ("app" = String, Path)),
    request_body = LimitsChangeBody,
    responses((status = 200, description = "the limits in force", body = LimitsBody),
        OfSystem, Reading))]
pub(super) async fn set_limits(
    State(services): State<Services>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    request: Request,
) -> Result<Json<LimitsBody>, Problem> {
    let Path((owner, app)) = path.map_err(|error| Problem::invalid("path", error.body_text()))?;
    let name = AppName::new(&owner, &app)?;
    let change: LimitsChangeBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let limits = services.apps.set_limits(&name, &change.into()).await?;
    Ok(Json(LimitsBody::from(&limits)))
}

/// `{"scopes":["read","write","device"]}`
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AddKeyBody {
    /// What the key opens; everything of an application unless given.
    #[schema(value_type = Option<Vec<ScopeOfApps>>, min_items = 1)]
    scopes: Option<Vec<String>>,
}

/// Scopes of keys of applications, for the description of the API.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its description is used")]
enum ScopeOfApps {
    Read,
    Write,
    Device,
}

/// Scopes of credentials of no application, for the description of the API.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its description is used")]
enum ScopeOfSystem {
    Read,
    Produce,
    Pull,
    Admin,
}

/// A credential that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NewKeyBody {
    /// `id.secret`, told this once.
    key: String,
}

impl From<&NewKey> for NewKeyBody {
    fn from(key: &NewKey) -> Self {
        Self { key: key.reveal() }
    }
}

/// Adds a key to an application, up to two.
#[utoipa::path(post, path = "/api/v1/admin/apps/{owner}/{app}/keys", tag = "admin",
    params(("owner" = String, Path), ("app" = String, Path)),
    request_body = Option<AddKeyBody>,
    responses((status = 201, description = "it was made", body = NewKeyBody),
        OfSystem, Reading, Making))]
pub(super) async fn add_key(
    State(services): State<Services>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    request: Request,
) -> Result<(StatusCode, Json<NewKeyBody>), Problem> {
    let Path((owner, app)) = path.map_err(|error| Problem::invalid("path", error.body_text()))?;
    let name = AppName::new(&owner, &app)?;
    let body: Option<AddKeyBody> = body::json(request, ONE_OPERATION, &services.clock).await?;
    let scopes = match body.unwrap_or_default().scopes {
        Some(names) => scopes_of(&names)?,
        None => Scope::OF_APPS.to_vec(),
    };
    let key = services.apps.add_key(&name, &scopes).await?;
    Ok((StatusCode::CREATED, Json(NewKeyBody::from(&key))))
}

fn scopes_of(names: &[String]) -> Result<Vec<Scope>, Problem> {
    if names.is_empty() {
        return Err(Problem::invalid("scopes", "give at least one"));
    }
    let mut scopes = Vec::new();
    for name in names {
        let scope = name.parse()?;
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    Ok(scopes)
}

/// Revokes a key. It opens nothing any more.
#[utoipa::path(delete, path = "/api/v1/admin/apps/{owner}/{app}/keys/{id}", tag = "admin",
    params(("owner" = String, Path), ("app" = String, Path), ("id" = String, Path)),
    responses((status = 204, description = "it opens nothing any more"), OfSystem))]
pub(super) async fn revoke_key(
    State(services): State<Services>,
    path: Result<Path<(String, String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<StatusCode, Problem> {
    let Path((owner, app, id)) =
        path.map_err(|error| Problem::invalid("path", error.body_text()))?;
    services.apps.revoke_key(&AppName::new(&owner, &app)?, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `{"scopes":["pull"],"ispb":"12345678"}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CredentialBody {
    /// What the credential opens.
    #[schema(value_type = Vec<ScopeOfSystem>, min_items = 1)]
    scopes: Vec<String>,
    /// The institution of scope pull, 8 digits.
    #[schema(pattern = "^[0-9]{8}$")]
    ispb: Option<String>,
}

/// Makes a credential of no application.
#[utoipa::path(post, path = "/api/v1/admin/credentials", tag = "admin",
    request_body = CredentialBody,
    responses((status = 201, description = "it was made", body = NewKeyBody),
        OfSystem, Reading, Making))]
pub(super) async fn add_credential(
    State(services): State<Services>,
    request: Request,
) -> Result<(StatusCode, Json<NewKeyBody>), Problem> {
    let body: CredentialBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let scopes = scopes_of(&body.scopes)?;
    let key = services.apps.add_credential(&scopes, body.ispb.as_deref()).await?;
    Ok((StatusCode::CREATED, Json(NewKeyBody::from(&key))))
}

/// Revokes a credential of no application, an operator's included. It opens nothing any more.
#[utoipa::path(delete, path = "/api/v1/admin/credentials/{id}", tag = "admin",
    params(("id" = String, Path)),
    responses((status = 204, description = "it opens nothing any more"), OfSystem))]
pub(super) async fn revoke_credential(
    State(services): State<Services>,
    LastSegment(id): LastSegment,
) -> Result<StatusCode, Problem> {
    services.apps.revoke_credential(&String::from_utf8_lossy(&id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Streams the whole store as it was when the stream began. A stream that breaks off lacks its end,
/// which every reader of backups notices.
#[utoipa::path(get, path = "/api/v1/admin/backup", tag = "admin",
    responses((status = 200, description = "the store", content_type = "application/octet-stream",
        body = Vec<u8>), OfSystem))]
pub(super) async fn backup(State(services): State<Services>) -> Result<Response, Problem> {
    let backup = services.backup().await.map_err(|error| {
        tracing::warn!(%error, "a backup could not begin");
        Problem::new(Code::Unavailable, "the store cannot be scanned now; try again")
    })?;
    let chunks = unfold(backup, |mut backup| async {
        let chunk = backup.next().await?;
        Some((chunk, backup))
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::from_stream(chunks)).into_response())
}
