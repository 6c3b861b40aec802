//! Leading: the handle, what it says while calls hang and fail, and how it is given up.

use std::sync::Arc;
use std::time::Duration;

use wane::clock::Clock;
use wane::services::elections::{
    AppElections, Campaigned, Elections, ElectionsError, LeaseRules, Loss, Standing,
};
use wane::store::{DeadlineStore, ObservedStore, Operation, WatchedStore};

use super::{APP, Gated, TTL, token};
use crate::gated::{Gate, GatedStore};
use crate::inner_store;
use crate::simulation::machine::{Machine, Wall, true_sleep};

const SECOND: Duration = Duration::from_secs(1);

/// Two nodes on one store. The store of the first one can be held up.
struct Pair {
    machine: Machine,
    gate: Gated,
    first: AppElections<Gated>,
    second: AppElections<Gated>,
}

fn pair(rules: LeaseRules) -> Pair {
    let machine = Machine::new(1.0, Wall::Monotonic, 1);
    let gate = GatedStore::new(inner_store(machine.clock()));
    let elections = |below: Gated| {
        let store = WatchedStore::new(below, machine.clock());
        Elections::new(store, machine.clock(), rules).of(APP)
    };
    let free = GatedStore::new(gate.inner.clone());
    Pair { first: elections(gate.clone()), second: elections(free), machine, gate }
}

/// Two nodes see each other's writes by looking only.
const SHARED: LeaseRules = LeaseRules::shared(Duration::from_secs(3), Duration::from_millis(500));

async fn holder(elections: &AppElections<Gated>) -> Option<String> {
    elections.observe("e").await.expect("it answers").and_then(|Standing { holder, .. }| holder)
}

#[tokio::test(start_paused = true)]
async fn a_leader_stays_leader_by_renewing() {
    let it = pair(LeaseRules::ONE_PROCESS);
    let leader = it.first.lead("e", "one", TTL).await.unwrap();
    assert_eq!(leader.token(), token(1));
    for _ in 0..50 {
        true_sleep(SECOND).await;
        assert!(leader.is_leader());
        let left = leader.remaining();
        assert!(left <= Duration::from_millis(8_750) && left > Duration::from_secs(6), "{left:?}");
        assert_eq!(leader.deadline(), it.machine.monotonic() + left);
        assert_eq!(holder(&it.second).await.as_deref(), Some("one"));
    }
}

