//! One request of a visitor: where the page is, who asks from where, and what is known of them.

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv4Addr};
use wane::services::device_auth::{Guesser, PageKey, Source};
use wane::store::Timestamp;

use super::form::Fields;
use super::same_site;
use super::session::{Cookie, Form, Session, prefix_of};
use super::shell::{Page, see_other};
use super::views;
use crate::wiring::Services;

/// The answer to a visit; an error where another page is right than the one that was asked for.
pub(super) type Answered = Result<Response, Instead>;

/// The page that is right instead.
pub(in crate::http) struct Instead(Box<Response>);

impl From<Response> for Instead {
    fn from(response: Response) -> Self {
        Self(Box::new(response))
    }
}

impl IntoResponse for Instead {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// A request, seen from the page.
pub(super) struct Visit {
    pub(super) services: Services,
    pub(super) parts: Parts,
    /// The URL that `/device` is appended to.
    pub(super) base_url: String,
    pub(super) key: PageKey,
    pub(super) now: Timestamp,
    cookie: Cookie,
    /// The session that the request brought, or a fresh one.
    pub(super) session: Session,
    /// Whether the request brought it.
    pub(super) is_known: bool,
    /// As it was brought.
    brought: Option<Session>,
}

untold!(Visit, Instead);

impl Visit {
    /// The visit, and the body of its request; or the answer to a request that names no host, or
    /// has two sessions.
    pub(super) fn begin(services: Services, request: Request) -> Result<(Self, Body), Instead> {
        let (parts, body) = request.into_parts();
        let base_url = services.origin.base_url(&parts).map_err(IntoResponse::into_response)?;
        let (key, now) = (services.device_auth.page_key(), services.clock.now());
        let cookie = Cookie::of(&base_url);
        let brought = Session::brought(&parts.headers, &cookie, &key, now).map_err(|_| {
            tracing::warn!("a request has two sessions of the page: another site may set cookies");
            let prefix = prefix_of(&base_url);
            views::two_sessions(prefix).answer(prefix, None)
        })?;
        let is_known = brought.is_some();
        let session = brought.clone().unwrap_or_else(|| Session::fresh(&*services.clock));
        Ok((Self { services, parts, base_url, key, now, cookie, session, is_known, brought }, body))
    }

    /// Reads a form that must be ours; or says what to answer where it is not even a form, or was
    /// sent by another site.
    pub(super) async fn form(&self, body: Body) -> Result<Fields, Instead> {
        if !same_site::is_ours(&self.parts.headers, &self.base_url) {
            let page = views::other_site(self.prefix()).status(StatusCode::FORBIDDEN);
            return Err(page.answer(self.prefix(), None).into());
        }
        Fields::of_form(&self.parts.headers, body, &self.services.clock).await.map_err(|status| {
            views::not_understood(self.prefix()).status(status).answer(self.prefix(), None).into()
        })
    }

    /// Whether the fields bring the token of this session's form.
    pub(super) fn is_own(&self, fields: &Fields, form: Form) -> bool {
        self.is_known
            && fields.get("token").is_some_and(|it| self.session.is_token(it, form, &self.key))
    }

    pub(super) fn token(&self, form: Form) -> String {
        self.session.token(form, &self.key)
    }

    pub(super) fn prefix(&self) -> &str {
        prefix_of(&self.base_url)
    }

    /// Whose misses an attempt counts among.
    pub(super) fn source(&self) -> Source {
        let address = self.services.origin.address_of(&self.parts);
        Source::of(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
    }

    pub(super) fn guesser(&self) -> Guesser {
        Guesser::Address(self.source())
    }

    /// Shows a page, and gives the session where it has changed or wanes.
    pub(super) fn show(&self, page: Page) -> Response {
        page.answer(self.prefix(), self.sealed())
    }

    /// Sends the visitor to another step of the page, likewise.
    pub(super) fn go(&self, path: &str) -> Response {
        see_other(&format!("{}{path}", self.prefix()), self.sealed())
    }

    /// Sends the visitor to another site, likewise.
    pub(super) fn leave(&self, url: &str) -> Response {
        see_other(url, self.sealed())
    }

    fn sealed(&self) -> Option<HeaderValue> {
        let is_as_brought = self.brought.as_ref() == Some(&self.session);
        if is_as_brought && !self.session.is_waning(self.now) {
            return None;
        }
        self.session.sealed(&self.cookie, &self.key, self.now)
    }
}
