//! Watching an election: told when it changes hands, and only then.

use std::time::Duration;

use tokio::time::timeout;
use wane::services::elections::{
    AppElections, Campaigned, Elections, ElectionsError, Lease, LeaseRules, Standing,
};
use wane::store::{DeadlineStore, WatchedStore};

use super::{APP, TTL, token};
use crate::gated::{Gate, GatedStore};
use crate::simulation::machine::{Machine, Wall, true_sleep};
use crate::{InnerStore, inner_store};

type Watched = AppElections<InnerStore>;

/// Elections, the machine they run on, and what they are kept in.
fn elections(rules: LeaseRules) -> (Watched, Machine, WatchedStore<InnerStore>) {
    let machine = Machine::new(1.0, Wall::Monotonic, 1);
    let store = WatchedStore::new(inner_store(machine.clock()), machine.clock());
    (Elections::new(store.clone(), machine.clock(), rules).of(APP), machine, store)
}

const SHARED: LeaseRules = LeaseRules::shared(Duration::from_secs(3), Duration::from_millis(500));

async fn won(elections: &Watched, holder: &str) -> Lease {
    match elections.campaign("e", holder, TTL).await.expect("it answers") {
        Campaigned::Won(lease) => lease,
        Campaigned::Held(by) => panic!("{by:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_every_change_of_hands_and_no_renewal() {
    for rules in [LeaseRules::ONE_PROCESS, SHARED] {
        let (elections, _, _store) = elections(rules);
        let mut watch = elections.watch("e").await.unwrap();
        let nothing = timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(nothing.is_err(), "nobody has campaigned: {nothing:?}");
        let lease = won(&elections, "one").await;
        let told = watch.changed().await.unwrap();
        assert_eq!((told.holder.as_deref(), told.token), (Some("one"), token(1)));
        for _ in 0..4 {
            elections.renew("e", lease.id, lease.token).await.map(drop).unwrap();
            let nothing = timeout(TTL / 2, watch.changed()).await;
            assert!(nothing.is_err(), "a renewal changes no hands: {nothing:?}");
        }
        elections.resign("e", lease.id, lease.token).await.map(drop).unwrap();
        let resigned = Standing { holder: None, token: token(1), remaining: Duration::ZERO };
        assert_eq!(watch.changed().await.unwrap(), resigned);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_the_end_of_a_lease_when_it_comes() {
    for rules in [LeaseRules::ONE_PROCESS, SHARED] {
        let (elections, machine, _store) = elections(rules);
        won(&elections, "one").await;
        let mut watch = elections.watch("e").await.unwrap();
        let began = machine.elapsed();
        assert_eq!(watch.changed().await.unwrap().holder.as_deref(), Some("one"), "at first, now");
        assert_eq!(watch.changed().await.unwrap().holder, None);
        let took = machine.elapsed() - began;
        assert!((TTL..TTL + Duration::from_millis(20)).contains(&took), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resignation_is_told_at_once_or_by_the_next_look() {
    for (rules, within) in [(LeaseRules::ONE_PROCESS, 1), (SHARED, 252)] {
        let (elections, machine, _store) = elections(rules);
        let lease = won(&elections, "one").await;
        let mut watch = elections.watch("e").await.unwrap();
        watch.changed().await.map(drop).unwrap();
        let resign = async {
            true_sleep(Duration::from_millis(1_111)).await;
            elections.resign("e", lease.id, lease.token).await.map(drop).unwrap();
            machine.elapsed()
        };
        let (resigned, told) = tokio::join!(resign, async {
            watch.changed().await.map(drop).unwrap();
            machine.elapsed()
        });
        let late = told.saturating_sub(resigned);
        assert!(late <= Duration::from_millis(within), "{late:?}");
    }
}

/// A change whose reading fails, or is given up, is told by the next call.
#[tokio::test(start_paused = true)]
async fn a_change_is_told_after_a_failed_and_after_a_dropped_look() {
    let machine = Machine::new(1.0, Wall::Monotonic, 1);
    let gate = GatedStore::new(inner_store(machine.clock()));
    let in_time =
        DeadlineStore::new(gate.clone(), "gated", Duration::from_millis(100), machine.clock());
    let store = WatchedStore::new(in_time, machine.clock());
    let elections = Elections::new(store, machine.clock(), LeaseRules::ONE_PROCESS).of(APP);
    let mut watch = elections.watch("e").await.unwrap();
    elections.campaign("e", "one", TTL).await.map(drop).unwrap();
    gate.set(Gate::HoldReads);
    let failed = watch.changed().await.unwrap_err();
    assert!(matches!(failed, ElectionsError::Store(_)), "{failed}");
    let dropped = timeout(Duration::from_millis(20), watch.changed()).await;
    assert!(dropped.is_err());
    gate.set(Gate::Open);
    let told = timeout(Duration::from_millis(10), watch.changed()).await;
    assert_eq!(told.expect("at once").unwrap().holder.as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_store() {
    let (elections, _, store) = elections(LeaseRules::ONE_PROCESS);
    let mut watch = elections.watch("e").await.unwrap();
    store.close().await;
    assert!(matches!(watch.changed().await, Err(ElectionsError::Closed)));
}
