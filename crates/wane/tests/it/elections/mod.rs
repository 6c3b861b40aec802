//! Elections over a memory store and a clock that stands still until a test moves it: the steps,
//! the watch, the guard and the leader's handle.

mod leading;
mod steps;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use wane::clock::{ManualClock, SharedClock};
use wane::services::ClusterAppId;
use wane::services::elections::{
    AppElections, Campaigned, Elections, ElectionsError, Lease, LeaseRules, Standing, Token,
};
use wane::store::WatchedStore;

use crate::gated::GatedStore;
use crate::{InnerStore, inner_store, manual_clock};

const APP: ClusterAppId = ClusterAppId(3);
const TTL: Duration = Duration::from_secs(10);

type Gated = GatedStore<InnerStore>;

/// Elections of one application, the gate below them, and their clock.
struct Setup {
    elections: AppElections<Gated>,
    below: Gated,
    clock: Arc<ManualClock>,
}

fn setup() -> Setup {
    let (manual, clock) = manual_clock();
    let below = GatedStore::new(inner_store(Arc::clone(&clock)));
    let elections = elections_on(&below, clock);
    Setup { elections, below, clock: manual }
}

fn elections_on(below: &Gated, clock: SharedClock) -> AppElections<Gated> {
    let store = WatchedStore::new(below.clone(), Arc::clone(&clock));
    Elections::new(store, clock, LeaseRules::ONE_PROCESS).of(APP)
}

impl Setup {
    async fn won(&self, name: &str, holder: &str) -> Lease {
        match self.elections.campaign(name, holder, TTL).await.expect("it answers") {
            Campaigned::Won(lease) => lease,
            Campaigned::Held(standing) => panic!("held: {standing:?}"),
        }
    }

    async fn held(&self, name: &str, holder: &str) -> Standing {
        match self.elections.campaign(name, holder, TTL).await.expect("it answers") {
            Campaigned::Held(standing) => standing,
            Campaigned::Won(lease) => panic!("won: {lease:?}"),
        }
    }

    async fn standing(&self, name: &str) -> Standing {
        self.elections.observe(name).await.expect("it answers").expect("there was a campaign")
    }
}

fn token(number: u64) -> Token {
    Token::new(number).expect("a legal token")
}

#[track_caller]
fn assert_invalid<T: std::fmt::Debug>(result: Result<T, ElectionsError>, says: &str) {
    let error = result.expect_err("it is refused");
    assert!(matches!(error, ElectionsError::Invalid { .. }), "{error:?}");
    assert!(error.to_string().contains(says), "{error}");
}
