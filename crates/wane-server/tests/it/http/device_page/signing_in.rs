//! Signing in, in each of the ways, to the application of the code and to no other.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};

use super::issuer::{CLIENT, Issuer, Lie, SECRET, fields, mac};
use super::visitor::{Visitor, attribute, escaped, tag};
use super::{about_to_decide, devices_of, server, start, told};
use crate::http::conversation::Request;
use crate::http::device_auth::send_with;
use crate::server::{Answer, Server};
use crate::wall_clock;

const SIGN_IN: &str = "/api/v1/admin/apps/demo/app/sign-in";

#[test]
fn a_wrong_password_is_told_and_the_name_kept_and_tries_are_limited() {
    let server = server();
    let mut visitor = Visitor::of(&server);
    visitor.enters(&start(&server).user_code);
    for attempt in 0..10 {
        let page = visitor.signs_in("alice", &format!("wrong-{attempt}"));
        assert_eq!(page.status, 422, "{}", page.body);
        assert!(page.body.contains("Name or password are wrong."), "{}", page.body);
        assert_eq!(attribute(tag(&page.body, "name"), "value"), "alice");
        assert_eq!(attribute(tag(&page.body, "password"), "value"), "");
    }
    let page = visitor.signs_in("alice", "wonderland");
    assert_eq!(page.status, 429, "also the right one: {}", page.body);
    assert!(page.header("retry-after").is_some());
    assert!(!server.log().contains("wonderland"), "{}", server.log());
}

#[test]
fn somebody_else_can_sign_in_instead() {
    let server = server();
    let (mut visitor, codes) = about_to_decide(&server, "alice", "wonderland");
    let page = visitor.sends("/device/sign-out", &[]);
    assert!(page.body.contains("Sign in to go on"), "{}", page.body);
    let page = visitor.signs_in("bob", "builder");
    assert!(page.body.contains("bob") && !page.body.contains("alice"), "{}", page.body);
    visitor.decides("approve");
    assert_eq!(told(&server, &codes), "linked");
    assert_eq!(devices_of(&server, "bob"), 1);
}

/// Alice of one application is nobody in another.
#[test]
fn a_sign_in_counts_for_one_application() {
    let server = server();
    let (mut visitor, _) = about_to_decide(&server, "alice", "wonderland");
    let confirm = visitor.page.clone();
    server.make_app("acme", "two");
    let body = r#"{"owner":"acme","app":"two","name":"Radio","clientId":"radio"}"#;
    assert_eq!(server.administer("POST", "/api/v1/admin/oauth-clients", body).status, 201);
    let path = "/oauth/acme/two/device_authorization";
    let started = send_with(&server, path, "client_id=radio", &[]).json();
    let page = visitor.enters(started["user_code"].as_str().unwrap());
    assert!(page.body.contains("Sign in to go on"), "{}", page.body);
    assert!(page.body.contains("acme/two"), "{}", page.body);
    // The form that she was shown for the first application, with its token.
    let shown = visitor.page.clone();
    visitor.page = confirm;
    assert_eq!(
        visitor.sends_and_stays("/device/decide", &[("decision", "approve")], &[]).status,
        409
    );
    visitor.page = shown;
    assert!(visitor.opens("/device/confirm").body.contains("Sign in to go on"));
    let device = format!(
        "client_id=radio&grant_type={}&device_code={}",
        escaped("urn:ietf:params:oauth:grant-type:device_code"),
        started["device_code"].as_str().unwrap()
    );
    let told = send_with(&server, "/oauth/acme/two/token", &device, &[]).json();
    assert_eq!(told["error"], "authorization_pending", "{told}");
}

#[test]
fn an_application_without_a_sign_in_approves_devices_itself() {
    let server = Server::in_memory();
    let codes = start(&server);
    let mut visitor = Visitor::of(&server);
    let page = visitor.enters(&codes.user_code);
    assert_eq!(page.status, 200);
    assert!(page.body.contains("Go on in the application"), "{}", page.body);
    assert!(page.body.contains("demo/app"), "{}", page.body);
    let page = visitor.opens("/device/sign-in/start");
    assert!(page.body.contains("Go on in the application"), "{}", page.body);
}

