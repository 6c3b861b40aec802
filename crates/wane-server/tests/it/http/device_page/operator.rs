//! The operator says where people sign in; secrets are told once, or never.

use super::server;

const PATH: &str = "/api/v1/admin/apps/demo/app/sign-in";

#[test]
fn a_sign_in_is_set_shown_without_its_secret_and_removed() {
    let server = server();
    assert_eq!(server.administer("GET", PATH, "").status, 404);
    let oidc = r#"{"oidc":{"issuer":"https://accounts.example","clientId":"wane","clientSecret":"canary-secret"}}"#;
    let set = server.administer("PUT", PATH, oidc);
    assert_eq!(set.status, 200, "{}", set.body);
    let shown = server.administer("GET", PATH, "");
    for answer in [&set, &shown] {
        assert!(!answer.body.contains("canary"), "{}", answer.body);
        assert_eq!(answer.json()["oidc"]["confidential"], true);
        assert_eq!(answer.json()["oidc"]["issuer"], "https://accounts.example");
    }
    let own = r#"{"assertion":{"url":"https://app.example/link"}}"#;
    let set = server.administer("PUT", PATH, own);
    let secret = set.json()["assertion"]["secret"].as_str().unwrap().to_owned();
    assert_eq!(secret.len(), 43);
    let shown = server.administer("GET", PATH, "");
    assert_eq!(shown.json()["assertion"]["url"], "https://app.example/link");
    assert!(!shown.body.contains(&secret), "{}", shown.body);
    assert!(shown.json().get("oidc").is_none(), "{}", shown.body);
    assert_eq!(server.administer("DELETE", PATH, "").status, 204);
    assert_eq!(server.administer("DELETE", PATH, "").status, 404);
    let log = server.log();
    assert!(!log.contains("canary") && !log.contains(&secret), "{log}");
}

#[test]
fn a_sign_in_that_cannot_be_is_refused_by_its_field() {
    let server = server();
    for (body, field) in [
        ("{}", "oidc, assertion"),
        (
            r#"{"oidc":{"issuer":"https://a.example","clientId":"x"},"assertion":{"url":"https://a.example"}}"#,
            "oidc, assertion",
        ),
        (r#"{"oidc":{"issuer":"http://accounts.example","clientId":"x"}}"#, "issuer"),
        (r#"{"oidc":{"issuer":"https://a.example","clientId":""}}"#, "clientId"),
        (r#"{"assertion":{"url":"javascript:alert(1)"}}"#, "url"),
        (r#"{"assertion":{"url":"https://a.example","secret":"mine"}}"#, "secret"),
        (r#"{"assertion":{"url":"https://a.example/?state=x"}}"#, "url"),
        (r#"{"assertion":{"url":"https://a.example/?x=1&return_to"}}"#, "url"),
        (r#"{"assertion":{"url":"https://a.example/?pr%6Fmpt=none"}}"#, "url"),
    ] {
        let answer = server.administer("PUT", PATH, body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.body);
        assert!(answer.json()["detail"].as_str().unwrap().contains(field), "{}", answer.body);
    }
    let nobody = "/api/v1/admin/apps/demo/nobody/sign-in";
    let own = r#"{"assertion":{"url":"https://app.example/link"}}"#;
    assert_eq!(server.administer("PUT", nobody, own).status, 404);
}
