//! Signatures that others made: OpenSSL, and the examples of the RFCs. And each way to be none.

use serde_json::{Value as Json, json};

use super::*;

/// One token for each algorithm, made by `openssl dgst` and `openssl pkeyutl`, and their keys.
const BY_OPENSSL: &str = include_str!("by_openssl.json");

const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

fn made() -> Json {
    serde_json::from_str(BY_OPENSSL).unwrap()
}

fn by_openssl() -> (Json, Json) {
    let mut all = made();
    (json!({"keys": all["keys"].take()}), all["tokens"].take())
}

fn keys(set: &Json) -> Keys {
    Keys::parse(set.to_string().as_bytes()).unwrap()
}

fn judged(keys: &Keys, token: &str) -> Judged {
    let jwt = Jwt::split(token).unwrap();
    keys.judge(&jwt.header().unwrap(), &jwt)
}

/// The same token, with something else as one of its parts.
fn with_part(token: &str, index: usize, part: &str) -> String {
    let mut parts: Vec<_> = token.split('.').collect();
    parts[index] = part;
    parts.join(".")
}

fn encoded(header: &Json) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(header.to_string())
}

#[test]
fn a_signature_of_each_kind_is_good_by_its_key_alone() {
    let (set, tokens) = by_openssl();
    let all = keys(&set);
    for alg in ALGORITHMS {
        let token = tokens[alg].as_str().unwrap();
        assert_eq!(judged(&all, token), Judged::Good, "{alg}");
        let kid = Jwt::split(token).unwrap().header().unwrap().kid.unwrap();
        let others = set["keys"].as_array().unwrap().iter().filter(|key| key["kid"] != *kid);
        let mut others = json!({"keys": others.collect::<Vec<_>>()});
        assert_eq!(judged(&keys(&others), token), Judged::Unexplained, "{alg}");
        for other in others["keys"].as_array_mut().unwrap() {
            other["kid"] = kid.as_str().into();
        }
        assert_eq!(judged(&keys(&others), token), Judged::Unexplained, "{alg}: of its name");
    }
}

#[test]
fn what_was_changed_or_signed_otherwise_is_not_good() {
    let (set, tokens) = by_openssl();
    let all = keys(&set);
    for alg in ALGORITHMS {
        let token = tokens[alg].as_str().unwrap();
        let claims = encoded(&json!({"sub": "mallory"}));
        assert_eq!(judged(&all, &with_part(token, 1, &claims)), Judged::Unexplained, "{alg}");
        for signature in ["", "AAAA", &"A".repeat(86)] {
            let forged = with_part(token, 2, signature);
            assert_eq!(judged(&all, &forged), Judged::Unexplained, "{alg}: {signature}");
        }
        for other in ["none", "HS256", "HS512", "ES512", "ES256K", "RSA-OAEP", "rs256", ""] {
            let header = encoded(&json!({"alg": other}));
            assert_eq!(judged(&all, &with_part(token, 0, &header)), Judged::NotTaken, "{other}");
        }
    }
}

/// Each is a good signature by the right key, of another kind than its header says.
#[test]
fn a_signature_of_another_kind_than_it_says_is_not_good() {
    let (set, _) = by_openssl();
    let all = keys(&set);
    let mislabelled = made()["mislabelled"].take();
    let mislabelled = mislabelled.as_object().unwrap();
    assert_eq!(mislabelled.len(), 31);
    for (how, token) in mislabelled {
        assert_eq!(judged(&all, token.as_str().unwrap()), Judged::Unexplained, "{how}");
    }
}

/// The header does not have to name its key, and a key may say what it is for.
#[test]
fn a_key_is_found_by_its_name_and_by_what_it_is_for() {
    let (set, tokens) = by_openssl();
    let token = tokens["RS256"].as_str().unwrap();
    let rsa = |name: &str, value: Json| {
        let mut key = set["keys"][0].clone();
        key[name] = value;
        judged(&keys(&json!({"keys": [key]})), token)
    };
    for (name, value) in [
        ("use", json!("sig")),
        ("use", Json::Null),
        ("key_ops", json!(["sign", "verify"])),
        ("alg", json!("RS256")),
        ("x5c", json!(["what", "is", "not", "known"])),
        ("crv", json!(7)),
        ("x", json!(["of another kind"])),
    ] {
        assert_eq!(rsa(name, value.clone()), Judged::Good, "{name} {value}");
    }
    for (name, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["encrypt"])),
        ("alg", json!("PS256")),
        ("alg", json!("RSA-OAEP")),
        ("kid", json!("another")),
        ("kid", Json::Null),
        ("kty", json!("oct")),
    ] {
        assert_eq!(rsa(name, value.clone()), Judged::Unexplained, "{name} {value}");
    }
    let nameless = rfc_7515("RS256");
    assert_eq!(judged(&keys(&nameless.0), &nameless.1), Judged::Good);
    let mut edwards = set["keys"][3].clone();
    edwards["alg"] = "Ed25519".into();
    let token = tokens["EdDSA"].as_str().unwrap();
    assert_eq!(judged(&keys(&json!({"keys": [edwards]})), token), Judged::Good, "RFC 9864");
}

