//! What others wrote is shown as text, on every page that shows any of it.

use wane::services::ClusterAppId;
use wane::services::device_auth::{Asked, Asking};
use wane::store::Timestamp;

use super::super::session::{DecidedCode, Person, Session};
use super::super::shell::Page;
use super::*;
use wane::clock::ManualClock;

const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";

fn assert_is_text(page: &Page) {
    let html = page.content.0.as_str();
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;"), "it is shown: {html}");
    assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
    assert!(!html.contains("\"'>"), "no attribute ends early: {html}");
}

#[test]
fn what_was_typed_is_text() {
    assert_is_text(&code_form("", "t", 10, HOSTILE, None));
    assert_is_text(&password("", "t", "a/b", HOSTILE, None));
    assert_is_text(&compare("", "t", HOSTILE));
}

#[test]
fn what_devices_and_clients_say_of_themselves_is_text() {
    let clock = ManualClock::seeded(1);
    let mut session = Session::fresh(&*clock);
    let person = Person { subject: "alice".into(), name: Some(HOSTILE.into()) };
    session.signed_in(ClusterAppId(1), person, "voucher".into(), &*clock);
    let now = Timestamp::from_unix_millis(0);
    for field in 0..4 {
        let hostile = |at| if field == at { HOSTILE.to_owned() } else { "plain".to_owned() };
        let asked = Asked {
            app: ClusterAppId(1),
            client: "tv".parse().unwrap(),
            client_name: hostile(0),
            scope: vec![hostile(1)],
            asking: Asking { address: None, agent: hostile(2) },
            started_at: now,
            expires_at: now,
            is_decided: false,
        };
        let app = hostile(3);
        let who = session.who(ClusterAppId(1), now).unwrap();
        let page = confirm(&Confirmation {
            prefix: "",
            token: "t",
            code: "BCDFG-HJKLM",
            app: &app,
            asked: &asked,
            who,
            address: None,
            now,
        });
        assert_is_text(&page);
    }
    for is_approved in [true, false] {
        let decided = DecidedCode { code: "x".into(), is_approved, client_name: HOSTILE.into() };
        assert_is_text(&outcome("", &decided));
    }
    assert_is_text(&no_sign_in("", HOSTILE));
    assert_is_text(&elsewhere(&Elsewhere { prefix: "", app: "a/b", host: HOSTILE }));
}

/// RFC 8628 leaves it open what a device without scopes may do; a person is asked all the same.
#[test]
fn consent_is_asked_for_where_no_scope_is() {
    let clock = ManualClock::seeded(1);
    let mut session = Session::fresh(&*clock);
    session.signed_in(
        ClusterAppId(1),
        Person { subject: "alice".into(), name: None },
        String::new(),
        &*clock,
    );
    let now = clock_start();
    let asked = Asked {
        app: ClusterAppId(1),
        client: "tv".parse().unwrap(),
        client_name: "TV".into(),
        scope: Vec::new(),
        asking: Asking::default(),
        started_at: now,
        expires_at: now,
        is_decided: false,
    };
    let who = session.who(ClusterAppId(1), now).unwrap();
    let about = Confirmation {
        prefix: "/p",
        token: "t",
        code: "BCDFG-HJKLM",
        app: "a/b",
        asked: &asked,
        who,
        address: Some("192.0.2.1".parse().unwrap()),
        now,
    };
    let html = confirm(&about).content.0;
    for part in [
        "No particular permission",
        "an unknown address",
        "value=\"approve\"",
        "value=\"deny\"",
        "action=\"/p/device/decide\"",
        "BCDFG",
        "HJKLM",
        "alice",
        "a/b",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

fn clock_start() -> Timestamp {
    Timestamp::from_unix_millis(0)
}

/// A device writes its agent, and an issuer's people their names: neither is what the page says.
#[test]
fn what_others_claim_is_shown_as_their_claim() {
    let clock = ManualClock::seeded(1);
    let mut session = Session::fresh(&*clock);
    let person = Person { subject: "mallory".into(), name: Some("ali\u{202E}ce".into()) };
    session.signed_in(ClusterAppId(1), person, String::new(), &*clock);
    let now = clock_start();
    let asked = Asked {
        app: ClusterAppId(1),
        client: "tv".parse().unwrap(),
        client_name: "TV\u{200F}".into(),
        scope: Vec::new(),
        asking: Asking {
            address: Some("192.0.2.2".parse().unwrap()),
            agent: format!("Your own TV\u{2066}{}", "x".repeat(200)),
        },
        started_at: now,
        expires_at: now,
        is_decided: false,
    };
    let html = confirm(&Confirmation {
        prefix: "",
        token: "t",
        code: "BCDFG-HJKLM",
        app: "a/b",
        asked: &asked,
        who: session.who(ClusterAppId(1), now).unwrap(),
        address: Some("192.0.2.1".parse().unwrap()),
        now,
    });
    let html = html.content.0;
    let agent = format!("It calls itself \u{201C}<bdi>Your own TV{}...</bdi>", "x".repeat(69));
    for part in [
        &*agent,
        "<bdi>alice</bdi>",
        "(<bdi>mallory</bdi>)",
        "<bdi>TV</bdi>",
        "This is not the network you are on.",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

#[test]
fn a_code_is_spelled_to_those_who_listen() {
    let html = compare("", "t", "BCDFG-HJKLM").content.0;
    assert!(html.contains("<p class=\"unseen\">Code: B C D F G, H J K L M</p>"), "{html}");
    assert!(html.contains("<p class=\"code-shown\" aria-hidden=\"true\">"), "{html}");
}

/// A second click that was meant for what was there before hits neither button.
#[test]
fn the_buttons_of_the_decision_take_no_click_at_first() {
    let style = super::super::shell::STYLE;
    assert!(style.contains("#decision button { animation: settle .8s; }"));
    assert!(style.contains("@keyframes settle { 0%, 99% { pointer-events: none; }"));
    assert!(!style.contains("animation: none"), "nothing takes it back");
}

/// What is out of date or full is not the fault of what was typed.
#[test]
fn a_field_is_said_to_be_wrong_only_where_it_is() {
    let wrong = Complaint::of_input("Wrong.", "Compare it.");
    let late = Complaint::new("Once more.", "It was out of date.");
    for (complaint, is_wrong) in [(&wrong, true), (&late, false)] {
        for page in [
            code_form("", "t", 10, "x", Some(complaint)),
            password("", "t", "a/b", "x", Some(complaint)),
        ] {
            let html = page.content.0;
            assert_eq!(html.contains("aria-invalid"), is_wrong, "{html}");
            assert!(html.contains("aria-describedby=\"error"), "{html}");
        }
    }
}
