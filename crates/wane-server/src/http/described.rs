//! What the description of the API says beyond types: the problems of operations, and rules
//! between fields.
//!
//! An operation names the groups of problems that it may answer; statuses and titles come from
//! [`Code`], so that the description cannot know others than the code does. Rules between fields,
//! like "one of the two", are JSON Schema that no derive can express; they are added to the
//! finished document.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value as Json, json};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use super::app_ttl::CurrentBody;
use super::blobs::tus;
use super::device_auth::OAuthErrorBody;
use super::problem::{Code, ProblemBody};

type Responses = BTreeMap<String, RefOr<Response>>;

/// What every operation of an application may answer.
pub(super) struct OfApp;

/// What every operation of the admin listener may answer.
pub(super) struct OfSystem;

/// What an operation with a body may answer.
pub(super) struct Reading;

/// What an operation with a choice of forms may answer.
pub(super) struct Choosing;

/// What a write may answer whose condition does not hold.
pub(super) struct Refusing;

/// What a write may answer that stands on the token of a leader.
pub(super) struct Guarding;

/// What a step of an election may answer that somebody else was elected in.
pub(super) struct Contesting;

/// What an upload may answer that outlives what is uploaded.
pub(super) struct Outliving;

/// What a GET with conditions and ranges may answer.
pub(super) struct Matching;

/// What a step of a resumable upload may answer.
pub(super) struct Resumable;

/// What every endpoint of a device may answer, in the form of RFC 6749.
pub(super) struct Refusals;

/// What every call of a producer or a reader of a pull stream may answer.
pub(super) struct OfInstitution;

/// What a pull may answer: a batch or nothing.
pub(super) struct Pulling;

/// What a look at the audit may answer: that it is damaged, with `chain`, `row` and `reason`.
pub(super) struct Auditing;

/// What an operation may answer that reads the archive.
pub(super) struct Archiving;

/// What every route may answer about the head of a request.
pub(super) struct Fronting;

/// What the making of something may answer that is there already, or too often.
pub(super) struct Making;

impl IntoResponses for OfApp {
    fn responses() -> Responses {
        let mut responses = OfSystem::responses();
        responses.extend(answers::<ProblemBody>(&[
            Code::KeyEmpty,
            Code::KeyTooLong,
            Code::KeyNotUtf8,
            Code::ValueTooLong,
            Code::InvalidTtl,
            Code::InvalidRequest,
            Code::Limited,
        ]));
        responses
    }
}

impl IntoResponses for Archiving {
    fn responses() -> Responses {
        answers::<ProblemBody>(&[Code::ArchiveDamaged])
    }
}

impl IntoResponses for OfSystem {
    fn responses() -> Responses {
        let mut responses = answers::<ProblemBody>(&[
            Code::InvalidRequest,
            Code::Unauthorized,
            Code::Forbidden,
            Code::Absent,
            Code::Unavailable,
            Code::UnknownOutcome,
        ]);
        // A path or a query that is too long.
        let too_long = (StatusCode::URI_TOO_LONG, Code::TooLarge);
        responses.extend(answers_with::<ProblemBody>([too_long]));
        responses
    }
}

impl IntoResponses for Reading {
    fn responses() -> Responses {
        answers::<ProblemBody>(&[Code::TooLarge, Code::UnsupportedMediaType])
    }
}

impl IntoResponses for Choosing {
    fn responses() -> Responses {
        answers::<ProblemBody>(&[Code::NotAcceptable])
    }
}

impl IntoResponses for Refusing {
    fn responses() -> Responses {
        answers::<RefusedBody>(&[Code::Refused])
    }
}

impl IntoResponses for Guarding {
    fn responses() -> Responses {
        answers::<RefusedBody>(&[Code::Refused, Code::StaleToken])
    }
}

impl IntoResponses for Contesting {
    fn responses() -> Responses {
        answers::<ContestedBody>(&[Code::Refused])
    }
}

impl IntoResponses for Outliving {
    fn responses() -> Responses {
        answers::<ProblemBody>(&[Code::Gone])
    }
}

impl IntoResponses for Matching {
    fn responses() -> Responses {
        let another = (StatusCode::PRECONDITION_FAILED, Code::Refused);
        let outside = (Code::RangeNotSatisfiable.status(), Code::RangeNotSatisfiable);
        let mut responses = answers_with::<ProblemBody>([another, outside]);
        let same = ResponseBuilder::new().description("the client has it already").build();
        responses.insert("304".into(), RefOr::T(same));
        responses
    }
}

