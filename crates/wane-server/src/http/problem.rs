//! Problems: the one mapping from errors to status, headers and body (RFC 9457).
//!
//! Errors of services know nothing of HTTP. Here each becomes a [`Code`], and a code has one status.
//! `detail` says what to do; it never holds a secret or what another application stored.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value as Json};
use utoipa::ToSchema;
use wane::services::app_ttl::AppTtlError;
use wane::services::apps::AppsError;
use wane::services::blobs::BlobsError;
use wane::services::device_auth::DeviceAuthError;
use wane::services::elections::ElectionsError;
use wane::services::pull_stream::{ArchiveError, PullStreamError, Refusal};
use wane::services::sequences::SequencesError;
use wane::store::StoreError;

/// The longest detail, in bytes.
const LONGEST_DETAIL: usize = 1_000;

/// What went wrong, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is explained where it is titled")]
pub enum Code {
    KeyEmpty,
    KeyTooLong,
    KeyNotUtf8,
    ValueTooLong,
    InvalidTtl,
    InvalidRequest,
    Unauthorized,
    InvalidToken,
    TokenExpired,
    TokenOutOfOrder,
    Forbidden,
    Absent,
    Refused,
    StaleToken,
    TooLarge,
    MethodNotAllowed,
    NotAcceptable,
    Gone,
    UnsupportedMediaType,
    RangeNotSatisfiable,
    Limited,
    Elsewhere,
    ArchiveDamaged,
    AuditBroken,
    Unavailable,
    UnknownOutcome,
}

impl Code {
    /// The name, the status, and a title for people.
    fn facts(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as Is;
        match self {
            Self::KeyEmpty => ("key_empty", Is::BAD_REQUEST, "The key is empty"),
            Self::KeyTooLong => ("key_too_long", Is::BAD_REQUEST, "The key is too long"),
            Self::KeyNotUtf8 => ("key_not_utf8", Is::BAD_REQUEST, "The key is not UTF-8"),
            Self::ValueTooLong => ("value_too_long", Is::BAD_REQUEST, "The value is too long"),
            Self::InvalidTtl => ("invalid_ttl", Is::BAD_REQUEST, "The TTL is not valid"),
            Self::InvalidRequest => {
                ("invalid_request", Is::BAD_REQUEST, "The request is not valid")
            }
            Self::Unauthorized => {
                ("unauthorized", Is::UNAUTHORIZED, "A valid credential is needed")
            }
            Self::InvalidToken => ("invalid_token", Is::UNAUTHORIZED, "The token is not valid"),
            Self::TokenExpired => ("token_expired", Is::UNAUTHORIZED, "The token has expired"),
            Self::TokenOutOfOrder => {
                ("token_out_of_order", Is::BAD_REQUEST, "The token is out of order")
            }
            Self::Forbidden => ("forbidden", Is::FORBIDDEN, "The credential does not allow this"),
            Self::Absent => ("absent", Is::NOT_FOUND, "There is no such thing"),
            Self::Refused => ("refused", Is::CONFLICT, "The condition did not hold"),
            Self::StaleToken => ("stale_token", Is::CONFLICT, "The token is not the newest"),
            Self::TooLarge => ("too_large", Is::PAYLOAD_TOO_LARGE, "The request is too large"),
            Self::MethodNotAllowed => {
                ("method_not_allowed", Is::METHOD_NOT_ALLOWED, "The method is not allowed here")
            }
            Self::NotAcceptable => ("not_acceptable", Is::NOT_ACCEPTABLE, "No acceptable form"),
            Self::Gone => ("gone", Is::GONE, "It was there and is no more"),
            Self::UnsupportedMediaType => (
                "unsupported_media_type",
                Is::UNSUPPORTED_MEDIA_TYPE,
                "The body has an unsupported type",
            ),
            Self::RangeNotSatisfiable => {
                ("range_not_satisfiable", Is::RANGE_NOT_SATISFIABLE, "The range lies outside of it")
            }
            Self::Limited => ("limited", Is::TOO_MANY_REQUESTS, "A limit was reached"),
            Self::Elsewhere => ("elsewhere", Is::MISDIRECTED_REQUEST, "Ask elsewhere"),
            Self::ArchiveDamaged => ("archive_damaged", Is::BAD_GATEWAY, "The archive is damaged"),
            Self::AuditBroken => {
                ("audit_broken", Is::CONFLICT, "The audit is not as it was written")
            }
            Self::Unavailable => (
                "unavailable",
                Is::SERVICE_UNAVAILABLE,
                "The store does not answer; nothing was applied",
            ),
            Self::UnknownOutcome => (
                "unknown_outcome",
                Is::GATEWAY_TIMEOUT,
                "The store did not confirm; it may have been applied",
            ),
        }
    }

