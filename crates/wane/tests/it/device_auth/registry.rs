//! The clients of an application: listed without secrets, given other ones, removed with all that
//! they started.

use futures_util::future::join_all;
use wane::services::device_auth::{ClientId, ClientInfo, DeviceAuthError, NewClient};
use wane::store::Fence;

use super::*;
use crate::gated::Gate;

fn id(text: &str) -> ClientId {
    text.parse().expect("a legal id")
}

fn confidential(id: &str) -> NewClient {
    NewClient { is_confidential: true, ..television(id) }
}

/// The ids of all clients, in pages of so many.
async fn listed<S: Store>(app: &AppDeviceAuth<S>, rows: usize) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let limit = PageLimit::new(rows).expect("a legal limit");
        let page = app.clients(after.as_ref(), limit).await.expect("it answers");
        ids.extend(page.clients.iter().map(|client| client.id.to_string()));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

async fn secret_of(setup: &Setup, id: &str) -> String {
    let registered = setup.app.register(confidential(id)).await.expect("it answers");
    registered.secret.expect("it has one").reveal().to_owned()
}

async fn is_known(setup: &Setup, id: &str, secret: Option<&str>) -> bool {
    match setup.app.authenticate(id, secret).await {
        Ok(_) => true,
        Err(DeviceAuthError::InvalidClient) => false,
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn clients_are_listed_in_pages_by_their_application_only() {
    let setup = setup().await;
    for name in ["b", "a", "c-1", "c", "B"] {
        register(&setup.app, television(name)).await;
    }
    let other = setup.service.of(OTHER_APP);
    register(&other, television("theirs")).await;
    for rows in [1, 2, 3, 100] {
        assert_eq!(listed(&setup.app, rows).await, ["B", "a", "b", "c", "c-1", "tv"]);
        assert_eq!(listed(&other, rows).await, ["theirs"]);
    }
    assert_eq!(setup.service.app_of("theirs").await.unwrap(), Some(OTHER_APP));
    for unknown in ["nobody", "", "a b"] {
        assert_eq!(setup.service.app_of(unknown).await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_is_listed_says_all_but_the_secret() {
    let setup = setup().await;
    let secret = secret_of(&setup, "box").await;
    let new = confidential("box");
    let found = setup.app.client(&id("box")).await.unwrap().expect("it is there");
    let expected = ClientInfo {
        id: id("box"),
        name: new.name,
        is_confidential: true,
        scopes: new.scopes,
        code_life: new.code_life,
        token_life: new.token_life,
        created_at: found.created_at,
    };
    assert_eq!(found, expected);
    let page = setup.app.clients(None, PageLimit::MAX).await.unwrap();
    assert_eq!(page.clients[0], expected);
    assert!(!format!("{page:?}").contains(&secret));
    assert!(setup.service.of(OTHER_APP).client(&id("box")).await.unwrap().is_none());
}

#[tokio::test]
async fn an_application_has_so_many_clients_and_is_told_what_to_do() {
    let setup = setup_with(DeviceAuthSettings { clients_per_app: 3, ..unpaced() }).await;
    for name in ["a", "b"] {
        register(&setup.app, television(name)).await;
    }
    let refused = setup.app.register(television("c")).await.unwrap_err();
    assert!(matches!(refused, DeviceAuthError::Invalid { field: "clients", .. }), "{refused:?}");
    assert!(refused.to_string().contains("remove one"), "{refused}");
    register(&setup.service.of(OTHER_APP), television("theirs")).await;
    assert!(setup.app.unregister(&id("a")).await.unwrap());
    register(&setup.app, television("c")).await;
    assert_eq!(listed(&setup.app, 2).await, ["b", "c", "tv"]);
}

/// Otherwise all of them would count before any of them has registered.
#[tokio::test]
async fn registrations_at_once_find_room_one_after_the_other() {
    let setup = setup_with(DeviceAuthSettings { clients_per_app: 4, ..unpaced() }).await;
    setup.below.set(Gate::GiveWay);
    let names: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
    let registered = join_all(names.iter().map(|name| setup.app.register(television(name)))).await;
    setup.below.set(Gate::Open);
    assert_eq!(registered.iter().filter(|one| one.is_ok()).count(), 3);
    assert_eq!(listed(&setup.app, 100).await.len(), 4);
}

/// What a crash leaves of a registration takes nobody's place.
#[tokio::test]
async fn what_is_listed_and_not_there_does_not_count() {
    let setup = setup_with(DeviceAuthSettings { clients_per_app: 2, ..unpaced() }).await;
    register(&setup.app, television("lost")).await;
    let rows = setup.rows().await;
    let lost = rows.iter().find(|row| row.key.clustering() == b"clost").expect("its record");
    let removed = setup.below.compare_and_delete(&lost.key, &lost.record.value, Fence::NONE).await;
    assert!(removed.unwrap().is_applied());
    let theirs = setup.service.of(OTHER_APP);
    register(&theirs, television("theirs")).await;
    for _ in 0..3 {
        let taken = setup.app.register(television("theirs")).await;
        assert!(matches!(taken, Err(DeviceAuthError::ClientExists)));
    }
    register(&setup.app, television("last")).await;
    assert_eq!(listed(&setup.app, 1).await, ["last", "tv"]);
    assert_eq!(listed(&theirs, 1).await, ["theirs"]);
}

#[tokio::test]
async fn who_registers_an_id_again_changes_nothing() {
    let setup = setup().await;
    let (_, issued) = setup.linked("alice").await;
    let before = setup.rows().await;
    assert!(matches!(
        setup.app.register(television("tv")).await,
        Err(DeviceAuthError::ClientExists)
    ));
    assert_eq!(setup.rows().await, before);
    assert!(setup.is_good(&issued).await);
    assert!(setup.app.unregister(&id("tv")).await.unwrap());
    assert!(listed(&setup.app, 10).await.is_empty());
}

#[tokio::test]
async fn another_secret_replaces_the_one_before_and_nothing_else() {
    let setup = setup().await;
    let old = secret_of(&setup, "box").await;
    let client = setup.app.authenticate("box", Some(&old)).await.unwrap();
    let started = setup.app.start(&client, None, &Asking::default()).await.unwrap();
    let new = setup.app.rotate_secret(&id("box")).await.unwrap().expect("it is there");
    assert!(!format!("{new:?}").contains(new.reveal()));
    assert!(!is_known(&setup, "box", Some(&old)).await);
    assert!(is_known(&setup, "box", Some(new.reveal())).await);
    let client = setup.app.authenticate("box", Some(new.reveal())).await.unwrap();
    assert_done(setup.approve(&started, "alice").await);
    let code = started.device_code.reveal();
    let issued = issued(setup.app.poll(&client, &code).await.unwrap());
    assert!(setup.is_good(&issued).await, "its codes and tokens stay");
    let theirs = setup.service.of(OTHER_APP).rotate_secret(&id("box")).await.unwrap();
    assert!(theirs.is_none(), "another application's looks absent");
    assert!(setup.app.rotate_secret(&id("nobody")).await.unwrap().is_none());
    let public = setup.app.rotate_secret(&id("tv")).await;
    assert!(matches!(public, Err(DeviceAuthError::PublicClient)));
}

#[tokio::test]
async fn a_secret_whose_answer_is_lost_is_told_or_not_set() {
    let setup = setup().await;
    let old = secret_of(&setup, "box").await;
    setup.below.set(Gate::LoseRequest);
    assert!(setup.app.rotate_secret(&id("box")).await.is_err());
    setup.below.set(Gate::Open);
    assert!(is_known(&setup, "box", Some(&old)).await);
    setup.below.set(Gate::LoseAnswer);
    let new = setup.app.rotate_secret(&id("box")).await.unwrap().expect("it is found");
    setup.below.set(Gate::Open);
    assert!(is_known(&setup, "box", Some(new.reveal())).await);
}

#[tokio::test]
async fn of_racing_rotations_the_one_that_is_told_is_right() {
    let setup = setup().await;
    secret_of(&setup, "box").await;
    setup.below.set(Gate::GiveWay);
    let box_id = id("box");
    let told = join_all((0..4).map(|_| setup.app.rotate_secret(&box_id))).await;
    setup.below.set(Gate::Open);
    let told: Vec<_> = told.into_iter().flat_map(Result::ok).flatten().collect();
    assert_eq!(told.len(), 1);
    assert!(is_known(&setup, "box", Some(told[0].reveal())).await);
}

#[tokio::test]
async fn a_removed_client_takes_its_codes_and_tokens_along() {
    let setup = setup().await;
    let (_, issued) = setup.linked("alice").await;
    let (pending, approved) = (setup.started().await, setup.started().await);
    assert_done(setup.approve(&approved, "alice").await);
    assert!(setup.app.unregister(&setup.client.id).await.unwrap());
    assert!(!is_known(&setup, "tv", None).await, "it polls nothing any more");
    assert!(!setup.is_good(&issued).await);
    assert!(setup.app.list(None, None, PageLimit::MAX).await.unwrap().devices.is_empty());
    assert!(setup.app.client(&setup.client.id).await.unwrap().is_none());

    // Whoever takes the id is another client.
    let again = register(&setup.app, television("tv")).await;
    for started in [&pending, &approved] {
        let polled = setup.app.poll(&again, &started.device_code.reveal()).await.unwrap();
        assert!(matches!(polled, Polled::Invalid), "{polled:?}");
    }
    assert!(!setup.is_good(&issued).await);
    assert!(!setup.app.revoke_token(&again, issued.token.reveal()).await.unwrap());
    assert!(setup.app.list(None, None, PageLimit::MAX).await.unwrap().devices.is_empty());
    assert!(setup.app.revoke(issued.device).await.unwrap(), "what is left can be removed");
}

/// Removing and registering at once: whoever lives in the end is listed.
#[tokio::test]
async fn a_client_that_lives_is_listed_whatever_races() {
    let (mut lives, mut gone) = (0, 0);
    for round in 0..40 {
        let setup = setup().await;
        let other = service_on(&setup.below, setup.shared_clock(), unpaced()).of(APP);
        let tv = id("tv");
        setup.below.set(Gate::GiveWay);
        tokio::join!(
            async {
                for _ in 0..round % 8 {
                    tokio::task::yield_now().await;
                }
                drop(setup.app.register(television("tv")).await);
            },
            async {
                for _ in 0..round {
                    tokio::task::yield_now().await;
                }
                drop(setup.app.unregister(&tv).await);
            },
            async {
                for _ in 0..round / 8 {
                    tokio::task::yield_now().await;
                }
                drop(other.register(television("tv")).await);
            },
        );
        setup.below.set(Gate::Open);
        let is_there = setup.app.client(&tv).await.unwrap().is_some();
        assert_eq!(listed(&setup.app, 10).await.len(), usize::from(is_there), "round {round}");
        lives += u32::from(is_there);
        gone += u32::from(!is_there);
    }
    assert!(lives > 0 && gone > 0, "both ends are seen: {lives}, {gone}");
}
