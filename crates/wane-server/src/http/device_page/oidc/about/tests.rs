//! What an issuer may say of itself, and what is made of it.

use serde_json::{Value as Json, json};

use super::*;

const ISSUER: &str = "https://accounts.example";

fn document() -> Json {
    json!({
        "issuer": ISSUER,
        "authorization_endpoint": "https://login.example/authorize?tenant=7",
        "token_endpoint": "https://login.example/token",
        "jwks_uri": "https://keys.example/all",
        "response_types_supported": ["code"],
        "claims_supported": null,
    })
}

fn with(mut json: Json, name: &str, value: Json) -> Json {
    json[name] = value;
    json
}

fn about(issuer: &str, document: &Json) -> Result<About, String> {
    let document = document_of(issuer, document.to_string().as_bytes())?;
    document.about(issuer, Keys::parse(br#"{"keys":[]}"#).unwrap())
}

#[test]
fn it_is_asked_for_below_the_issuer_with_or_without_a_slash() {
    let suffix = ".well-known/openid-configuration";
    for (issuer, wanted) in [
        ("https://a.example", "https://a.example/"),
        ("https://a.example/", "https://a.example/"),
        ("https://a.example/realms/one", "https://a.example/realms/one/"),
    ] {
        assert_eq!(place(issuer), format!("{wanted}{suffix}"));
    }
}

#[test]
fn what_is_needed_is_taken_and_the_rest_passed_over() {
    let about_it = about(ISSUER, &document()).unwrap();
    assert_eq!(about_it.authorization_endpoint, "https://login.example/authorize?tenant=7");
    assert_eq!(about_it.token_endpoint.as_deref(), Some("https://login.example/token"));
    assert!(about_it.takes_basic && !about_it.names_itself);
    let names_itself = |value: Json| {
        let member = "authorization_response_iss_parameter_supported";
        about(ISSUER, &with(document(), member, value)).unwrap().names_itself
    };
    assert_eq!([json!(true), json!(false), Json::Null].map(names_itself), [true, false, false]);
    let takes_basic = |methods: Json| {
        let member = "token_endpoint_auth_methods_supported";
        about(ISSUER, &with(document(), member, methods)).unwrap().takes_basic
    };
    let methods = [
        json!(["client_secret_basic", "private_key_jwt"]),
        json!(["client_secret_post"]),
        json!([]),
        Json::Null,
    ];
    assert_eq!(methods.map(takes_basic), [true, false, false, true]);
}

/// Otherwise one issuer could speak for another, down to the last slash.
#[test]
fn nobody_speaks_for_another_issuer() {
    for named in ["https://evil.example", "https://accounts.example/", "HTTPS://accounts.example"] {
        let error = about(ISSUER, &with(document(), "issuer", named.into())).unwrap_err();
        assert!(error.contains("another issuer"), "{named}: {error}");
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    for member in ["issuer", "authorization_endpoint", "jwks_uri"] {
        let mut document = document();
        document.as_object_mut().unwrap().remove(member);
        assert!(about(ISSUER, &document).is_err(), "without {member}");
    }
    for text in ["", "[]", "{", r#"["https://accounts.example"]"#, "<html>"] {
        assert!(document_of(ISSUER, text.as_bytes()).is_err(), "{text}");
    }
}

/// People are sent there, with what must not be read on the way.
#[test]
fn endpoints_are_urls_that_are_safe_to_name() {
    for member in ["authorization_endpoint", "token_endpoint"] {
        for url in [
            "http://login.example/x",
            "http://127.0.0.1/x",
            "javascript:alert(1)",
            "//login.example/x",
            "/authorize",
            "",
            "https://",
            "https://login.example/x#fragment",
            "https://login.example/\u{e9}",
            "https://login.example/a b",
            "https://login.example/\r\nset-cookie: a=b",
        ] {
            let refused = about(ISSUER, &with(document(), member, url.into()));
            assert!(refused.is_err(), "{member} {url:?}");
        }
        let here = with(document(), "issuer", "http://127.0.0.1:9".into());
        let here = with(here, member, "http://127.0.0.1:9/x".into());
        assert!(
            about("http://127.0.0.1:9", &here).is_ok(),
            "the control: an issuer on this machine"
        );
    }
}
