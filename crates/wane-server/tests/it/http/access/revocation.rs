//! A key that was taken back opens nothing any more, wherever it was used before.

use std::time::{Duration, Instant};

use wane_server::http::{Access, main_routes};

use super::Site;
use super::credentials::{Cast, Kind, Standing};
use super::walk::call;
use crate::http::conversation::{Conversation, Request};
use crate::server::Server;

/// Within this time a revocation is felt.
const FELT: Duration = Duration::from_secs(1);

/// The second key of the app `own`.
fn second_key(cast: &Cast) -> Kind {
    let own = cast.kinds().iter().find(|kind| kind.name == "own key").unwrap();
    let header = format!("authorization: Bearer {}", own.target.second);
    Kind { headers: vec![header.into_bytes()], ..own.clone() }
}

fn revoke(site: &Site, kind: &Kind) {
    let id = kind.target.second.split('.').next().unwrap();
    let path = format!("/api/v1/admin/apps/{}/app/keys/{id}", kind.target.owner);
    let answer = site.administer("DELETE", &path, "");
    assert_eq!(answer.status, 204, "{}", answer.body);
}

#[test]
fn a_revoked_key_opens_no_route() {
    for server in [Server::in_memory(), Server::on_file()] {
        let site = Site::of(&server);
        let cast = Cast::assemble(&site);
        let kind = second_key(&cast);
        let routes = main_routes();
        let of_apps = || {
            routes
                .iter()
                .filter(|route| matches!(route.access, Access::App(_) | Access::OwnerOrHolder(_)))
        };
        let mut used = Conversation::with(site.http);
        let read =
            Request { headers: kind.headers.clone(), ..Request::new("GET", &kind.target.path()) };
        for route in of_apps() {
            let status = Conversation::with(site.http).ask(&call(route, &kind).request).status;
            assert!(![401, 403, 404].contains(&status), "{}: {status}", route.path);
            kind.target.seed(&site);
        }
        assert_eq!(used.ask(&read).status, 200);

        revoke(&site, &kind);
        assert!(is_felt(|| used.ask(&read).status == 401), "on a connection that was let in");
        for route in of_apps() {
            let answer = Conversation::with(site.http).ask(&call(route, &kind).request);
            assert_eq!(answer.status, 401, "{}", route.path);
        }
        let other = cast.kinds().iter().find(|other| other.name == "own key").unwrap();
        assert!(matches!(other.standing, Standing::AppKey { own: true, .. }));
        let read = Request { headers: other.headers.clone(), ..read };
        assert_eq!(used.ask(&read).status, 200, "the other key stays");
    }
}

/// A watch is one long answer: it must not go on telling what its key no longer opens.
#[test]
fn a_watch_ends_with_its_key() {
    let server = Server::in_memory();
    let site = Site::of(&server);
    let cast = Cast::assemble(&site);
    let kind = second_key(&cast);
    let open = |headers: &[Vec<u8>]| {
        let path = format!("{}:watch", kind.target.path());
        let mut watch = Conversation::with(site.http);
        let request = Request { headers: headers.to_vec(), ..Request::new("GET", &path) };
        assert_eq!(watch.ask(&request).status, 200);
        watch
    };
    let (mut revoked, mut kept) =
        (open(&kind.headers), open(&[format!("authorization: Bearer {}", kind.target.key).into()]));
    revoke(&site, &kind);
    // Changes come in faster than anybody would look at the key, and must not put that off.
    let until = now() + FELT + Duration::from_millis(500);
    let mut connection = Conversation::with(site.http);
    while now() < until {
        let set = Request::new("PUT", &format!("{}/kept", kind.target.path()));
        let body = r#"{"value":"early","ttlSeconds":60}"#;
        assert_eq!(connection.ask(&set.key(&kind.target.key).body(body)).status, 200);
    }
    let set = Request::new("PUT", &format!("{}/kept", kind.target.path()));
    let body = r#"{"value":"late","ttlSeconds":60}"#;
    assert_eq!(connection.ask(&set.key(&kind.target.key).body(body)).status, 200);
    // A chunk of no bytes is the end of a stream.
    let is_told = |watch: &mut Conversation, value: &str| {
        let mut lines = std::iter::from_fn(|| watch.line()).take_while(|line| line != "0");
        lines.any(|line| line.contains(value))
    };
    assert!(is_told(&mut kept, "late"), "the other key's watch goes on");
    assert!(is_told(&mut revoked, "early"), "before, it was told");
    assert!(!is_told(&mut revoked, "late"), "a revoked key was told a change");
}

#[expect(clippy::disallowed_methods, reason = "a revocation is felt in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Whether `holds` becomes true within the time that is promised.
fn is_felt(mut holds: impl FnMut() -> bool) -> bool {
    let until = now() + FELT;
    while now() < until {
        if holds() {
            return true;
        }
    }
    holds()
}
