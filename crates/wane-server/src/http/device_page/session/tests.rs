//! A session is taken only as it was given, while it lives, and its forms only for what they showed.

use std::sync::Arc;

use wane::clock::ManualClock;
use wane::services::device_auth::DeviceKey;

use super::*;

fn key(byte: u8) -> PageKey {
    DeviceKey::from_bytes([byte; 32]).for_pages()
}

fn plain() -> Cookie {
    Cookie::of("http://127.0.0.1:8080")
}

/// What a browser sends back of a `Set-Cookie`.
fn sent_back(set: &HeaderValue) -> HeaderMap {
    let pair = set.to_str().unwrap().split(';').next().unwrap();
    HeaderMap::from_iter([(COOKIE, pair.parse().unwrap())])
}

/// The one session of a request.
fn brought(headers: &HeaderMap, key: &PageKey, now: Timestamp) -> Option<Session> {
    Session::brought(headers, &plain(), key, now).unwrap()
}

fn visitor() -> (Arc<ManualClock>, Session) {
    let clock = ManualClock::seeded(7);
    let mut session = Session::fresh(&*clock);
    let until = Timestamp::from_unix_millis(clock.now().as_unix_millis() + 900_000);
    session.asked = Some(AskedCode::new("BCDFG-HJKLM".into(), ClusterAppId(1), until));
    (clock, session)
}

fn alice() -> Person {
    Person { subject: "alice".into(), name: Some("Alice".into()) }
}

#[test]
fn a_session_comes_back_as_it_was() {
    let (clock, mut session) = visitor();
    session.signed_in(ClusterAppId(1), alice(), "voucher".into(), &*clock);
    let set = session.sealed(&plain(), &key(1), clock.now()).unwrap();
    let back = brought(&sent_back(&set), &key(1), clock.now()).unwrap();
    assert_eq!(back, session);
    assert_eq!(back.who(ClusterAppId(1), clock.now()).unwrap().name.as_deref(), Some("Alice"));
}

/// Each byte of the cookie matters, and so does the key.
#[test]
fn a_session_that_was_changed_is_none() {
    let (clock, session) = visitor();
    let set = session.sealed(&plain(), &key(1), clock.now()).unwrap();
    let headers = sent_back(&set);
    assert!(brought(&headers, &key(2), clock.now()).is_none());
    let sent = headers[COOKIE].to_str().unwrap().to_owned();
    let begin = sent.find('=').unwrap() + 1;
    for at in begin..sent.len() {
        let mut changed = sent.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let headers = HeaderMap::from_iter([(COOKIE, HeaderValue::from_bytes(&changed).unwrap())]);
        let brought = brought(&headers, &key(1), clock.now());
        assert!(brought.is_none(), "byte {at}");
    }
    for junk in ["", "wane_device", "wane_device=", "wane_device=.", "wane_device=a.b", "=", ";;"] {
        let headers = HeaderMap::from_iter([(COOKIE, junk.parse().unwrap())]);
        assert!(brought(&headers, &key(1), clock.now()).is_none(), "{junk}");
    }
}

#[test]
fn a_session_ends() {
    let (clock, session) = visitor();
    let set = sent_back(&session.sealed(&plain(), &key(1), clock.now()).unwrap());
    let at = |seconds: u64| {
        let now = Timestamp::from_unix_millis(clock.now().as_unix_millis() + seconds * 1_000);
        brought(&set, &key(1), now)
    };
    assert!(at(899).is_some());
    assert!(at(900).is_none());
}

/// A sign-in ends 15 minutes after it was made, however often pages are loaded.
#[test]
fn a_sign_in_is_not_renewed_by_visits_and_is_of_one_application() {
    let (clock, mut session) = visitor();
    session.signed_in(ClusterAppId(1), alice(), "voucher".into(), &*clock);
    let later = Timestamp::from_unix_millis(clock.now().as_unix_millis() + 600_000);
    let set = sent_back(&session.sealed(&plain(), &key(1), later).unwrap());
    let end = Timestamp::from_unix_millis(clock.now().as_unix_millis() + 900_000);
    let back = brought(&set, &key(1), end).unwrap();
    assert!(back.who(ClusterAppId(1), later).is_some());
    assert!(back.who(ClusterAppId(1), end).is_none());
    assert!(back.who(ClusterAppId(2), later).is_none(), "alice of one app is nobody in another");
}

/// The cookie of somebody who may write cookies for the parent domain comes first, and is passed
/// over.
#[test]
fn a_cookie_of_another_does_not_hide_ours() {
    let (clock, session) = visitor();
    let set = sent_back(&session.sealed(&plain(), &key(1), clock.now()).unwrap());
    let line = format!("wane_device=AAAA.BBBB; x=1; {}", set[COOKIE].to_str().unwrap());
    let headers = HeaderMap::from_iter([(COOKIE, line.parse().unwrap())]);
    assert!(brought(&headers, &key(1), clock.now()).is_some());
}

