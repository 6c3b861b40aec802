//! The drill: 90 days pass, a new key comes, and nobody who reads notices.

use wane::services::pull_stream::{KeyWrap as _, PullStreamError, Refusal, WrapError};

use super::stage::{AN_HOUR, NINETY_DAYS, Stage, ids, ispb, new_key, reader, signed_by, take_in};

/// Twice, so that the key of the first rotation goes through the second one as the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_in_flight_survive_a_rotation_after_ninety_days_on_two_nodes() {
    let Some(it) = Stage::new().await else { return };
    let way = it.way().await;
    let sources = [it.keys(&way).await.unwrap(), it.keys(&way).await.unwrap()];
    let nodes = [it.node(&sources[0]), it.node(&sources[1])];
    take_in(&nodes[0], 40).await;
    for _ in 0..2 {
        let before = nodes[0].start(ispb(), &reader()).await.unwrap();
        it.clock.advance(NINETY_DAYS);
        for keys in &sources {
            keys.refresh().await.unwrap();
        }
        let announced = nodes[1].start(ispb(), &reader()).await.unwrap();
        assert_eq!(signed_by(&announced), signed_by(&before), "it is known and does not sign yet");

        it.clock.advance(AN_HOUR);
        let flying = nodes[0].start(ispb(), &reader()).await.unwrap();
        let first = nodes[1].next(ispb(), &flying.next, &reader()).await.unwrap();
        assert_eq!(signed_by(&first), signed_by(&before), "until somebody looks");
        sources[0].refresh().await.unwrap();
        // One node has changed and the other has not: each is content with what the other signs.
        let again = nodes[0].next(ispb(), &flying.next, &reader()).await.unwrap();
        assert_eq!(again, first, "a retry is answered the same, with the key of then");
        let second = nodes[0].next(ispb(), &first.next, &reader()).await.unwrap();
        assert_ne!(signed_by(&second), signed_by(&before), "the new key signs");
        let third = nodes[1].next(ispb(), &second.next, &reader()).await.unwrap();
        assert_eq!(signed_by(&third), signed_by(&before), "the other node is behind");
        sources[1].refresh().await.unwrap();
        let fourth = nodes[1].next(ispb(), &third.next, &reader()).await.unwrap();
        assert_eq!(signed_by(&fourth), signed_by(&second));
        assert_eq!(
            [&first, &second, &third, &fourth].map(ids).concat().len(),
            4,
            "and each had its message"
        );
        for ended in [&fourth] {
            nodes[0].end(ispb(), &ended.next, &reader().client).await.unwrap();
        }
        // Leases of the readers that have gone end before the next round.
        it.clock.advance(AN_HOUR);
    }
}

/// The control: after two rotations a key is nobody's, and KMS opens nothing for another purpose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_two_rotations_ago_signs_nothing_that_is_good() {
    let Some(it) = Stage::new().await else { return };
    let way = it.way().await;
    let keys = it.keys(&way).await.unwrap();
    let node = it.node(&keys);
    take_in(&node, 10).await;
    let old = node.start(ispb(), &reader()).await.unwrap();
    for _ in 0..2 {
        for step in [NINETY_DAYS, AN_HOUR] {
            it.clock.advance(step);
            keys.refresh().await.unwrap();
        }
    }
    let told = node.next(ispb(), &old.next, &reader()).await;
    assert!(matches!(told, Err(PullStreamError::Refused(Refusal::Tampered))), "{told:?}");
}

/// Nobody who reads the store can sign, nor put one key in the place of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_opened_for_its_own_key_alone() {
    let Some(it) = Stage::new().await else { return };
    let way = it.way().await;
    let wrap = it.wrap(&way, &it.key);
    let closed = wrap.draw("one").await.unwrap();
    let secret = wrap.open("one", &closed).await.unwrap();
    assert_eq!(secret.len(), 64);
    assert!(!closed.bytes.windows(16).any(|part| part == &secret[..16]), "it is closed");
    let other = wrap.open("other", &closed).await;
    assert!(matches!(other, Err(WrapError::Refused { .. })), "{other:?}");
    let mut damaged = closed.clone();
    let last = damaged.bytes.len() - 1;
    damaged.bytes[last] ^= 1;
    let damaged = wrap.open("one", &damaged).await;
    assert!(matches!(damaged, Err(WrapError::Refused { .. })), "{damaged:?}");
}

/// An operator moves the alias, as the policy of the house may want it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alias_that_moves_to_another_key_leaves_closed_secrets_good() {
    let Some(it) = Stage::new().await else { return };
    let way = it.way().await;
    let alias = it.kms.create_alias().alias_name("alias/wane").target_key_id(&it.key);
    alias.send().await.unwrap();
    let wrap = it.wrap(&way, "alias/wane");
    let before = wrap.draw("one").await.unwrap();
    let secret = wrap.open("one", &before).await.unwrap();

    let next = new_key(&it.kms).await;
    let moved = it.kms.update_alias().alias_name("alias/wane").target_key_id(&next);
    moved.send().await.unwrap();
    let after = wrap.draw("two").await.unwrap();
    assert_ne!(after.by, before.by, "the new one closes");
    assert_eq!(wrap.open("one", &before).await.unwrap(), secret);
    assert_eq!(wrap.open("two", &after).await.unwrap().len(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_kms_does_not_have_is_a_refusal_that_says_so() {
    let Some(it) = Stage::new().await else { return };
    let way = it.way().await;
    let told = it.wrap(&way, "alias/nobody").draw("one").await.unwrap_err();
    assert!(matches!(told, WrapError::Refused { .. }), "{told:?}");
    assert!(told.to_string().contains("NotFoundException"), "{told}");
}
