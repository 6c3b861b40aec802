//! The whole way: from codes to a linked device, its token, and its end.

use wane::services::device_auth::{
    Asking, Decided, DeviceAuthError, DeviceId, DeviceKey, DevicePlace, Guesser, LinkToken, Polled,
};
use wane::store::{PageLimit, SpreadStore};

use super::*;
use crate::gated::Gate;

#[tokio::test]
async fn a_device_is_linked_and_its_token_says_to_whom() {
    let setup = setup().await;
    let started = setup.started().await;
    assert_eq!((started.expires_in, started.interval), (CODE_LIFE, SECOND * 5));
    assert_eq!(started.device_code.reveal().len(), 43);
    assert_eq!(started.user_code.reveal().len(), 11, "ten letters and a dash");
    assert!(matches!(setup.poll(&started).await, Polled::Pending));

    let device = assert_done(setup.approve(&started, "alice").await);
    let issued = issued(setup.poll(&started).await);
    assert_eq!((issued.device, &issued.scope[..]), (device, &["read".to_owned()][..]));
    assert_eq!(issued.expires_in, Some(SECOND * 180 * 86_400));

    let active = setup.app.introspect(issued.token.reveal()).await.unwrap().expect("it is good");
    assert_eq!((&*active.subject, active.client.as_str()), ("alice", "tv"));
    assert_eq!((active.device, active.scope), (device, vec!["read".to_owned()]));
    assert_eq!(active.issued_at.until(active.expires_at), SECOND * 180 * 86_400);
}

#[tokio::test]
async fn who_asks_is_told_before_anybody_decides() {
    let setup = setup().await;
    let asking =
        Asking { address: Some(address(9)), agent: format!("T\u{202e}V\n{}", "x".repeat(999)) };
    let started = setup.app.start(&setup.client, None, &asking).await.unwrap();
    let typed = started.user_code.reveal();
    let asked = setup.service.look_up(&typed, Source::of(address(1))).await.unwrap().unwrap();
    assert_eq!((asked.app, &*asked.client_name), (APP, "Television"));
    assert_eq!(asked.asking.address, Some(address(9)));
    assert_eq!(asked.asking.agent.len(), 256, "cut");
    assert!(asked.asking.agent.starts_with("TVxx"), "and stripped");
    assert_eq!(asked.started_at.until(asked.expires_at), CODE_LIFE);
    assert!(!asked.is_decided);
    assert_done(setup.deny(&started).await);
    assert!(setup.app.look_up(&typed, person(1)).await.unwrap().unwrap().is_decided);
}

#[tokio::test]
async fn an_applications_payload_is_handed_on_once_and_then_gone() {
    let setup = setup().await;
    let started = setup.started().await;
    let link_token = Some(LinkToken::payload("app-payload {\"a\":1}").unwrap());
    let approval = Approval { link_token, ..approval("alice") };
    let typed = started.user_code.reveal();
    assert_done(setup.app.approve(&typed, &approval, Guesser::App).await.unwrap());
    let first = issued(setup.poll(&started).await);
    assert_eq!(first.token.reveal(), "app-payload {\"a\":1}");
    setup.clock.advance(SECOND * 9);
    assert_eq!(issued(setup.poll(&started).await).token, first.token, "the same poll again");
    setup.clock.advance(SECOND);
    assert!(matches!(setup.poll(&started).await, Polled::Invalid));
    assert!(!setup.is_good(&first).await, "the service does not know whose it is");
    setup.clock.advance(SECOND * 50);
    let holds = |row: &Row| String::from_utf8_lossy(&row.record.value).contains("app-payload");
    assert!(!setup.rows().await.iter().any(holds), "nothing of it is kept");
    let page = setup.app.list(Some("alice"), None, PageLimit::MAX).await.unwrap();
    assert_eq!(page.devices.len(), 1, "the device is linked all the same");
}

#[test]
fn a_payload_is_what_a_token_may_be() {
    let long = "x".repeat(8_193);
    for wrong in ["", "a\nb", "\u{e9}", "a\0", &long] {
        let error = LinkToken::payload(wrong).unwrap_err();
        assert!(matches!(error, DeviceAuthError::Invalid { field: "linkToken", .. }));
    }
    assert!(LinkToken::payload(&long[1..]).is_ok());
}