/// An attacker's own session is as good as the visitor's: whoever approved in it would approve as
/// the attacker, or for them.
#[test]
fn of_two_sessions_neither_counts() {
    let (clock, session) = visitor();
    let line = |session: &Session| {
        let set = sent_back(&session.sealed(&plain(), &key(1), clock.now()).unwrap());
        set[COOKIE].to_str().unwrap().to_owned()
    };
    let (own, planted) = (line(&session), line(&Session::fresh(&*clock)));
    let judged = |lines: &[&str]| {
        let lines = lines.iter().map(|line| (COOKIE, line.parse().unwrap()));
        Session::brought(&lines.collect(), &plain(), &key(1), clock.now())
    };
    assert_eq!(judged(&[&format!("{planted}; {own}")]), Err(TwoSessions));
    assert_eq!(judged(&[&own, &planted]), Err(TwoSessions));
    assert_eq!(judged(&[&own, &own]).unwrap(), Some(session), "the same twice is one");
}

#[test]
fn a_form_counts_for_its_session_its_code_and_its_person_only() {
    let (clock, mut session) = visitor();
    session.signed_in(ClusterAppId(1), alice(), "voucher".into(), &*clock);
    let token = session.token(Form::Decision, &key(1));
    assert!(session.is_token(&token, Form::Decision, &key(1)));
    for other in [Form::Code, Form::SignIn] {
        assert!(!session.is_token(&token, other, &key(1)), "{other:?}");
    }
    assert!(!session.is_token(&token, Form::Decision, &key(2)));
    assert!(!session.is_token("", Form::Decision, &key(1)));
    assert!(!session.is_token(&token[..42], Form::Decision, &key(1)));
    let mut moved_on = session.clone();
    moved_on.asked.as_mut().unwrap().code = "ZXWVT-SRQPN".into();
    assert!(!moved_on.is_token(&token, Form::Decision, &key(1)), "another code");
    let mut another = session.clone();
    another.who.as_mut().unwrap().subject = "bob".into();
    assert!(!another.is_token(&token, Form::Decision, &key(1)), "another person");
    let mut stranger = Session::fresh(&*clock);
    stranger.asked.clone_from(&session.asked);
    stranger.who.clone_from(&session.who);
    assert!(!stranger.is_token(&token, Form::Decision, &key(1)), "another session");
}

/// Whoever planted a session, or knew its tokens, knows nothing of it after the sign-in.
#[test]
fn signing_in_and_out_makes_another_session() {
    let (clock, mut session) = visitor();
    let before = session.token(Form::Code, &key(1));
    session.signed_in(ClusterAppId(1), alice(), "voucher".into(), &*clock);
    assert!(!session.is_token(&before, Form::Code, &key(1)));
    let signed_in = session.token(Form::Code, &key(1));
    session.signed_out(&*clock);
    assert!(!session.is_token(&signed_in, Form::Code, &key(1)));
    assert!(session.who(ClusterAppId(1), clock.now()).is_none());
}

#[test]
fn the_cookie_is_kept_from_scripts_other_sites_and_other_paths() {
    let (clock, session) = visitor();
    let line = |base: &str| {
        let set = session.sealed(&Cookie::of(base), &key(1), clock.now()).unwrap();
        set.to_str().unwrap().to_owned()
    };
    let secure = line("https://login.example");
    assert!(secure.starts_with("__Host-wane_device="));
    for part in ["; Path=/;", "; HttpOnly", "; SameSite=Lax", "; Secure", "; Max-Age=900"] {
        assert!(secure.contains(part), "{part}: {secure}");
    }
    assert!(!line("http://127.0.0.1:8080").contains("Secure"));
    assert!(!secure.contains("Domain"), "{secure}");
    assert!(line("http://127.0.0.1:8080").contains("; Path=/device;"));
    assert!(line("http://localhost/login/").contains("; Path=/login/device;"));
    assert!(line("https://a.example/login/").contains("; Path=/;"), "or it is not taken");
}

#[test]
fn names_are_cut_between_characters() {
    let long = "\u{e4}".repeat(200);
    assert_eq!(shortened(&long).len(), LONGEST_NAME);
    assert_eq!(shortened("a\nb\u{7}c"), "abc");
    assert_eq!(shortened(" \u{202E}Alice\u{200B} "), "Alice");
}

#[test]
fn a_name_that_cannot_be_seen_is_none() {
    let (clock, mut session) = visitor();
    for blank in ["", " ", "\u{200B}\u{2066}", "\t\n"] {
        let person = Person { subject: "alice".into(), name: Some(blank.into()) };
        session.signed_in(ClusterAppId(1), person, "voucher".into(), &*clock);
        assert_eq!(session.who(ClusterAppId(1), clock.now()).unwrap().name, None, "{blank:?}");
    }
}

/// The next person at this browser is nobody yet, and learns nothing of the one before.
#[test]
fn who_has_decided_is_signed_out() {
    let (clock, mut session) = visitor();
    session.signed_in(ClusterAppId(1), alice(), "voucher".into(), &*clock);
    let token = session.token(Form::Code, &key(1));
    let code = "BCDFG-HJKLM".to_owned();
    let decided = DecidedCode { code, is_approved: true, client_name: "TV".into() };
    session.finished(decided, &*clock);
    assert!(session.has_decided("BCDFG-HJKLM") && !session.has_decided("ZXWVT-SRQPN"));
    assert!(session.who(ClusterAppId(1), clock.now()).is_none());
    assert!(!session.is_token(&token, Form::Code, &key(1)), "another session");
    session.signed_out(&*clock);
    assert!(session.decided.is_none());
}