    /// The name, as it is in `code` and at the end of `type`.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// What it means, for people.
    pub fn title(self) -> &'static str {
        self.facts().2
    }

    /// The status of answers with this code, unless they say otherwise.
    pub fn status(self) -> StatusCode {
        self.facts().1
    }
}

/// An answer that says what went wrong.
#[derive(Debug, Clone)]
pub struct Problem {
    code: Code,
    status: StatusCode,
    detail: String,
    more: Map<String, Json>,
    retry_after: Option<u64>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The body of a problem, for the description of the API.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProblemBody {
    /// `urn:wane:` and the code.
    r#type: String,
    /// What the code means.
    title: String,
    /// The status.
    status: u16,
    /// What happened and what to do.
    detail: String,
    /// What went wrong.
    code: Code,
}

impl Problem {
    /// A problem with this code; `detail` says what to do.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let retry_after = (code == Code::Unavailable).then_some(1);
        let (status, detail) = (code.status(), shortened(detail.into()));
        Self { code, status, detail, more: Map::new(), retry_after, headers: Vec::new() }
    }

    /// A target that is too long, which HTTP has a status of its own for.
    pub fn target_too_long(limit: usize) -> Self {
        let detail = format!("path and query may have {limit} bytes");
        Self::new(Code::TooLarge, detail).answered(StatusCode::URI_TOO_LONG)
    }

    /// Something about the request; `field` names it.
    pub fn invalid(field: &str, reason: impl std::fmt::Display) -> Self {
        Self::new(Code::InvalidRequest, format!("{field}: {reason}"))
    }

    /// No such live thing. Every absence reads the same, whoever asks for whatever.
    pub fn absent() -> Self {
        Self::new(Code::Absent, "there is no such live record, or it is not yours")
    }

    /// A limit, and when to try again.
    pub fn limited(detail: impl Into<String>, seconds: u64) -> Self {
        Self { retry_after: Some(seconds.max(1)), ..Self::new(Code::Limited, detail) }
    }

    /// Something that another region serves, which is named.
    pub fn elsewhere(region: String) -> Self {
        let detail = format!("ask in the region {region}, which serves the institution");
        Self::new(Code::Elsewhere, detail).with("region", region)
    }