#[tokio::test]
async fn a_revoked_device_is_unlinked_at_once_and_for_good() {
    let setup = setup().await;
    let (started, issued) = setup.linked("alice").await;
    let (_, other) = setup.linked("alice").await;
    assert!(setup.app.revoke(issued.device).await.unwrap());
    assert!(!setup.is_good(&issued).await);
    assert!(setup.is_good(&other).await, "another device");
    assert!(matches!(setup.poll(&started).await, Polled::Invalid), "within the window");
    assert!(!setup.app.revoke(issued.device).await.unwrap(), "there is nothing to revoke");
    assert_eq!(setup.approve(&started, "mallory").await, Decided::NoSuchCode);
    let page = setup.app.list(None, None, PageLimit::MAX).await.unwrap();
    assert_eq!(page.devices.iter().map(|d| d.id).collect::<Vec<_>>(), [other.device]);
}

/// Whoever approved and thinks better of it has the device's id, and need not wait for its poll.
#[tokio::test]
async fn an_approval_can_be_taken_back_before_the_device_asks() {
    let setup = setup().await;
    let started = setup.started().await;
    let device = assert_done(setup.approve(&started, "alice").await);
    assert!(setup.app.list(None, None, PageLimit::MAX).await.unwrap().devices.is_empty());
    assert!(setup.app.revoke(device).await.unwrap());
    assert!(matches!(setup.poll(&started).await, Polled::Invalid));
    assert_eq!(setup.approve(&started, "alice").await, Decided::NoSuchCode);
}

#[tokio::test]
async fn what_is_pending_or_denied_is_no_device() {
    let setup = setup().await;
    let started = setup.started().await;
    let device = assert_done(setup.deny(&started).await);
    assert!(!setup.app.revoke(device).await.unwrap());
    assert!(matches!(setup.poll(&started).await, Polled::Denied));
    assert!("nonsense".parse::<DeviceId>().is_err());
    assert_eq!(device.to_string().parse::<DeviceId>().unwrap(), device);
}

#[tokio::test]
async fn a_client_revokes_its_own_tokens_only() {
    let setup = setup().await;
    let other = register(&setup.app, television("other")).await;
    let (_, issued) = setup.linked("alice").await;
    let token = issued.token.reveal();
    assert!(!setup.app.revoke_token(&other, token).await.unwrap());
    assert!(setup.is_good(&issued).await);
    assert!(setup.app.revoke_token(&setup.client, token).await.unwrap());
    assert!(!setup.is_good(&issued).await);
    for nonsense in ["", "x", &"x".repeat(100_000), &started_code(&setup).await] {
        assert!(!setup.app.revoke_token(&setup.client, nonsense).await.unwrap());
        assert!(setup.app.introspect(nonsense).await.unwrap().is_none());
    }
}

async fn started_code(setup: &Setup) -> String {
    setup.started().await.device_code.reveal()
}

