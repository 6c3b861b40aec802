//! The page of device login as a browser without scripts meets it: real forms, real cookies.

mod deciding;
mod entering;
mod issuer;
mod operator;
mod signing_in;
mod visitor;

use super::device_auth::{Codes, poll, start};
use crate::server::Server;
use visitor::Visitor;

/// Two people who may sign in, and each test has a server of its own.
fn server() -> Server {
    Server::with(&["--storage", "mem", "--dev-users", "alice:wonderland,bob:builder"])
}

/// What the device of these codes is told: an error by its name, or `linked`.
fn told(server: &Server, codes: &Codes) -> String {
    let answer = poll(server, codes);
    match answer.json()["error"].as_str() {
        Some(error) => error.to_owned(),
        None => answer.json()["access_token"].as_str().map_or("nothing", |_| "linked").to_owned(),
    }
}

/// How many devices of `demo/app` are linked to somebody.
fn devices_of(server: &Server, subject: &str) -> usize {
    let path = format!("/api/v2/apps/demo/app/devices?subject={subject}");
    let answer = server.ask("GET", &path, "");
    answer.json()["items"].as_array().unwrap_or_else(|| panic!("{}", answer.body)).len()
}

/// A visitor who entered the code of a device and signed in, on the page that asks for a decision.
fn about_to_decide<'a>(server: &'a Server, name: &str, password: &str) -> (Visitor<'a>, Codes) {
    let codes = start(server);
    let mut visitor = Visitor::of(server);
    visitor.enters(&codes.user_code);
    let page = visitor.signs_in(name, password);
    assert!(page.body.contains("value=\"approve\""), "{}", page.body);
    (visitor, codes)
}
