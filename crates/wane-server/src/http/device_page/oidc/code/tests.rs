//! What an issuer is told, byte by byte, and what is made of its answer.

use percent_encoding::percent_decode_str;

use base64::engine::general_purpose::STANDARD;
use wane::services::device_auth::OidcSecret;

use super::super::keys::Keys;
use super::*;

const SECRET: &str = "a b:c%d+e&f=\u{e9}";

fn about(authorization_endpoint: &str) -> About {
    About {
        authorization_endpoint: authorization_endpoint.into(),
        token_endpoint: Some("https://login.example/token".into()),
        takes_basic: true,
        names_itself: false,
        keys: Keys::parse(br#"{"keys":[]}"#).unwrap(),
    }
}

fn party(client_secret: Option<&OidcSecret>) -> Party<'_> {
    Party {
        issuer: "https://accounts.example",
        client_id: "wane & co",
        client_secret,
        redirect_uri: "https://wane.example/device/signed-in/demo/app".into(),
    }
}

fn drawn() -> Drawn {
    // The verifier and the challenge of RFC 7636, appendix B.
    let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    Drawn { state: "the-state".into(), nonce: "the-nonce".into(), verifier: verifier.into() }
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8().unwrap().into_owned()
}

fn fields(form: &str) -> Vec<(String, String)> {
    let pairs = form.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

#[test]
fn people_are_sent_with_all_that_binds_the_answer_to_them() {
    let (party, drawn) = (party(None), drawn());
    let url = authorization_url(&about("https://login.example/authorize"), &party, &drawn, false);
    let (endpoint, query) = url.split_once('?').unwrap();
    assert_eq!(endpoint, "https://login.example/authorize");
    let mut wanted = pairs(&[
        ("response_type", "code"),
        ("client_id", "wane & co"),
        ("redirect_uri", "https://wane.example/device/signed-in/demo/app"),
        ("scope", "openid profile"),
        ("state", "the-state"),
        ("nonce", "the-nonce"),
        ("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"),
        ("code_challenge_method", "S256"),
    ]);
    assert_eq!(fields(query), wanted);
    assert!(url.is_ascii() && !url.contains(' ') && !url.contains(&drawn.verifier), "{url}");
    let about = about("https://login.example/authorize?tenant=7");
    let url = authorization_url(&about, &party, &drawn, true);
    wanted.insert(0, ("tenant".into(), "7".into()));
    wanted.push(("prompt".into(), "login".into()));
    assert_eq!(fields(url.split_once('?').unwrap().1), wanted, "an endpoint with a query");
}

#[test]
fn a_code_is_exchanged_with_the_verifier_and_the_proof_of_who_we_are() {
    let secret = OidcSecret::new(SECRET);
    let always = [
        ("grant_type", "authorization_code"),
        ("code", "the code"),
        ("redirect_uri", "https://wane.example/device/signed-in/demo/app"),
        ("code_verifier", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
    ];
    let asked = |about: &About, secret: Option<&OidcSecret>| {
        let request = token_request(about, &party(secret), "the code", &drawn()).unwrap();
        assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/token"));
        let kind = &request.headers()[header::CONTENT_TYPE];
        assert_eq!(kind, "application/x-www-form-urlencoded");
        let proof = request.headers().get(header::AUTHORIZATION);
        let proof = proof.map(|proof| proof.to_str().unwrap().to_owned());
        (fields(std::str::from_utf8(request.body()).unwrap()), proof)
    };
    let about = about("https://login.example/authorize");
    let (form, proof) = asked(&about, Some(&secret));
    assert_eq!(form, pairs(&always));
    let proof = STANDARD.decode(proof.unwrap().strip_prefix("Basic ").unwrap()).unwrap();
    let proof = String::from_utf8(proof).unwrap();
    let (id, told) = proof.split_once(':').unwrap();
    assert_eq!((decoded(id), decoded(told)), ("wane & co".into(), SECRET.into()), "{proof}");
    let own = [("client_id", "wane & co"), ("client_secret", SECRET)];
    let posting = About { takes_basic: false, ..about };
    let posted = asked(&posting, Some(&secret));
    assert_eq!(posted, (pairs(&[&always[..], &own].concat()), None), "client_secret_post");
    let public = asked(&posting, None);
    assert_eq!(public, (pairs(&[&always[..], &own[..1]].concat()), None), "a public client");
    let silent = About { token_endpoint: None, ..posting };
    assert!(token_request(&silent, &party(None), "the code", &drawn()).is_err());
}

#[test]
fn an_answer_is_a_token_a_refusal_or_none() {
    let told = |status: StatusCode, body: &str| {
        token_in(&Answer { status, body: body.as_bytes().to_vec() })
    };
    let given = r#"{"access_token":"x","token_type":"Bearer","id_token":"a.b.c"}"#;
    assert_eq!(told(StatusCode::OK, given).unwrap(), "a.b.c");
    let without = told(StatusCode::OK, r#"{"access_token":"x"}"#);
    assert!(matches!(without, Err(OidcError::NotGood(Flaw::Missing))), "{without:?}");
    let refused = told(StatusCode::BAD_REQUEST, r#"{"error":"invalid_grant\n"}"#);
    assert!(matches!(&refused, Err(OidcError::Refused(code)) if code == "invalid_grant"));
    for (status, body) in [
        (StatusCode::OK, "<html>"),
        (StatusCode::OK, r#"{"id_token":7}"#),
        (StatusCode::OK, r#"["a.b.c"]"#),
        (StatusCode::BAD_GATEWAY, "<html>"),
        (StatusCode::FOUND, ""),
        (StatusCode::BAD_REQUEST, given),
    ] {
        let told = told(status, body);
        assert!(matches!(told, Err(OidcError::Unanswered(_))), "{status} {body}: {told:?}");
    }
}
