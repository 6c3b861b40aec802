//! Batches: up to a hundred operations in one request, independent and in order.

use std::fmt;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value as Json_};
use utoipa::ToSchema;
use wane::services::apps::Scope;

use super::bodies::{DeleteBody, EntryBody, InsertBody, Put, PutBody, written};
use crate::http::body::{self, BATCH};
use crate::http::caller::Caller;
use crate::http::described::{OfApp, Reading};
use crate::http::guard::Guarded;
use crate::http::problem::Problem;
use crate::wiring::{AppStorage, Services};

/// Operations that one batch may have.
const MOST: usize = 100;

/// Operations to carry out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BatchBody {
    /// Up to 100, carried out one after the other.
    #[schema(max_items = 100)]
    operations: Vec<OperationBody>,
}

/// An operation: `op` and `key`, and the fields of the same operation on its own.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OperationBody {
    /// What to do.
    op: Op,
    /// The key.
    key: String,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    rest: Fields,
}

/// Fields by name, each at most once: of two with one name, readers differ in which one counts.
#[derive(Debug)]
struct Fields(Map<String, Json_>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of an operation")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Map::new();
        while let Some((name, value)) = map.next_entry::<String, Json_>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            fields.insert(name, value);
        }
        Ok(Fields(fields))
    }
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Op {
    Get,
    Insert,
    Swap,
    Delete,
}

/// What became of each operation, by position.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchAnswer {
    results: Vec<OneAnswer>,
}

/// The status and the body that the operation would have had on its own.
#[derive(Debug, Serialize, ToSchema)]
struct OneAnswer {
    status: u16,
    #[schema(value_type = Option<Object>, required)]
    body: Json_,
}

/// Carries out operations one after the other.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/ttl:batch", tag = "app_ttl",
    params(("owner" = String, Path), ("app" = String, Path),
        ("Wane-Guard" = Option<String>, Header, nullable = false,
            pattern = "^[A-Za-z0-9._~-]{1,255};[1-9][0-9]{0,14}$",
            description = "election, other characters percent-encoded, and token of the leader that writes")),
    request_body = BatchBody,
    responses((status = 200, description = "what became of each operation", body = BatchAnswer),
        OfApp, Reading))]
pub(crate) async fn batch(
    State(services): State<Services>,
    caller: Caller,
    guarded: Guarded,
    request: Request,
) -> Result<Json<BatchAnswer>, Problem> {
    let body: BatchBody = body::required(request, BATCH, &services.clock).await?;
    if body.operations.len() > MOST {
        let reason = format!("there are {}; give up to {MOST}", body.operations.len());
        return Err(Problem::invalid("operations", reason));
    }
    let asked = Asked { services, caller, guarded };
    let mut results = Vec::with_capacity(body.operations.len());
    for operation in body.operations {
        let answer = asked.carry_out(operation).await;
        let (status, body) = answer.unwrap_or_else(|problem| (problem.status(), problem.body()));
        results.push(OneAnswer { status: status.as_u16(), body });
    }
    Ok(Json(BatchAnswer { results }))
}

/// Who asks for a batch, and what its writes stand on.
struct Asked {
    services: Services,
    caller: Caller,
    guarded: Guarded,
}

impl Asked {
    async fn carry_out(&self, operation: OperationBody) -> Result<(StatusCode, Json_), Problem> {
        let OperationBody { op, key, rest: Fields(rest) } = operation;
        match op {
            Op::Get => self.get(&key, &rest).await,
            Op::Insert => {
                let (value, ttl) = fields::<InsertBody>(rest)?.read()?;
                let outcome = self.storage().await?.insert_if_not_exists(&key, value, ttl).await?;
                Ok((StatusCode::CREATED, to_json(written(outcome, &self.caller)?)))
            }
            Op::Swap => {
                let Put::Swap { expected, new, renewal } = fields::<PutBody>(rest)?.read()? else {
                    return Err(Problem::invalid("value", "a swap has expectedValue and newValue"));
                };
                let storage = self.storage().await?;
                let outcome = storage.compare_and_swap(&key, expected, new, renewal).await?;
                Ok((StatusCode::OK, to_json(written(outcome, &self.caller)?)))
            }
            Op::Delete if rest.is_empty() => {
                self.storage().await?.delete(&key).await?;
                Ok((StatusCode::NO_CONTENT, Json_::Null))
            }
            Op::Delete => {
                let expected = fields::<DeleteBody>(rest)?.read()?;
                let outcome = self.storage().await?.compare_and_delete(&key, expected).await?;
                written(outcome, &self.caller)?;
                Ok((StatusCode::NO_CONTENT, Json_::Null))
            }
        }
    }

    async fn get(
        &self,
        key: &str,
        rest: &Map<String, Json_>,
    ) -> Result<(StatusCode, Json_), Problem> {
        self.caller.needs(Scope::Read)?;
        no_fields(rest)?;
        let entry = self.services.storage(&self.caller).ttl_get(key).await?;
        let entry = entry.ok_or_else(Problem::absent)?;
        Ok((StatusCode::OK, to_json(EntryBody::from(&entry))))
    }

    /// The storage for one write. Its guard is asked anew: a batch takes its time.
    async fn storage(&self) -> Result<AppStorage, Problem> {
        self.services.writes(&self.caller, &self.guarded).await
    }
}

fn fields<T: serde::de::DeserializeOwned>(rest: Map<String, Json_>) -> Result<T, Problem> {
    serde_path_to_error::deserialize(Json_::Object(rest))
        .map_err(|error| body::misread(&error, "operation"))
}

fn no_fields(rest: &Map<String, Json_>) -> Result<(), Problem> {
    match rest.keys().next() {
        Some(name) => Err(Problem::invalid(name, "a get has op and key only")),
        None => Ok(()),
    }
}

fn to_json(body: impl Serialize) -> Json_ {
    serde_json::to_value(body).unwrap_or_default()
}
