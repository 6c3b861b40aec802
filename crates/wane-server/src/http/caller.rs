//! Who calls, and what they may do: the one gate in front of every route.
//!
//! A route says which [`Access`] it needs and cannot be built without saying so. The gate reads the
//! credential, finds its application, and counts the request against that application's limits of
//! rate and of requests under way. Then it compares the application with the one in the path: a
//! path that names another one is answered like one that names nothing, after the same work.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use wane::services::ClusterAppId;
use wane::services::app_ttl::AppTtlError;
use wane::services::apps::{App, AppName, Credential, Scope};

use super::blobs::DELETE_SECRET;
use super::institution::{Identity, Institution};
use super::limiters::{Admitted, Counted};
use super::path::{names_app, segments};
use super::problem::{Code, Problem};
use crate::wiring::Services;

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: everyone may.
    Public,
    /// A key of the application in the path, with this scope.
    App(Scope),
    /// The same; or no credential at all, and the secret of what is in the path.
    OwnerOrHolder(Scope),
    /// A credential with this scope and of no application.
    System(Scope),
    /// The institution in the path, by its certificate or by a credential that names it.
    Institution,
}

/// The application that a request is for, and the key of it that was presented.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) app: Arc<App>,
    credential: Credential,
}

impl Caller {
    /// The id of the key.
    pub(crate) fn key(&self) -> &str {
        self.credential.id()
    }

    /// Whether the key has this scope, beside the one that the route needs.
    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.credential.scopes().contains(&scope)
    }

    /// Says no where the key lacks a scope that a part of the request needs.
    pub(crate) fn needs(&self, scope: Scope) -> Result<(), Problem> {
        if self.may(scope) { Ok(()) } else { Err(forbidden(scope)) }
    }
}

/// The application in the path, for whoever owns it or holds the secret of a thing of it. The secret
/// itself is for the route to check.
#[derive(Debug, Clone)]
pub(crate) struct OwnerOrHolder(Option<Arc<App>>);

impl OwnerOrHolder {
    /// The application. Everything else about the request is checked before: what is wrong with it is
    /// answered alike, whether there is such an application or not.
    pub(crate) fn app(&self) -> Result<&Arc<App>, Problem> {
        self.0.as_ref().ok_or_else(Problem::absent)
    }
}

impl<S: Sync> FromRequestParts<S> for OwnerOrHolder {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| unauthorized("there is no caller"))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Only the gate puts one there: a route without it has no caller.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| unauthorized("there is no caller"))
    }
}

/// Lets the request through to a route that needs `access`, or says why not. What is returned is to
/// be kept until the answer was taken.
pub(super) async fn admit(
    access: Access,
    counted: Counted,
    parts: &mut Parts,
    services: &Services,
) -> Result<Option<Admitted>, Problem> {
    let gate = Gate { services, counted, at: AT };
    match access {
        Access::Public => Ok(None),
        Access::App(scope) => {
            let (caller, admitted) = gate.as_app(scope, parts).await?;
            parts.extensions.insert(caller);
            Ok(Some(admitted))
        }
        Access::OwnerOrHolder(scope) => {
            let (app, admitted) = gate.as_owner_or_holder(scope, parts).await?;
            parts.extensions.insert(OwnerOrHolder(app));
            Ok(admitted)
        }
        Access::System(scope) => {
            let credential = gate.as_system(scope, parts).await?;
            parts.extensions.insert(credential);
            Ok(None)
        }
        Access::Institution => {
            let institution = gate.as_institution(parts).await?;
            parts.extensions.insert(institution);
            Ok(None)
        }
    }
}

/// The application that a key belongs to, where the route lets others in too and its path names the
/// application at another segment. What is returned second is to be kept until the answer is there.
pub(super) async fn app_named_at(
    at: usize,
    scope: Scope,
    parts: &Parts,
    services: &Services,
) -> Result<(Caller, Admitted), Problem> {
    Gate { services, counted: Counted::Requests, at }.as_app(scope, parts).await
}

