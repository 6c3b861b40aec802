//! The two ways in which producers and readers are answered.
//!
//! `seed` is how everything else is answered, too. `icom` is for readers that were written for the
//! Central Bank's interface: problems are XML, a stream that is over is 410, nobody is asked to
//! authenticate by 401, and of headers only those leave that the interface or HTTP itself needs.
//!
//! Invariant: with `icom`, every answer on the paths of streams is put so, whoever gave it: the route,
//! the gate in front of it, or the router that found none.

use axum::body::Body;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE,
    RETRY_AFTER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;

use super::{PULL_NEXT, RESOURCE_ID, problem_xml};
use crate::http::problem::{Code, Problem};
use crate::settings::StreamProfile;

/// Where producers and readers call.
const PATHS: [&str; 2] = ["/api/v1/in/", "/api/v1/out/"];

/// The headers that leave: names of messages and tokens, and what HTTP needs to frame a body, to say
/// what may be done instead and when, and to keep an answer that had effects out of caches.
static LEAVE: [HeaderName; 11] = [
    RESOURCE_ID,
    PULL_NEXT,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    CONNECTION,
    DATE,
    CACHE_CONTROL,
    RETRY_AFTER,
    ALLOW,
];

/// How one request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Dialect {
    /// As it is.
    Plain,
    /// As ICOM does.
    Icom,
}

impl Dialect {
    /// How a request for this path is answered.
    pub(in crate::http) fn of(profile: StreamProfile, path: &str) -> Self {
        let is_of_streams = PATHS.iter().any(|prefix| path.starts_with(prefix));
        match profile {
            StreamProfile::Icom if is_of_streams => Self::Icom,
            StreamProfile::Icom | StreamProfile::Seed => Self::Plain,
        }
    }

    /// The answer, with what it says about problems put so. To be done before it is counted.
    pub(in crate::http) fn spoken(self, mut response: Response) -> Response {
        if self == Self::Plain {
            return response;
        }
        let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
        let problem = renamed(problem);
        *response.status_mut() = problem.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+xml"));
        headers.remove(CONTENT_LENGTH);
        headers.remove(WWW_AUTHENTICATE);
        *response.body_mut() = Body::from(problem_xml::written(&problem.body()));
        response
    }

    /// The answer without the headers that do not leave. To be done last.
    pub(in crate::http) fn closed(self, mut response: Response) -> Response {
        if self == Self::Icom {
            let headers = std::mem::take(response.headers_mut());
            *response.headers_mut() = leaving(headers);
        }
        response
    }
}

/// A stream whose token is over is gone, whatever it is over by; who is not known is forbidden.
fn renamed(problem: Problem) -> Problem {
    let code = problem.code();
    if matches!(code, Code::InvalidToken | Code::TokenExpired) {
        return problem.named(Code::Gone);
    }
    if code == Code::Unauthorized { problem.named(Code::Forbidden) } else { problem }
}

fn leaving(headers: HeaderMap) -> HeaderMap {
    let mut left = HeaderMap::with_capacity(headers.len());
    let mut last = None;
    for (name, value) in headers {
        // A name comes with its first value only.
        last = name.or(last);
        if let Some(name) = last.as_ref().filter(|name| LEAVE.contains(name)) {
            left.append(name.clone(), value);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::response::IntoResponse;

    use super::*;

    const OUT: &str = "/api/v1/out/12345678/stream/start";

    fn spoken(problem: Problem) -> Response {
        let dialect = Dialect::of(StreamProfile::Icom, OUT);
        dialect.closed(dialect.spoken(problem.into_response()))
    }

    #[test]
    fn only_paths_of_streams_are_answered_otherwise_and_only_where_that_is_set() {
        for path in [OUT, "/api/v1/in/12345678/msgs", "/api/v1/out/x", "/api/v1/in/"] {
            assert_eq!(Dialect::of(StreamProfile::Icom, path), Dialect::Icom, "{path}");
            assert_eq!(Dialect::of(StreamProfile::Seed, path), Dialect::Plain, "{path}");
        }
        for path in
            ["/", "/api/v1/in", "/api/v1/inx/", "/api/v1/admin/streams/12345678", "/api/v1/OUT/"]
        {
            assert_eq!(Dialect::of(StreamProfile::Icom, path), Dialect::Plain, "{path}");
        }
    }

    /// The whole table of codes: none is 401, and none but these changes.
    #[test]
    fn no_problem_asks_to_authenticate() {
        for (code, status) in [
            (Code::Unauthorized, 403),
            (Code::Forbidden, 403),
            (Code::InvalidToken, 410),
            (Code::TokenExpired, 410),
            (Code::Gone, 410),
            (Code::TokenOutOfOrder, 400),
            (Code::InvalidRequest, 400),
            (Code::Absent, 404),
            (Code::MethodNotAllowed, 405),
            (Code::NotAcceptable, 406),
            (Code::TooLarge, 413),
            (Code::UnsupportedMediaType, 415),
            (Code::Elsewhere, 421),
            (Code::Limited, 429),
            (Code::ArchiveDamaged, 502),
            (Code::Unavailable, 503),
            (Code::UnknownOutcome, 504),
        ] {
            let response = spoken(Problem::new(code, "do something else"));
            assert_eq!(response.status().as_u16(), status, "{code:?}");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+xml");
            assert!(!response.headers().contains_key(WWW_AUTHENTICATE));
        }
    }

    #[test]
    fn headers_that_are_not_on_the_list_do_not_leave() {
        let problem =
            Problem::limited("later", 7).with_header(ALLOW, HeaderValue::from_static("GET"));
        let mut response = problem.into_response();
        for name in ["x-request-id", "server", "set-cookie", "vary", "via"] {
            response.headers_mut().append(name, HeaderValue::from_static("a"));
            response.headers_mut().append(name, HeaderValue::from_static("b"));
        }
        response.headers_mut().append(RESOURCE_ID, HeaderValue::from_static("a"));
        response.headers_mut().append(RESOURCE_ID, HeaderValue::from_static("b"));
        let plain = Dialect::Plain.closed(response);
        assert!(plain.headers().contains_key("set-cookie"), "the control");
        let closed = Dialect::Icom.closed(plain);
        let mut names: Vec<_> = closed.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["allow", "content-type", "pi-resourceid", "retry-after"]);
        assert_eq!(closed.headers().get_all(RESOURCE_ID).iter().count(), 2, "all of its values");
        assert_eq!(closed.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}
