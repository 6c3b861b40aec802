//! Clients: who may ask, and how they prove it.

use wane::services::device_auth::{Asking, ClientId, DeviceAuthError, NewClient, Registered};

use super::*;
use crate::gated::Gate;

fn confidential() -> NewClient {
    NewClient { is_confidential: true, ..television("box") }
}

#[tokio::test]
async fn a_confidential_client_needs_its_secret_and_a_public_one_has_none() {
    let setup = setup().await;
    let Registered { secret, .. } = setup.app.register(confidential()).await.unwrap();
    let secret = secret.expect("it has one");
    let is_known =
        async |id: &str, secret: Option<&str>| match setup.app.authenticate(id, secret).await {
            Ok(client) => client.id.as_str() == id,
            Err(DeviceAuthError::InvalidClient) => false,
            Err(error) => panic!("{error:?}"),
        };
    assert!(is_known("box", Some(secret.reveal())).await);
    assert!(!is_known("box", None).await);
    assert!(!is_known("box", Some("")).await);
    assert!(!is_known("box", Some("wrong")).await);
    assert!(!is_known("box", Some(&secret.reveal()[1..])).await);
    assert!(!is_known("box", Some(&"x".repeat(1_000_000))).await);
    assert!(is_known("tv", None).await);
    assert!(is_known("tv", Some("")).await, "an empty parameter is none");
    assert!(!is_known("tv", Some(secret.reveal())).await);
    for unknown in ["nobody", "", "a b", "\u{e9}", &"x".repeat(100_000)] {
        assert!(!is_known(unknown, None).await, "{unknown:.20}");
        assert!(!is_known(unknown, Some(secret.reveal())).await);
    }
    let elsewhere = setup.service.of(OTHER_APP).authenticate("box", Some(secret.reveal())).await;
    assert!(matches!(elsewhere, Err(DeviceAuthError::InvalidClient)));
}

#[tokio::test]
async fn ids_are_unique_across_applications() {
    let setup = setup().await;
    let again = setup.service.of(OTHER_APP).register(television("tv")).await;
    assert!(matches!(again, Err(DeviceAuthError::ClientExists)));
    let drawn = NewClient { id: None, ..television("tv") };
    let one = setup.app.register(drawn.clone()).await.unwrap().client.id;
    let two = setup.app.register(drawn).await.unwrap().client.id;
    assert_ne!(one, two);
}