impl IntoResponses for Resumable {
    fn responses() -> Responses {
        let mut responses = Reading::responses();
        responses.extend(Making::responses());
        let mismatch =
            StatusCode::from_u16(tus::MISMATCH).map(|status| (status, Code::InvalidRequest));
        let version = (StatusCode::PRECONDITION_FAILED, Code::InvalidRequest);
        responses.extend(answers_with::<ProblemBody>(mismatch.into_iter().chain([version])));
        responses
    }
}

impl IntoResponses for Refusals {
    fn responses() -> Responses {
        let described = [
            (
                400,
                "`invalid_request`, `invalid_scope`, `unsupported_grant_type`, `invalid_grant`, \
                `authorization_pending`, `slow_down`, `access_denied` or `expired_token`",
            ),
            (401, "`invalid_client`: the client is not registered here, or did not prove to be it"),
            (403, "`insufficient_scope`: the key does not have the scope device"),
            (413, "`invalid_request`: the form is too large"),
            (429, "`temporarily_unavailable`: too much of something; see Retry-After"),
            (503, "`temporarily_unavailable`: the store does not answer; try again"),
        ];
        let mut responses = Fronting::responses();
        for (status, about) in described {
            let schema = Ref::from_schema_name(OAuthErrorBody::name());
            let content = ContentBuilder::new().schema(Some(schema)).build();
            let response = ResponseBuilder::new().description(about);
            let mut response = response.content("application/json", content).build();
            // What is wrong with the head of a request has the form that it has everywhere.
            if let Some(RefOr::T(of_head)) = responses.remove(&status.to_string()) {
                response.content.extend(of_head.content);
            }
            responses.insert(status.to_string(), RefOr::T(response));
        }
        responses
    }
}

impl IntoResponses for OfInstitution {
    fn responses() -> Responses {
        let codes = [
            Code::InvalidRequest,
            Code::Unauthorized,
            Code::InvalidToken,
            Code::TokenExpired,
            Code::TokenOutOfOrder,
            Code::Forbidden,
            Code::Gone,
            Code::Elsewhere,
            Code::Limited,
            Code::Unavailable,
            Code::UnknownOutcome,
        ];
        let too_long = (StatusCode::URI_TOO_LONG, Code::TooLarge);
        answers_with::<ProblemBody>(
            codes.map(|code| (code.status(), code)).into_iter().chain([too_long]),
        )
    }
}

impl IntoResponses for Pulling {
    fn responses() -> Responses {
        let next = "`PI-Pull-Next` is where to ask for more, which acknowledges it";
        let text = || ContentBuilder::new().build();
        let batch = ResponseBuilder::new()
            .description(format!("one message, or up to ten; {next}"))
            .content("application/xml", text())
            .content("multipart/mixed", text());
        let nothing = ResponseBuilder::new().description(format!("no message came; {next}"));
        let found = [("200", batch.build()), ("204", nothing.build())];
        found.into_iter().map(|(status, answer)| (status.to_owned(), RefOr::T(answer))).collect()
    }
}

impl IntoResponses for Auditing {
    fn responses() -> Responses {
        answers::<ProblemBody>(&[Code::AuditBroken])
    }
}

impl IntoResponses for Fronting {
    fn responses() -> Responses {
        let too_long = (StatusCode::URI_TOO_LONG, Code::TooLarge);
        let wrong_host = (StatusCode::BAD_REQUEST, Code::InvalidRequest);
        answers_with::<ProblemBody>([too_long, wrong_host])
    }
}

impl IntoResponses for Making {
    fn responses() -> Responses {
        answers::<ProblemBody>(&[Code::Refused])
    }
}

/// The body of a refusal: a problem, and what stood in the way.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RefusedBody {
    #[serde(flatten)]
    problem: ProblemBody,
    /// What stood in the way; null where there is nothing, left out where the token was stale.
    current: Option<CurrentBody>,
}

/// The body of a refused step of an election: a problem, and where the election stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContestedBody {
    #[serde(flatten)]
    problem: ProblemBody,
    /// Who holds it; null where the lease has ended. Left out, with the rest, where nobody ever
    /// campaigned.
    holder: Option<String>,
    /// The newest token.
    token: Option<u64>,
    /// What is left of the lease.
    remaining_millis: Option<u64>,
}

/// One event of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServerSentBody {
    /// What happened.
    event: String,
    /// To what: JSON, as the operation says.
    data: String,
    /// Where a stream resumes after it.
    #[schema(nullable = false)]
    id: Option<String>,
}

