//! Codes and secrets are in the store as hashes, and in no `Debug` and no error: a search for each
//! of them finds nothing.

use wane::services::device_auth::{Asking, DeviceAuthError, Guesser, LinkToken};
use wane::store::{Life, Value, Write};

use super::*;

struct Canaries(Vec<String>);

impl Canaries {
    /// The first of them that the text has in it.
    fn found_in<'a>(&'a self, text: &str) -> Option<&'a str> {
        self.0.iter().map(String::as_str).find(|canary| text.contains(canary))
    }

    #[track_caller]
    fn assert_not_in(&self, what: &str, text: &str) {
        assert_eq!(self.found_in(text), None, "{what}: {text}");
    }
}

/// A flow that uses everything secret, what it shows of itself, and what is secret.
async fn flow(setup: &Setup) -> (Canaries, Vec<(&'static str, String)>) {
    let new = NewClient { is_confidential: true, ..television("box") };
    let registered = setup.app.register(new).await.expect("it answers");
    let secret = registered.secret.as_ref().expect("it has one").reveal().to_owned();
    let client = setup.app.authenticate("box", Some(&secret)).await.expect("it answers");
    let started = setup.app.start(&client, None, &Asking::default()).await.expect("it answers");
    let (typed, code) = (started.user_code.reveal(), started.device_code.reveal());
    let approval = approval("alice");
    let decided = setup.app.approve(&typed, &approval, Guesser::App).await.expect("it answers");
    let polled = setup.app.poll(&client, &code).await.expect("it answers");
    let shown = vec![
        ("registered", format!("{registered:?} {client:?}")),
        ("started", format!("{started:?}")),
        ("decided", format!("{decided:?} {approval:?}")),
        ("polled", format!("{polled:?}")),
        ("service", format!("{:?} {:?}", setup.service, setup.app)),
    ];
    let token = issued(polled).token.reveal().to_owned();
    let letters = typed.replace('-', "");
    (Canaries(vec![secret, code, typed, letters, token]), shown)
}

#[tokio::test]
async fn no_secret_is_in_the_store_or_in_what_is_shown() {
    let setup = setup().await;
    let (canaries, shown) = flow(&setup).await;
    for (what, text) in &shown {
        canaries.assert_not_in(what, text);
    }
    for row in setup.rows().await {
        canaries.assert_not_in("row", &String::from_utf8_lossy(&row.record.value));
        canaries.assert_not_in("key", &String::from_utf8_lossy(row.key.clustering()));
        canaries.assert_not_in("debug", &format!("{row:?}"));
    }
    assert!(canaries.found_in(&format!("x{}y", canaries.0[1])).is_some(), "the search finds");
}

#[tokio::test]
async fn a_payload_of_the_application_is_shown_nowhere() {
    let setup = setup().await;
    let started = setup.started().await;
    let canary = "canary-payload";
    let link_token = Some(LinkToken::payload(canary).unwrap());
    let approval = Approval { link_token, ..approval("alice") };
    let typed = started.user_code.reveal();
    let decided = setup.app.approve(&typed, &approval, Guesser::App).await.unwrap();
    let polled = setup.poll(&started).await;
    let text = format!("{approval:?} {decided:?} {polled:?} {:?}", setup.app);
    assert!(!text.contains(canary), "{text}");
}

/// Records that cannot be read, wherever they break, and names nobody should repeat.
#[tokio::test]
async fn no_error_repeats_what_it_was_given_or_what_is_stored() {
    let setup = setup().await;
    let started = setup.started().await;
    let (typed, code) = (started.user_code.reveal(), started.device_code.reveal());
    let (_, issued) = setup.linked("alice").await;
    let token = issued.token.reveal().to_owned();
    let letters = typed.replace('-', "");
    let canaries =
        Canaries(vec![code.clone(), typed.clone(), letters, token.clone(), "canary".into()]);
    let mut errors: Vec<DeviceAuthError> = Vec::new();
    errors.extend(setup.app.authenticate("tv", Some("canary")).await.err());
    errors.extend("canary canary".parse::<wane::services::device_auth::ClientId>().err());
    errors.extend("canary".parse::<DeviceId>().err());
    for row in setup.rows().await {
        let broken = Value::new("{\"client\":\"canary\",\"state\":{\"is\":\"canary\"}}").unwrap();
        let put = setup.below.inner.put(&row.key, Write::new(broken, Life::Permanent)).await;
        assert!(put.unwrap().is_applied());
    }
    errors.extend(setup.app.authenticate("tv", None).await.err());
    errors.extend(setup.app.poll(&setup.client, &code).await.err());
    errors.extend(setup.app.look_up(&typed, person(1)).await.err());
    errors.extend(setup.app.introspect(&token).await.err());
    errors.extend(setup.app.revoke(issued.device).await.err());
    errors.extend(setup.app.list(None, None, PageLimit::MAX).await.err());
    assert_eq!(errors.len(), 9, "{errors:?}");
    for error in &errors {
        canaries.assert_not_in("error", &format!("{error} {error:?}"));
    }
}