#[test]
fn a_set_is_read_for_the_keys_that_are_of_use() {
    let (mut set, tokens) = by_openssl();
    let all = set["keys"].as_array_mut().unwrap();
    for (index, useless) in [
        json!({"kty": "oct", "k": "AAAA"}),
        json!({"kty": "RSA", "n": "not base64!", "e": "AQAB"}),
        json!({"kty": "EC", "crv": "P-521", "x": "AAAA", "y": "AAAA"}),
        json!({"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"}),
        json!({"kty": "OKP", "crv": "X25519", "x": "AAAA"}),
        json!({"kty": 7}),
        json!("a string"),
        json!(["RSA", "sig", null, null, null, null, "AQ", "AQ", null, null]),
        json!({"kty": "RSA", "n": "A".repeat(1_400), "e": "AQAB"}),
        json!({"kty": "RSA", "n": "_".repeat(1_400), "e": "AQAB"}),
        json!({"kty": "RSA", "n": "AQ", "e": "AQABAQABAQAB"}),
    ]
    .into_iter()
    .enumerate()
    {
        all.insert(index, useless);
    }
    let read = keys(&set);
    assert_eq!(read.0.len(), 5, "and one that is all zeros");
    assert_eq!(judged(&read, tokens["ES384"].as_str().unwrap()), Judged::Good);
    for set in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#] {
        assert!(Keys::parse(set.as_bytes()).is_none(), "{set}");
    }
    let many = vec![by_openssl().0["keys"][0].clone(); MOST + 1];
    assert_eq!(keys(&json!({"keys": many})).0.len(), MOST);
}

/// Some write a zero in front of a modulus, so that it is not taken for negative.
#[test]
fn a_zero_in_front_of_a_number_changes_nothing() {
    let (mut set, tokens) = by_openssl();
    let n = decoded(set["keys"][0]["n"].as_str().unwrap()).unwrap();
    use base64::Engine as _;
    let padded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode([vec![0], n].concat());
    set["keys"][0]["n"] = padded.into();
    assert_eq!(judged(&keys(&set), tokens["PS256"].as_str().unwrap()), Judged::Good);
}

/// A key that can be factored proves nothing.
#[test]
fn a_short_rsa_key_makes_nothing_good() {
    let short = made()["short"].take();
    let set = json!({"keys": [short["key"]]});
    assert_eq!(keys(&set).0.len(), 1);
    assert_eq!(judged(&keys(&set), short["token"].as_str().unwrap()), Judged::Unexplained);
}

/// An issuer with many keys that names none of them does not keep the server busy.
#[test]
fn few_keys_are_tried_on_one_signature() {
    let (mut set, tokens) = by_openssl();
    let right = set["keys"][0].take();
    let other = rfc_7515("RS256").0["keys"][0].take();
    let token = tokens["RS256"].as_str().unwrap();
    let after = |count: usize| {
        let mut many = vec![other.clone(); count];
        many.iter_mut().for_each(|key| key["kid"] = "rsa".into());
        many.push(right.clone());
        judged(&keys(&json!({"keys": many})), token)
    };
    assert_eq!((after(TRIED - 1), after(TRIED)), (Judged::Good, Judged::Unexplained));
}

/// The examples of RFC 7515, A.2 and A.3: what is signed is the same.
fn rfc_7515(alg: &str) -> (Json, String) {
    let claims = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9p\
                  c19yb290Ijp0cnVlfQ";
    let (header, key, signature) = match alg {
        "RS256" => (
            "eyJhbGciOiJSUzI1NiJ9",
            json!({"kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTb\
                ji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_Yp\
                RPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBd\
                QOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK\
                -DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}),
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt\
             _O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArL\
             IARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7no\
             OPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQ\
             Ge77Rw",
        ),
        _ => (
            "eyJhbGciOiJFUzI1NiJ9",
            json!({"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}),
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU\
             1Q",
        ),
    };
    (json!({"keys": [key]}), format!("{header}.{claims}.{signature}"))
}

#[test]
fn the_examples_of_the_rfcs_are_good() {
    for alg in ["RS256", "ES256"] {
        let (set, token) = rfc_7515(alg);
        assert_eq!(judged(&keys(&set), &token), Judged::Good, "{alg}");
    }
    // RFC 8037, A.4.
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x}]});
    let token = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PP\
                 Ot7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    assert_eq!(judged(&keys(&set), token), Judged::Good);
}