    /// The same problem with another member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// The same problem with another header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same problem, where HTTP or a protocol over it has a status of its own for the case.
    #[must_use]
    pub fn answered(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same problem under another name, with the status of that.
    #[must_use]
    pub(super) fn named(self, code: Code) -> Self {
        Self { code, status: code.status(), ..self }
    }

    /// What went wrong.
    pub(super) fn code(&self) -> Code {
        self.code
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What happened and what to do.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// When to try again, in seconds.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// The body.
    pub fn body(&self) -> Json {
        let (name, _, title) = self.code.facts();
        let mut body = Map::new();
        body.insert("type".into(), format!("urn:wane:{name}").into());
        body.insert("title".into(), title.into());
        body.insert("status".into(), self.status.as_u16().into());
        body.insert("detail".into(), self.detail.clone().into());
        body.insert("code".into(), name.into());
        body.extend(self.more.clone());
        Json::Object(body)
    }
}

/// A detail of bounded length, whatever it repeats of the request.
fn shortened(mut detail: String) -> String {
    if detail.len() > LONGEST_DETAIL {
        let end = (0..=LONGEST_DETAIL).rev().find(|at| detail.is_char_boundary(*at));
        detail.truncate(end.unwrap_or_default());
        detail.push_str(" ..");
    }
    detail
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status(), self.body().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        headers.extend(self.headers.iter().cloned());
        // For who has to say it in another form.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Invalid { .. } => Self::new(Code::InvalidRequest, error.to_string()),
            StoreError::Unknown { backend, .. } => Self::new(
                Code::UnknownOutcome,
                format!("{backend} did not confirm the write; read before deciding"),
            ),
            // What the backend said goes to the log, not to strangers.
            StoreError::Unavailable { backend, .. } => {
                tracing::warn!(%error, "the store did not answer");
                Self::new(Code::Unavailable, format!("{backend} does not answer; try again"))
            }
            StoreError::Corrupt { .. } => {
                tracing::error!(%error, "a stored record is damaged");
                Self::new(Code::Unavailable, "the record is damaged; tell the operator")
            }
            other => {
                tracing::error!(%other, "an error without a mapping");
                Self::new(Code::Unavailable, "the store failed; tell the operator")
            }
        }
    }
}

