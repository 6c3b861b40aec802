//! The steps of an election: campaign, renew, resign, observe, and the fence of a guarded write.

use std::sync::Arc;
use std::time::Duration;

use wane::clock::{Clock, SystemClock};
use wane::services::elections::{
    Campaigned, Elections, ElectionsError, Guard, LeaseId, LeaseRules, MAX_NAME, Renewed, Resigned,
    Standing,
};
use wane::store::{
    Fence, Key, Keyspace, Life, Outcome, PageLimit, Remaining, Store, StoreError, Value,
    WatchedStore, Write,
};

use super::{APP, TTL, assert_invalid, elections_on, setup, token};
use crate::gated::{Gate, GatedStore};
use crate::{inner_store, key};

const INSTANT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn the_first_candidate_wins_and_the_second_is_told_who_did() {
    let it = setup();
    assert_eq!(it.elections.observe("e").await.unwrap(), None);
    let lease = it.won("e", "one").await;
    assert_eq!((lease.token, lease.ttl), (token(1), TTL));
    assert_eq!(it.clock.now().until(lease.expires_at), TTL);
    assert_eq!(lease.right, Duration::from_millis(8_750), "an eighth is the margin");
    it.clock.advance(Duration::from_secs(4));
    let remaining = Duration::from_secs(6);
    let standing = Standing { holder: Some("one".into()), token: token(1), remaining };
    assert_eq!(it.held("e", "two").await, standing);
    assert_eq!(it.standing("e").await, standing);
}

#[tokio::test]
async fn a_lease_ends_to_the_millisecond_and_the_next_token_is_higher() {
    let it = setup();
    it.won("e", "one").await;
    it.clock.advance(TTL - INSTANT);
    assert_eq!(it.held("e", "two").await.remaining, INSTANT);
    it.clock.advance(INSTANT);
    let ended = Standing { holder: None, token: token(1), remaining: Duration::ZERO };
    assert_eq!(it.standing("e").await, ended);
    assert_eq!(it.won("e", "two").await.token, token(2));
}

#[tokio::test]
async fn two_nodes_of_one_name_are_two_candidates() {
    let it = setup();
    let first = it.won("e", "node").await;
    it.held("e", "node").await;
    it.clock.advance(TTL);
    let second = it.won("e", "node").await;
    assert_ne!(first.id, second.id);
    let lost = it.elections.renew("e", first.id, first.token).await.unwrap();
    assert!(matches!(lost, Renewed::Lost(Some(Standing { holder: Some(_), .. }))), "{lost:?}");
}

#[tokio::test]
async fn a_renewal_moves_the_end() {
    let it = setup();
    let lease = it.won("e", "one").await;
    it.clock.advance(Duration::from_secs(7));
    let renewed = it.elections.renew("e", lease.id, lease.token).await.unwrap();
    let Renewed::Renewed(renewed) = renewed else { panic!("{renewed:?}") };
    assert_eq!((renewed.token, renewed.id), (lease.token, lease.id));
    assert_eq!(it.clock.now().until(renewed.expires_at), TTL);
    it.clock.advance(TTL - INSTANT);
    assert_eq!(it.standing("e").await.remaining, INSTANT);
}

#[tokio::test]
async fn an_ended_lease_is_not_renewed_even_where_nobody_took_it() {
    let it = setup();
    let lease = it.won("e", "one").await;
    it.clock.advance(TTL);
    let lost = it.elections.renew("e", lease.id, lease.token).await.unwrap();
    assert!(matches!(lost, Renewed::Lost(Some(Standing { holder: None, .. }))), "{lost:?}");
    assert_eq!(it.won("e", "two").await.token, token(2));
}

