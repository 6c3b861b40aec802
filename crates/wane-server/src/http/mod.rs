//! HTTP: the route table, readable at a glance.
//!
//! Each row is a method, a path, who may, and what answers. The gate of `caller` stands in front of
//! every row; a row without an access does not compile. What matches no row is `absent`, what
//! matches with another method is 405 with `Allow`.

mod accepted;
mod admin;
mod app_ttl;
mod blobs;
mod body;
mod caller;
#[cfg_attr(not(test), expect(dead_code, reason = "for the description, which tests generate"))]
mod described;
mod device_auth;
mod device_page;
mod elections;
mod front;
mod guard;
mod head;
mod header;
mod health;
#[cfg(test)]
mod hostile_input;
mod institution;
mod lasting;
mod limiters;
mod openapi;
mod origin;
mod path;
mod problem;
mod pull_stream;
mod query;
mod requests;
mod sequences;
mod taken;

pub use caller::Access;
pub(crate) use device_auth::DeviceLogin;
pub(crate) use device_page::DevicePage;
pub(crate) use limiters::Limiters;
pub use openapi::DOCUMENT;
pub(crate) use origin::Origin;
pub use problem::{Code, Problem};
pub(crate) use pull_stream::{MOST_ARRIVING, StreamMetrics};
pub(crate) use requests::RequestMetrics;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::header::ALLOW;
use axum::http::{HeaderValue, Method};
use axum::routing::{MethodFilter, MethodRouter, on};
use wane::services::apps::Scope;

use self::blobs::tus;
use self::device_auth::{
    authorization, clients, devices, discovery, github, introspection, revocation, token,
};
use self::device_page::operator;
use self::front::Fronted;
use self::limiters::Counted;
use self::pull_stream::{archives, auditor, holds, operator as streams, regions, replays};
use crate::wiring::Services;

const READ: Access = Access::App(Scope::Read);
const WRITE: Access = Access::App(Scope::Write);
const WRITE_OR_SECRET: Access = Access::OwnerOrHolder(Scope::Write);
const DEVICE: Access = Access::App(Scope::Device);
const TRANSFER: Counted = Counted::Transfers;
const ADMIN: Access = Access::System(Scope::Admin);
const PRODUCE: Access = Access::System(Scope::Produce);

/// A row of the table.
#[derive(Clone)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with `{names}`.
    pub path: &'static str,
    /// Who may.
    pub access: Access,
    answer: Arc<dyn Fn(Access) -> MethodRouter<Services>>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:?})", self.method, self.path, self.access)
    }
}

macro_rules! route {
    ($method:ident $path:literal, $access:expr, $answer:expr) => {
        route!($method $path, $access, $answer, Counted::Requests)
    };
    ($method:ident $path:literal, $access:expr, $answer:expr, $counted:expr) => {
        Route {
            method: Method::$method,
            path: $path,
            access: $access,
            answer: Arc::new(|access| {
                let (route, counted) = ($path, $counted);
                on(MethodFilter::$method, Fronted { route, access, counted, inner: $answer })
            }),
        }
    };
}

/// What the main listener serves.
pub fn main_routes() -> Vec<Route> {
    let served =
        [of_the_server(), of_the_device_page(), of_applications(), of_devices(), of_institutions()];
    served.into_iter().flatten().collect()
}

/// Whether it lives, and how it is used.
fn of_the_server() -> Vec<Route> {
    vec![
        route!(GET "/livez", Access::Public, health::livez),
        route!(GET "/readyz", Access::Public, health::readyz),
        route!(GET "/api/openapi.json", Access::Public, openapi::json),
        route!(GET "/api/docs", Access::Public, openapi::page),
    ]
}