impl From<AppTtlError> for Problem {
    fn from(error: AppTtlError) -> Self {
        let code = match error {
            AppTtlError::Store(error) => return error.into(),
            AppTtlError::KeyEmpty => Code::KeyEmpty,
            AppTtlError::KeyTooLong { .. } => Code::KeyTooLong,
            AppTtlError::KeyNotUtf8 { .. } => Code::KeyNotUtf8,
            AppTtlError::ValueTooLong { .. } => Code::ValueTooLong,
            AppTtlError::InvalidTtl { .. } => Code::InvalidTtl,
            AppTtlError::Fenced { .. } => Code::StaleToken,
            AppTtlError::OverQuota { .. } => return Self::limited(error.to_string(), 10),
            AppTtlError::Contended | _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ElectionsError> for Problem {
    fn from(error: ElectionsError) -> Self {
        let code = match error {
            ElectionsError::Store(error) => return error.into(),
            ElectionsError::Invalid { .. } => Code::InvalidRequest,
            ElectionsError::InvalidTtl { .. } => Code::InvalidTtl,
            ElectionsError::StaleToken { .. } => Code::StaleToken,
            ElectionsError::TooMany => return Self::limited(error.to_string(), 300),
            ElectionsError::Exhausted => Code::Refused,
            ElectionsError::Contended | ElectionsError::Closed | _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SequencesError> for Problem {
    fn from(error: SequencesError) -> Self {
        let code = match error {
            SequencesError::Store(error) => return error.into(),
            SequencesError::Invalid { .. } => Code::InvalidRequest,
            SequencesError::KeyReused { .. } | SequencesError::Exhausted { .. } => Code::Refused,
            SequencesError::TooMany => return Self::limited(error.to_string(), 300),
            SequencesError::Fenced { .. } => Code::StaleToken,
            SequencesError::Busy | SequencesError::Contended | _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<BlobsError> for Problem {
    fn from(error: BlobsError) -> Self {
        let code = match error {
            BlobsError::Store(error) => return error.into(),
            BlobsError::Invalid { field: "ttl", .. } => Code::InvalidTtl,
            BlobsError::Invalid { field: "contentType", .. } => Code::UnsupportedMediaType,
            BlobsError::Invalid { .. }
            | BlobsError::LengthMismatch { .. }
            | BlobsError::DigestMismatch { .. } => Code::InvalidRequest,
            BlobsError::TooLarge { .. } => Code::TooLarge,
            BlobsError::OverQuota { .. } => return Self::limited(error.to_string(), 10),
            BlobsError::OffsetMismatch { .. } | BlobsError::Overtaken => Code::Refused,
            BlobsError::Expired => Code::Gone,
            BlobsError::Broken { .. } => {
                tracing::error!(%error, "a stored BLOB is damaged");
                return Self::new(Code::Unavailable, "the BLOB is damaged; tell the operator");
            }
            BlobsError::Contended | BlobsError::Ended | _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<DeviceAuthError> for Problem {
    fn from(error: DeviceAuthError) -> Self {
        let code = match error {
            DeviceAuthError::Store(error) => return error.into(),
            DeviceAuthError::Invalid { .. } | DeviceAuthError::InvalidScope { .. } => {
                Code::InvalidRequest
            }
            DeviceAuthError::InvalidClient => Code::Unauthorized,
            DeviceAuthError::ClientExists | DeviceAuthError::PublicClient => Code::Refused,
            DeviceAuthError::Limited { retry_after, .. } => {
                let seconds = retry_after.as_millis().div_ceil(1_000) as u64;
                return Self::limited(error.to_string(), seconds);
            }
            DeviceAuthError::Broken { .. } => {
                tracing::error!(%error, "a stored record of device login is damaged");
                return Self::new(Code::Unavailable, "a record is damaged; tell the operator");
            }
            DeviceAuthError::Contended | _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<PullStreamError> for Problem {
    fn from(error: PullStreamError) -> Self {
        let code = match error {
            PullStreamError::Store(error) => return error.into(),
            PullStreamError::Refused(refusal) => return refusal.into(),
            PullStreamError::Invalid { .. } => Code::InvalidRequest,
            PullStreamError::BrokenChain { chain, row, ref reason } => {
                tracing::error!(%error, "the audit of a pull stream is damaged");
                let reason = reason.clone();
                let problem = Self::new(Code::AuditBroken, error.to_string());
                return problem.with("chain", chain.name()).with("row", row).with("reason", reason);
            }
            PullStreamError::Absent { .. } => Code::Absent,
            PullStreamError::Elsewhere { region } => return Self::elsewhere(region),
            PullStreamError::Archive(error) => return error.into(),
            PullStreamError::Busy | PullStreamError::Contended | _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ArchiveError> for Problem {
    fn from(error: ArchiveError) -> Self {
        tracing::error!(%error, "the archive of pull streams failed");
        match error {
            ArchiveError::Damaged { segment, .. } => {
                let detail = format!("the segment {segment} is damaged; tell the operator");
                Self::new(Code::ArchiveDamaged, detail)
            }
            ArchiveError::Foreign { .. } => Self::new(Code::ArchiveDamaged, error.to_string()),
            ArchiveError::Unavailable { .. } | _ => {
                Self::new(Code::Unavailable, "the archive does not answer; try again")
            }
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Tampered => Code::InvalidToken,
            Refusal::Expired => Code::TokenExpired,
            Refusal::Foreign => Code::Forbidden,
            Refusal::OutOfOrder => Code::TokenOutOfOrder,
            Refusal::Ahead => {
                tracing::error!("a token is ahead of its stream; was the store set back?");
                Code::TokenOutOfOrder
            }
            Refusal::TooManyReaders { retry_after } => {
                let seconds = retry_after.as_millis().div_ceil(1_000) as u64;
                return Self::limited(refusal.to_string(), seconds);
            }
            Refusal::Gone => Code::Gone,
            other => {
                tracing::error!(%other, "a refusal without a mapping");
                Code::Unavailable
            }
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<AppsError> for Problem {
    fn from(error: AppsError) -> Self {
        let code = match error {
            AppsError::Store(error) => return error.into(),
            AppsError::Invalid { .. } => Code::InvalidRequest,
            AppsError::Exists { .. } | AppsError::TooManyKeys { .. } | AppsError::NoMoreKeys => {
                Code::Refused
            }
            AppsError::NoApp { .. } | AppsError::NoKey { .. } => Code::Absent,
            AppsError::Contended | _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}
