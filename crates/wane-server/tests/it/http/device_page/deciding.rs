//! Deciding: once, by who signed in, about the code that was shown; and whatever honest people do
//! with their browser in between.

use super::visitor::Visitor;
use super::{about_to_decide, devices_of, server, start, told};
use crate::http::conversation::Request;

#[test]
fn a_person_sees_who_asks_and_approves() {
    let server = server();
    let (mut visitor, codes) = about_to_decide(&server, "alice", "wonderland");
    for part in ["Demo device", "demo/app", "127.0.0.1", "read", "write", "alice", "just now"] {
        assert!(visitor.page.contains(part), "{part}: {}", visitor.page);
    }
    assert_eq!(told(&server, &codes), "authorization_pending");
    let page = visitor.decides("approve");
    assert!(page.body.contains("<h1>Approved</h1>"), "{}", page.body);
    assert!(page.body.contains("Return to your device"));
    assert_eq!(told(&server, &codes), "linked");
    assert_eq!(devices_of(&server, "alice"), 1);
}

#[test]
fn a_person_denies() {
    let server = server();
    let (mut visitor, codes) = about_to_decide(&server, "bob", "builder");
    let page = visitor.decides("deny");
    assert!(page.body.contains("<h1>Denied</h1>"), "{}", page.body);
    assert_eq!(told(&server, &codes), "access_denied");
}

/// Behind one address there may be a household, or somebody who guesses.
#[test]
fn wrong_codes_of_others_keep_nobody_from_deciding() {
    let server = server();
    let (mut visitor, codes) = about_to_decide(&server, "alice", "wonderland");
    let mut twin = visitor.clone();
    let mut other = Visitor::of(&server);
    for letter in ["B", "C", "D", "F", "G"] {
        assert_eq!(other.enters(&letter.repeat(10)).status, 422);
    }
    assert_eq!(other.enters("HHHHHHHHHH").status, 429);
    assert!(visitor.opens("/device/confirm").body.contains("value=\"approve\""));
    assert!(visitor.decides("approve").body.contains("<h1>Approved</h1>"));
    assert!(twin.decides("approve").body.contains("<h1>Approved</h1>"), "how it stands");
    assert_eq!(told(&server, &codes), "linked");
}

/// The code of a device that was unlinked is gone, and somebody's page still shows it.
#[test]
fn loading_a_page_again_after_its_device_was_unlinked_costs_no_attempt() {
    let server = server();
    let (mut visitor, codes) = about_to_decide(&server, "alice", "wonderland");
    let mut left_open = visitor.clone();
    visitor.decides("approve");
    assert_eq!(told(&server, &codes), "linked");
    let path = "/api/v2/apps/demo/app/devices";
    let listed = server.ask("GET", &format!("{path}?subject=alice"), "").json();
    let device = listed["items"][0]["deviceId"].as_str().unwrap();
    assert_eq!(server.ask("DELETE", &format!("{path}/{device}"), "").status, 204);
    for _ in 0..3 {
        let page = left_open.opens("/device/confirm");
        assert!(!page.body.contains("value=\"approve\""), "{}", page.body);
    }
    for letter in ["B", "C", "D", "F", "G"] {
        assert_eq!(visitor.enters(&letter.repeat(10)).status, 422, "five misses are left");
    }
}

/// Two clicks send the same form twice, the second before the first was answered: with the cookie
/// that knows of no decision.
#[test]
fn a_form_that_is_sent_twice_shows_what_was_decided() {
    for (decision, headline) in [("approve", "Approved"), ("deny", "Denied")] {
        let server = server();
        let (mut visitor, _) = about_to_decide(&server, "alice", "wonderland");
        let mut twin = visitor.clone();
        for visitor in [&mut visitor, &mut twin] {
            let page = visitor.decides(decision);
            assert_eq!(page.status, 200);
            assert!(page.body.contains(&format!("<h1>{headline}</h1>")), "{}", page.body);
        }
    }
}

#[test]
fn going_back_and_loading_again_is_harmless() {
    let server = server();
    let (mut visitor, codes) = about_to_decide(&server, "alice", "wonderland");
    visitor.decides("approve");
    for path in
        ["/device/confirm", "/device/done", "/device/sign-in", "/device/decide", "/device/sign-out"]
    {
        let page = visitor.opens(path);
        assert!(page.body.contains("<h1>Approved</h1>"), "{path}: {}", page.body);
    }
    assert!(visitor.opens("/device").body.contains("Enter the code"));
    let again = visitor.sends("/device", &[("user_code", &codes.user_code)]);
    assert!(again.body.contains("<h1>Approved</h1>"), "{}", again.body);
    assert_eq!(told(&server, &codes), "linked");
}

#[test]
fn of_two_people_the_second_is_told_that_it_was_answered() {
    let server = server();
    let (mut alice, codes) = about_to_decide(&server, "alice", "wonderland");
    let mut bob = Visitor::of(&server);
    bob.enters(&codes.user_code);
    bob.signs_in("bob", "builder");
    alice.decides("approve");
    let page = bob.decides("approve");
    assert!(page.body.contains("was answered before"), "{}", page.body);
    let page = Visitor::of(&server).enters(&codes.user_code);
    assert!(page.body.contains("was answered before"), "{}", page.body);
    assert_eq!(devices_of(&server, "bob"), 0);
}

