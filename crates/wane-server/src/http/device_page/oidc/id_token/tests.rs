//! Every way for an ID token to be wrong, and the edges of those that are right.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value as Json, json};

use super::*;

const ISSUER: &str = "https://accounts.example";
const CLIENT: &str = "wane";
const NONCE: &str = "nonce-of-the-visitor";
const NOW: u64 = 1_800_000_000;

fn pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn keys() -> Keys {
    let x = URL_SAFE_NO_PAD.encode(pair(1).public_key());
    let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]});
    Keys::parse(set.to_string().as_bytes()).unwrap()
}

fn header() -> Json {
    json!({"alg": "EdDSA", "kid": "one", "typ": "JWT"})
}

fn claims() -> Json {
    json!({"iss": ISSUER, "sub": "user-1", "aud": CLIENT, "exp": NOW + 300, "iat": NOW,
        "nonce": NONCE, "name": "Alice A."})
}

fn with(mut json: Json, name: &str, value: Json) -> Json {
    json[name] = value;
    json
}

fn signed(header: &Json, claims: &Json, seed: u8) -> String {
    let part = |part: &Json| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(pair(seed).sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn judged(token: &str) -> Result<Person, Flaw> {
    let now = Timestamp::from_unix_millis(NOW * 1_000);
    let expected = Expected { issuer: ISSUER, client_id: CLIENT, nonce: NONCE, now };
    check(token, &keys(), &expected)
}

/// What becomes of a token with this claim.
fn flaw(name: &str, value: Json) -> Option<Flaw> {
    judged(&signed(&header(), &with(claims(), name, value), 1)).err()
}

#[test]
fn a_good_token_names_who_signed_in() {
    let person = judged(&signed(&header(), &claims(), 1)).unwrap();
    assert_eq!((&*person.subject, person.name.as_deref()), ("user-1", Some("Alice A.")));
    let named = with(claims(), "preferred_username", "alice".into());
    assert_eq!(judged(&signed(&header(), &named, 1)).unwrap().name.as_deref(), Some("alice"));
    for header in [json!({"alg": "EdDSA"}), json!({"alg": "Ed25519", "typ": "application/jwt"})] {
        assert!(judged(&signed(&header, &claims(), 1)).is_ok(), "{header}");
    }
}

#[test]
fn what_is_no_token_is_refused() {
    let right = signed(&header(), &claims(), 1);
    let (signed_part, signature) = right.rsplit_once('.').unwrap();
    for text in ["", ".", "..", "a.b", "a.b.c.d", "!.!.!", signed_part] {
        assert_eq!(judged(text).err(), Some(Flaw::Malformed), "{text}");
    }
    let four = format!("{signed_part}.{signature}.{signature}");
    assert_eq!(judged(&four).err(), Some(Flaw::Signature), "it is over other bytes");
    let array = signed(&json!(["EdDSA", "one", "JWT"]), &claims(), 1);
    assert_eq!(judged(&array).err(), Some(Flaw::Malformed), "its header is no object");
    let array =
        signed(&header(), &json!([ISSUER, "user-1", CLIENT, NOW + 300, NOW, null, NONCE]), 1);
    assert_eq!(judged(&array).err(), Some(Flaw::Claims), "its claims are no object");
    let long = signed(&header(), &with(claims(), "groups", "x".repeat(LONGEST).into()), 1);
    assert_eq!(judged(&long).err(), Some(Flaw::TooLong));
    let padded = format!("{right}=");
    assert_eq!(judged(&padded).err(), Some(Flaw::Malformed));
}

#[test]
fn nothing_in_the_header_is_obeyed() {
    for (name, value, wanted) in [
        ("alg", json!("none"), Flaw::Algorithm),
        ("alg", json!("HS256"), Flaw::Algorithm),
        ("alg", json!("ES256"), Flaw::Signature),
        ("alg", json!(["EdDSA"]), Flaw::Malformed),
        ("kid", json!("another"), Flaw::Signature),
        ("typ", json!("at+jwt"), Flaw::Header),
        ("cty", json!("JWT"), Flaw::Header),
        ("crit", json!(["exp"]), Flaw::Header),
        ("crit", Json::Null, Flaw::Header),
        ("b64", json!(false), Flaw::Header),
    ] {
        let header = with(header(), name, value);
        assert_eq!(judged(&signed(&header, &claims(), 1)).err(), Some(wanted), "{header}");
    }
    let brought = with(
        header(),
        "jwk",
        json!({"kty": "OKP", "crv": "Ed25519", "x":
        URL_SAFE_NO_PAD.encode(pair(2).public_key())}),
    );
    assert_eq!(judged(&signed(&brought, &claims(), 2)).err(), Some(Flaw::Signature));
}

#[test]
fn a_token_of_or_for_somebody_else_is_refused() {
    assert_eq!(judged(&signed(&header(), &claims(), 2)).err(), Some(Flaw::Signature));
    for (name, value, wanted) in [
        ("iss", json!("https://evil.example"), Flaw::Issuer),
        ("iss", json!("https://accounts.example/"), Flaw::Issuer),
        ("aud", json!("another"), Flaw::Audience),
        ("aud", json!([]), Flaw::Audience),
        ("aud", json!([CLIENT, "another"]), Flaw::Audience),
        ("azp", json!("another"), Flaw::Audience),
        ("nonce", json!("another"), Flaw::Nonce),
        ("nonce", json!(""), Flaw::Nonce),
        ("nonce", Json::Null, Flaw::Nonce),
        ("sub", json!(""), Flaw::Subject),
        ("sub", json!("x".repeat(256)), Flaw::Subject),
        ("sub", json!("a\nb"), Flaw::Subject),
    ] {
        assert_eq!(flaw(name, value.clone()), Some(wanted), "{name} {value}");
    }
    for (name, value) in [
        ("aud", json!([CLIENT])),
        ("aud", json!([CLIENT, CLIENT])),
        ("azp", json!(CLIENT)),
        ("sub", json!("x".repeat(255))),
    ] {
        assert_eq!(flaw(name, value.clone()), None, "{name} {value}");
    }
}

/// Nobody left without one: what would be compared with nothing is refused.
#[test]
fn without_a_nonce_of_ours_no_token_is_good() {
    let token = signed(&header(), &with(claims(), "nonce", "".into()), 1);
    let now = Timestamp::from_unix_millis(NOW * 1_000);
    let expected = Expected { issuer: ISSUER, client_id: CLIENT, nonce: "", now };
    assert_eq!(check(&token, &keys(), &expected).err(), Some(Flaw::Nonce));
}

#[test]
fn a_claim_that_is_missing_or_of_another_type_is_refused() {
    for name in ["iss", "sub", "aud", "exp", "iat"] {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(name);
        assert_eq!(judged(&signed(&header(), &claims, 1)).err(), Some(Flaw::Claims), "{name}");
        assert_eq!(flaw(name, Json::Null), Some(Flaw::Claims), "{name}");
        assert_eq!(flaw(name, json!({})), Some(Flaw::Claims), "{name}");
    }
    assert_eq!(flaw("exp", json!("1900000000")), Some(Flaw::Claims));
}

#[test]
fn times_are_held_to_the_second_with_a_minute_for_clocks_that_differ() {
    for (name, value, wanted) in [
        ("exp", json!(NOW - 60), Some(Flaw::Expired)),
        ("exp", json!(NOW - 59), None),
        ("exp", json!(NOW as f64 - 59.5), None),
        ("exp", json!(-1), Some(Flaw::Expired)),
        ("exp", json!(1e300), None),
        ("iat", json!(NOW + 60), None),
        ("iat", json!(NOW + 61), Some(Flaw::NotRecent)),
        ("iat", json!(NOW - 600), None),
        ("iat", json!(NOW - 601), Some(Flaw::NotRecent)),
        ("iat", json!(-1e300), Some(Flaw::NotRecent)),
        ("nbf", json!(NOW + 60), None),
        ("nbf", json!(NOW + 61), Some(Flaw::NotRecent)),
    ] {
        assert_eq!(flaw(name, value.clone()), wanted, "{name} {value}");
    }
}