/// Where `/api/v2/apps/{owner}/{app}/..` names the application.
const AT: usize = 3;

/// The gate in front of every route.
struct Gate<'a> {
    services: &'a Services,
    counted: Counted,
    /// Where the path names the application.
    at: usize,
}

impl Gate<'_> {
    /// Returns the application, and its permit for one more request.
    async fn as_app(&self, scope: Scope, parts: &Parts) -> Result<(Caller, Admitted), Problem> {
        let credential = self.credential(parts).await?;
        let Some(app) = credential.app().map(Arc::clone) else {
            return Err(self.as_stranger(parts).await);
        };
        // Wherever it knocks: requests that find nothing are requests too.
        let admitted = self.services.limiters.admit(&app, self.counted)?;
        if !names_app(parts.uri.path(), self.at, &app.name) {
            return Err(self.as_stranger(parts).await);
        }
        let caller = Caller { app, credential };
        caller.needs(scope)?;
        Ok((caller, admitted))
    }

    /// The same, where a secret may stand in for the credential. Such a request counts against no
    /// limits of the application: anybody could use them up.
    async fn as_owner_or_holder(
        &self,
        scope: Scope,
        parts: &Parts,
    ) -> Result<(Option<Arc<App>>, Option<Admitted>), Problem> {
        let is_holder = parts.headers.contains_key(DELETE_SECRET);
        if !is_holder || parts.headers.contains_key(AUTHORIZATION) {
            let (caller, admitted) = self.as_app(scope, parts).await?;
            return Ok((Some(caller.app), Some(admitted)));
        }
        let mut path = segments(parts.uri.path()).skip(self.at).map(|segment| segment.collect());
        let mut text = || String::from_utf8(path.next().unwrap_or_default()).unwrap_or_default();
        let found = match AppName::new(&text(), &text()) {
            Ok(name) => self.services.apps.find(&name).await?,
            Err(_) => None,
        };
        Ok((found, None))
    }

    async fn as_system(&self, scope: Scope, parts: &Parts) -> Result<Credential, Problem> {
        let credential = self.credential(parts).await?;
        let may = credential.app().is_none() && credential.scopes().contains(&scope);
        if may { Ok(credential) } else { Err(forbidden(scope)) }
    }

    async fn as_institution(&self, parts: &Parts) -> Result<Institution, Problem> {
        let identity = if self.services.wants_certificates {
            Identity::of_certificate(parts.extensions.get())?
        } else {
            Identity::of_credential(&self.credential(parts).await?)?
        };
        identity.reader(parts, self.services).await
    }

    /// Answers as if nothing were there, after looking where nothing is. What could not be a key
    /// is not there either.
    async fn as_stranger(&self, parts: &Parts) -> Problem {
        let nobody = self.services.app_ttl.of(ClusterAppId::NONE, Default::default());
        let key = segments(parts.uri.path()).last().map(Vec::from_iter).unwrap_or_default();
        match nobody.ttl_get(&key).await {
            Err(AppTtlError::Store(error)) => error.into(),
            Ok(_) | Err(_) => Problem::absent(),
        }
    }

    async fn credential(&self, parts: &Parts) -> Result<Credential, Problem> {
        let mut given = parts.headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return Err(unauthorized("send one header Authorization: Bearer ID.SECRET"));
        };
        let value = value.to_str().unwrap_or_default();
        let Some((scheme, presented)) = value.split_once(' ') else {
            return Err(unauthorized("send Authorization: Bearer ID.SECRET"));
        };
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthorized("the scheme must be Bearer"));
        }
        let credential = self.services.apps.authenticate(presented.trim()).await?;
        credential.ok_or_else(|| unauthorized("the credential is unknown or was revoked"))
    }
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(Code::Unauthorized, detail)
}

fn forbidden(scope: Scope) -> Problem {
    Problem::new(Code::Forbidden, format!("this needs a credential with scope {scope}"))
}
