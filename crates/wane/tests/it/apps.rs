//! Applications: numbers never used twice, two live keys, secrets that are nowhere in the store, and
//! revocations that are felt.

use std::collections::BTreeSet;
use std::time::Duration;

use wane::services::apps::{AppName, Apps, AppsError, LimitsChange, Scope};
use wane::store::{PageLimit, Store};

use super::{InnerStore, inner_store, manual_clock};

fn apps() -> Apps<InnerStore> {
    let (_, clock) = manual_clock();
    Apps::new(inner_store(clock.clone()), clock)
}

fn name(text: &str) -> AppName {
    text.parse().expect("a legal name")
}

#[tokio::test]
async fn a_name_is_given_once_and_a_number_never_again() {
    let apps = apps();
    let one = apps.create(&name("acme/one")).await.unwrap();
    let taken = apps.create(&name("acme/one")).await.unwrap_err();
    assert!(matches!(taken, AppsError::Exists { .. }), "{taken}");
    let two = apps.create(&name("acme/two")).await.unwrap();
    assert_ne!(one.app.id, two.app.id);
    assert_eq!(apps.find(&name("acme/one")).await.unwrap().expect("made").id, one.app.id);
    assert!(apps.find(&name("acme/three")).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_creations_one_wins_and_all_numbers_differ() {
    let apps = apps();
    let tasks: Vec<_> = (0..12)
        .map(|task| {
            let apps = apps.clone();
            tokio::spawn(async move { apps.create(&name(&format!("acme/{}", task % 4))).await })
        })
        .collect();
    let mut numbers = BTreeSet::new();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(new) => {
                made += 1;
                numbers.insert(new.app.id);
            }
            Err(error) => assert!(matches!(error, AppsError::Exists { .. }), "{error}"),
        }
    }
    assert_eq!((made, numbers.len()), (4, 4));
    let (listed, next) = apps.list(None, PageLimit::new(10).unwrap()).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|app| app.name.to_string()).collect();
    assert_eq!(listed, ["acme/0", "acme/1", "acme/2", "acme/3"]);
    assert_eq!(next, None);
}

#[tokio::test]
async fn a_list_comes_in_pages() {
    let apps = apps();
    for number in 0..5 {
        apps.create(&name(&format!("acme/{number}"))).await.unwrap();
    }
    let limit = PageLimit::new(2).unwrap();
    let (first, next) = apps.list(None, limit).await.unwrap();
    assert_eq!(first.len(), 2);
    let (second, _) = apps.list(next.as_ref(), limit).await.unwrap();
    assert_eq!(second[0].name, name("acme/2"));
}

#[tokio::test]
async fn a_key_opens_its_application_and_nothing_else_does() {
    let apps = apps();
    let new = apps.create(&name("acme/one")).await.unwrap();
    let key = new.key.reveal();
    let credential = apps.authenticate(&key).await.unwrap().expect("the right key");
    assert_eq!(credential.app().expect("of an app").id, new.app.id);
    assert_eq!(credential.scopes(), Scope::OF_APPS);
    let (id, secret) = key.split_once('.').unwrap();
    let last = if key.ends_with('0') { '1' } else { '0' };
    let wrong = [
        String::new(),
        ".".to_owned(),
        id.to_owned(),
        format!("{id}."),
        format!("{id}.{}", "0".repeat(64)),
        format!("{}{last}", &key[..key.len() - 1]),
        format!("{key}0"),
        format!("{id}.{}", secret.to_uppercase()),
        format!("ffffffff-{}.{secret}", &id[2..]),
        format!("0-{}.{secret}", &id[2..]),
        "\u{e9}-\u{e9}.\u{e9}".to_owned(),
    ];
    for presented in wrong.iter().filter(|wrong| **wrong != key) {
        assert!(apps.authenticate(presented).await.unwrap().is_none(), "{presented}");
    }
}

#[tokio::test]
async fn two_keys_live_at_a_time_and_rotation_goes_through_both() {
    let apps = apps();
    let app = name("acme/one");
    let first = apps.create(&app).await.unwrap().key;
    let second = apps.add_key(&app, &[Scope::Read]).await.unwrap();
    let third = apps.add_key(&app, &Scope::OF_APPS).await.unwrap_err();
    let AppsError::TooManyKeys { live } = &third else { panic!("{third}") };
    assert_eq!(*live, [first.id.clone(), second.id.clone()], "it says which there are");
    let node = apps.add_node_key(&app).await.unwrap();
    assert!(apps.authenticate(&node.reveal()).await.unwrap().is_some(), "not counted");

    apps.revoke_key(&app, &first.id).await.unwrap();
    assert!(apps.authenticate(&first.reveal()).await.unwrap().is_none(), "felt at once");
    let again = apps.revoke_key(&app, &first.id).await.unwrap_err();
    assert!(matches!(again, AppsError::NoKey { .. }), "{again}");
    let credential = apps.authenticate(&second.reveal()).await.unwrap().expect("still live");
    assert_eq!(credential.scopes(), [Scope::Read]);
    apps.add_key(&app, &Scope::OF_APPS).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_additions_leave_two_live_keys() {
    let apps = apps();
    let app = name("acme/one");
    apps.create(&app).await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (apps, app) = (apps.clone(), app.clone());
            tokio::spawn(async move { apps.add_key(&app, &Scope::OF_APPS).await.is_ok() })
        })
        .collect();
    let mut added = 0;
    for task in tasks {
        added += u32::from(task.await.unwrap());
    }
    assert_eq!(added, 1);
}

