//! The description of the API, as JSON for programs and as a page for people.
//!
//! It is generated from the code, by [`generated`], and committed. A test compares the two, so what is
//! served is what was committed: a release has no generator in it.

use std::fmt::Write as _;

use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Response};
use serde_json::Value as Json;

#[cfg(test)]
mod generated;

/// The description as pretty JSON, as it is committed.
pub const DOCUMENT: &str = include_str!("../../../../../docs/openapi.json");

/// Methods in the order of the page, as the description writes them.
const METHODS: [&str; 7] = ["get", "head", "options", "post", "put", "patch", "delete"];

pub(super) async fn json() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// A page that lists every operation; it needs no script.
pub(super) async fn page() -> Html<String> {
    let api: Json = serde_json::from_str(DOCUMENT).unwrap_or_default();
    let mut rows = String::new();
    for (path, item) in api["paths"].as_object().into_iter().flatten() {
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            let about = operation["summary"].as_str().or(operation["description"].as_str());
            let (method, about) = (method.to_uppercase(), escape(about.unwrap_or_default()));
            let path = escape(path);
            let _written = writeln!(
                rows,
                "<tr><td><b>{method}</b></td><td><code>{path}</code></td><td>{about}</td></tr>"
            );
        }
    }
    Html(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Wane: the API</title>\
         <style>body{{font:16px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}}\
         td{{padding:.3rem .8rem;border-bottom:1px solid #ccc;vertical-align:top}}\
         code{{white-space:nowrap}}</style>\
         <h1>Wane: the API</h1><p>The whole description with every field: \
         <a href=\"/api/openapi.json\">openapi.json</a>. Credentials go into \
         <code>Authorization: Bearer ID.SECRET</code>. Operations under \
         <code>/api/v1/admin</code> and <code>/metrics</code> are on the admin listener.</p>\
         <table>{rows}</table></html>"
    ))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
