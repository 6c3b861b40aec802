//! One exchange: a request within its deadline, an answer within its size, and what it means.
//!
//! Invariant: a write that was handed to a connection and was not answered by words that a `wane`
//! server uses is [`ClientError::UnknownOutcome`]. Everything else that failed was not applied.

use std::error::Error as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::app_ttl::StandingForm;
use super::error::BoxError;
use super::outgoing::{Outgoing, Source};
use super::{Client, ClientError, elections, problem_xml};

/// The longest answer about one record or application.
pub(super) const SHORT: usize = 1 << 20;

/// The longest answer about many.
pub(super) const LONG: usize = 64 << 20;

/// What is written as `%XX` in a form.
const IN_FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*');

/// Whether a call may change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Read,
    Write,
}

/// A request before it is sent.
pub(super) struct Call {
    method: Method,
    path: String,
    body: Option<Vec<u8>>,
    headers: HeaderMap,
    terms: Terms,
    is_anonymous: bool,
}

/// What an answer is read by.
#[derive(Debug, Clone, Copy)]
struct Terms {
    effect: Effect,
    longest: usize,
    /// Whether errors come as RFC 6749 writes them.
    is_oauth: bool,
}

impl Call {
    pub(super) fn new(method: Method, path: impl Into<String>, effect: Effect) -> Self {
        let headers =
            HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        let (path, body) = (path.into(), None);
        let terms = Terms { effect, longest: SHORT, is_oauth: false };
        Self { method, path, body, headers, terms, is_anonymous: false }
    }

    pub(super) fn get(path: impl Into<String>, effect: Effect) -> Self {
        Self::new(Method::GET, path, effect)
    }

    pub(super) fn json(mut self, body: Map<String, Value>) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = Some(Value::Object(body).to_string().into_bytes());
        self
    }

    /// A form, as OAuth wants it; errors are read as OAuth writes them.
    pub(super) fn form(mut self, words: &[(&str, &str)]) -> Self {
        let of_form = HeaderValue::from_static("application/x-www-form-urlencoded");
        self.headers.insert(CONTENT_TYPE, of_form);
        self.body = Some(form(words).into_bytes());
        self.terms.is_oauth = true;
        self
    }

    pub(super) fn accept(self, media_type: &'static str) -> Self {
        self.header(ACCEPT, HeaderValue::from_static(media_type))
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(super) fn up_to(mut self, longest: usize) -> Self {
        self.terms.longest = longest;
        self
    }

    /// The same without the credential.
    pub(super) fn anonymous(self) -> Self {
        Self { is_anonymous: true, ..self }
    }
}

/// Names and words as a form and a query have them.
pub(crate) fn form(words: &[(&str, &str)]) -> String {
    let words = words.iter().map(|(name, word)| format!("{name}={}", form_escaped(word)));
    words.collect::<Vec<_>>().join("&")
}

/// Id and secret as RFC 6749 wants them: each encoded as in a form, for either may have a colon.
pub(crate) fn basic(id: &str, secret: &str) -> String {
    let pair = format!("{}:{}", form_escaped(id), form_escaped(secret));
    format!("Basic {}", STANDARD.encode(pair))
}

/// A word of a form.
fn form_escaped(word: &str) -> String {
    utf8_percent_encode(word, IN_FORM).to_string()
}

/// A successful answer.
pub(super) struct Answer {
    pub(super) body: Bytes,
    pub(super) headers: HeaderMap,
    effect: Effect,
}

impl Answer {
    /// The answer as what it should be.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| unreadable(self.effect, format!("the answer is not right: {error}")))
    }

    /// Takes out of the answer what a form means, or says that it means nothing.
    pub(super) fn read_as<F: DeserializeOwned, T>(
        &self,
        meaning: impl FnOnce(F) -> Result<T, String>,
    ) -> Result<T, ClientError> {
        meaning(self.read()?).map_err(|reason| unreadable(self.effect, reason))
    }
}

/// An answer that makes no sense. For a write that leaves open what happened.
fn unreadable(effect: Effect, reason: String) -> ClientError {
    match effect {
        Effect::Read => ClientError::Protocol { reason },
        Effect::Write => ClientError::UnknownOutcome { source: reason.into() },
    }
}

/// A problem as the server writes it.
#[derive(Deserialize)]
pub(super) struct ProblemForm {
    code: String,
    #[serde(default)]
    detail: String,
    current: Option<StandingForm>,
    /// Where an election stands.
    #[serde(flatten)]
    election: Option<elections::StandingForm>,
}