/// A server whose people sign in at the application's own page, and the secret of that.
fn with_assertions() -> (Server, String) {
    let server = server();
    let body = r#"{"assertion":{"url":"https://app.example/link?tenant=7"}}"#;
    let set = server.administer("PUT", SIGN_IN, body);
    assert_eq!(set.status, 200, "{}", set.body);
    let secret = set.json()["assertion"]["secret"].as_str().unwrap().to_owned();
    (server, secret)
}

/// Leaves for the sign-in by its link, and returns where to.
fn leaves(visitor: &mut Visitor<'_>) -> String {
    assert!(visitor.page.contains("href=\"/device/sign-in/start\""), "{}", visitor.page);
    let answer = visitor.asks(&Request::new("GET", "/device/sign-in/start"));
    assert_eq!(answer.status, 303, "{}", answer.body);
    answer.header("location").unwrap().to_owned()
}

fn assertion(secret: &str, claims: &Json) -> String {
    let part = |part: &Json| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(claims));
    format!("{signed}.{}", mac(secret, &signed))
}

fn claims(state: &str) -> Json {
    let now = wall_clock() / 1_000;
    json!({"sub": "carol", "name": "Carol C.", "aud": "http://localhost/device", "iat": now,
        "exp": now + 120, "nonce": state})
}

fn returns(visitor: &mut Visitor<'_>, state: &str, assertion: &str) -> Answer {
    visitor.opens(&format!("/device/signed-in/demo/app?state={state}&assertion={assertion}"))
}

#[test]
fn an_assertion_of_the_application_signs_its_visitor_in() {
    let (server, secret) = with_assertions();
    let codes = start(&server);
    let mut visitor = Visitor::of(&server);
    let page = visitor.enters(&codes.user_code);
    assert!(page.body.contains("Sign in at app.example"), "{}", page.body);
    let target = leaves(&mut visitor);
    let (page, query) = target.split_once('?').unwrap();
    assert_eq!(page, "https://app.example/link");
    let query = fields(query);
    assert_eq!(query["tenant"], "7");
    assert_eq!(query["return_to"], "http://localhost/device/signed-in/demo/app");
    let right = assertion(&secret, &claims(&query["state"]));
    let page = returns(&mut visitor, &query["state"], &right);
    assert!(page.body.contains("Carol C."), "{}", page.body);
    let again = returns(&mut visitor, &query["state"], &right);
    assert!(again.body.contains("value=\"approve\""), "loaded again: {}", again.body);
    visitor.decides("approve");
    assert_eq!(told(&server, &codes), "linked");
    assert_eq!(devices_of(&server, "carol"), 1);
    let log = server.log();
    assert!(!log.contains(&secret) && !log.contains(&right), "{log}");
    assert!(!log.contains(&codes.user_code) && !log.contains(&query["state"]), "{log}");
}

#[test]
fn an_assertion_that_is_forged_reused_or_planted_signs_nobody_in() {
    let (server, secret) = with_assertions();
    let state_of = |target: String| fields(target.split_once('?').unwrap().1)["state"].clone();
    let mut attacker = Visitor::of(&server);
    attacker.enters(&start(&server).user_code);
    let own = state_of(leaves(&mut attacker));
    let planted = assertion(&secret, &claims(&own));
    let mut victim = Visitor::of(&server);
    victim.enters(&start(&server).user_code);
    for case in 0..7 {
        victim.opens("/device/sign-in");
        let state = state_of(leaves(&mut victim));
        let right = assertion(&secret, &claims(&state));
        let (brought, forged, status) = match case {
            0 => (state.clone(), assertion("x", &claims(&state)), 403),
            1 => (state.clone(), String::new(), 403),
            2 => (state.clone(), planted.clone(), 403),
            3 => (state.clone(), "&error=access_denied%0Ax".to_owned(), 403),
            4 => (own.clone(), planted.clone(), 400),
            5 => (String::new(), right.clone(), 400),
            _ => ("junk".to_owned(), right.clone(), 400),
        };
        let page = returns(&mut victim, &brought, &forged);
        assert_eq!(page.status, status, "{case}: {}", page.body);
        assert!(page.body.contains("Try again"), "{}", page.body);
        assert!(!page.body.contains("value=\"approve\""));
        let mut elsewhere = Visitor::of(&server);
        let page = returns(&mut elsewhere, &state, &right);
        assert_eq!(page.status, 400, "another browser: {}", page.body);
        assert!(page.body.contains("This sign-in is not under way"), "{}", page.body);
        // A state is spent by the first answer that brings it, and by no other.
        let page = returns(&mut victim.clone(), &state, &right);
        assert_eq!(page.status, if status == 403 { 400 } else { 200 }, "{case}: {}", page.body);
    }
}

