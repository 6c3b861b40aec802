//! The description of the API, as the code has it.

use std::fs;
use std::path::Path;

use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::DOCUMENT;
use crate::http::blobs::{self, tus};
use crate::http::described::{self, ContestedBody, RefusedBody};
use crate::http::device_auth::{
    OAuthErrorBody, authorization, clients, devices, discovery, introspection, revocation, token,
};
use crate::http::device_page::operator;
use crate::http::problem::ProblemBody;
use crate::http::pull_stream::{archives, auditor, holds, operator as streams, regions, replays};
use crate::http::{admin, app_ttl, elections, health, pull_stream, sequences};

const WRITE: &str = "WANE_TEST_WRITE_OPENAPI";

#[derive(OpenApi)]
#[openapi(
    info(title = "Wane", description = "State that expires: one atomic, time-exact contract. \
        Problems are application/problem+json with a `code`.", license(name = "Apache-2.0")),
    paths(
        health::livez, health::readyz, health::metrics,
        app_ttl::get, app_ttl::insert, app_ttl::put, app_ttl::touch, app_ttl::delete,
        app_ttl::scan, app_ttl::batch::batch, app_ttl::watch::watch,
        elections::campaign, elections::renew, elections::resign, elections::observe,
        elections::watch, sequences::next, sequences::show,
        blobs::upload, blobs::download, blobs::delete,
        tus::capabilities, tus::create, tus::progress, tus::go_on, tus::terminate, tus::overridden,
        admin::create_app, admin::list_apps, admin::set_limits, admin::add_key,
        admin::revoke_key, admin::add_credential, admin::revoke_credential, admin::backup,
        authorization::device_authorization, token::token, introspection::introspect,
        revocation::revoke, discovery::metadata, discovery::metadata_below,
        devices::approve, devices::deny, devices::list, devices::unlink,
        clients::register, clients::list, clients::rotate_secret, clients::remove,
        operator::set_sign_in, operator::show_sign_in, operator::remove_sign_in,
        pull_stream::ingest, pull_stream::start, pull_stream::next, pull_stream::end,
        streams::status, streams::show_policy, streams::set_policy,
        holds::place_hold, holds::list_holds, holds::release_hold,
        regions::set_regions, regions::show_regions, regions::fail_over,
        replays::order_replay, replays::read_replay,
        auditor::list_audit, auditor::verify_audit,
        archives::archive_messages, archives::list_segments,
    ),
    components(schemas(ProblemBody, RefusedBody, ContestedBody, OAuthErrorBody)),
    modifiers(&Bearer, &Names),
)]
struct Description;

/// The operations of a path.
fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let reading = [&mut item.get, &mut item.head, &mut item.options];
    let writing = [&mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
    reading.into_iter().chain(writing).flatten()
}

/// Every operation outside of `health` wants a bearer credential.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("credential", SecurityScheme::Http(scheme));
        let needed = utoipa::openapi::SecurityRequirement::new("credential", [""; 0]);
        for (path, item) in &mut api.paths.paths {
            for operation in operations(item).filter(|_| path.starts_with("/api")) {
                operation.security = Some(vec![needed.clone()]);
            }
        }
    }
}

/// Names of operations are those of functions; their tag in front makes them unique.
struct Names;

impl Modify for Names {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        for item in api.paths.paths.values_mut() {
            for operation in operations(item) {
                let tag = operation.tags.iter().flatten().next().map_or("", String::as_str);
                let name = operation.operation_id.as_deref().unwrap_or_default();
                operation.operation_id = Some(format!("{tag}_{name}"));
            }
        }
    }
}

/// The description as pretty JSON with a final newline, as it is committed.
fn document() -> String {
    let mut document = serde_json::to_value(Description::openapi()).unwrap();
    described::add_rules(&mut document);
    format!("{document:#}\n")
}

#[test]
fn the_committed_description_is_that_of_the_code() {
    let generated = document();
    if std::env::var_os(WRITE).is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        return fs::write(&path, generated).unwrap();
    }
    assert!(
        DOCUMENT == generated,
        "docs/openapi.json is not what the code says; look at the difference after\n  \
         {WRITE}=1 cargo test -p wane-server --lib openapi"
    );
}