/// An error as OAuth writes it (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct OAuthForm {
    error: String,
    error_description: Option<String>,
}

impl ProblemForm {
    /// A problem with this code that says no more than this.
    pub(super) fn plain(code: &str, detail: String) -> Self {
        Self { code: code.to_owned(), detail, current: None, election: None }
    }

    /// What the problem means to the caller.
    pub(super) fn meaning(self, status: u16, retry_after: Option<Duration>) -> ClientError {
        let Self { code, mut detail, current, election } = self;
        if detail.is_empty() {
            detail = "the server does not say why".into();
        }
        match &*code {
            "absent" => ClientError::Absent,
            "refused" if election.is_some() => {
                match election.map(elections::StandingForm::meaning).transpose() {
                    Ok(Some(standing)) => ClientError::Contested { standing, detail },
                    Ok(None) => ClientError::Refused { current: None, detail },
                    Err(reason) => ClientError::Protocol { reason },
                }
            }
            "refused" => match current.map(StandingForm::meaning).transpose() {
                Ok(current) => ClientError::Refused { current, detail },
                Err(reason) => ClientError::Protocol { reason },
            },
            "unknown_outcome" => ClientError::UnknownOutcome { source: detail.into() },
            _ => ClientError::Problem { code, status, detail, retry_after },
        }
    }
}

impl Client {
    /// Sends a request and reads the whole answer. Anything but success is an error.
    pub(super) async fn exchange(&self, call: Call) -> Result<Answer, ClientError> {
        let terms @ Terms { effect, .. } = call.terms;
        let (request, connection) = self.request(call)?;
        let work = async {
            let response = self.send(request, effect).await?;
            self.collect(response, terms).await
        };
        self.within_deadline(work, &connection, effect).await
    }

    /// Sends a request whose body is `source`, for as long as the server takes it.
    ///
    /// For writes that apply the whole body or nothing: what fails before the last byte was handed
    /// over was not applied.
    pub(super) async fn exchange_streamed(
        &self,
        call: Call,
        source: Source,
    ) -> Result<Answer, ClientError> {
        let terms @ Terms { effect, .. } = call.terms;
        let (body, pace) = source.into_body();
        let (request, _connection) = self.request_with(call, body)?;
        let work = async {
            let response = self.send(request, effect).await?;
            self.collect(response, terms).await
        };
        let answer = tokio::select! {
            biased;
            answer = work => answer,
            stalled = pace.stalled(&*self.shared.clock) => Err(self.lost(effect, stalled)),
        };
        answer.map_err(|error| match (error, pace.failure()) {
            (_, Some(source)) => ClientError::Source { source },
            (ClientError::UnknownOutcome { source }, None) if !pace.is_handed_over() => {
                self.unreachable(source)
            }
            (error, None) => error,
        })
    }

    /// Sends a request whose answer is a stream, and reads the head of the answer.
    pub(super) async fn open(&self, call: Call) -> Result<Response<Incoming>, ClientError> {
        let terms @ Terms { effect, .. } = call.terms;
        let (request, connection) = self.request(call)?;
        let work = async {
            let response = self.send(request, effect).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            match self.collect(response, terms).await {
                Ok(_) => Err(unreadable(effect, "success and failure at once".into())),
                Err(error) => Err(error),
            }
        };
        self.within_deadline(work, &connection, effect).await
    }

    /// What follows from a connection that failed while a read was under way.
    pub(super) fn unreachable(&self, source: impl Into<BoxError>) -> ClientError {
        ClientError::Unreachable { url: self.shared.base.clone(), source: source.into() }
    }

    fn request(
        &self,
        mut call: Call,
    ) -> Result<(Request<Outgoing>, CaptureConnection), ClientError> {
        let body = Full::from(call.body.take().unwrap_or_default());
        self.request_with(call, Either::Left(body))
    }