/// A server whose people sign in at an issuer.
fn with_issuer(issuer: &Issuer, secret: &str) -> Server {
    let server = server();
    let body =
        json!({"oidc": {"issuer": issuer.url(), "clientId": CLIENT, "clientSecret": secret}});
    let set = server.administer("PUT", SIGN_IN, &body.to_string());
    assert_eq!(set.status, 200, "{}", set.body);
    server
}

/// Signs in at the issuer and comes back.
fn through(visitor: &mut Visitor<'_>, issuer: &Issuer) -> Answer {
    let back = issuer.authorizes(&leaves(visitor));
    let path = back.strip_prefix("http://localhost").unwrap_or_else(|| panic!("back to {back}"));
    visitor.opens(path)
}

#[test]
fn an_issuer_signs_its_people_in() {
    let issuer = Issuer::begin();
    let server = with_issuer(&issuer, SECRET);
    let codes = start(&server);
    let mut visitor = Visitor::of(&server);
    let page = visitor.enters(&codes.user_code);
    let words = format!("Sign in at {}", issuer.address);
    assert!(page.body.contains(&words), "{}", page.body);
    let page = through(&mut visitor, &issuer);
    assert!(page.body.contains("alice@example.com"), "{}", page.body);
    visitor.decides("approve");
    assert_eq!(told(&server, &codes), "linked");
    assert_eq!(devices_of(&server, "user-4711"), 1);
    assert!(!server.log().contains("canary"), "{}", server.log());
}

/// Each lie alone: the same visitor then signs in at the issuer that tells the truth.
#[test]
fn an_id_token_that_is_not_good_signs_nobody_in() {
    let issuer = Issuer::begin();
    let server = with_issuer(&issuer, SECRET);
    let mut visitor = Visitor::of(&server);
    visitor.enters(&start(&server).user_code);
    for lie in [
        Lie::Nonce,
        Lie::Audience,
        Lie::Issuer,
        Lie::Expired,
        Lie::Signature,
        Lie::Unsigned,
        Lie::SharedSecret,
        Lie::NoIdToken,
        Lie::LongSubject,
        Lie::TokenError,
        Lie::AuthorizedParty,
        Lie::OtherAudience,
        Lie::IssuedLongAgo,
        Lie::IssuedLater,
    ] {
        issuer.lies(lie);
        let page = through(&mut visitor, &issuer);
        assert_eq!(page.status, 403, "{lie:?}: {}", page.body);
        assert!(page.body.contains("You are not signed in"), "{lie:?}: {}", page.body);
        visitor.opens("/device/sign-in");
    }
    issuer.lies(Lie::Nothing);
    let page = through(&mut visitor, &issuer);
    assert!(page.body.contains("value=\"approve\""), "{}", page.body);
}

#[test]
fn a_code_of_the_issuer_is_for_the_visitor_who_left_for_it() {
    let issuer = Issuer::begin();
    let server = with_issuer(&issuer, SECRET);
    let mut victim = Visitor::of(&server);
    victim.enters(&start(&server).user_code);
    let mut attacker = Visitor::of(&server);
    attacker.enters(&start(&server).user_code);
    let stolen = issuer.authorizes(&leaves(&mut attacker));
    let own = leaves(&mut victim);
    let state = fields(own.split_once('?').unwrap().1)["state"].clone();
    let code = fields(stolen.split_once('?').unwrap().1)["code"].clone();
    let page = victim.opens(stolen.strip_prefix("http://localhost").unwrap());
    assert_eq!(page.status, 400, "the state is another's: {}", page.body);
    let path = format!("/device/signed-in/demo/app?code={code}&state={state}");
    let page = victim.opens(&path);
    assert_eq!(page.status, 403, "the verifier is another's: {}", page.body);
    let evil = escaped("https://evil.example");
    let page = victim.opens(&format!("{path}&iss={evil}"));
    assert_eq!(page.status, 400, "the answer is of another issuer: {}", page.body);
}