#[tokio::test]
async fn devices_are_listed_by_subject_in_pages() {
    let setup = setup().await;
    for subject in ["alice", "bob", "alice", "alice"] {
        setup.linked(subject).await;
    }
    let two = PageLimit::new(2).unwrap();
    let first = setup.app.list(Some("alice"), None, two).await.unwrap();
    assert_eq!(first.devices.len(), 2);
    let place = first.next.expect("there is more");
    let place = DevicePlace::parse(place.as_str()).unwrap();
    let second = setup.app.list(Some("alice"), Some(&place), two).await.unwrap();
    assert_eq!((second.devices.len(), second.next), (1, None));
    let mut ids: Vec<_> = first.devices.iter().chain(&second.devices).map(|d| d.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert!(first.devices.iter().all(|device| device.subject == "alice"));
    let wrong = setup.app.list(Some("bob"), Some(&place), two).await;
    assert!(matches!(wrong, Err(DeviceAuthError::Invalid { field: "after", .. })));
    assert!(DevicePlace::parse("$$").is_err());
    assert_eq!(setup.app.list(None, None, PageLimit::MAX).await.unwrap().devices.len(), 4);
}

/// K5: nothing of another application can be found, decided, read or ended.
#[tokio::test]
async fn another_applications_anything_looks_absent() {
    let setup = setup().await;
    let other = setup.service.of(OTHER_APP);
    let theirs = register(&other, television("theirs")).await;
    let waiting = setup.started().await;
    let (linked, issued) = setup.linked("alice").await;
    let (typed, code) = (waiting.user_code.reveal(), linked.device_code.reveal());

    assert!(other.look_up(&typed, person(1)).await.unwrap().is_none());
    let decided = other.approve(&typed, &approval("mallory"), person(1)).await.unwrap();
    assert_eq!(decided, Decided::NoSuchCode);
    assert_eq!(other.deny(&typed, person(1)).await.unwrap(), Decided::NoSuchCode);
    assert!(matches!(other.poll(&theirs, &code).await.unwrap(), Polled::Invalid));
    assert!(matches!(other.poll(&setup.client, &code).await, Err(DeviceAuthError::InvalidClient)));
    let start = other.start(&setup.client, None, &Asking::default()).await;
    assert!(matches!(start, Err(DeviceAuthError::InvalidClient)));
    assert!(other.introspect(issued.token.reveal()).await.unwrap().is_none());
    assert!(!other.revoke_token(&theirs, issued.token.reveal()).await.unwrap());
    assert!(!other.revoke(issued.device).await.unwrap());
    assert!(other.list(None, None, PageLimit::MAX).await.unwrap().devices.is_empty());

    assert!(setup.is_good(&issued).await);
    assert!(matches!(setup.poll(&waiting).await, Polled::Pending));
}

/// Tokens outlive the process that issued them: the key does.
#[tokio::test]
async fn the_key_in_the_store_is_drawn_once() {
    let setup = setup().await;
    let clock = setup.shared_clock();
    setup.below.set(Gate::LoseAnswer);
    let one = DeviceKey::in_store(&setup.below, &*clock).await.expect("it is looked for");
    setup.below.set(Gate::Open);
    let two = DeviceKey::in_store(&setup.below, &*clock).await.unwrap();
    let service = |key| DeviceAuth::new(setup.below.clone(), setup.shared_clock(), key, unpaced());
    let (one, two) = (service(one).of(APP), service(two).of(APP));
    let started = one.start(&setup.client, None, &Asking::default()).await.unwrap();
    let typed = started.user_code.reveal();
    assert_done(two.approve(&typed, &approval("alice"), Guesser::App).await.unwrap());
    let code = started.device_code.reveal();
    let first = issued(one.poll(&setup.client, &code).await.unwrap());
    let second = issued(two.poll(&setup.client, &code).await.unwrap());
    assert_eq!(first.token, second.token);
}

#[tokio::test]
async fn subjects_are_text_of_a_bounded_length() {
    let setup = setup().await;
    let typed = setup.started().await.user_code.reveal();
    for subject in ["", "a\nb", &"x".repeat(256)] {
        let refused = setup.app.approve(&typed, &approval(subject), Guesser::App).await;
        assert!(matches!(refused, Err(DeviceAuthError::Invalid { field: "subject", .. })));
    }
    let longest = approval(&"x".repeat(255));
    assert_done(setup.app.approve(&typed, &longest, Guesser::App).await.unwrap());
}

/// The rows of an application lie in many buckets on some backends; lists and counts merge them.
#[tokio::test]
async fn devices_are_linked_and_listed_over_a_store_that_spreads_them() {
    let (_manual, clock) = manual_clock();
    let store = SpreadStore::open(inner_store(clock.clone()), 16).await.unwrap();
    let key = DeviceKey::from_bytes([7; 32]);
    let settings = DeviceAuthSettings { codes_per_app: 30, ..unpaced() };
    let app = DeviceAuth::new(store, clock, key, settings).of(APP);
    let client = register(&app, television("tv")).await;
    for _ in 0..30 {
        let started = app.start(&client, None, &Asking::default()).await.unwrap();
        let typed = started.user_code.reveal();
        assert_done(app.approve(&typed, &approval("alice"), Guesser::App).await.unwrap());
        issued(app.poll(&client, &started.device_code.reveal()).await.unwrap());
    }
    assert_limited(app.start(&client, None, &Asking::default()).await);
    let (mut ids, mut place, seven) = (Vec::new(), None, PageLimit::new(7).unwrap());
    loop {
        let page = app.list(Some("alice"), place.as_ref(), seven).await.unwrap();
        ids.extend(page.devices.iter().map(|device| device.id));
        place = page.next;
        if place.is_none() {
            break;
        }
    }
    assert_eq!(ids.len(), 30);
    assert!(ids.is_sorted(), "each once");
}