/// With two windows, the form of the first must not decide about the code of the second.
#[test]
fn a_form_decides_only_about_the_code_that_it_showed() {
    let server = server();
    let (mut visitor, first) = about_to_decide(&server, "alice", "wonderland");
    let shown = visitor.page.clone();
    let second = start(&server);
    visitor.enters(&second.user_code);
    visitor.page = shown;
    let page = visitor.decides("approve");
    assert_eq!(page.status, 409, "{}", page.body);
    assert!(page.body.contains("Please look again"), "{}", page.body);
    assert_eq!(told(&server, &first), "authorization_pending");
    assert_eq!(told(&server, &second), "authorization_pending");
}

#[test]
fn no_other_site_decides() {
    let server = server();
    let (mut visitor, codes) = about_to_decide(&server, "alice", "wonderland");
    let approve = [("decision", "approve")];
    for header in
        ["sec-fetch-site: cross-site", "sec-fetch-site: same-site", "origin: https://evil.example"]
    {
        let mut caught = visitor.clone();
        let answer = caught.sends_and_stays("/device/decide", &approve, &[header]);
        assert_eq!(answer.status, 403, "{header}: {}", answer.body);
    }
    let stranger = about_to_decide(&server, "bob", "builder").0;
    for form in [
        "decision=approve".to_owned(),
        "decision=approve&token=".to_owned(),
        format!("decision=approve&token={}", token(&stranger.page)),
        format!("decision=approve&token={0}&token={0}", token(&visitor.page)),
    ] {
        let request = Request::new("POST", "/device/decide").form(&form);
        let answer = visitor.clone().asks(&request);
        assert_eq!(answer.status, 409, "{form}: {}", answer.body);
    }
    let typed = Request::new("POST", "/device/decide").body(r#"{"decision":"approve"}"#);
    assert_eq!(visitor.clone().asks(&typed).status, 415);
    let neither = format!("decision=maybe&token={}", token(&visitor.page));
    let neither = Request::new("POST", "/device/decide").form(&neither);
    assert_eq!(visitor.clone().asks(&neither).status, 400);
    assert_eq!(told(&server, &codes), "authorization_pending");
    let ours = ["sec-fetch-site: same-origin", "origin: null"];
    assert_eq!(visitor.sends_and_stays("/device/decide", &approve, &ours).status, 303);
    assert_eq!(told(&server, &codes), "linked");
}

fn token(page: &str) -> String {
    let at = page.find("name=\"token\" value=\"").unwrap() + 20;
    page[at..].split('"').next().unwrap().to_owned()
}

#[test]
fn a_cookie_that_was_changed_is_no_sign_in() {
    let server = server();
    let (visitor, codes) = about_to_decide(&server, "alice", "wonderland");
    let cookie = visitor.cookie.clone().unwrap();
    let (payload, mac) = cookie.split_once('.').unwrap();
    let mut longer = payload.to_owned();
    longer.replace_range(20..21, if &payload[20..21] == "A" { "B" } else { "A" });
    for cookie in [format!("{longer}.{mac}"), payload.to_owned(), format!("{payload}.")] {
        let mut thief = visitor.clone();
        thief.cookie = Some(cookie);
        assert_eq!(thief.decides("approve").status, 409);
        assert!(thief.opens("/device/confirm").body.contains("Enter the code"));
    }
    assert_eq!(told(&server, &codes), "authorization_pending");
}

#[test]
fn the_pages_of_a_decision_keep_others_out() {
    let server = server();
    let (mut visitor, _) = about_to_decide(&server, "alice", "wonderland");
    let approve = [("decision", "approve")];
    let cross = visitor.clone().sends_and_stays("/device/decide", &approve, &["origin: https://x"]);
    let confirm = visitor.opens("/device/confirm");
    let sent = visitor.sends_and_stays("/device/decide", &approve, &[]);
    let done = visitor.opens("/device/done");
    let mut other = Visitor::of(&server);
    let missed = ["B", "C", "D", "F", "G", "H"].map(|letter| other.enters(&letter.repeat(10)));
    let limited = missed.into_iter().last().unwrap();
    let answers = [(cross, 403), (confirm, 200), (sent, 303), (done, 200), (limited, 429)];
    for (answer, status) in answers {
        assert_eq!(answer.status, status, "{}", answer.head);
        super::entering::assert_keeps_others_out(&answer);
    }
}

/// A browser may be one that many use.
#[test]
fn who_has_decided_is_signed_out() {
    let server = server();
    let (mut visitor, _) = about_to_decide(&server, "alice", "wonderland");
    visitor.decides("approve");
    let page = visitor.enters(&start(&server).user_code);
    assert!(page.body.contains("Sign in to go on"), "{}", page.body);
}

/// Somebody who may set cookies for this host plants a session of their own beside the visitor's.
#[test]
fn beside_a_planted_session_nothing_is_decided() {
    let server = server();
    let (mut visitor, codes) = about_to_decide(&server, "alice", "wonderland");
    let (planted, _) = about_to_decide(&server, "bob", "builder");
    let own = visitor.cookie.clone().unwrap();
    for both in
        [[&*own, planted.cookie.as_ref().unwrap()], [planted.cookie.as_ref().unwrap(), &own]]
    {
        visitor.cookie = Some(both.join("; "));
        let page = visitor.opens("/device/confirm");
        assert_eq!(page.status, 400, "{}", page.body);
        assert!(page.body.contains("Your browser sent two sessions"), "{}", page.body);
        assert!(page.header("set-cookie").is_none(), "{}", page.head);
    }
    assert_eq!(told(&server, &codes), "authorization_pending");
    visitor.cookie = Some(own);
    assert!(visitor.opens("/device/confirm").body.contains("value=\"approve\""));
}