/// Keys are kept, and asked for again where a signature is by a new one.
#[test]
fn an_issuer_may_change_its_keys() {
    let issuer = Issuer::begin();
    let server = with_issuer(&issuer, SECRET);
    let mut visitor = Visitor::of(&server);
    visitor.enters(&start(&server).user_code);
    through(&mut visitor, &issuer);
    assert_eq!(issuer.keys_asked(), 1, "they are kept");
    issuer.changes_keys();
    crate::wait(std::time::Duration::from_secs(11));
    let mut other = Visitor::of(&server);
    other.enters(&start(&server).user_code);
    let page = through(&mut other, &issuer);
    assert!(page.body.contains("value=\"approve\""), "{}", page.body);
    assert_eq!(issuer.keys_asked(), 2);
}

#[test]
fn an_issuer_that_fails_is_a_page_that_says_so() {
    let issuer = Issuer::begin();
    let server = with_issuer(&issuer, "not-the-secret");
    let mut visitor = Visitor::of(&server);
    visitor.enters(&start(&server).user_code);
    let page = through(&mut visitor, &issuer);
    assert_eq!(page.status, 403, "{}", page.body);
    // Nobody listens on the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [format!("http://{gone}"), format!("{}/other", issuer.url())] {
        let body = json!({"oidc": {"issuer": url, "clientId": CLIENT}}).to_string();
        assert_eq!(server.administer("PUT", SIGN_IN, &body).status, 200);
        let page = visitor.opens("/device/sign-in/start");
        assert_eq!(page.status, 502, "{url}: {}", page.body);
        assert!(page.body.contains("does not work right now"), "{}", page.body);
        assert!(page.body.contains("href=\"/device/sign-in\""), "{}", page.body);
    }
}

/// Another application of the server, whose people sign in at another issuer; returns a code of it.
fn another_app(server: &Server, issuer: &Issuer) -> String {
    server.make_app("acme", "two");
    let client = r#"{"owner":"acme","app":"two","name":"Radio","clientId":"radio"}"#;
    assert_eq!(server.administer("POST", "/api/v1/admin/oauth-clients", client).status, 201);
    let body =
        json!({"oidc": {"issuer": issuer.url(), "clientId": CLIENT, "clientSecret": SECRET}});
    let path = "/api/v1/admin/apps/acme/two/sign-in";
    assert_eq!(server.administer("PUT", path, &body.to_string()).status, 200);
    let path = "/oauth/acme/two/device_authorization";
    let started = send_with(server, path, "client_id=radio", &[]).json();
    started["user_code"].as_str().unwrap().to_owned()
}

/// The mix-up: somebody leaves for the evil issuer of one application, which sends them on to the
/// honest issuer of another. The honest one's code must not be told to the evil one.
#[test]
fn a_code_of_one_issuer_is_never_told_to_another() {
    let (honest, evil) = (Issuer::begin(), Issuer::begin());
    let server = with_issuer(&honest, SECRET);
    let code = another_app(&server, &evil);
    let mut visitor = Visitor::of(&server);
    visitor.enters(&code);
    let asked = leaves(&mut visitor);
    assert!(asked.contains(&escaped("http://localhost/device/signed-in/acme/two")), "{asked}");
    // The honest issuer sends people back only to where its client is registered.
    let sent_on = asked
        .replace(&evil.url(), &honest.url())
        .replace(&escaped("/signed-in/acme/two"), &escaped("/signed-in/demo/app"));
    let back = honest.authorizes(&sent_on);
    let page = visitor.opens(back.strip_prefix("http://localhost").unwrap());
    assert_eq!(page.status, 400, "{}", page.body);
    assert!(page.body.contains("This sign-in is not under way"), "{}", page.body);
    assert_eq!((evil.tokens_asked().len(), honest.tokens_asked().len()), (0, 0));
    visitor.opens("/device/sign-in");
    let page = through(&mut visitor, &evil);
    assert_ne!(page.status, 400, "the control: the same visitor on the right way back");
}