/// The page where people link their devices.
fn of_the_device_page() -> Vec<Route> {
    vec![
        route!(GET "/device", Access::Public, device_page::show),
        route!(GET "/device/", Access::Public, device_page::show),
        route!(POST "/device", Access::Public, device_page::submit),
        route!(GET "/device/qr.svg", Access::Public, device_page::picture),
        route!(GET "/device/style.css", Access::Public, device_page::style),
        route!(GET "/device/icon.svg", Access::Public, device_page::icon),
        route!(GET "/device/sign-in", Access::Public, device_page::sign_in),
        route!(POST "/device/sign-in", Access::Public, device_page::by_password),
        route!(GET "/device/sign-in/start", Access::Public, device_page::start),
        route!(GET "/device/signed-in/{owner}/{app}", Access::Public, device_page::returned),
        route!(GET "/device/sign-out", Access::Public, device_page::confirm),
        route!(POST "/device/sign-out", Access::Public, device_page::sign_out),
        route!(GET "/device/confirm", Access::Public, device_page::confirm),
        route!(GET "/device/decide", Access::Public, device_page::confirm),
        route!(POST "/device/decide", Access::Public, device_page::decide),
        route!(GET "/device/done", Access::Public, device_page::done),
    ]
}

/// What applications keep.
fn of_applications() -> Vec<Route> {
    vec![
        route!(GET "/api/v2/apps/{owner}/{app}/ttl", READ, app_ttl::scan),
        route!(GET "/api/v2/apps/{owner}/{app}/ttl/", READ, app_ttl::no_key),
        route!(POST "/api/v2/apps/{owner}/{app}/ttl/", WRITE, app_ttl::no_key),
        route!(PUT "/api/v2/apps/{owner}/{app}/ttl/", WRITE, app_ttl::no_key),
        route!(PATCH "/api/v2/apps/{owner}/{app}/ttl/", WRITE, app_ttl::no_key),
        route!(DELETE "/api/v2/apps/{owner}/{app}/ttl/", WRITE, app_ttl::no_key),
        route!(GET "/api/v2/apps/{owner}/{app}/ttl/{key}", READ, app_ttl::get),
        route!(POST "/api/v2/apps/{owner}/{app}/ttl/{key}", WRITE, app_ttl::insert),
        route!(PUT "/api/v2/apps/{owner}/{app}/ttl/{key}", WRITE, app_ttl::put),
        route!(PATCH "/api/v2/apps/{owner}/{app}/ttl/{key}", WRITE, app_ttl::touch),
        route!(DELETE "/api/v2/apps/{owner}/{app}/ttl/{key}", WRITE, app_ttl::delete),
        route!(POST "/api/v2/apps/{owner}/{app}/ttl:batch", WRITE, app_ttl::batch::batch),
        route!(GET "/api/v2/apps/{owner}/{app}/ttl:watch", READ, app_ttl::watch::watch),
        route!(GET "/api/v2/apps/{owner}/{app}/elections/", READ, path::no_name),
        route!(GET "/api/v2/apps/{owner}/{app}/elections/{name}", READ, elections::observe),
        route!(GET "/api/v2/apps/{owner}/{app}/elections/{name}/watch", READ, elections::watch),
        route!(POST "/api/v2/apps/{owner}/{app}/elections/{name}/campaign", WRITE, elections::campaign),
        route!(POST "/api/v2/apps/{owner}/{app}/elections/{name}/renew", WRITE, elections::renew),
        route!(POST "/api/v2/apps/{owner}/{app}/elections/{name}/resign", WRITE, elections::resign),
        route!(GET "/api/v2/apps/{owner}/{app}/elections//watch", READ, path::no_name),
        route!(POST "/api/v2/apps/{owner}/{app}/elections//campaign", WRITE, path::no_name),
        route!(POST "/api/v2/apps/{owner}/{app}/elections//renew", WRITE, path::no_name),
        route!(POST "/api/v2/apps/{owner}/{app}/elections//resign", WRITE, path::no_name),
        route!(GET "/api/v2/apps/{owner}/{app}/sequences/", READ, path::no_name),
        route!(GET "/api/v2/apps/{owner}/{app}/sequences/{name}", READ, sequences::show),
        route!(POST "/api/v2/apps/{owner}/{app}/sequences/{name}/next", WRITE, sequences::next),
        route!(POST "/api/v2/apps/{owner}/{app}/sequences//next", WRITE, path::no_name),
        route!(POST "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs", WRITE, blobs::upload, TRANSFER),
        route!(GET "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs/{suuid}", READ, blobs::download, TRANSFER),
        route!(DELETE "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs/{suuid}", WRITE_OR_SECRET, blobs::delete),
        route!(OPTIONS "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus", WRITE, tus::capabilities),
        route!(POST "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus", WRITE, tus::create, TRANSFER),
        route!(HEAD "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}", WRITE, tus::progress),
        route!(PATCH "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}", WRITE, tus::go_on, TRANSFER),
        route!(DELETE "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}", WRITE, tus::terminate),
        route!(POST "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}", WRITE, tus::overridden, TRANSFER),
        route!(POST "/api/v2/apps/{owner}/{app}/devices/approve", DEVICE, devices::approve),
        route!(POST "/api/v2/apps/{owner}/{app}/devices/deny", DEVICE, devices::deny),
        route!(GET "/api/v2/apps/{owner}/{app}/devices", DEVICE, devices::list),
        route!(DELETE "/api/v2/apps/{owner}/{app}/devices/{deviceId}", DEVICE, devices::unlink),
    ]
}