#[tokio::test]
async fn only_the_lease_and_its_token_renew_and_resign() {
    let it = setup();
    let (lease, other) = (it.won("e", "one").await, it.won("f", "one").await);
    it.clock.advance(TTL);
    let newer = it.won("f", "two").await;
    assert_eq!((other.token, newer.token), (token(1), token(2)));
    for (id, number) in [(other.id, 1), (lease.id, 2), (newer.id, 2), (lease.id, 1 << 40)] {
        let renewed = it.elections.renew("e", id, token(number)).await.unwrap();
        assert!(matches!(renewed, Renewed::Lost(Some(_))), "{renewed:?}");
        let resigned = it.elections.resign("e", id, token(number)).await.unwrap();
        assert!(matches!(resigned, Resigned::Lost(Some(_))), "{resigned:?}");
    }
    let nowhere = it.elections.renew("never", lease.id, lease.token).await.unwrap();
    assert_eq!(nowhere, Renewed::Lost(None));
    let nowhere = it.elections.resign("never", lease.id, lease.token).await.unwrap();
    assert_eq!(nowhere, Resigned::Lost(None));
    assert_eq!(it.elections.observe("never").await.unwrap(), None, "nothing was written");
}

#[tokio::test]
async fn a_resignation_ends_the_lease_at_once_and_keeps_the_token() {
    let it = setup();
    let lease = it.won("e", "one").await;
    for _ in 0..2 {
        let resigned = it.elections.resign("e", lease.id, lease.token).await.unwrap();
        assert_eq!(resigned, Resigned::Resigned, "also when it is said again");
    }
    let standing = it.standing("e").await;
    assert_eq!((standing.holder, standing.token), (None, token(1)));
    let renewed = it.elections.renew("e", lease.id, lease.token).await.unwrap();
    assert!(matches!(renewed, Renewed::Lost(Some(_))), "{renewed:?}");
    assert_eq!(it.won("e", "two").await.token, token(2));
}

#[tokio::test]
async fn the_record_is_permanent_and_tokens_go_on_after_a_restart() {
    let it = setup();
    it.won("e", "one").await;
    let partition = Keyspace::Elections.partition(&APP.0.to_be_bytes()).unwrap();
    let stored = Key::new(partition.as_bytes(), b"e").unwrap();
    assert_eq!(it.below.query_ttl(&stored).await.unwrap(), Remaining::Permanent);
    it.clock.advance(Duration::from_secs(400 * 24 * 3_600));
    let restarted = elections_on(&it.below, it.clock.clone());
    let won = restarted.campaign("e", "one", TTL).await.unwrap();
    assert!(matches!(won, Campaigned::Won(lease) if lease.token == token(2)));
}

/// A machine's clock that is set by an hour bends the line of the injected clock by 2 % at most.
#[tokio::test]
async fn a_clock_set_back_an_hour_neither_ends_a_lease_nor_keeps_it() {
    let it = setup();
    it.won("e", "one").await;
    it.clock.advance(Duration::from_secs(5));
    it.clock.set_back(Duration::from_secs(3_600));
    it.clock.advance(Duration::from_secs(4));
    it.held("e", "two").await;
    it.clock.advance(Duration::from_millis(1_200));
    assert_eq!(it.won("e", "two").await.token, token(2));
}

#[tokio::test]
async fn an_unclear_campaign_recognises_its_own_record() {
    let it = setup();
    it.below.set(Gate::LoseAnswer);
    let lease = it.won("e", "one").await;
    assert_eq!(lease.token, token(1));
    it.clock.advance(Duration::from_secs(1));
    let renewed = it.elections.renew("e", lease.id, lease.token).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(_)), "{renewed:?}");
    let resigned = it.elections.resign("e", lease.id, lease.token).await.unwrap();
    assert_eq!(resigned, Resigned::Resigned);
    it.below.set(Gate::LoseRequest);
    let unclear = it.elections.campaign("e", "one", TTL).await.unwrap_err();
    assert!(matches!(unclear, ElectionsError::Store(StoreError::Unknown { .. })), "{unclear}");
}

/// One election, a hundred candidates on threads of their own, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_racers_one_wins_and_tokens_grow_by_one() {
    const ROUNDS: u64 = 20;
    let clock = SystemClock::shared();
    let store = WatchedStore::new(inner_store(Arc::clone(&clock)), Arc::clone(&clock));
    let elections = Elections::new(store, clock, LeaseRules::ONE_PROCESS).of(APP);
    for round in 1..=ROUNDS {
        let racers = (0..100).map(|racer| {
            let elections = elections.clone();
            tokio::spawn(async move {
                elections.campaign("race", &format!("racer {racer}"), TTL).await.unwrap()
            })
        });
        let mut won = Vec::new();
        for racer in racers.collect::<Vec<_>>() {
            if let Campaigned::Won(lease) = racer.await.unwrap() {
                won.push(lease);
            }
        }
        let [winner] = &*won else { panic!("{} winners", won.len()) };
        assert_eq!(winner.token, token(round));
        elections.resign("race", winner.id, winner.token).await.map(drop).unwrap();
    }
}