/// The responses of these codes, those of one status together.
fn answers<T: ToSchema>(codes: &[Code]) -> Responses {
    let statuses = codes.iter().map(|code| (code.status(), *code));
    answers_with::<T>(statuses)
}

/// The same, where a code comes with a status that is not its own.
fn answers_with<T: ToSchema>(codes: impl IntoIterator<Item = (StatusCode, Code)>) -> Responses {
    let mut titles: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for (status, code) in codes {
        let line = format!("`{}`: {}", code.name(), code.title());
        titles.entry(status.as_u16()).or_default().push(line);
    }
    let described = titles.into_iter().map(|(status, lines)| {
        let schema = Ref::from_schema_name(T::name());
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new()
            .description(lines.join("; "))
            .content("application/problem+json", content);
        (status.to_string(), RefOr::T(response.build()))
    });
    described.collect()
}

/// The fields of a value, of which one is given.
const VALUE: [(&str, &str); 2] = [("value", "string"), ("valueBase64", "string")];
const EXPECTED: [(&str, &str); 2] =
    [("expectedValue", "string"), ("expectedValueBase64", "string")];
const NEW: [(&str, &str); 2] = [("newValue", "string"), ("newValueBase64", "string")];

/// Where people sign in, of which one is given.
const SIGN_IN: [(&str, &str); 2] = [("oidc", "object"), ("assertion", "object")];

/// The fields of a life, of which one is given.
const LIFE: [(&str, &str); 2] = [("ttlSeconds", "integer"), ("ttlMillis", "integer")];

/// Adds the rules between fields to the finished document.
pub(super) fn add_rules(document: &mut Json) {
    let schemas = &mut document["components"]["schemas"];
    schemas["InsertBody"]["allOf"] = json!([one_of(&VALUE), one_of(&LIFE)]);
    schemas["TouchBody"]["oneOf"] = one_of(&LIFE)["oneOf"].clone();
    schemas["DeleteBody"]["oneOf"] = one_of(&EXPECTED)["oneOf"].clone();
    let lives = json!({"properties": {"keepExpiry": {"enum": [false, null]}}});
    let lives = json!({"allOf": [one_of(&LIFE), lives]});
    let keeps = json!({"required": ["keepExpiry"], "properties": {"keepExpiry": {"const": true}}});
    let keeps = json!({"allOf": [none_of(&LIFE), keeps]});
    schemas["PutBody"]["oneOf"] = json!([
        {"allOf": [one_of(&VALUE), none_of(&EXPECTED), none_of(&NEW), lives]},
        {"allOf": [none_of(&VALUE), one_of(&EXPECTED), one_of(&NEW), {"oneOf": [lives, keeps]}]},
    ]);
    schemas["SignInBody"]["oneOf"] = one_of(&SIGN_IN)["oneOf"].clone();
    let pull = json!({"contains": {"const": "pull"}});
    schemas["CredentialBody"]["oneOf"] = json!([
        {"required": ["ispb"], "properties": {"scopes": pull, "ispb": {"type": "string"}}},
        {"properties": {"scopes": {"not": pull}, "ispb": {"type": "null"}}},
    ]);
    optional_bodies(document);
}

/// Exactly one of these fields, and not null.
fn one_of(fields: &[(&str, &str)]) -> Json {
    let given = fields.iter().map(|(name, kind)| {
        let of = |(other, _): &(&str, &str)| {
            let kind = if other == name { kind } else { "null" };
            ((*other).to_owned(), json!({"type": kind}))
        };
        let properties: serde_json::Map<_, _> = fields.iter().map(of).collect();
        json!({"required": [name], "properties": properties})
    });
    json!({"oneOf": given.collect::<Vec<_>>()})
}

/// None of these fields, or null.
fn none_of(fields: &[(&str, &str)]) -> Json {
    let null = |(name, _): &(&str, &str)| ((*name).to_owned(), json!({"type": "null"}));
    json!({"properties": fields.iter().map(null).collect::<serde_json::Map<_, _>>()})
}

/// A body that may be left out is not one that may be null.
fn optional_bodies(document: &mut Json) {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    let operations = paths.flat_map(|(_, item)| item.as_object_mut().into_iter().flatten());
    for (_, operation) in operations {
        let schema = operation.pointer_mut("/requestBody/content/application~1json/schema");
        let Some(schema) = schema else { continue };
        if schema["oneOf"][1]["type"] == "null" {
            *schema = schema["oneOf"][0].take();
        }
    }
}