/// E3: right ends before the lease does, counted from the last renewal that was sent.
#[tokio::test(start_paused = true)]
async fn a_hung_store_ends_the_right_before_the_lease() {
    for gate in [Gate::HoldBefore, Gate::HoldAfter, Gate::HoldReads] {
        let it = pair(LeaseRules::ONE_PROCESS);
        let leader = it.first.lead("e", "one", TTL).await.unwrap();
        it.gate.set(gate);
        let began = it.machine.elapsed();
        let lost = leader.lost().await;
        let took = it.machine.elapsed() - began;
        assert!(matches!(&lost, Loss::Expired { last_failure: Some(_) }), "{gate:?}: {lost:?}");
        assert!(!leader.is_leader());
        assert!(took <= Duration::from_millis(8_750), "{gate:?}: {took:?}");
        assert_eq!(holder(&it.second).await.as_deref(), Some("one"), "the lease goes on");
        assert_eq!(leader.deadline(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_for_less_than_the_right_costs_nothing() {
    let it = pair(LeaseRules::ONE_PROCESS);
    let leader = it.first.lead("e", "one", TTL).await.unwrap();
    for _ in 0..10 {
        it.gate.set(Gate::HoldBefore);
        true_sleep(Duration::from_secs(5)).await;
        it.gate.set(Gate::Open);
        true_sleep(Duration::from_secs(4)).await;
        assert!(leader.is_leader());
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answers_are_no_loss_as_long_as_one_comes_in_time() {
    let it = pair(LeaseRules::ONE_PROCESS);
    let leader = it.first.lead("e", "one", TTL).await.unwrap();
    it.gate.set(Gate::LoseAnswer);
    true_sleep(Duration::from_secs(60)).await;
    assert!(leader.is_leader(), "its own renewals are recognised");
    it.gate.set(Gate::LoseRequest);
    let lost = leader.lost().await;
    let Loss::Expired { last_failure: Some(failure) } = lost else { panic!("{lost:?}") };
    assert!(failure.contains("gated did not confirm"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_paused_leader_finds_that_it_leads_no_more() {
    let it = pair(SHARED);
    let leader = it.first.lead("e", "one", TTL).await.unwrap();
    let waiting = tokio::spawn({
        let second = it.second.clone();
        async move { second.lead("e", "two", TTL).await.unwrap() }
    });
    it.gate.set(Gate::HoldBefore);
    let successor = waiting.await.unwrap();
    assert!(!leader.is_leader() && successor.is_leader());
    assert_eq!(successor.token(), token(2));
    it.gate.set(Gate::Open);
    true_sleep(TTL * 3).await;
    assert!(successor.is_leader(), "the late calls of the first changed nothing");
}

#[tokio::test(start_paused = true)]
async fn a_lease_in_other_hands_is_told_as_taken() {
    let it = pair(SHARED);
    let leader = it.first.lead("e", "one", TTL).await.unwrap();
    let standing = it.first.observe("e").await.unwrap().unwrap();
    assert_eq!(standing.token, leader.token());
    // As an operator would who knows the lease: the record is put back to an ended one.
    let row = it.gate.inner.clone();
    let key = wane::store::Key::new(&[0, 0, 0, 1, 0, 0, 0, 3], b"e").unwrap();
    let ended = r#"{"token":8,"leaseId":"00000000000000000000000000000000","holder":"x",
        "ttlMillis":1000,"endsAt":0}"#;
    let write = crate::permanent(ended);
    assert!(wane::store::Store::put(&row, &key, write).await.unwrap().is_applied());
    let lost = leader.lost().await;
    assert!(matches!(lost, Loss::Taken(Some(Standing { holder: None, .. }))), "{lost:?}");
    assert!(!leader.is_leader());
}

/// E4: within TTL + 1 s of a crash, which a leader whose machine stops for good is.
#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_followed_within_its_lease_and_a_second() {
    for rules in [LeaseRules::ONE_PROCESS, SHARED] {
        let it = pair(rules);
        // A clone of the handle: on one process both nodes are the same process.
        let (one, two) = match rules == SHARED {
            true => (it.first.clone(), it.second.clone()),
            false => (it.first.clone(), it.first.clone()),
        };
        let lease = one.campaign("e", "one", TTL).await.unwrap();
        assert!(matches!(lease, Campaigned::Won(_)));
        let began = it.machine.elapsed();
        let successor = two.lead("e", "two", TTL).await.unwrap();
        let took = it.machine.elapsed() - began;
        assert_eq!(successor.token(), token(2));
        assert!(took >= TTL && took <= TTL + SECOND, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resigned_lease_is_taken_at_once() {
    let it = pair(LeaseRules::ONE_PROCESS);
    let leader = it.first.lead("e", "one", TTL).await.unwrap();
    let follower = tokio::spawn({
        let elections = it.first.clone();
        async move { elections.lead("e", "two", TTL).await.unwrap() }
    });
    true_sleep(SECOND).await;
    let began = it.machine.elapsed();
    leader.resign().await.unwrap();
    let successor = follower.await.unwrap();
    let took = it.machine.elapsed() - began;
    assert!(took <= Duration::from_millis(2), "{took:?}");
    assert_eq!(successor.token(), token(2));
}

/// Followers that lose wait for the winner, not for each other in a circle.
#[tokio::test(start_paused = true)]
async fn many_followers_take_their_turns_and_wait_between() {
    const FOLLOWERS: u64 = 8;
    for rules in [LeaseRules::ONE_PROCESS, SHARED] {
        let machine = Machine::new(1.0, Wall::Monotonic, 1);
        let observed = ObservedStore::new(inner_store(machine.clock()), "mem", machine.clock());
        let store = WatchedStore::new(observed.clone(), machine.clock());
        let elections = Elections::new(store, machine.clock(), rules).of(APP);
        let crashed = elections.campaign("e", "crashed", TTL).await.unwrap();
        assert!(matches!(crashed, Campaigned::Won(_)));
        let followers = (0..FOLLOWERS).map(|number| {
            let (elections, machine) = (elections.clone(), machine.clone());
            tokio::spawn(async move {
                let leader = elections.lead("e", &number.to_string(), TTL).await.unwrap();
                let began = machine.elapsed();
                true_sleep(Duration::from_secs(20)).await;
                assert!(leader.is_leader());
                let ended = machine.elapsed();
                leader.resign().await.unwrap();
                (began, ended)
            })
        });
        let followers: Vec<_> = followers.collect();
        let mut terms = Vec::new();
        for follower in followers {
            terms.push(follower.await.unwrap());
        }
        terms.sort();
        assert!(terms.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{terms:?}");
        let reads = observed.metrics().of(Operation::Get).timed();
        let seconds = machine.elapsed().as_secs();
        println!("{reads} reads of {FOLLOWERS} followers in {seconds} s");
        assert!(reads < seconds * FOLLOWERS * 5, "{reads} reads in {seconds} s");
    }
}

/// A campaign that nobody confirmed must not keep its own candidate out for a whole lease.
#[tokio::test(start_paused = true)]
async fn a_candidate_recognises_the_lease_of_its_earlier_campaign() {
    let it = pair(LeaseRules::ONE_PROCESS);
    let key = wane::store::Key::new(&[0, 0, 0, 1, 0, 0, 0, 3], b"e").unwrap();
    it.gate.set(Gate::HoldAfter);
    let leading = tokio::spawn({
        let machine = it.machine.clone();
        let in_time = DeadlineStore::new(it.gate.clone(), "gated", SECOND, machine.clock());
        let store = WatchedStore::new(in_time, machine.clock());
        let elections = Elections::new(store, machine.clock(), LeaseRules::ONE_PROCESS).of(APP);
        async move { elections.lead("e", "one", TTL).await.unwrap() }
    });
    true_sleep(Duration::from_millis(200)).await;
    assert!(wane::store::Store::get(&it.gate.inner, &key).await.unwrap().is_some(), "it was won");
    // The answer is lost, and so is the reading back.
    it.gate.set(Gate::HoldReads);
    true_sleep(Duration::from_millis(2_500)).await;
    it.gate.set(Gate::Open);
    let leader = tokio::time::timeout(Duration::from_secs(3), leading).await;
    let leader = leader.expect("it does not wait for its own lease to end").unwrap();
    assert_eq!(leader.token(), token(1));
    assert!(leader.is_leader());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handle_resigns() {
    let it = pair(LeaseRules::ONE_PROCESS);
    let leader = it.first.lead("e", "one", TTL).await.unwrap();
    drop(leader);
    true_sleep(Duration::from_millis(2)).await;
    assert_eq!(holder(&it.second).await, None);
}

/// E3: the right is given up before the release is sent, and a release that hangs ends in time.
#[tokio::test(start_paused = true)]
async fn resigning_takes_no_longer_than_a_quarter_of_the_lease() {
    let it = pair(LeaseRules::ONE_PROCESS);
    let leader = Arc::new(it.first.lead("e", "one", TTL).await.unwrap());
    it.gate.set(Gate::HoldBefore);
    let leader = Arc::into_inner(leader).expect("one handle");
    let began = it.machine.elapsed();
    let error = leader.resign().await.unwrap_err();
    assert!(error.to_string().contains("ends by itself: no answer in time"), "{error}");
    let took = it.machine.elapsed() - began;
    assert!(took <= TTL / 4 + Duration::from_millis(2), "{took:?}");
    assert_eq!(holder(&it.second).await.as_deref(), Some("one"), "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_waits_out_a_store_that_does_not_answer() {
    let machine = Machine::new(1.0, Wall::Monotonic, 1);
    let gate = GatedStore::new(inner_store(machine.clock()));
    let in_time = DeadlineStore::new(gate.clone(), "gated", SECOND, machine.clock());
    let store = WatchedStore::new(in_time, machine.clock());
    let elections = Elections::new(store, machine.clock(), LeaseRules::ONE_PROCESS).of(APP);
    gate.set(Gate::HoldReads);
    let open = async {
        true_sleep(Duration::from_secs(30)).await;
        gate.set(Gate::Open);
    };
    let (leader, ()) = tokio::join!(elections.lead("e", "one", TTL), open);
    assert!(leader.unwrap().is_leader());
    let refused = elections.lead("e", "", TTL).await;
    assert!(matches!(refused, Err(ElectionsError::Invalid { .. })), "{refused:?}");
}
