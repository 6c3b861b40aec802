//! What a sign-in may be, and that it is kept, replaced and removed whole.

use super::*;
use crate::clock::ManualClock;
use crate::services::ClusterAppId;
use crate::services::device_auth::{DeviceAuth, DeviceAuthSettings, DeviceKey};
use crate::store::MemoryStore;

fn service() -> DeviceAuth<MemoryStore> {
    let clock = ManualClock::seeded(1);
    let store = MemoryStore::new(clock.clone()).unwrap();
    let key = DeviceKey::from_bytes([1; 32]);
    DeviceAuth::new(store, clock, key, DeviceAuthSettings::default())
}

fn oidc(issuer: &str) -> NewSignIn {
    let client_secret = Some(OidcSecret::new("canary-of-the-issuer"));
    NewSignIn::Oidc { issuer: issuer.into(), client_id: "wane".into(), client_secret }
}

#[tokio::test]
async fn a_sign_in_is_of_one_application_and_the_last_one_set_counts() {
    let service = service();
    let (one, two) = (service.of(ClusterAppId(1)), service.of(ClusterAppId(2)));
    assert_eq!(one.sign_in().await.unwrap(), None);
    one.set_sign_in(oidc("https://accounts.example")).await.unwrap();
    let page = NewSignIn::Assertion { url: "https://app.example/devices?from=wane".into() };
    let set = one.set_sign_in(page.clone()).await.unwrap();
    assert_eq!(one.sign_in().await.unwrap(), Some(set.clone()));
    assert_eq!(two.sign_in().await.unwrap(), None);
    let again = one.set_sign_in(page).await.unwrap();
    assert_ne!(again, set, "the secret is drawn anew");
    assert!(one.remove_sign_in().await.unwrap());
    assert!(!one.remove_sign_in().await.unwrap());
    assert_eq!(one.sign_in().await.unwrap(), None);
}

#[tokio::test]
async fn secrets_are_in_no_debug() {
    let app = service().of(ClusterAppId(1));
    let set = app.set_sign_in(oidc("https://accounts.example")).await.unwrap();
    assert!(!format!("{set:?}").contains("canary"));
    let page = NewSignIn::Assertion { url: "https://app.example".into() };
    let SignIn::Assertion { secret, .. } = app.set_sign_in(page).await.unwrap() else {
        panic!("it was set as an assertion");
    };
    assert_eq!(secret.reveal().len(), 43);
    assert!(!format!("{secret:?}").contains(secret.reveal()));
}

/// A secret that crosses the network in the clear is everybody's; and `http://localhost@evil` is
/// not of this machine.
#[tokio::test]
async fn people_and_secrets_go_over_https_or_stay_on_this_machine() {
    let app = service().of(ClusterAppId(1));
    for right in [
        "https://accounts.example",
        "https://accounts.example:8443/realms/one",
        "http://127.0.0.1:8080",
        "http://localhost:8080/x",
        "http://[::1]:8080",
    ] {
        app.set_sign_in(oidc(right)).await.unwrap_or_else(|error| panic!("{right}: {error}"));
    }
    let long = format!("https://a.example/{}", "x".repeat(LONGEST));
    for wrong in [
        "",
        "accounts.example",
        "http://accounts.example",
        "http://localhost.evil.example",
        "http://localhost:80@evil.example",
        "http://127.0.0.1.evil.example",
        "https://user@accounts.example",
        "https://",
        "https:///x",
        "https://a.example/#x",
        "https://a.example/ x",
        "https://a.example/?x",
        "javascript:alert(1)",
        "HTTPS://a.example\n",
        &long,
    ] {
        assert!(app.set_sign_in(oidc(wrong)).await.is_err(), "{wrong}");
    }
    for field in ["", "a\nb"] {
        let wrong = NewSignIn::Oidc {
            issuer: "https://accounts.example".into(),
            client_id: field.into(),
            client_secret: None,
        };
        assert!(app.set_sign_in(wrong).await.is_err(), "{field:?}");
    }
}
