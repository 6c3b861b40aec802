//! What every page has around it: the document, and the headers that keep others out.
//!
//! Invariant: every answer of the page goes through [`answer`], so none lacks a header. Nothing is
//! loaded but our stylesheet and our picture, nothing runs, nobody frames it, no address of it is
//! told to other sites, and no form is sent elsewhere. Browsers apply the last rule to redirects
//! that follow a form too, so people leave for an issuer by a link.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, RETRY_AFTER,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

/// The stylesheet.
pub(super) const STYLE: &str = include_str!("style.css");

/// The picture in the tab: a moon that wanes.
pub(super) const ICON: &str = include_str!("icon.svg");

/// A page before it is sent.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) status: StatusCode,
    /// What the tab says.
    pub(super) title: String,
    pub(super) content: Markup,
    /// How long to wait before trying again.
    pub(super) retry_after: Option<u64>,
}

impl Page {
    pub(super) fn new(title: impl Into<String>, content: Markup) -> Self {
        Self { status: StatusCode::OK, title: title.into(), content, retry_after: None }
    }

    pub(super) fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(super) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// The page under a prefix of paths, with the cookie that goes with it.
    pub(super) fn answer(self, prefix: &str, cookie: Option<HeaderValue>) -> Response {
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="robots" content="noindex";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " - device login" }
                    link rel="icon" type="image/svg+xml" href={ (prefix) "/device/icon.svg" };
                    link rel="stylesheet" href={ (prefix) "/device/style.css?" (style_version()) };
                }
                body {
                    header { (moon()) span { "Device login" } }
                    main { (self.content) }
                    footer {
                        "Codes are only ever shown by a device. Nobody who calls or writes to you "
                        "needs one."
                    }
                }
            }
        };
        let mut response = answer((self.status, document.into_string()).into_response(), cookie);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// Sends the browser on, by GET.
pub(super) fn see_other(location: &str, cookie: Option<HeaderValue>) -> Response {
    let mut response = answer(StatusCode::SEE_OTHER.into_response(), cookie);
    match HeaderValue::from_str(location) {
        Ok(location) => drop(response.headers_mut().insert(LOCATION, location)),
        Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    response
}

/// The answer with every header that the page must have.
pub(super) fn answer(mut response: Response, cookie: Option<HeaderValue>) -> Response {
    let headers: &mut HeaderMap = response.headers_mut();
    let fixed = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
        (X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some(cookie) = cookie {
        headers.append(SET_COOKIE, cookie);
    }
    response
}

/// A file of the page, which browsers may keep.
pub(super) fn file(content_type: &'static str, body: impl Into<axum::body::Body>) -> Response {
    let mut response = answer(Response::new(body.into()), None);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=86400"));
    response
}

/// Another number for another stylesheet, so that a kept one is not used with a newer page.
fn style_version() -> String {
    let sum = STYLE.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    format!("{sum:016x}")
}

fn moon() -> Markup {
    html! {
        svg viewBox="0 0 24 24" aria-hidden="true" focusable="false" {
            path fill="currentColor" d="M14.5 2.2a9.9 9.9 0 1 0 7.3 14.2A8.2 8.2 0 0 1 14.5 2.2z" {}
        }
    }
}
