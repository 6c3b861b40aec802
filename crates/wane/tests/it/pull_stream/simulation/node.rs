//! A node of a simulated world: a machine with a service on it, whose clock is off.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use wane::clock::{Clock, SharedClock, Sleep};
use wane::services::pull_stream::{PullStream, PullStreamSettings, StaticKeys};
use wane::store::{FaultyStore, Store, Timestamp};

use crate::simulation::Dice;
use crate::simulation::machine::{Machine, Reached, Wall};

/// A machine's clock, so much off.
#[derive(Debug)]
pub(super) struct Stepped {
    machine: Machine,
    off: AtomicI64,
}

impl Clock for Stepped {
    fn now(&self) -> Timestamp {
        let millis = self.machine.now().as_unix_millis();
        Timestamp::from_unix_millis(millis.saturating_add_signed(self.off.load(Ordering::Relaxed)))
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.machine.sleep(duration)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.machine.fill_random(bytes);
    }

    fn never_before(&self, _: Timestamp) {}
}

pub(super) type NodeStore<S> = Reached<FaultyStore<S>>;

/// A machine that serves readers and producers.
pub(super) struct Node<S> {
    pub(super) machine: Machine,
    below: FaultyStore<S>,
    pub(super) keys: Arc<StaticKeys>,
    serving: Mutex<(PullStream<NodeStore<S>>, Arc<Stepped>)>,
    /// Whoever waits for an answer hears nothing any more.
    pub(super) restarted: Notify,
}

impl<S: Store> Node<S> {
    pub(super) fn new(below: &FaultyStore<S>, keys: Arc<StaticKeys>, dice: &mut Dice) -> Self {
        let machine = Machine::new(1.0, Wall::Monotonic, dice.draw());
        let off = dice.draw() % 800;
        let serving = Mutex::new(started(&machine, below, &keys, off));
        Self { machine, below: below.clone(), keys, serving, restarted: Notify::new() }
    }

    pub(super) fn restart(&self, off: u64) {
        *self.serving.lock() = started(&self.machine, &self.below, &self.keys, off);
        self.restarted.notify_waiters();
    }

    pub(super) fn stream(&self) -> PullStream<NodeStore<S>> {
        self.serving.lock().0.clone()
    }

    /// Sets the clock forward, within what nodes may be apart.
    pub(super) fn step(&self, by: u64) {
        let clock = Arc::clone(&self.serving.lock().1);
        let off = clock.off.load(Ordering::Relaxed);
        clock.off.store((off + by as i64).min(400), Ordering::Relaxed);
    }
}

fn started<S: Store>(
    machine: &Machine,
    below: &FaultyStore<S>,
    keys: &Arc<StaticKeys>,
    off: u64,
) -> (PullStream<NodeStore<S>>, Arc<Stepped>) {
    let store = Reached { machine: machine.clone(), store: below.clone() };
    let clock =
        Arc::new(Stepped { machine: machine.clone(), off: AtomicI64::new(off as i64 - 400) });
    let settings = PullStreamSettings {
        lease: Duration::from_secs(3),
        hold: Duration::from_secs(1),
        token_life: Duration::from_secs(30),
        ..PullStreamSettings::default()
    };
    let shared: SharedClock = clock.clone();
    (PullStream::new(store, shared, keys.clone(), settings).expect("legal settings"), clock)
}
