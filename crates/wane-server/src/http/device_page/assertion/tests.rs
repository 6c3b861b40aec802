//! Every way to forge, bend or reuse an assertion, and the one that is right.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};
use wane::clock::ManualClock;
use wane::services::ClusterAppId;
use wane::services::device_auth::{DeviceAuth, DeviceAuthSettings, DeviceKey, NewSignIn, SignIn};
use wane::store::MemoryStore;

use super::*;

const AUDIENCE: &str = "https://login.example/device";
const STATE: &str = "state-of-the-visitor";
const NOW: u64 = 1_800_000_000;

async fn secrets() -> [AssertionSecret; 2] {
    let clock = ManualClock::seeded(1);
    let store = MemoryStore::new(clock.clone()).unwrap();
    let key = DeviceKey::from_bytes([1; 32]);
    let service = DeviceAuth::new(store, clock, key, DeviceAuthSettings::default());
    let mut drawn = Vec::new();
    for app in [1, 2] {
        let new = NewSignIn::Assertion { url: "https://app.example".into() };
        match service.of(ClusterAppId(app)).set_sign_in(new).await.unwrap() {
            SignIn::Assertion { secret, .. } => drawn.push(secret),
            SignIn::Oidc { .. } => panic!("an assertion was set"),
        }
    }
    drawn.try_into().unwrap()
}

fn encoded(part: &Json) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

fn signed(header: &Json, claims: &Json, secret: &AssertionSecret) -> String {
    let signed = format!("{}.{}", encoded(header), encoded(claims));
    let mac = URL_SAFE_NO_PAD.encode(secret.mac(signed.as_bytes()));
    format!("{signed}.{mac}")
}

fn header() -> Json {
    json!({"alg": "HS256", "typ": "JWT"})
}

fn claims() -> Json {
    json!({"sub": "alice", "aud": AUDIENCE, "iat": NOW, "exp": NOW + 300, "nonce": STATE})
}

fn with(mut json: Json, name: &str, value: Json) -> Json {
    json[name] = value;
    json
}

fn judged(assertion: &str, secret: &AssertionSecret, now: u64) -> Result<Person, Flaw> {
    let now = Timestamp::from_unix_millis(now * 1_000);
    check(assertion, &Expected { secret, audience: AUDIENCE, state: STATE, now })
}

#[tokio::test]
async fn a_right_assertion_names_who_signed_in() {
    let [secret, _] = secrets().await;
    let right = signed(&header(), &with(claims(), "name", json!("Alice")), &secret);
    let person = judged(&right, &secret, NOW + 10).unwrap();
    assert_eq!(person, Person { subject: "alice".into(), name: Some("Alice".into()) });
    let many = with(claims(), "aud", json!(["other", AUDIENCE]));
    for right in [
        signed(&json!({"alg": "HS256"}), &claims(), &secret),
        signed(&with(header(), "kid", json!("x")), &claims(), &secret),
        signed(&header(), &many, &secret),
        signed(&header(), &with(claims(), "nbf", json!(NOW)), &secret),
    ] {
        assert_eq!(judged(&right, &secret, NOW + 10).unwrap().subject, "alice");
    }
}

#[tokio::test]
async fn no_other_algorithm_and_no_other_kind_is_taken() {
    let [secret, _] = secrets().await;
    for alg in ["none", "None", "hs256", "HS384", "HS512", "RS256", "ES256", "EdDSA", ""] {
        let forged = signed(&with(header(), "alg", json!(alg)), &claims(), &secret);
        assert_eq!(judged(&forged, &secret, NOW), Err(Flaw::Header), "{alg}");
    }
    for (name, value) in [
        ("typ", json!("at+jwt")),
        ("typ", json!("logout+jwt")),
        ("cty", json!("JWT")),
        ("crit", Json::Null),
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("b64", json!(false)),
    ] {
        let forged = signed(&with(header(), name, value), &claims(), &secret);
        assert_eq!(judged(&forged, &secret, NOW), Err(Flaw::Header), "{name}");
    }
    let unsigned = format!("{}.{}.", encoded(&json!({"alg": "none"})), encoded(&claims()));
    assert_eq!(judged(&unsigned, &secret, NOW), Err(Flaw::Signature));
}

