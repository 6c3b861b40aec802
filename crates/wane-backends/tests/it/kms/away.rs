//! KMS is away: what is open stays in use, and it is said.

use wane::services::pull_stream::{KeyService, WrapError, WrappedKeysError};

use super::stage::{AN_HOUR, NINETY_DAYS, Stage, cut, ids, ispb, mend, reader, signed_by, take_in};

fn is_away(told: &WrappedKeysError) -> bool {
    matches!(told, WrappedKeysError::Service(WrapError::Away { .. }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_kms_the_keys_at_hand_go_on_and_the_next_one_comes_later() {
    let Some(it) = Stage::new().await else { return };
    let way = it.way().await;
    let keys = it.keys(&way).await.unwrap();
    let service = keys.service();
    let node = it.node(&keys);
    take_in(&node, 10).await;
    keys.refresh().await.unwrap();
    assert_eq!(*service.borrow(), KeyService::Answers);

    cut(&way).await;
    it.clock.advance(NINETY_DAYS);
    let told = keys.refresh().await.unwrap_err();
    assert!(is_away(&told), "{told:?}");
    let failing = service.borrow().clone();
    assert!(matches!(&failing, KeyService::Fails { .. }), "{failing:?}");
    let first = node.start(ispb(), &reader()).await.unwrap();
    it.clock.advance(AN_HOUR * 5);
    let told = keys.refresh().await.unwrap_err();
    assert!(is_away(&told), "{told:?}");
    assert_eq!(*service.borrow(), failing, "since when it is away");
    let second = node.start(ispb(), &reader()).await.unwrap();
    let third = node.next(ispb(), &second.next, &reader()).await.unwrap();
    assert_eq!(ids(&third).len(), 1);
    assert_eq!(signed_by(&third), signed_by(&first), "the key that was due to go");

    mend(&way).await;
    keys.refresh().await.unwrap();
    assert_eq!(*service.borrow(), KeyService::Answers);
    it.clock.advance(AN_HOUR);
    keys.refresh().await.unwrap();
    let fourth = node.start(ispb(), &reader()).await.unwrap();
    assert_ne!(signed_by(&fourth), signed_by(&first), "the rotation was made up for");
}

/// It is noticed while nothing is needed of it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kms_that_goes_away_is_noticed_before_it_is_needed() {
    let Some(it) = Stage::new().await else { return };
    let way = it.way().await;
    let keys = it.keys(&way).await.unwrap();
    cut(&way).await;
    keys.refresh().await.unwrap();
    it.clock.advance(std::time::Duration::from_secs(30));
    assert!(is_away(&keys.refresh().await.unwrap_err()));
    mend(&way).await;
    keys.refresh().await.unwrap();
    assert_eq!(*keys.service().borrow(), KeyService::Answers);
}

/// One node cannot open the next key when it comes to sign: it goes on with the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_missed_a_rotation_signs_with_what_the_others_know() {
    let Some(it) = Stage::new().await else { return };
    let (near, far) = (it.way().await, it.way().await);
    let (one, other) = (it.keys(&near).await.unwrap(), it.keys(&far).await.unwrap());
    let nodes = [it.node(&one), it.node(&other)];
    take_in(&nodes[0], 10).await;
    cut(&far).await;
    for step in [NINETY_DAYS, AN_HOUR] {
        it.clock.advance(step);
        one.refresh().await.unwrap();
        assert!(is_away(&other.refresh().await.unwrap_err()));
    }
    let behind = nodes[1].start(ispb(), &reader()).await.unwrap();
    let ahead = nodes[0].next(ispb(), &behind.next, &reader()).await.unwrap();
    assert_ne!(signed_by(&ahead), signed_by(&behind));
    mend(&far).await;
    other.refresh().await.unwrap();
    let both = nodes[1].next(ispb(), &ahead.next, &reader()).await.unwrap();
    assert_eq!(signed_by(&both), signed_by(&ahead));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_kms_and_without_an_open_key_nothing_starts() {
    let Some(it) = Stage::new().await else { return };
    let way = it.way().await;
    cut(&way).await;
    let fresh = it.keys(&way).await.unwrap_err();
    assert!(is_away(&fresh), "{fresh:?}");
    assert!(fresh.to_string().starts_with("the key service does not answer: "), "{fresh}");
    mend(&way).await;
    let keys = it.keys(&way).await.unwrap();
    cut(&way).await;
    assert!(is_away(&it.keys(&way).await.unwrap_err()), "the keys are there, and closed");
    drop(keys);
    mend(&way).await;
    it.keys(&way).await.unwrap();
}
