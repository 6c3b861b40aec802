//! Regions: whose nodes serve an institution, and failovers that die at any moment.

use super::blundering::{Blunder, Blundering};
use super::tripped::{Trip, Tripped};
use super::*;
use wane::services::pull_stream::{
    Action, AuditEntry, Chain, Failover, Policy, RegionMap, StreamStatus, Verdict, home_region,
};
use wane::store::{Faults, FaultyStore, Fence, Key, Keyspace, Life, StoreError, Ttl, Value, Write};

fn operator() -> Client {
    Client::new("operator").expect("within the limits")
}

fn to(region: &str) -> Failover {
    Failover { to: Some(region.into()), reason: Some("a drill".into()), epoch: None }
}

/// The other region, whichever that is.
fn turn() -> Failover {
    Failover::default()
}

/// Says that `r1` serves the institution, and `r2` may take over.
async fn set_up<S: Store>(node: &PullStream<S>) -> RegionMap {
    node.set_regions(ispb(), "r1", "r2", &operator()).await.expect("nothing fails here")
}

/// The region that a refusal names.
#[track_caller]
fn elsewhere<T: std::fmt::Debug>(answer: Result<T, PullStreamError>) -> String {
    match answer {
        Err(PullStreamError::Elsewhere { region }) => region,
        other => panic!("served: {other:?}"),
    }
}

async fn entries<S: Store>(node: &PullStream<S>, chain: Chain) -> Vec<AuditEntry> {
    node.verify_audit(ispb(), chain).await.expect("the chain holds");
    node.audit(ispb(), chain, 0).await.expect("nothing fails here").entries
}

/// Where the map lies.
fn map_key() -> Key {
    let rest = [&[5][..], b"local", b"00000208"].concat();
    let partition = Keyspace::PullStreamState.partition(&rest).expect("within the limits");
    Key::new(partition.as_bytes(), b"ownership").expect("within the limits")
}

