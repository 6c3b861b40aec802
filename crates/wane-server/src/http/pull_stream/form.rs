//! In which form a reader wants its messages: one or up to ten, compressed or not.

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, ACCEPT_ENCODING};
use wane::services::pull_stream::Form;

use crate::http::accepted::Accepted;
use crate::http::problem::{Code, Problem};

/// The form that the headers ask for. Of two that are liked the same, the one with more messages.
pub(super) fn wanted(headers: &HeaderMap) -> Result<Form, Problem> {
    let multipart = match Accepted::of(headers, &ACCEPT)? {
        Some(accepted) => wants_multipart(&accepted)?,
        None => false,
    };
    let gzip = Accepted::of(headers, &ACCEPT_ENCODING)?.is_some_and(|codings| {
        let identity = codings.weight(&["identity"]).unwrap_or(0);
        codings.weight(&["gzip", "x-gzip"]).is_some_and(|gzip| gzip > 0 && gzip >= identity)
    });
    Ok(Form { multipart, gzip })
}

fn wants_multipart(accepted: &Accepted) -> Result<bool, Problem> {
    let single = accepted.weight(&["application/xml", "application/*", "*/*"]).unwrap_or(0);
    let several = accepted.weight(&["multipart/mixed", "multipart/*"]).unwrap_or(0);
    if single == 0 && several == 0 {
        let detail = "accept application/xml for one message, or multipart/mixed for up to ten";
        return Err(Problem::new(Code::NotAcceptable, detail));
    }
    Ok(several >= single)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn form(accept: &[&'static str], coding: Option<&'static str>) -> Result<Form, Problem> {
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, value| {
            headers.append(name, HeaderValue::from_static(value));
        };
        accept.iter().for_each(|value| add(ACCEPT, *value));
        coding.into_iter().for_each(|value| add(ACCEPT_ENCODING, value));
        wanted(&headers)
    }

    #[test]
    fn one_message_unless_more_are_asked_for() {
        for accept in [
            &[][..],
            &["*/*"],
            &["application/xml"],
            &["application/xml;charset=utf-8"],
            &["application/*"],
            &["text/html, application/xml"],
            &["application/xml, multipart/mixed;q=0.9"],
            &["multipart/mixed;q=0", "*/*"],
        ] {
            assert_eq!(form(accept, None).unwrap(), Form::SINGLE, "{accept:?}");
        }
        for accept in [
            &["multipart/mixed"][..],
            &["Multipart/*"],
            &["multipart/mixed, application/xml"],
            &["application/xml;q=0.5", "multipart/mixed"],
            &["application/xml;q=0, multipart/mixed;q=0.001, */*"],
        ] {
            assert_eq!(form(accept, None).unwrap(), Form::MULTIPART, "{accept:?}");
        }
        for accept in ["application/json", "text/xml", "application/xml;q=0", "*/*;q=0"] {
            let status = form(&[accept], None).unwrap_err().status();
            assert_eq!(status.as_u16(), 406, "{accept}");
        }
    }

    #[test]
    fn compressed_where_that_is_named_and_liked() {
        let gzip = |coding| form(&[], Some(coding)).unwrap().gzip;
        for coding in ["gzip", "gzip, deflate", "deflate;q=1, gzip;q=0.5", "GZIP, identity"] {
            assert!(gzip(coding), "{coding}");
        }
        for coding in ["identity", "*", "deflate", "gzip;q=0", "gzip;q=0.5, identity", ""] {
            assert!(!gzip(coding), "{coding}");
        }
    }
}
