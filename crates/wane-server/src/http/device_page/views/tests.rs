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
