//! A world: the store at its bottom, its clocks, its faults, and who lives in it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use wane::clock::ManualClock;
use wane::services::elections::{AppElections, Elections, LeaseRules};
use wane::store::{Faults, FaultyStore, Key, Keyspace, MemoryStore, Partition, WatchedStore};

use super::node::{Line, Node};
use super::{APP, Kind, MAX_SKEW, NAME};
use crate::inner_store;
use crate::simulation::Dice;
use crate::simulation::machine::{Machine, Reached, Wall};

pub(super) type Bottom = WatchedStore<MemoryStore>;
pub(super) type NodeStore = Reached<FaultyStore<Bottom>>;
pub(super) type NodeElections = AppElections<NodeStore>;

/// What the machines of one world share.
pub(super) struct World {
    pub(super) kind: Kind,
    pub(super) bottom: Bottom,
    pub(super) right: Machine,
    pub(super) ttl: Duration,
    /// The server that all machines ask; `None` where each campaigns by itself.
    pub(super) server: Option<NodeElections>,
    pub(super) faults: Faults,
    /// Whether clocks are as far apart as they may be, and candidates as quick.
    pub(super) is_edgy: bool,
    pub(super) wins: Arc<AtomicU64>,
    pub(super) news: Arc<News>,
}

/// What was seen at the bottom.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) newest_token: AtomicU64,
    pub(super) attempts: AtomicU64,
    /// Writes that were begun with a token that was not the newest any more.
    pub(super) doomed: Mutex<HashSet<u64>>,
    /// Wakes whoever counts leaders.
    pub(super) begun: Notify,
}

impl World {
    pub(super) fn new(kind: Kind, dice: &mut Dice) -> Self {
        let bottom_clock = ManualClock::seeded(dice.draw());
        let bottom = WatchedStore::new(inner_store(bottom_clock.clone()), bottom_clock);
        let is_served = dice.hits(0.5);
        let shortest = Duration::from_secs(if is_served { 1 } else { 3 });
        let mut world = Self {
            kind,
            bottom,
            right: Machine::new(1.0, Wall::Monotonic, dice.draw()),
            ttl: shortest + dice.millis(0, 7_000),
            server: None,
            faults: faults(dice),
            is_edgy: dice.hits(1.0 / 3.0),
            wins: Arc::default(),
            news: Arc::default(),
        };
        if is_served {
            let rate = world.rate(dice);
            // A clock that was set slews by up to 2 %.
            let wall = Wall::Slewed(dice.between(0.98, 1.02));
            let server = Machine::new(rate, wall, dice.draw());
            let (store, rules) =
                (world.store(&server, Faults::NONE, dice), LeaseRules::ONE_PROCESS);
            world.server = Some(Elections::new(store, server.clock(), rules).of(APP));
        }
        world
    }

    /// A rate within the limits, or at one of them.
    pub(super) fn rate(&self, dice: &mut Dice) -> f64 {
        match self.is_edgy {
            true if dice.hits(0.5) => self.kind.slowest,
            true => self.kind.fastest,
            false => dice.between(self.kind.slowest, self.kind.fastest),
        }
    }

    pub(super) fn store(
        &self,
        machine: &Machine,
        faults: Faults,
        dice: &mut Dice,
    ) -> WatchedStore<NodeStore> {
        let clock = self.right.clock();
        let faulty = FaultyStore::new(self.bottom.clone(), faults, dice.draw(), clock);
        let reached = Reached { machine: machine.clone(), store: faulty };
        WatchedStore::new(reached, machine.clock())
    }

    pub(super) fn node(&self, dice: &mut Dice) -> Arc<Node> {
        let kind = self.kind;
        let rate = self.rate(dice);
        // At the edge it stands as far off as it may, and stays there.
        let (at_first, drift) = match self.is_edgy {
            true => (if dice.hits(0.5) { 1.0 } else { -1.0 }, 0.0),
            false => (dice.between(-1.0, 1.0), self.rate(dice) - 1.0),
        };
        let wall = Wall::Wandering { at_first, drift, max_skew: MAX_SKEW };
        let machine = Machine::new(rate, wall, dice.draw());
        let (store_faults, line_faults) = match self.server {
            Some(_) => (Faults::NONE, self.faults),
            None => (self.faults, Faults::NONE),
        };
        let store = self.store(&machine, store_faults, dice);
        let elections = self.server.clone().unwrap_or_else(|| {
            let rules = LeaseRules::shared(Duration::from_secs(3), MAX_SKEW);
            Elections::new(store.clone(), machine.clock(), rules).of(APP)
        });
        let line_dice = Arc::new(Mutex::new(Dice::of(dice.draw())));
        Arc::new(Node {
            line: Line { machine: machine.clone(), faults: line_faults, dice: line_dice },
            machine,
            elections,
            store,
            kind,
            ttl: self.ttl,
            skew: if self.server.is_some() { Duration::ZERO } else { MAX_SKEW },
            leads_by_service: self.server.is_none() && dice.hits(0.5),
            is_edgy: self.is_edgy,
            news: Arc::clone(&self.news),
            dice: Mutex::new(Dice::of(dice.draw())),
            post: Mutex::default(),
            wins: Arc::clone(&self.wins),
        })
    }
}

/// Nothing, a little, or a lot.
fn faults(dice: &mut Dice) -> Faults {
    let much = [0.0, 0.03, 0.15][(dice.draw() % 3) as usize];
    Faults {
        lost_answer: much,
        lost_request: much,
        late: much,
        error: much,
        delay: much,
        longest_delay: Duration::from_secs(12),
    }
}

pub(super) fn resource() -> Key {
    Key::new(b"resource", b"guarded").expect("short enough")
}

pub(super) fn election() -> Key {
    let partition = Keyspace::Elections.partition(&APP.0.to_be_bytes()).expect("short enough");
    Key::new(partition.as_bytes(), NAME.as_bytes()).expect("short enough")
}

pub(super) fn partition(key: &Key) -> Partition {
    Partition::new(key.partition().to_vec()).expect("short enough")
}
