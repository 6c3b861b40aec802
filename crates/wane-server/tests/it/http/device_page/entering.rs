//! Entering a code: by hand and by link, right and wrong, often and in every spelling.

use super::visitor::{Visitor, attribute, tag};
use super::{server, start, told};
use crate::http::conversation::{Conversation, Request};
use crate::http::device_auth::start_as;
use crate::server::Answer;

#[test]
fn a_code_may_be_typed_in_any_case_with_any_dashes() {
    let server = server();
    let code = start(&server).user_code;
    let letters = code.replace('-', "");
    for typed in [
        code.clone(),
        code.to_lowercase(),
        letters.clone(),
        format!(" {} ", code.replace('-', " ")),
        letters.chars().map(|c| format!("{c}\u{2013}")).collect(),
    ] {
        let mut visitor = Visitor::of(&server);
        let page = visitor.enters(&typed);
        assert!(page.body.contains("Sign in to go on"), "{typed}: {}", page.body);
    }
}

/// Manual entry and the link lead to the same place, and neither approves anything.
#[test]
fn a_link_asks_to_compare_the_code_and_approves_nothing() {
    let server = server();
    let codes = start(&server);
    let mut visitor = Visitor::of(&server);
    assert!(visitor.opens("/device/").body.contains("Enter the code"), "as some type it");
    let page = visitor.opens(&format!("/device?user_code={}&utm=x", codes.user_code));
    assert_eq!(page.status, 200);
    assert!(page.body.contains("Does your device show this code?"), "{}", page.body);
    for group in codes.user_code.split('-') {
        assert!(page.body.contains(&format!("<span>{group}</span>")), "{}", page.body);
    }
    let page = visitor.sends("/device", &[]);
    assert!(page.body.contains("Sign in to go on"), "{}", page.body);
    assert_eq!(told(&server, &codes), "authorization_pending");
}

#[test]
fn a_wrong_code_is_told_beside_the_field_which_keeps_it() {
    let server = server();
    let mut visitor = Visitor::of(&server);
    for (typed, words) in [
        ("bcdfg-hjklm", "There is no such code."),
        ("bcd", "That is not a whole code."),
        ("aeiou-aeiou", "That is not a whole code."),
        ("", "That is not a whole code."),
        ("\"><script>alert(1)</script>", "That is not a whole code."),
    ] {
        let page = visitor.enters(typed);
        assert_eq!(page.status, 422, "{typed}");
        let input = tag(&page.body, "user_code");
        assert_eq!(attribute(input, "value"), typed);
        assert_eq!(attribute(input, "aria-invalid"), "true");
        assert!(attribute(input, "aria-describedby").contains("error"));
        let error = tag(&page.body, "error");
        assert_eq!(attribute(error, "role"), "alert");
        assert!(page.body.contains(words), "{typed}: {}", page.body);
        assert!(!page.body.contains("<script"), "{}", page.body);
    }
}

/// A preview of a link, a reload, a search engine: none of them may lock anybody out.
#[test]
fn showing_the_page_costs_no_attempt_and_the_form_does() {
    let server = server();
    let codes = start(&server);
    let mut visitor = Visitor::of(&server);
    let letters = ["B", "C", "D", "F", "G", "H", "J", "K", "L"];
    for letter in letters {
        visitor.opens(&format!("/device?user_code={}", letter.repeat(10)));
    }
    assert!(visitor.enters(&codes.user_code).body.contains("Sign in to go on"));
    for letter in &letters[..5] {
        assert_eq!(visitor.enters(&letter.repeat(10)).status, 422);
    }
    let limited = visitor.enters("ZZZZZZZZZZ");
    assert_eq!(limited.status, 429, "{}", limited.body);
    let wait: u64 = limited.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=900).contains(&wait), "{wait}");
    assert!(limited.body.contains("minutes and try again"), "{}", limited.body);
    assert_eq!(attribute(tag(&limited.body, "user_code"), "value"), "ZZZZZZZZZZ");
}