/// Where devices log in.
fn of_devices() -> Vec<Route> {
    vec![
        route!(POST "/oauth/{owner}/{app}/device_authorization", Access::Public, authorization::device_authorization),
        route!(POST "/oauth/{owner}/{app}/token", Access::Public, token::token),
        route!(POST "/oauth/{owner}/{app}/introspect", Access::Public, introspection::introspect),
        route!(POST "/oauth/{owner}/{app}/revoke", Access::Public, revocation::revoke),
        route!(GET "/.well-known/oauth-authorization-server/oauth/{owner}/{app}", Access::Public, discovery::metadata),
        route!(GET "/oauth/{owner}/{app}/.well-known/oauth-authorization-server", Access::Public, discovery::metadata_below),
        route!(POST "/login/device/code", Access::Public, github::device_code),
        route!(POST "/login/oauth/access_token", Access::Public, github::access_token),
    ]
}

/// Messages to institutions.
fn of_institutions() -> Vec<Route> {
    vec![
        route!(POST "/api/v1/in/{ispb}/msgs", PRODUCE, pull_stream::ingest),
        route!(GET "/api/v1/out/{ispb}/stream/start", Access::Institution, pull_stream::start),
        route!(GET "/api/v1/out/{ispb}/stream/{token}", Access::Institution, pull_stream::next),
        route!(DELETE "/api/v1/out/{ispb}/stream/{token}", Access::Institution, pull_stream::end),
        route!(GET "/api/v1/out/{ispb}/replay/{token}", Access::Institution, replays::read_replay),
    ]
}