#[tokio::test]
async fn names_holders_and_leases_beyond_the_limits_are_refused_untouched() {
    let it = setup();
    let (longest, too_long) = ("n".repeat(MAX_NAME), "n".repeat(MAX_NAME + 1));
    it.below.set(Gate::HoldReads);
    for name in ["", &too_long, "\0name"] {
        assert_invalid(it.elections.campaign(name, "one", TTL).await, "name: give 1 to 1024");
        assert_invalid(it.elections.campaign("e", name, TTL).await, "holder: give 1 to 1024");
        assert_invalid(it.elections.observe(name).await, "name:");
    }
    for millis in [0, 999, 3_600_001] {
        let ttl = Duration::from_millis(millis);
        let refused = it.elections.campaign("e", "one", ttl).await.unwrap_err();
        assert!(matches!(refused, ElectionsError::InvalidTtl { .. }), "{refused:?}");
        assert!(refused.to_string().contains("1000 to 3600000"), "{refused}");
    }
    it.below.set(Gate::Open);
    it.won(&longest, &longest).await;
}

#[tokio::test]
async fn a_lease_id_is_told_by_32_hex_digits_and_by_nothing_else() {
    let it = setup();
    let lease = it.won("e", "one").await;
    assert_eq!(lease.id.to_string().parse::<LeaseId>().unwrap(), lease.id);
    assert!(!format!("{lease:?}").contains(&lease.id.to_string()), "logs do not tell it");
    let upper = lease.id.to_string().to_uppercase();
    for text in ["", "12", &"g".repeat(32), &"0".repeat(33), &upper.replace(char::is_numeric, "A")]
    {
        assert_invalid(text.parse::<LeaseId>(), "leaseId: give the 32");
    }
}

#[tokio::test]
async fn a_record_that_is_no_election_is_corrupt() {
    let it = setup();
    let partition = Keyspace::Elections.partition(&APP.0.to_be_bytes()).unwrap();
    let stored = Key::new(partition.as_bytes(), b"e").unwrap();
    let write = Write::new(Value::new("not JSON").unwrap(), Life::Permanent);
    assert!(it.below.put(&stored, write).await.unwrap().is_applied());
    let corrupt = it.elections.campaign("e", "one", TTL).await.unwrap_err();
    assert!(matches!(corrupt, ElectionsError::Store(StoreError::Corrupt { .. })), "{corrupt}");
}

/// Nodes of two versions serve side by side while one follows the other.
#[tokio::test]
async fn what_a_later_version_wrote_is_kept() {
    let it = setup();
    let partition = Keyspace::Elections.partition(&APP.0.to_be_bytes()).unwrap();
    let stored = Key::new(partition.as_bytes(), b"e").unwrap();
    let later = r#"{"token":4,"leaseId":"00000000000000000000000000000000","holder":"h",
        "ttlMillis":1000,"endsAt":0,"later":{"deep":[1]}}"#;
    let write = Write::new(Value::new(later).unwrap(), Life::Permanent);
    assert!(it.below.put(&stored, write).await.unwrap().is_applied());
    let lease = it.won("e", "one").await;
    it.elections.renew("e", lease.id, lease.token).await.map(drop).unwrap();
    it.elections.resign("e", lease.id, lease.token).await.map(drop).unwrap();
    let value = it.below.get(&stored).await.unwrap().unwrap().value;
    let value: serde_json::Value = serde_json::from_slice(&value).unwrap();
    assert_eq!(value["later"]["deep"][0], 1, "{value}");
}