/// RFC 9207: an issuer that says that it names itself is not believed where it does not, and what
/// stands in an answer twice is no answer.
#[test]
fn an_answer_names_its_issuer_once_where_the_issuer_says_so() {
    let issuer = Issuer::begin();
    issuer.names_itself();
    let server = with_issuer(&issuer, SECRET);
    let mut visitor = Visitor::of(&server);
    visitor.enters(&start(&server).user_code);
    let named = format!("&iss={}", issuer.url());
    for bent in [
        |back: &str, named: &str| back.replace(named, ""),
        |back: &str, named: &str| back.replace(named, "&iss="),
        |back: &str, named: &str| format!("{back}{named}"),
        |back: &str, _: &str| format!("{back}&iss=https://evil.example"),
        |back: &str, _: &str| format!("{back}&code=another"),
        |back: &str, _: &str| format!("{back}&state=another"),
        |back: &str, _: &str| format!("{back}&error=x&error=x"),
    ] {
        let back = bent(&issuer.authorizes(&leaves(&mut visitor)), &named);
        let page = visitor.opens(back.strip_prefix("http://localhost").unwrap());
        assert_eq!(page.status, 400, "{back}: {}", page.body);
        visitor.opens("/device/sign-in");
    }
    assert_eq!(issuer.tokens_asked().len(), 0);
    let page = through(&mut visitor, &issuer);
    assert!(page.body.contains("value=\"approve\""), "{}", page.body);
}

/// Without a URL of the operator's, where people come back to is what the request says; and a site
/// whose name was made to lead to this machine must not sign anybody in.
#[test]
fn nobody_signs_in_under_a_host_that_the_operator_did_not_name() {
    let (server, _) = with_assertions();
    let local = self::server();
    for server in [&server, &local] {
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "test"] {
            let mut visitor = Visitor::of(server);
            visitor.host = host;
            let page = visitor.enters(&start(server).user_code);
            assert_eq!(page.status, 421, "{host}: {}", page.body);
            assert!(page.body.contains("You cannot sign in at this address"), "{}", page.body);
            let left = visitor.asks(&Request::new("GET", "/device/sign-in/start"));
            assert_eq!((left.status, left.header("location")), (421, None), "{host}");
        }
        for host in ["localhost:8080", "127.0.0.1", "[::1]:8629"] {
            let mut visitor = Visitor::of(server);
            visitor.host = host;
            let page = visitor.enters(&start(server).user_code);
            assert!(page.body.contains("Sign in to go on"), "{host}: {}", page.body);
        }
    }
    assert!(server.log().contains("public_url is not set"), "{}", server.log());
}

/// The operator's URL is what counts, whatever the request says.
#[test]
fn people_come_back_to_the_url_that_the_operator_gave() {
    let url = "https://login.example/wane";
    let server = Server::with(&["--storage", "mem", "--public-url", url]);
    let body = r#"{"assertion":{"url":"https://app.example/link"}}"#;
    assert_eq!(server.administer("PUT", SIGN_IN, body).status, 200);
    let codes = start(&server);
    let mut visitor = Visitor::of(&server);
    visitor.host = "inner:8080";
    let moved = visitor.asks(&Request::new("GET", "/device?user_code=BCD%26x"));
    let there = "https://login.example/wane/device?user_code=BCD%26x&moved=1";
    assert_eq!((moved.status, moved.header("location")), (303, Some(there)));
    assert_eq!(visitor.asks(&Request::new("GET", "/device?moved=1")).status, 200, "once");
    visitor.page = visitor.page.replace("action=\"/wane", "action=\"");
    visitor.sends_and_stays("/device", &[("user_code", &codes.user_code)], &[]);
    let left = visitor.asks(&Request::new("GET", "/device/sign-in/start"));
    let target = left.header("location").unwrap();
    let return_to = &fields(target.split_once('?').unwrap().1)["return_to"];
    assert_eq!(return_to, "https://login.example/wane/device/signed-in/demo/app");
}