/// What the admin listener serves.
pub fn admin_routes() -> Vec<Route> {
    vec![
        route!(GET "/livez", Access::Public, health::livez),
        route!(GET "/readyz", Access::Public, health::readyz),
        route!(GET "/metrics", Access::Public, health::metrics),
        route!(POST "/api/v1/admin/apps", ADMIN, admin::create_app),
        route!(GET "/api/v1/admin/apps", ADMIN, admin::list_apps),
        route!(PUT "/api/v1/admin/apps/{owner}/{app}/limits", ADMIN, admin::set_limits),
        route!(POST "/api/v1/admin/apps/{owner}/{app}/keys", ADMIN, admin::add_key),
        route!(DELETE "/api/v1/admin/apps/{owner}/{app}/keys/{id}", ADMIN, admin::revoke_key),
        route!(POST "/api/v1/admin/credentials", ADMIN, admin::add_credential),
        route!(DELETE "/api/v1/admin/credentials/{id}", ADMIN, admin::revoke_credential),
        route!(GET "/api/v1/admin/backup", ADMIN, admin::backup),
        route!(POST "/api/v1/admin/oauth-clients", ADMIN, clients::register),
        route!(GET "/api/v1/admin/apps/{owner}/{app}/oauth-clients", ADMIN, clients::list),
        route!(POST "/api/v1/admin/apps/{owner}/{app}/oauth-clients/{clientId}/secret", ADMIN, clients::rotate_secret),
        route!(DELETE "/api/v1/admin/apps/{owner}/{app}/oauth-clients/{clientId}", ADMIN, clients::remove),
        route!(PUT "/api/v1/admin/apps/{owner}/{app}/sign-in", ADMIN, operator::set_sign_in),
        route!(GET "/api/v1/admin/apps/{owner}/{app}/sign-in", ADMIN, operator::show_sign_in),
        route!(DELETE "/api/v1/admin/apps/{owner}/{app}/sign-in", ADMIN, operator::remove_sign_in),
        route!(GET "/api/v1/admin/streams/{ispb}", ADMIN, streams::status),
        route!(GET "/api/v1/admin/policies/{ispb}", ADMIN, streams::show_policy),
        route!(PUT "/api/v1/admin/policies/{ispb}", ADMIN, streams::set_policy),
        route!(POST "/api/v1/admin/holds", ADMIN, holds::place_hold),
        route!(GET "/api/v1/admin/holds", ADMIN, holds::list_holds),
        route!(DELETE "/api/v1/admin/holds/{holdId}", ADMIN, holds::release_hold),
        route!(PUT "/api/v1/admin/regions/{ispb}", ADMIN, regions::set_regions),
        route!(GET "/api/v1/admin/regions/{ispb}", ADMIN, regions::show_regions),
        route!(POST "/api/v1/admin/regions/{ispb}/failover", ADMIN, regions::fail_over),
        route!(POST "/api/v1/admin/replays", ADMIN, replays::order_replay),
        route!(GET "/api/v1/admin/audit", ADMIN, auditor::list_audit),
        route!(GET "/api/v1/admin/audit/verify", ADMIN, auditor::verify_audit),
        route!(POST "/api/v1/admin/archives", ADMIN, archives::archive_messages),
        route!(GET "/api/v1/admin/archives", ADMIN, archives::list_segments),
    ]
}

/// The router of a table, with everything that stands in front of it.
pub fn router(routes: Vec<Route>, services: &Services) -> Router {
    let mut paths: BTreeMap<&'static str, Vec<Route>> = BTreeMap::new();
    for route in routes {
        paths.entry(route.path).or_default().push(route);
    }
    let mut router = Router::new();
    for (path, routes) in paths {
        let not_allowed = not_allowed(path, &routes);
        let methods = routes.iter().fold(MethodRouter::new(), |methods, route| {
            methods.merge((route.answer)(route.access))
        });
        router = router.route(path, methods.fallback(not_allowed));
    }
    let no_route = Fronted {
        route: "none",
        access: Access::Public,
        counted: Counted::Requests,
        inner: no_route,
    };
    router.fallback(no_route).with_state(services.clone())
}

async fn no_route() -> Problem {
    Problem::new(Code::Absent, "there is no such route; see /api/docs")
}

/// Answers a method that the path does not have with those that it has.
fn not_allowed(route: &'static str, routes: &[Route]) -> impl Handler<((),), Services> {
    let methods = routes.iter().map(|route| match &route.method {
        &Method::GET => "GET, HEAD",
        method => method.as_str(),
    });
    let methods = methods.collect::<Vec<_>>().join(", ");
    let problem = Problem::new(Code::MethodNotAllowed, format!("use one of {methods}"));
    let problem = match HeaderValue::from_str(&methods) {
        Ok(allowed) => problem.with_header(ALLOW, allowed),
        Err(_) => problem,
    };
    let (access, counted) = (Access::Public, Counted::Requests);
    Fronted { route, access, counted, inner: move || std::future::ready(problem) }
}