#[tokio::test]
async fn a_token_of_zero_is_corrupt() {
    let it = setup();
    let partition = Keyspace::Elections.partition(&APP.0.to_be_bytes()).unwrap();
    let stored = Key::new(partition.as_bytes(), b"e").unwrap();
    let zero = r#"{"token":0,"leaseId":"00000000000000000000000000000000","holder":"h",
        "ttlMillis":1000,"endsAt":0}"#;
    let write = Write::new(Value::new(zero).unwrap(), Life::Permanent);
    assert!(it.below.put(&stored, write).await.unwrap().is_applied());
    let corrupt = it.elections.observe("e").await.unwrap_err();
    assert!(matches!(corrupt, ElectionsError::Store(StoreError::Corrupt { .. })), "{corrupt}");
}

#[tokio::test]
async fn the_last_token_is_the_last() {
    let it = setup();
    let partition = Keyspace::Elections.partition(&APP.0.to_be_bytes()).unwrap();
    let stored = Key::new(partition.as_bytes(), b"e").unwrap();
    let last = r#"{"token":9007199254740991,"leaseId":"00000000000000000000000000000000",
        "holder":"h","ttlMillis":1000,"endsAt":0}"#;
    let write = Write::new(Value::new(last).unwrap(), Life::Permanent);
    assert!(it.below.put(&stored, write).await.unwrap().is_applied());
    let exhausted = it.elections.campaign("e", "one", TTL).await.unwrap_err();
    assert!(matches!(exhausted, ElectionsError::Exhausted), "{exhausted}");
}

#[tokio::test]
async fn only_the_newest_token_becomes_a_fence() {
    let it = setup();
    let guard = |election: &str, number| Guard { election: election.into(), token: token(number) };
    let stale = |result: Result<Fence, ElectionsError>| {
        assert!(matches!(result, Err(ElectionsError::StaleToken { .. })), "{result:?}");
    };
    stale(it.elections.fence(&guard("e", 1)).await);
    let lease = it.won("e", "one").await;
    assert_eq!(it.elections.fence(&guard("e", 1)).await.unwrap(), Fence(1));
    stale(it.elections.fence(&guard("e", 2)).await);
    it.clock.advance(lease.ttl);
    assert_eq!(it.elections.fence(&guard("e", 1)).await.unwrap(), Fence(1), "nobody came after");
    it.won("e", "two").await;
    stale(it.elections.fence(&guard("e", 1)).await);
}

/// What a guarded write leaves open, and what it does not: a leader that stalls between the check
/// and the write is refused where its successor has written, and gets through where not.
#[tokio::test]
async fn a_stalled_write_is_refused_only_where_the_successor_has_written() {
    let it = setup();
    it.won("e", "one").await;
    let guard = Guard { election: "e".into(), token: token(1) };
    let stalled = it.elections.fence(&guard).await.unwrap();
    it.clock.advance(TTL);
    let newer = it.won("e", "two").await;
    let fence = Fence(newer.token.get());
    let write = |text: &str, fence| {
        Write::new(Value::new(text.to_owned()).unwrap(), Life::Permanent).fenced(fence)
    };
    assert!(it.below.put(&key("written"), write("two", fence)).await.unwrap().is_applied());
    let late = it.below.put(&key("written"), write("one", stalled)).await.unwrap();
    assert!(matches!(late, Outcome::Refused { current: Some(_) }), "{late:?}");
    let open = it.below.put(&key("not yet"), write("one", stalled)).await.unwrap();
    assert!(open.is_applied(), "the residual that the documentation names");
}

/// An application's elections are rows of one partition, as the table of keyspaces says.
#[tokio::test]
async fn elections_of_other_applications_are_others() {
    let clock = wane::clock::ManualClock::seeded(1);
    let below = GatedStore::new(inner_store(clock.clone()));
    let store = WatchedStore::new(below.clone(), clock.clone());
    let elections = Elections::new(store, clock, LeaseRules::ONE_PROCESS);
    for app in [1, 2] {
        let app = elections.of(wane::services::ClusterAppId(app));
        let won = app.campaign("e", "one", TTL).await.unwrap();
        assert!(matches!(won, Campaigned::Won(lease) if lease.token == token(1)));
    }
    let rows = below.scan(None, PageLimit::MAX).await.unwrap().rows;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.key.clustering() == b"e"));
}