/// Somebody who left the page open for an hour, or has no cookies, is told what to do.
#[test]
fn a_form_without_its_session_looks_nothing_up_and_keeps_the_code() {
    let server = server();
    let codes = start(&server);
    let mut visitor = Visitor::of(&server);
    visitor.opens("/device");
    visitor.cookie = None;
    let page = visitor.sends("/device", &[("user_code", &codes.user_code)]);
    assert!(page.body.contains("Please press Continue once more."), "{}", page.body);
    assert_eq!(attribute(tag(&page.body, "user_code"), "value"), codes.user_code);
    let page = visitor.sends("/device", &[("user_code", &codes.user_code)]);
    assert!(page.body.contains("Sign in to go on"), "{}", page.body);
}

#[test]
fn every_answer_keeps_others_out() {
    let server = server();
    let mut visitor = Visitor::of(&server);
    visitor.opens("/device");
    let wrong = visitor.sends_and_stays("/device", &[("user_code", "x")], &[]);
    let mut answers = vec![wrong];
    for path in [
        "/device",
        "/device?user_code=x",
        "/device/confirm",
        "/device/sign-in",
        "/device/sign-in/start",
        "/device/signed-in/demo/app",
        "/device/done",
        "/device/style.css",
        "/device/icon.svg",
        "/device/qr.svg?user_code=BCDFGHJKLM",
    ] {
        answers.push(visitor.asks(&Request::new("GET", path)));
    }
    let posted = Request::new("POST", "/device/decide").form("decision=approve");
    answers.push(Conversation::with(server.http).ask(&posted));
    for answer in answers {
        assert_keeps_others_out(&answer);
    }
}

/// Every answer of the page has these headers.
pub(super) fn assert_keeps_others_out(answer: &Answer) {
    let header = |name| answer.header(name).unwrap_or_default().to_owned();
    let policy = header("content-security-policy");
    for part in [
        "default-src 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "style-src 'self'",
    ] {
        assert!(policy.contains(part), "{part}: {}", answer.head);
    }
    assert!(!policy.contains("unsafe") && !policy.contains("script"), "{policy}");
    assert_eq!(header("referrer-policy"), "no-referrer", "{}", answer.head);
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("x-frame-options"), "DENY");
    assert_eq!(header("cross-origin-opener-policy"), "same-origin");
    if header("content-type").starts_with("text/html") {
        assert_eq!(header("cache-control"), "no-store");
        assert!(answer.body.starts_with("<!DOCTYPE html><html lang=\"en\">"));
        assert_eq!(answer.body.matches("<h1>").count(), 1, "{}", answer.body);
        assert!(!answer.body.contains("<script") && !answer.body.contains(" style="));
    }
}

#[test]
fn the_picture_of_a_code_tells_nothing_about_codes() {
    let server = server();
    let codes = start(&server);
    let mut conversation = Conversation::with(server.http);
    let mut picture = |code: &str| {
        conversation.ask(&Request::new("GET", &format!("/device/qr.svg?user_code={code}")))
    };
    let real = picture(&codes.user_code);
    let made_up = picture("bcdfg-hjklm");
    for answer in [&real, &made_up] {
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.header("content-type"), Some("image/svg+xml"));
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("cross-origin"));
        assert!(answer.body.starts_with("<svg"), "{}", answer.body);
    }
    assert!(made_up.body.contains("http://test/device?user_code=BCDFG-HJKLM"), "{}", made_up.body);
    for wrong in ["", "x", "%3Cscript%3E", "BCDFGHJKL"] {
        assert_eq!(picture(wrong).status, 400, "{wrong}");
    }
    for _ in 0..20 {
        assert_eq!(picture("ZZZZZZZZZZ").status, 200, "it costs no attempt");
    }
}

/// A device that asks for nothing still needs a person who says yes.
#[test]
fn what_a_device_calls_itself_is_shown_as_text() {
    let server = server();
    let body =
        r#"{"owner":"demo","app":"app","name":"<script>alert(1)</script>","clientId":"evil"}"#;
    let made = server.administer("POST", "/api/v1/admin/oauth-clients", body);
    assert_eq!(made.status, 201, "{}", made.body);
    let codes = start_as(&server, "client_id=evil");
    let mut visitor = Visitor::of(&server);
    visitor.enters(&codes.user_code);
    let page = visitor.signs_in("alice", "wonderland");
    assert!(page.body.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{}", page.body);
    assert!(!page.body.contains("<script"), "{}", page.body);
    assert!(page.body.contains("No particular permission"), "{}", page.body);
}