#[tokio::test]
async fn a_revocation_elsewhere_is_felt_within_a_second() {
    let (hand, clock) = manual_clock();
    let store = inner_store(clock.clone());
    let here = Apps::new(store.clone(), clock.clone());
    let elsewhere = Apps::new(store, clock);
    let app = name("acme/one");
    let key = here.create(&app).await.unwrap().key;
    assert!(here.authenticate(&key.reveal()).await.unwrap().is_some());
    elsewhere.revoke_key(&app, &key.id).await.unwrap();
    hand.advance(Duration::from_millis(500));
    assert!(here.authenticate(&key.reveal()).await.unwrap().is_none());
}

#[tokio::test]
async fn no_secret_is_in_the_store() {
    let (_, clock) = manual_clock();
    let store = inner_store(clock.clone());
    let apps = Apps::new(store.clone(), clock);
    let key = apps.create(&name("acme/one")).await.unwrap().key;
    let admin = apps.add_credential(&[Scope::Admin], None).await.unwrap();
    assert!(apps.authenticate(&admin.reveal()).await.unwrap().expect("right").app().is_none());
    let mut found = 0;
    let mut page = store.scan(None, PageLimit::MAX).await.unwrap();
    loop {
        for row in &page.rows {
            let text = String::from_utf8_lossy(&row.record.value).into_owned();
            for key in [&key, &admin] {
                let revealed = key.reveal();
                let (id, secret) = revealed.split_once('.').unwrap();
                assert!(!text.contains(secret), "a secret is stored");
                found += u32::from(text.contains(id));
            }
        }
        let Some(next) = page.next else { break };
        page = store.scan(Some(next), PageLimit::MAX).await.unwrap();
    }
    assert_eq!(found, 2, "the ids are there, so the search looks at the right place");
    assert!(!format!("{key:?}").contains(key.reveal().split_once('.').unwrap().1));
}

#[tokio::test]
async fn a_change_of_limits_leaves_the_others() {
    let apps = apps();
    let app = name("acme/one");
    apps.create(&app).await.unwrap();
    let change = LimitsChange { max_keys: Some(Some(5)), ..LimitsChange::default() };
    assert_eq!(apps.set_limits(&app, &change).await.unwrap().max_keys(), 5);
    let change = LimitsChange { in_flight: Some(Some(3)), ..LimitsChange::default() };
    let limits = apps.set_limits(&app, &change).await.unwrap();
    assert_eq!((limits.max_keys(), limits.in_flight()), (5, 3));
    let change = LimitsChange { max_keys: Some(None), ..LimitsChange::default() };
    let limits = apps.set_limits(&app, &change).await.unwrap();
    assert_eq!((limits.max_keys(), limits.in_flight()), (1_000_000, 3));
    for change in [
        LimitsChange { in_flight: Some(Some(0)), ..LimitsChange::default() },
        LimitsChange { default_ttl_seconds: Some(Some(31_536_001)), ..LimitsChange::default() },
        LimitsChange { max_bytes: Some(Some(u64::MAX)), ..LimitsChange::default() },
    ] {
        let error = apps.set_limits(&app, &change).await.unwrap_err();
        assert!(matches!(error, AppsError::Invalid { .. }), "{error}");
    }
}

#[test]
fn names_are_plain() {
    for legal in ["demo/app", "A.b-c_9/x"] {
        legal.parse::<AppName>().unwrap();
    }
    let long = format!("a/{}", "b".repeat(65));
    for illegal in ["", "/", "a/", "/b", "a", "a/b/c", "a/..", "a/b c", "a/\u{e9}", &long] {
        let error = illegal.parse::<AppName>().unwrap_err();
        assert!(matches!(error, AppsError::Invalid { .. }), "{illegal:?}: {error}");
    }
}

#[tokio::test]
async fn a_credential_of_no_app_is_revoked_and_keys_of_apps_are_not_among_them() {
    let apps = apps();
    let missing = apps.revoke_credential("0-1").await.unwrap_err();
    assert!(matches!(missing, AppsError::NoKey { .. }), "{missing}");
    let key = apps.create(&name("acme/one")).await.unwrap().key;
    let (first, second) = (
        apps.add_credential(&[Scope::Admin], None).await.unwrap(),
        apps.add_credential(&[Scope::Admin], None).await.unwrap(),
    );
    assert!(apps.revoke_credential(&key.id).await.is_err());
    apps.revoke_credential(&first.id).await.unwrap();
    assert!(apps.authenticate(&first.reveal()).await.unwrap().is_none());
    assert!(apps.authenticate(&second.reveal()).await.unwrap().is_some());
    assert!(apps.authenticate(&key.reveal()).await.unwrap().is_some());
}

#[tokio::test]
async fn credentials_of_no_app_have_their_own_scopes() {
    let apps = apps();
    for (scopes, ispb, legal) in [
        (&[Scope::Admin][..], None, true),
        (&[Scope::Produce], None, true),
        (&[Scope::Read], None, true),
        (&[Scope::Pull], Some("12345678"), true),
        (&[Scope::Pull], None, false),
        (&[Scope::Pull], Some("1234567"), false),
        (&[Scope::Produce], Some("12345678"), false),
        (&[Scope::Write], None, false),
        (&[], None, false),
    ] {
        assert_eq!(apps.add_credential(scopes, ispb).await.is_ok(), legal, "{scopes:?} {ispb:?}");
    }
}

/// Their number is bounded, and the answer is that, not a wrong request.
#[tokio::test]
async fn credentials_of_no_app_have_an_end() {
    let apps = apps();
    let mut made = 0;
    let refused = loop {
        match apps.add_credential(&[Scope::Read], None).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(made == 1_000 && matches!(refused, AppsError::NoMoreKeys), "{made}: {refused}");
}