#[tokio::test]
async fn what_breaks_a_rule_is_named() {
    let setup = setup().await;
    let named = async |new: NewClient| match setup.app.register(new).await {
        Err(DeviceAuthError::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let good = || television("good");
    assert_eq!(named(NewClient { name: String::new(), ..good() }).await, "name");
    assert_eq!(named(NewClient { name: "x".repeat(129), ..good() }).await, "name");
    assert_eq!(named(NewClient { name: "a\u{1b}[2J".into(), ..good() }).await, "name");
    for scope in ["", "a b", "a\"b", "a\\b", "\u{e9}", &"x".repeat(129)] {
        assert_eq!(named(NewClient { scopes: vec![scope.into()], ..good() }).await, "scopes");
    }
    let twice = vec!["read".into(), "write".into(), "read".into()];
    assert_eq!(named(NewClient { scopes: twice, ..good() }).await, "scopes");
    let many = (0..65).map(|n| n.to_string()).collect();
    assert_eq!(named(NewClient { scopes: many, ..good() }).await, "scopes");
    for secs in [0, 59, 1_801] {
        let code_life = Duration::from_secs(secs);
        assert_eq!(named(NewClient { code_life, ..good() }).await, "codeLifeSeconds");
    }
    for secs in [0, 59, 360 * 86_400 + 1] {
        let token_life = Duration::from_secs(secs);
        assert_eq!(named(NewClient { token_life, ..good() }).await, "tokenLifeSeconds");
    }
    assert_eq!(named(NewClient { name: "a\u{202e}b".into(), ..good() }).await, "name");
    for id in ["", "a b", "a/b", "<b>", ".", "..", "-x", &"x".repeat(65)] {
        assert!(id.parse::<ClientId>().is_err(), "{id}");
    }
}

/// The page shows it as text; here it stays what it is.
#[tokio::test]
async fn a_name_that_looks_like_html_is_kept_as_it_is() {
    let setup = setup().await;
    let name = "<script>alert(1)</script>";
    let client = NewClient { name: name.into(), ..television("html") };
    let client = register(&setup.app, client).await;
    let started = setup.app.start(&client, None, &Asking::default()).await.unwrap();
    let asked = setup.app.look_up(&started.user_code.reveal(), person(1)).await.unwrap();
    assert_eq!(asked.unwrap().client_name, name);
}

#[tokio::test]
async fn lives_are_the_clients_own() {
    let setup = setup().await;
    let (code_life, token_life) = (SECOND * 60, SECOND * 3_600);
    let client = NewClient { code_life, token_life, ..television("short") };
    let client = register(&setup.app, client).await;
    let started = setup.app.start(&client, None, &Asking::default()).await.unwrap();
    assert_eq!(started.expires_in, SECOND * 60);
    assert_done(setup.approve(&started, "alice").await);
    let polled = setup.app.poll(&client, &started.device_code.reveal()).await.unwrap();
    let issued = issued(polled);
    assert_eq!(issued.expires_in, Some(SECOND * 3_600));
    setup.clock.advance(SECOND * 3_600 - Duration::from_millis(1));
    assert!(setup.is_good(&issued).await);
    setup.clock.advance(Duration::from_millis(1));
    assert!(!setup.is_good(&issued).await);
    assert!(setup.app.list(None, None, PageLimit::MAX).await.unwrap().devices.is_empty());
}

#[tokio::test]
async fn an_unregistered_client_is_gone() {
    let setup = setup().await;
    let id = setup.client.id.clone();
    assert!(!setup.service.of(OTHER_APP).unregister(&id).await.unwrap(), "it is not theirs");
    assert!(setup.app.unregister(&id).await.unwrap());
    assert!(!setup.app.unregister(&id).await.unwrap());
    let known = setup.app.authenticate("tv", None).await;
    assert!(matches!(known, Err(DeviceAuthError::InvalidClient)));
}

#[tokio::test]
async fn a_registration_whose_answer_is_lost_is_recognised() {
    let setup = setup().await;
    setup.below.set(Gate::LoseAnswer);
    let registered = setup.app.register(confidential()).await.expect("it is found");
    setup.below.set(Gate::LoseRequest);
    let lost = setup.app.register(television("lost")).await;
    assert!(matches!(lost, Err(DeviceAuthError::Store(_))), "{lost:?}");
    setup.below.set(Gate::Open);
    let secret = registered.secret.expect("it has one");
    assert!(setup.app.authenticate("box", Some(secret.reveal())).await.is_ok());
    assert!(setup.app.authenticate("lost", None).await.is_err());
}

#[tokio::test]
async fn scopes_that_the_client_does_not_have_are_refused() {
    let setup = setup().await;
    let start = async |scope| setup.app.start(&setup.client, scope, &Asking::default()).await;
    for scope in ["root", "read root", "READ", "read\twrite"] {
        let refused = start(Some(scope)).await;
        let Err(DeviceAuthError::InvalidScope { reason }) = refused else { panic!("{scope}") };
        let is_legal = |byte: u8| matches!(byte, 0x20..=0x7E) && !b"\"\\".contains(&byte);
        assert!(reason.bytes().all(is_legal), "legal in an error_description: {reason}");
    }
    assert_eq!(start(Some("write read write")).await.unwrap().scope, ["write", "read"]);
    for none in [None, Some(""), Some(" ")] {
        assert_eq!(start(none).await.unwrap().scope, ["read", "write", "admin"]);
    }
}
