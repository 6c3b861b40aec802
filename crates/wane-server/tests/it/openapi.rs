//! The description of the API: whole, and of the routes that there are. That it is what the code says is
//! shown where it is generated.
//!
//! Whether answers are as described is another matter: `scripts/schemathesis` asks the real server.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use wane_server::http::{DOCUMENT, Route, admin_routes, main_routes};

/// Rows of the route tables that are not described: the description itself; a key or a name that
/// is missing, which is a wrong request and no operation; other places for what is described; and
/// pages for people.
pub(crate) const NOT_DESCRIBED: [&str; 24] = [
    "/api/openapi.json",
    "/api/docs",
    "/api/v2/apps/{owner}/{app}/ttl/",
    "/api/v2/apps/{owner}/{app}/elections/",
    "/api/v2/apps/{owner}/{app}/elections//watch",
    "/api/v2/apps/{owner}/{app}/elections//campaign",
    "/api/v2/apps/{owner}/{app}/elections//renew",
    "/api/v2/apps/{owner}/{app}/elections//resign",
    "/api/v2/apps/{owner}/{app}/sequences/",
    "/api/v2/apps/{owner}/{app}/sequences//next",
    "/login/device/code",
    "/login/oauth/access_token",
    "/device",
    "/device/",
    "/device/qr.svg",
    "/device/style.css",
    "/device/icon.svg",
    "/device/sign-in",
    "/device/sign-in/start",
    "/device/signed-in/{owner}/{app}",
    "/device/sign-out",
    "/device/confirm",
    "/device/decide",
    "/device/done",
];

fn described() -> Json {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// Each operation: its method, its path, and what is said of it.
fn operations(document: &Json) -> Vec<(String, String, Json)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    operations
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let row = |route: &Route| (route.method.to_string(), route.path.to_owned());
    let routes: BTreeSet<_> = main_routes().iter().chain(&admin_routes()).map(row).collect();
    let described: BTreeSet<_> =
        operations(&described()).into_iter().map(|(method, path, _)| (method, path)).collect();
    let unserved: Vec<_> = described.difference(&routes).collect();
    assert!(unserved.is_empty(), "described, and not served: {unserved:?}");
    let is_listed = |(_, path): &&(String, String)| NOT_DESCRIBED.contains(&path.as_str());
    let (listed, missing): (Vec<_>, Vec<_>) = routes.difference(&described).partition(is_listed);
    assert!(missing.is_empty(), "served, and not described: {missing:?}");
    let listed: BTreeSet<_> = listed.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(listed, BTreeSet::from(NOT_DESCRIBED), "the exceptions are all needed");
}

/// What programs that read it need: names of their own, descriptions, and no loose ends.
#[test]
fn the_description_is_well_formed() {
    let document = described();
    let mut names = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        let name = operation["operationId"].as_str().unwrap().to_owned();
        assert!(names.insert(name), "{method} {path} has the name of another");
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(response["description"].is_string(), "{method} {path} {status}");
            let is_problem = response["content"].get("application/problem+json").is_some();
            let is_fine = status.starts_with('2') || status.starts_with('3');
            // Devices are told in the form of RFC 6749 what is wrong.
            let is_oauth = response["content"]["application/json"]["schema"]["$ref"]
                .as_str()
                .is_some_and(|schema| schema.ends_with("/OAuthErrorBody"));
            assert_eq!(is_problem || is_oauth, !is_fine, "{method} {path} {status}");
        }
        let guarded = operation["security"][0].get("credential").is_some();
        assert_eq!(guarded, path.starts_with("/api/"), "{method} {path}");
    }
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer} is not there");
    }
}