    fn request_with(
        &self,
        call: Call,
        body: Outgoing,
    ) -> Result<(Request<Outgoing>, CaptureConnection), ClientError> {
        let uri = format!("{}{}", self.shared.base, call.path);
        let mut request = Request::new(body);
        *request.method_mut() = call.method;
        *request.uri_mut() = uri.parse().map_err(|_| ClientError::Protocol {
            reason: "the request is too long for a URL".into(),
        })?;
        *request.headers_mut() = call.headers;
        if let Some(authorization) =
            self.shared.authorization.as_ref().filter(|_| !call.is_anonymous)
        {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let connection = capture_connection(&mut request);
        Ok((request, connection))
    }

    async fn send(
        &self,
        request: Request<Outgoing>,
        effect: Effect,
    ) -> Result<Response<Incoming>, ClientError> {
        let response = self.shared.http.request(request).await;
        response.map_err(|error| {
            let is_unsent = never_sent(&error);
            let source = innermost(&error);
            if is_unsent { self.unreachable(source) } else { self.lost(effect, source) }
        })
    }

    async fn within_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>>,
        connection: &CaptureConnection,
        effect: Effect,
    ) -> Result<T, ClientError> {
        let late = self.shared.clock.sleep(self.deadline);
        tokio::select! {
            biased;
            done = work => done,
            () = late => {
                let source = format!("no answer within {} ms", self.deadline.as_millis());
                let is_sent = connection.connection_metadata().is_some();
                Err(if is_sent { self.lost(effect, source) } else { self.unreachable(source) })
            }
        }
    }

    /// What follows from a connection that was lost after the request was handed to it.
    fn lost(&self, effect: Effect, source: String) -> ClientError {
        match effect {
            Effect::Read => self.unreachable(source),
            Effect::Write => ClientError::UnknownOutcome { source: source.into() },
        }
    }

    async fn collect(
        &self,
        response: Response<Incoming>,
        mut terms: Terms,
    ) -> Result<Answer, ClientError> {
        let (head, mut incoming) = response.into_parts();
        let status = head.status;
        // HTTP promises that nothing was done, even where the words are lost.
        if status.is_client_error() {
            terms.effect = Effect::Read;
        }
        let Terms { effect, longest, .. } = terms;
        let mut body = BytesMut::new();
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|error| self.lost(effect, innermost(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            if body.len() + data.len() > longest {
                let reason = format!("the answer is longer than {longest} bytes");
                return Err(unreadable(effect, reason));
            }
            body.extend_from_slice(&data);
        }
        if status.is_success() {
            return Ok(Answer { body: body.freeze(), headers: head.headers, effect });
        }
        Err(self.failure(status, &head.headers, &body, terms))
    }

    /// What an answer other than success means.
    fn failure(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        terms: Terms,
    ) -> ClientError {
        if terms.is_oauth
            && let Ok(form) = serde_json::from_slice::<OAuthForm>(body)
        {
            let detail = form.error_description.as_deref().unwrap_or("the server does not say why");
            return ClientError::Problem {
                code: form.error,
                status: status.as_u16(),
                detail: self.masked(detail),
                retry_after: retry_after(headers),
            };
        }
        let problem = serde_json::from_slice::<ProblemForm>(body).ok();
        let problem = problem.or_else(|| problem_xml::read(headers, body));
        if let Some(mut problem) = problem.or_else(|| wordless(status, headers, body)) {
            problem.detail = self.masked(&problem.detail);
            return problem.meaning(status.as_u16(), retry_after(headers));
        }
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let reason = match location.filter(|_| status.is_redirection()) {
            Some(to) => format!("HTTP {status} to {}: not followed", self.masked(to)),
            None => format!("HTTP {status} without a problem that says why"),
        };
        // A proxy says 502 whether or not the request went through.
        let effect = if status.is_server_error() { terms.effect } else { Effect::Read };
        unreadable(effect, reason)
    }

    fn masked(&self, text: &str) -> String {
        self.shared.key.as_ref().map_or_else(|| text.to_owned(), |key| key.masked(text))
    }
}

/// The problem of an answer to HEAD, of which only the head comes.
fn wordless(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<ProblemForm> {
    let is_problem = headers.get(CONTENT_TYPE).is_some_and(|it| it == "application/problem+json");
    if !is_problem || !body.is_empty() {
        return None;
    }
    let code = match status.as_u16() {
        400 => "invalid_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "absent",
        410 => "gone",
        429 => "limited",
        503 => "unavailable",
        504 => "unknown_outcome",
        _ => return None,
    };
    let detail = status.canonical_reason().unwrap_or_default().to_owned();
    Some(ProblemForm::plain(code, detail))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Whether the request was certainly not written to a connection.
fn never_sent(error: &legacy::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
    error.is_connect() || source.is_some_and(hyper::Error::is_canceled)
}

/// The cause at the end of the chain: what those before it say of hyper helps nobody.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
