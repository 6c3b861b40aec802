//! A request that brings a protocol which knows nothing of it to write the answer of another one.
//!
//! Of what a client asked, an answer's form depends on the version, on the method, and on whether the
//! connection goes on. The rest has been read and understood.

use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, Method, Request, Version};
use hyper::body::Body;

/// The bytes of such a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AskedAgain(pub(super) &'static [u8]);

impl AskedAgain {
    /// How to ask for the answer to `request` again; nothing where that cannot be: something of it is
    /// still to be read, or it may not be a plain answer that it gets.
    pub(super) fn of(request: &Request<impl Body>) -> Option<Self> {
        if request.method() != Method::GET || !request.body().is_end_stream() {
            return None;
        }
        let names = |option| has_option(request.headers(), option);
        match request.version() {
            Version::HTTP_11 if names("close") => {
                Some(Self(b"GET / HTTP/1.1\r\nhost: again\r\nconnection: close\r\n\r\n"))
            }
            Version::HTTP_11 => Some(Self(b"GET / HTTP/1.1\r\nhost: again\r\n\r\n")),
            Version::HTTP_10 if names("keep-alive") && !names("close") => {
                Some(Self(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"))
            }
            Version::HTTP_10 => Some(Self(b"GET / HTTP/1.0\r\n\r\n")),
            _ => None,
        }
    }
}

fn has_option(headers: &HeaderMap, option: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|named| named.trim().eq_ignore_ascii_case(option))
}

#[cfg(test)]
mod tests {
    use axum::body::Body as AxumBody;

    use super::*;

    fn again(method: Method, version: Version, connection: &str, body: &'static str) -> String {
        let request = Request::builder().method(method).version(version);
        let request = request.header(CONNECTION, connection).body(AxumBody::from(body)).unwrap();
        let again = AskedAgain::of(&request).map_or(&b""[..], |again| again.0);
        String::from_utf8(again.to_vec()).unwrap()
    }

    #[test]
    fn a_plain_get_is_asked_again_as_it_was() {
        let get = |version, connection| again(Method::GET, version, connection, "");
        assert_eq!(get(Version::HTTP_11, "x"), "GET / HTTP/1.1\r\nhost: again\r\n\r\n");
        assert!(get(Version::HTTP_11, "x, Close").contains("connection: close\r\n"));
        assert_eq!(get(Version::HTTP_10, "x"), "GET / HTTP/1.0\r\n\r\n");
        assert!(get(Version::HTTP_10, "Keep-Alive").contains("connection: keep-alive\r\n"));
        assert_eq!(get(Version::HTTP_10, "keep-alive, close"), "GET / HTTP/1.0\r\n\r\n");
    }

    #[test]
    fn what_is_more_than_a_head_is_not() {
        assert_eq!(again(Method::GET, Version::HTTP_11, "x", "body"), "");
        assert_eq!(again(Method::HEAD, Version::HTTP_11, "x", ""), "");
        assert_eq!(again(Method::POST, Version::HTTP_11, "x", ""), "");
        assert_eq!(again(Method::GET, Version::HTTP_2, "x", ""), "");
    }
}
