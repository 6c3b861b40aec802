//! Who may do what: every route of both tables, with every kind of credential.
//!
//! What is expected follows from the access that the table names, by a rule of its own here:
//! refused unless that rule finds a reason to let in. The controls run the same walk against
//! tables that let in too many, and must find that.

mod credentials;
mod forged;
mod revocation;
mod scopes;
mod strangers;
mod walk;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value as Json;
use wane_server::http::{Access, DOCUMENT, Route, admin_routes, main_routes};

use self::credentials::{Cast, Kind, Standing};
use self::walk::{Expected, expected};
use super::conversation::{Conversation, Request};
use crate::openapi::NOT_DESCRIBED;
use crate::server::{Answer, Server};

/// Where a server can be reached, and the operator's key.
#[derive(Debug, Clone)]
struct Site {
    http: SocketAddr,
    admin: SocketAddr,
    admin_key: String,
}

impl Site {
    fn of(server: &Server) -> Self {
        Self { http: server.http, admin: server.admin, admin_key: server.admin_key.clone() }
    }

    fn administer(&self, method: &str, path: &str, body: &str) -> Answer {
        let request = Request::new(method, path).key(&self.admin_key).body(body);
        Conversation::with(self.admin).ask(&request)
    }
}

/// The routes of a listener.
struct Listener {
    name: &'static str,
    routes: Vec<Route>,
}

fn listeners() -> [Listener; 2] {
    [
        Listener { name: "main", routes: main_routes() },
        Listener { name: "admin", routes: admin_routes() },
    ]
}

#[test]
fn every_route_lets_in_those_it_names_and_nobody_else() {
    // A reader that is let in holds its lease until the end: nothing changes by itself.
    let steady = ["--stream-lease-ms=3600000", "--stream-token-ms=7200000"];
    for storage in ["--storage=mem", "--storage=file"] {
        let flags = [&["--trusted-proxies=127.0.0.1", storage], &steady[..]].concat();
        let server = Server::with(&flags);
        let site = Site::of(&server);
        let violations = walk::walk(&site, &Cast::assemble(&site));
        assert!(violations.is_empty(), "\n{}", violations.join("\n"));
        assert!(!server.log().contains("panicked"));
    }
}

/// The control of the walk.
#[test]
fn a_table_that_lets_in_too_many_is_noticed() {
    let forged = forged::Forged::serve(|access| match access {
        Access::Public | Access::System(_) | Access::Institution => Access::Public,
        Access::App(_) => Access::App(wane::services::apps::Scope::Read),
        Access::OwnerOrHolder(_) => Access::OwnerOrHolder(wane::services::apps::Scope::Read),
    });
    let cast = Cast::assemble(&forged.site);
    let few = |kind: &&Kind| ["no credential", "read only"].contains(&kind.name.as_str());
    let violations = walk::walk_as(&forged.site, &cast, cast.kinds().iter().filter(few));
    let found = |parts: &[&str]| {
        violations.iter().any(|violation| parts.iter().all(|part| violation.contains(part)))
    };
    for route in admin_routes().iter().filter(|route| route.access != Access::Public) {
        let call = format!("{} {} ", route.method, route.path);
        assert!(found(&[&call, "no credential"]), "{call}");
    }
    assert!(found(&["PUT /api/v2/apps/{owner}/{app}/ttl/{key} ", "read only", "let in"]));
    assert!(found(&["read only", "changed the store"]));
    assert!(!found(&["GET /livez "]), "what is public is no violation");
}

/// The control of what is expected: no refusal may be answered by anything else.
#[test]
fn nobody_is_expected_to_be_let_in_without_a_reason() {
    use wane::services::apps::Scope;
    let of_apps = Scope::ALL.map(Access::App).into_iter();
    let of_apps = of_apps.chain(Scope::ALL.map(Access::OwnerOrHolder));
    let accesses = of_apps.chain(Scope::ALL.map(Access::System)).chain([Access::Institution]);
    for access in accesses {
        assert_eq!(expected(access, &Standing::Nobody), Expected::Unauthorized);
        assert!(Expected::Unauthorized.violation(200, 200).is_some());
        for scope in Scope::ALL {
            let foreign = Standing::AppKey { own: false, scopes: Scope::ALL.to_vec() };
            let own = Standing::AppKey { own: true, scopes: vec![scope] };
            let system = Standing::System { scopes: vec![scope] };
            for standing in [foreign, own, system] {
                let is_named = match (access, &standing) {
                    (
                        Access::App(wanted) | Access::OwnerOrHolder(wanted),
                        Standing::AppKey { own, .. },
                    ) => *own && wanted == scope,
                    (Access::System(wanted), Standing::System { .. }) => wanted == scope,
                    (Access::Institution, Standing::System { .. }) => scope == Scope::Pull,
                    _ => false,
                };
                let expected = expected(access, &standing);
                assert_eq!(expected == Expected::LetIn, is_named, "{access:?} {standing:?}");
                assert_eq!(expected.violation(200, 200).is_none(), is_named);
                assert!(expected.violation(500, 200).is_some());
            }
        }
    }
}

/// Each listener serves its own routes and none of the other's, whoever asks.
#[test]
fn a_listener_does_not_serve_the_routes_of_the_other() {
    let server = Server::in_memory();
    let site = Site::of(&server);
    let cast = Cast::assemble(&site);
    let [main, admin] = listeners();
    let is_in = |routes: &[Route], path: &str| routes.iter().any(|route| route.path == path);
    for (routes, others, address) in
        [(&main.routes, &admin.routes, site.admin), (&admin.routes, &main.routes, site.http)]
    {
        let mut connection = Conversation::with(address);
        for route in routes.iter().filter(|route| !is_in(others, route.path)) {
            for kind in cast.kinds() {
                let request = walk::call(route, kind).request;
                let answer = connection.ask(&request);
                assert_eq!(answer.status, 404, "{} {}", route.path, kind.name);
                let says_so = answer.body.contains("no such route");
                assert!(says_so || request.method == "HEAD", "{}", answer.body);
            }
        }
    }
}

#[test]
fn the_description_lists_the_routes_that_are_served() {
    let served: BTreeSet<_> = listeners()
        .iter()
        .flat_map(|listener| &listener.routes)
        .filter(|route| !NOT_DESCRIBED.contains(&route.path))
        .map(|route| (route.path.to_owned(), route.method.to_string()))
        .collect();
    let document: Json = serde_json::from_str(DOCUMENT).unwrap();
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let route = (path.clone(), method.to_uppercase());
            let access = listeners()
                .iter()
                .flat_map(|listener| listener.routes.clone())
                .find(|served| served.path == route.0 && served.method.as_str() == route.1)
                .map(|served| served.access);
            let is_public = access.is_none_or(|access| access == Access::Public);
            assert_eq!(operation["security"].is_null(), is_public, "{route:?}");
            described.insert(route);
        }
    }
    assert_eq!(served, described);
}