#[tokio::test]
async fn what_was_changed_or_signed_by_another_is_refused() {
    let [secret, other] = secrets().await;
    let right = signed(&header(), &claims(), &secret);
    assert_eq!(judged(&right, &other, NOW), Err(Flaw::Signature), "another application's secret");
    let (_, mac) = right.rsplit_once('.').unwrap();
    let bob = with(claims(), "sub", json!("bob"));
    let swapped = format!("{}.{}.{mac}", encoded(&header()), encoded(&bob));
    assert_eq!(judged(&swapped, &secret, NOW), Err(Flaw::Signature));
    for at in 0..right.len() {
        let mut bytes = right.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        let judged = judged(&changed, &secret, NOW);
        // The last letter of base64 has bits that mean nothing; strict decoding refuses most.
        assert!(judged.is_err(), "byte {at}");
    }
}

#[tokio::test]
async fn an_assertion_is_for_this_page_this_visitor_and_a_few_minutes() {
    let [secret, _] = secrets().await;
    let cases = [
        ("aud", json!("https://login.example"), Flaw::Audience),
        ("aud", json!("https://evil.example/device"), Flaw::Audience),
        ("aud", json!([]), Flaw::Audience),
        ("nonce", json!(""), Flaw::Nonce),
        ("nonce", json!("state-of-another"), Flaw::Nonce),
        ("exp", json!(NOW + 301), Flaw::Time),
        ("exp", json!(NOW), Flaw::Time),
        ("exp", json!(u64::MAX), Flaw::Time),
        ("iat", json!(NOW + 200), Flaw::Time),
        ("iat", json!(0), Flaw::Time),
        ("nbf", json!(NOW + 61), Flaw::Time),
        ("sub", json!(""), Flaw::Subject),
        ("sub", json!("x".repeat(256)), Flaw::Subject),
        ("sub", json!("a\nb"), Flaw::Subject),
        ("sub", json!(7), Flaw::Malformed),
        ("exp", json!("soon"), Flaw::Malformed),
        ("exp", json!(1.5), Flaw::Malformed),
        ("exp", json!(-1), Flaw::Malformed),
        ("aud", json!(null), Flaw::Malformed),
        ("nonce", json!(null), Flaw::Malformed),
    ];
    for (name, value, flaw) in cases {
        let bent = signed(&header(), &with(claims(), name, value.clone()), &secret);
        assert_eq!(judged(&bent, &secret, NOW), Err(flaw), "{name} {value}");
    }
    let right = signed(&header(), &claims(), &secret);
    assert!(judged(&right, &secret, NOW + 359).is_ok(), "clocks may differ by a minute");
    assert_eq!(judged(&right, &secret, NOW + 360), Err(Flaw::Time));
    assert!(judged(&right, &secret, NOW - 60).is_ok());
    assert_eq!(judged(&right, &secret, NOW - 61), Err(Flaw::Time));
}

#[tokio::test]
async fn junk_is_malformed_and_no_panic() {
    let [secret, _] = secrets().await;
    let long = format!("{}.{}", "A".repeat(LONGEST), signed(&header(), &claims(), &secret));
    for junk in ["", ".", "..", "...", "a.b.c", "a.b", "\u{e4}.\u{e4}.\u{e4}", "a.b.c.d", &long] {
        assert!(judged(junk, &secret, NOW).is_err(), "{junk:.20}");
    }
    let list = signed(&json!([]), &json!([]), &secret);
    assert_eq!(judged(&list, &secret, NOW), Err(Flaw::Malformed));
}