/// What the map says to those who do not read the state: its epoch and who serves.
async fn mapped(setup: &Setup) -> Option<(u64, String)> {
    let record = setup.store.get(&map_key()).await.expect("nothing fails here")?;
    let map: serde_json::Value = serde_json::from_slice(&record.value).expect("it is JSON");
    Some((map["epoch"].as_u64()?, map["primary"].as_str()?.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn without_regions_every_node_serves_the_same_stream() {
    let setup = setup();
    let (one, other) = (setup.node_in("r1"), setup.node_in("r2"));
    assert_eq!(one.region_map(ispb()).await.unwrap(), None);
    let known = [one.ingest(ispb(), batch([0])).await.unwrap(), ingest(&other, 1).await].concat();
    let first = one.start(ispb(), &single()).await.unwrap();
    let second = other.next(ispb(), &first.next, &single()).await.unwrap();
    assert_eq!([ids(&first), ids(&second)].concat(), known);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_region_serves_nothing_and_names_the_one_that_does() {
    let setup = setup();
    let (own, other, third) = (setup.node_in("r1"), setup.node_in("r2"), setup.node_in("r3"));
    ingest(&other, 20).await;
    let before = other.start(ispb(), &many()).await.unwrap();
    let map = set_up(&other).await;
    assert_eq!((&*map.primary, &*map.secondary, map.epoch), ("r1", "r2", 1));
    assert_eq!(own.region_map(ispb()).await.unwrap(), Some(map));
    true_sleep(SECOND).await;
    for node in [&other, &third] {
        let status = node.status(ispb()).await.unwrap();
        assert_eq!(elsewhere(node.ingest(ispb(), batch([1])).await), "r1");
        assert_eq!(elsewhere(node.start(ispb(), &many()).await), "r1");
        assert_eq!(elsewhere(node.start(ispb(), &many()).await), "r1");
        true_sleep(SECOND).await;
        assert_eq!(elsewhere(node.next(ispb(), &before.next, &many()).await), "r1");
        true_sleep(SECOND).await;
        assert_eq!(elsewhere(node.end(ispb(), &before.next, &operator()).await), "r1");
        let lag = node.status(ispb()).await.unwrap().lag;
        let standing = StreamStatus { lag, ..status };
        assert_eq!(node.status(ispb()).await.unwrap(), standing, "nothing was changed");
    }
    let remarks = entries(&own, Chain::Remarks).await;
    let actions: Vec<_> = remarks.iter().map(|entry| (entry.action, entry.verdict)).collect();
    let refused = [Action::Start, Action::Next, Action::End].map(|a| (a, Verdict::Elsewhere));
    assert_eq!(actions, [refused, refused].concat());
    assert_eq!(remarks[1].used_hash(), Some(token_hash(&before.next)));
    assert_eq!(remarks[1].unnoted, 1, "of two in a second one is noted, the other counted");
    let after = own.next(ispb(), &before.next, &many()).await.unwrap();
    assert_eq!(ids(&after).len(), 10, "what was begun there goes on here");
    own.ingest(ispb(), batch([20])).await.unwrap();
}

/// The node that lost the stream has read its record and its map a moment ago.
#[tokio::test(start_paused = true)]
async fn a_failover_is_felt_at_once_and_readers_go_on_in_the_other_region() {
    let setup = setup();
    let (old, new) = (setup.node_in("r1"), setup.node_in("r2"));
    set_up(&old).await;
    let known = ingest(&old, 40).await;
    let first = old.start(ispb(), &many()).await.unwrap();
    let second = old.next(ispb(), &first.next, &many()).await.unwrap();
    let began = setup.machine.elapsed();
    let map = new.fail_over(ispb(), &to("r2"), &operator()).await.unwrap();
    assert_eq!((&*map.primary, &*map.secondary, map.epoch), ("r2", "r1", 2));
    assert!(map.failed_over_at.is_some());
    for token in [&first.next, &second.next] {
        assert_eq!(elsewhere(old.next(ispb(), token, &many()).await), "r2", "also a retry");
    }
    assert_eq!(elsewhere(old.start(ispb(), &many()).await), "r2");
    assert_eq!(elsewhere(old.end(ispb(), &second.next, &operator()).await), "r2");
    let again = new.next(ispb(), &first.next, &single()).await.unwrap();
    assert_eq!(again, second, "a retry has the same bytes there");
    let third = new.next(ispb(), &second.next, &many()).await.unwrap();
    assert_eq!(ids(&third), known[20..30]);
    new.ingest(ispb(), batch([40])).await.unwrap();
    assert_eq!(elsewhere(old.ingest(ispb(), batch([41])).await), "r2", "it has read the state");
    assert_eq!(setup.machine.elapsed(), began, "nobody had to wait");
}

/// A producer of the old region that came in time: what it was told is in the log is delivered.
#[tokio::test(start_paused = true)]
async fn what_the_old_region_took_in_is_delivered_by_the_new_one() {
    let setup = setup();
    let (old, new) = (setup.node_in("r1"), setup.node_in("r2"));
    set_up(&old).await;
    let mut known = old.ingest(ispb(), batch([0])).await.unwrap();
    new.fail_over(ispb(), &to("r2"), &operator()).await.unwrap();
    known.extend(old.ingest(ispb(), batch([1])).await.unwrap());
    true_sleep(SECOND).await;
    assert_eq!(elsewhere(old.ingest(ispb(), batch([2])).await), "r2", "within a second");
    known.extend(new.ingest(ispb(), batch([3])).await.unwrap());
    assert_eq!(
        drain(&new).await.into_keys().collect::<std::collections::BTreeSet<_>>(),
        known.into_iter().collect()
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_where_the_region_is_lost_is_given_nothing_and_keeps_its_slot() {
    let setup = setup();
    let (old, new) = (setup.node_in("r1"), setup.node_in("r2"));
    set_up(&old).await;
    let waiting = {
        let old = old.clone();
        tokio::spawn(async move { old.start(ispb(), &many()).await })
    };
    true_sleep(SECOND).await;
    new.fail_over(ispb(), &to("r2"), &operator()).await.unwrap();
    let known = ingest(&new, 5).await;
    let told = waiting.await.unwrap().unwrap();
    assert_eq!(told.batch, None, "it is told of its slot, and of no message");
    assert_eq!(elsewhere(old.next(ispb(), &told.next, &many()).await), "r2");
    let pulled = new.next(ispb(), &told.next, &many()).await.unwrap();
    assert_eq!(ids(&pulled), known);
    assert_eq!(new.status(ispb()).await.unwrap().live_readers, 1, "and no other slot was taken");
}

#[tokio::test(start_paused = true)]
async fn an_epoch_is_used_once_and_what_stands_is_not_changed_again() {
    let setup = setup();
    let node = setup.node_in("r1");
    assert_eq!(set_up(&node).await.epoch, 1);
    assert_eq!(set_up(&node).await.epoch, 1, "the same pair again");
    let mut epochs = Vec::new();
    for failover in [to("r2"), to("r2"), turn(), to("r1"), turn()] {
        epochs.push(node.fail_over(ispb(), &failover, &operator()).await.unwrap().epoch);
    }
    assert_eq!(epochs, [2, 2, 3, 3, 4]);
    let at = node.region_map(ispb()).await.unwrap().unwrap().failed_over_at;
    let other = node.set_regions(ispb(), "r3", "r1", &operator()).await.unwrap();
    assert_eq!((other.epoch, other.failed_over_at), (5, at));
    assert_eq!(mapped(&setup).await, Some((5, "r3".into())));
    true_sleep(SECOND).await;
    let told: Vec<_> = entries(&node, Chain::Transitions).await.into_iter().collect();
    let actions: Vec<_> = told.iter().map(|entry| entry.action).collect();
    let [region, failover] = [Action::Region, Action::Failover];
    assert_eq!(actions, [region, failover, failover, failover, region], "each once");
    assert_eq!((told[1].who.as_str(), told[1].reason.as_deref()), ("operator", Some("a drill")));
    assert!(told.iter().all(|entry| entry.verdict == Verdict::Done));
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_wrongly_changes_nothing_and_is_remarked_on() {
    let setup = setup();
    let node = setup.node_in("r1");
    let absent = node.fail_over(ispb(), &turn(), &operator()).await.unwrap_err();
    assert!(matches!(absent, PullStreamError::Absent { .. }), "{absent:?}");
    let map = set_up(&node).await;
    let invalid = |told: Result<RegionMap, PullStreamError>| match told {
        Err(PullStreamError::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    for (primary, secondary, field) in
        [("r1", "r1", "secondary"), ("", "r2", "primary"), ("r1", "R 2", "secondary")]
    {
        let told = node.set_regions(ispb(), primary, secondary, &operator()).await;
        assert_eq!(invalid(told), field);
    }
    assert_eq!(invalid(node.fail_over(ispb(), &to("r9"), &operator()).await), "to");
    let wordy = Failover { reason: Some("x".repeat(257)), ..to("r2") };
    assert_eq!(invalid(node.fail_over(ispb(), &wordy, &operator()).await), "reason");
    assert_eq!(node.region_map(ispb()).await.unwrap(), Some(map));
    let remarks = entries(&node, Chain::Remarks).await;
    let verdicts: Vec<_> = remarks.iter().map(|entry| (entry.action, entry.verdict)).collect();
    let (region, failover) = (Action::Region, Action::Failover);
    assert_eq!(verdicts[0], (failover, Verdict::Absent));
    assert_eq!(verdicts[1..4], [(region, Verdict::Invalid); 3]);
    assert_eq!(verdicts[4..], [(failover, Verdict::Invalid); 2]);
}

/// How many calls of the store a failover makes: of a stream that was read from, and of one that was
/// not.
async fn calls_of_a_failover(was_read: bool) -> usize {
    let setup = setup();
    let store = Tripped::new(setup.store.clone());
    let (node, old) = (setup.node_over(store.clone(), settings_in("r2")), setup.node_in("r1"));
    set_up(&old).await;
    if was_read {
        ingest(&old, 20).await;
        old.start(ispb(), &many()).await.expect("nothing fails here");
    }
    store.set(Trip::Nothing);
    node.fail_over(ispb(), &turn(), &operator()).await.expect("nothing fails here");
    store.calls()
}

/// Whether a failover comes to no end, and is dropped.
async fn dies_over<S: Store>(node: &PullStream<S>, failover: &Failover) -> bool {
    let operator = operator();
    let call = node.fail_over(ispb(), failover, &operator);
    tokio::time::timeout(SECOND, call).await.is_err()
}

/// Dies at each of its calls, before or after it takes effect: whoever comes later completes it, and
/// nobody does it twice.
#[tokio::test(start_paused = true)]
async fn a_failover_that_dies_anywhere_is_completed_once() {
    let calls = calls_of_a_failover(true).await;
    assert!((4..20).contains(&calls), "{calls} calls");
    let mut half_done = 0;
    for (at, after) in (0..calls).flat_map(|at| [(at, false), (at, true)]) {
        let setup = setup();
        let (old, new) = (setup.node_in("r1"), setup.node_in("r2"));
        set_up(&old).await;
        let known = ingest(&old, 20).await;
        let first = old.start(ispb(), &many()).await.unwrap();
        let store = Tripped::new(setup.store.clone());
        let dying = setup.node_over(store.clone(), settings_in("r2"));
        store.set(Trip::Hangs { at, after });
        assert!(dies_over(&dying, &turn()).await, "at {at}");
        drop(dying);

        let stands = new.region_map(ispb()).await.unwrap().unwrap().epoch;
        let is_mapped = mapped(&setup).await == Some((2, "r2".into()));
        half_done += usize::from(stands == 2 && !is_mapped);
        let again = if is_mapped { to("r2") } else { turn() };
        let map = new.fail_over(ispb(), &again, &operator()).await.unwrap();
        assert_eq!((map.epoch, &*map.primary), (2, "r2"), "at {at}, after {after}");
        assert_eq!(mapped(&setup).await, Some((2, "r2".into())));
        assert_eq!(elsewhere(old.next(ispb(), &first.next, &many()).await), "r2");
        let second = new.next(ispb(), &first.next, &many()).await.unwrap();
        assert_eq!(ids(&second), known[10..]);
        true_sleep(SECOND).await;
        let told = entries(&new, Chain::Transitions).await;
        let failovers = told.iter().filter(|entry| entry.action == Action::Failover).count();
        assert_eq!(failovers, 1, "at {at}, after {after}");
    }
    assert!(half_done > 0, "some died between the state and the map");
}

/// Nobody asks again: the first reader that comes, wherever that is, brings the map up.
#[tokio::test(start_paused = true)]
async fn a_node_that_finds_the_state_ahead_of_the_map_completes_it() {
    for region in ["r1", "r2"] {
        let setup = setup();
        let (node, dead) = (setup.node_in(region), Tripped::new(setup.store.clone()));
        set_up(&node).await;
        let dying = setup.node_over(dead.clone(), settings_in("r2"));
        // It reads the map and the state, writes the state, and then the map.
        dead.set(Trip::Hangs { at: 3, after: false });
        assert!(dies_over(&dying, &to("r2")).await);
        assert_eq!(mapped(&setup).await, Some((1, "r1".into())));
        match node.start(ispb(), &many()).await {
            Ok(_) => assert_eq!(region, "r2"),
            told => assert_eq!((region, &*elsewhere(told)), ("r1", "r2")),
        }
        assert_eq!(mapped(&setup).await, Some((2, "r2".into())), "{region}");
    }
}

/// Lost, failing or not answered: the same call again ends the same.
#[tokio::test(start_paused = true)]
async fn a_failover_whose_calls_are_lost_is_asked_for_again() {
    let calls = calls_of_a_failover(false).await;
    let trips = [Trip::LosesAnswer, Trip::LosesRequest, Trip::Fails];
    for (at, trip) in (0..calls).flat_map(|at| trips.map(|trip| (at, trip(at)))) {
        let setup = setup();
        let store = Tripped::new(setup.store.clone());
        let node = setup.node_over(store.clone(), settings_in("r2"));
        set_up(&node).await;
        store.set(trip);
        let mut told = node.fail_over(ispb(), &to("r2"), &operator()).await;
        if let Err(error) = &told {
            let is_passing = matches!(
                error,
                PullStreamError::Store(StoreError::Unknown { .. } | StoreError::Unavailable { .. })
            );
            assert!(is_passing, "{error:?}");
            told = node.fail_over(ispb(), &to("r2"), &operator()).await;
        }
        assert_eq!(told.unwrap().epoch, 2, "{at}: {trip:?}");
        assert_eq!(mapped(&setup).await, Some((2, "r2".into())));
    }
}

/// Whether the old region serves a reader after a failover was told.
async fn serves_after_its_loss<S: Store + Clone>(setup: &Setup, store: S) -> bool {
    let old = setup.node_over(store.clone(), settings_in("r1"));
    let new = setup.node_over(store, settings_in("r2"));
    set_up(&old).await;
    ingest(&old, 20).await;
    let first = old.start(ispb(), &many()).await.expect("nothing fails here");
    let map = new.fail_over(ispb(), &to("r2"), &operator()).await.expect("nothing fails here");
    assert_eq!(map.epoch, 2);
    old.next(ispb(), &first.next, &many()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn the_map_alone_does_not_keep_the_old_region_out() {
    let (sound, broken) = (setup(), setup());
    assert!(!serves_after_its_loss(&sound, sound.store.clone()).await);
    let blunder = Blundering::new(broken.store.clone(), Blunder::KeepsRegions);
    assert!(serves_after_its_loss(&broken, blunder).await, "the control");
}

/// A late write of an earlier epoch, as of a node that slept in the middle of a failover.
#[tokio::test(start_paused = true)]
async fn a_map_of_an_earlier_epoch_that_comes_late_is_refused() {
    let setup = setup();
    let node = setup.node_in("r1");
    set_up(&node).await;
    let store = Tripped::new(setup.store.clone());
    let slow = setup.node_over(store.clone(), settings_in("r2"));
    store.set(Trip::Hangs { at: calls_of_a_failover(false).await - 1, after: false });
    assert!(dies_over(&slow, &to("r2")).await);
    for region in ["r1", "r2", "r1"] {
        node.fail_over(ispb(), &to(region), &operator()).await.unwrap();
    }
    let standing = mapped(&setup).await;
    let late = br#"{"epoch":2,"primary":"r2","secondary":"r1","failedOverAt":1}"#;
    let late = Write::new(Value::copy_from_slice(late).unwrap(), Life::Permanent).fenced(Fence(2));
    assert!(!setup.store.put(&map_key(), late).await.unwrap().is_applied());
    assert_eq!(mapped(&setup).await, standing);
    assert_eq!(standing, Some((5, "r1".into())));
}

#[tokio::test(start_paused = true)]
async fn operators_see_and_set_a_stream_from_every_region() {
    let setup = setup();
    let (own, other) = (setup.node_in("r1"), setup.node_in("r2"));
    set_up(&own).await;
    ingest(&own, 3).await;
    assert_eq!(other.status(ispb()).await.unwrap().head_row, 0);
    let policy = Policy { retention: Ttl::MAX, max_readers: 1 };
    other.set_policy(ispb(), policy, &operator()).await.unwrap();
    true_sleep(SECOND).await;
    assert_eq!(own.policy(ispb()).await.unwrap(), policy);
}

#[tokio::test(start_paused = true)]
async fn the_home_of_a_store_is_the_region_that_came_first() {
    let setup = setup();
    assert_eq!(home_region(&setup.store, "r2").await.unwrap(), "r2");
    assert_eq!(home_region(&setup.store, "r1").await.unwrap(), "r2");
    assert!(home_region(&setup.store, "R 1").await.is_err());
    let wrong = Key::new(Keyspace::Settings.partition(b"pull_stream").unwrap().as_bytes(), b"home")
        .unwrap();
    let write = Write::new(Value::copy_from_slice(b"\xFF").unwrap(), Life::Permanent);
    assert!(setup.store.put(&wrong, write).await.unwrap().is_applied());
    let told = home_region(&setup.store, "r1").await.unwrap_err();
    assert!(matches!(told, PullStreamError::Store(StoreError::Corrupt { .. })), "{told:?}");
}

/// A trap: the failover wrote the audit before the record, and was slower than every round.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_never_idle_is_handed_over() {
    let setup = setup();
    let slow = Faults { delay: 1.0, longest_delay: SECOND / 50, ..Faults::NONE };
    let store = FaultyStore::new(setup.store.clone(), Faults::NONE, 3, setup.machine.clock());
    let node = |region: &str| {
        let region = region.to_owned();
        setup.node_over(store.clone(), PullStreamSettings { region, ..Default::default() })
    };
    let (old, new) = (node("r1"), node("r2"));
    set_up(&old).await;
    ingest(&old, 3_000).await;
    store.set_faults(slow);
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let old = old.clone();
        readers.spawn(async move {
            let mut pulled = old.start(ispb(), &single()).await?;
            loop {
                pulled = old.next(ispb(), &pulled.next, &single()).await?;
            }
        });
    }
    true_sleep(SECOND).await;
    new.fail_over(ispb(), &to("r2"), &operator()).await.unwrap();
    while let Some(ended) = readers.join_next().await {
        assert_eq!(elsewhere::<()>(ended.unwrap()), "r2");
    }
}

#[tokio::test(start_paused = true)]
async fn who_goes_by_another_epoch_or_turns_a_pair_round_changes_nothing() {
    let setup = setup();
    let node = setup.node_in("r1");
    set_up(&node).await;
    let first = Failover { epoch: Some(1), ..turn() };
    assert_eq!(node.fail_over(ispb(), &first, &operator()).await.unwrap().epoch, 2);
    let field = |answer: Result<RegionMap, PullStreamError>| match answer {
        Err(PullStreamError::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(node.fail_over(ispb(), &first, &operator()).await), "epoch", "asked again");
    let turned_round = node.set_regions(ispb(), "r1", "r2", &operator()).await;
    assert_eq!(field(turned_round), "primary");
    let map = node.region_map(ispb()).await.unwrap().unwrap();
    assert_eq!((&*map.primary, map.epoch), ("r2", 2));
}

/// What a restore from several moments leaves, and damage.
#[tokio::test(start_paused = true)]
async fn a_map_that_is_ahead_or_damaged_is_written_anew() {
    let setup = setup();
    let (one, other) = (setup.node_in("r1"), setup.node_in("r2"));
    set_up(&one).await;
    let ahead = br#"{"epoch":5,"primary":"r2","secondary":"r1"}"#;
    let write = Write::new(Value::new(&ahead[..]).unwrap(), Life::Permanent).fenced(Fence(5));
    assert!(setup.store.put(&map_key(), write).await.unwrap().is_applied());
    let map = other.fail_over(ispb(), &to("r2"), &operator()).await.unwrap();
    assert_eq!((&*map.primary, map.epoch), ("r2", 6));
    assert_eq!(mapped(&setup).await, Some((6, "r2".into())));

    let damaged = Write::new(Value::new(&b"{"[..]).unwrap(), Life::Permanent).fenced(Fence(6));
    assert!(setup.store.put(&map_key(), damaged).await.unwrap().is_applied());
    true_sleep(SECOND * 2).await;
    other.ingest(ispb(), batch([0])).await.unwrap();
    other.start(ispb(), &single()).await.unwrap();
    assert_eq!(mapped(&setup).await, Some((6, "r2".into())));
}

/// Nobody reads, and the one who let the region take over died before the map was written.
#[tokio::test(start_paused = true)]
async fn producers_of_the_new_region_need_no_reader_to_be_let_in() {
    let setup = setup();
    let (old, new) = (setup.node_in("r1"), setup.node_in("r2"));
    set_up(&old).await;
    let map = setup.store.get(&map_key()).await.unwrap().unwrap();
    new.fail_over(ispb(), &to("r2"), &operator()).await.unwrap();
    let standing = setup.store.get(&map_key()).await.unwrap().unwrap();
    let gone = setup.store.compare_and_delete(&map_key(), &standing.value, standing.fence).await;
    assert!(gone.unwrap().is_applied());
    let before = Write::new(map.value, Life::Permanent).fenced(map.fence);
    assert!(setup.store.put(&map_key(), before).await.unwrap().is_applied());
    true_sleep(SECOND * 2).await;
    setup.node_in("r2").ingest(ispb(), batch([0])).await.unwrap();
    assert_eq!(elsewhere(setup.node_in("r1").ingest(ispb(), batch([1])).await), "r2");
}