/// What an operator set in place of a sign-in, because it was wrong or no longer trusted, counts at
/// once: for who signed in by the one before, and for who is away at it.
#[test]
fn a_sign_in_that_was_replaced_counts_for_nobody() {
    let (first, second) = (Issuer::begin(), Issuer::begin());
    let server = with_issuer(&first, SECRET);
    let mut visitor = Visitor::of(&server);
    visitor.enters(&start(&server).user_code);
    let mut away = visitor.clone();
    let back = first.authorizes(&leaves(&mut away));
    let page = through(&mut visitor, &first);
    assert!(page.body.contains("value=\"approve\""), "{}", page.body);
    let set = |url: String, secret: &str| {
        let body = json!({"oidc": {"issuer": url, "clientId": CLIENT, "clientSecret": secret}});
        assert_eq!(server.administer("PUT", SIGN_IN, &body.to_string()).status, 200);
    };
    for (url, secret) in [(second.url(), SECRET), (first.url(), "another")] {
        set(url, secret);
        let mut visitor = visitor.clone();
        assert_eq!(visitor.decides("approve").status, 200);
        assert!(visitor.page.contains("Sign in to go on"), "{}", visitor.page);
        let page = away.clone().opens(back.strip_prefix("http://localhost").unwrap());
        assert_eq!(page.status, 400, "{}", page.body);
    }
    assert_eq!((first.tokens_asked().len(), second.tokens_asked().len()), (1, 0));
    set(first.url(), SECRET);
    let page = visitor.opens("/device/confirm");
    assert!(page.body.contains("value=\"approve\""), "as it was: {}", page.body);
}

/// Who signed in at one address of the page did not at another.
#[test]
fn a_sign_in_counts_where_the_page_was() {
    let server = server();
    let (mut visitor, _) = about_to_decide(&server, "alice", "wonderland");
    visitor.host = "127.0.0.1";
    let page = visitor.opens("/device/confirm");
    assert!(page.body.contains("Sign in to go on"), "{}", page.body);
}

/// However many visitors come, an issuer is asked about itself once; and not again at once where it
/// failed.
#[test]
fn visitors_cannot_have_an_issuer_asked_without_bound() {
    let issuer = Issuer::begin();
    let server = with_issuer(&issuer, SECRET);
    let mut visitor = Visitor::of(&server);
    visitor.enters(&start(&server).user_code);
    let start = Request::new("GET", "/device/sign-in/start");
    issuer.lies(Lie::NoDiscovery);
    for _ in 0..3 {
        assert_eq!(visitor.clone().asks(&start).status, 502);
    }
    assert_eq!(issuer.discoveries(), 1, "that it failed is kept");
    issuer.lies(Lie::SlowDiscovery);
    crate::wait(std::time::Duration::from_secs(6));
    let statuses: Vec<_> = std::thread::scope(|scope| {
        let each = || scope.spawn(|| visitor.clone().asks(&start).status);
        let all: Vec<_> = (0..12).map(|_| each()).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(issuer.discoveries(), 2, "one asks for all: {statuses:?}");
    let count = |status| statuses.iter().filter(|own| **own == status).count();
    assert_eq!((count(303), count(503)), (8, 4), "so many at once: {statuses:?}");
    let without = visitor.asks(&start).header("location").unwrap().to_owned();
    let state = fields(without.split_once('?').unwrap().1)["state"].clone();
    let page = visitor.opens(&format!("/device/signed-in/demo/app?state={state}&code="));
    assert_eq!(page.status, 403, "{}", page.body);
    assert_eq!(issuer.tokens_asked().len(), 0, "there is nothing to redeem");
    let limited = (0..40).map(|_| visitor.clone().asks(&start)).find(|it| it.status == 429);
    let limited = limited.expect("one address has it done so often");
    assert!(limited.header("retry-after").is_some(), "{}", limited.head);
    assert!(limited.body.contains("Too many sign-ins"), "{}", limited.body);
}

/// An issuer that says that it is another, and one that knows us as a public client.
#[test]
fn discovery_names_the_issuer_and_a_client_may_be_public() {
    let issuer = Issuer::begin();
    let server = with_issuer(&issuer, SECRET);
    let body = json!({"oidc": {"issuer": issuer.url(), "clientId": CLIENT}}).to_string();
    assert_eq!(server.administer("PUT", SIGN_IN, &body).status, 200);
    issuer.lies(Lie::OtherDiscovery);
    let mut visitor = Visitor::of(&server);
    visitor.enters(&start(&server).user_code);
    assert_eq!(visitor.opens("/device/sign-in/start").status, 502);
    issuer.lies(Lie::Nothing);
    issuer.takes_public_clients();
    crate::wait(std::time::Duration::from_secs(6));
    visitor.opens("/device/sign-in");
    let page = through(&mut visitor, &issuer);
    assert!(page.body.contains("value=\"approve\""), "{}", page.body);
    let told = issuer.tokens_asked();
    assert!(told[0].contains(&format!("client_id={CLIENT}")), "{told:?}");
}
