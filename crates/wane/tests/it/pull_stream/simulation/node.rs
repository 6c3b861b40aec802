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

/// The most that a clock is off, in milliseconds.
pub(super) const MOST_OFF: i64 = 200;

/// How long a clock that stood still goes on before it is set right.
const SET_RIGHT_AFTER: Duration = Duration::from_millis(100);

/// A machine's clock, so much off.
#[derive(Debug)]
pub(super) struct Stepped {
    machine: Machine,
    off: AtomicI64,
    /// From when to when the machine is paused, in true time since its world began.
    pause: Mutex<(Duration, Duration)>,
    /// Whether it goes on in a pause. The control stands still, so that no lease has ended after it.
    sees_pauses: bool,
}

impl Stepped {
    fn pause(&self, duration: Duration) {
        let now = self.machine.elapsed();
        let mut pause = self.pause.lock();
        if now >= pause.1 {
            pause.0 = now;
        }
        pause.1 = pause.1.max(now + duration);
    }

    /// How much of the last pause it has not noticed.
    fn missed(&self) -> Duration {
        let (from, to) = *self.pause.lock();
        let is_noticed = self.sees_pauses || self.machine.elapsed() > to + SET_RIGHT_AFTER;
        if is_noticed { Duration::ZERO } else { to - from }
    }
}

impl Clock for Stepped {
    fn now(&self) -> Timestamp {
        let missed = self.missed().as_millis() as u64;
        let millis = self.machine.now().as_unix_millis() - missed;
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
    pub(super) region: &'static str,
    below: FaultyStore<S>,
    pub(super) keys: Arc<StaticKeys>,
    sees_pauses: bool,
    serving: Mutex<(PullStream<NodeStore<S>>, Arc<Stepped>)>,
    /// Whoever waits for an answer hears nothing any more.
    pub(super) restarted: Notify,
}

impl<S: Store> Node<S> {
    pub(super) fn new(
        below: &FaultyStore<S>,
        region: &'static str,
        keys: Arc<StaticKeys>,
        sees_pauses: bool,
        dice: &mut Dice,
    ) -> Self {
        let machine = Machine::new(1.0, Wall::Monotonic, dice.draw());
        let clock = clock(&machine, sees_pauses, dice);
        let serving = Mutex::new((started(&clock, below, region, &keys), clock));
        let restarted = Notify::new();
        Self { machine, region, below: below.clone(), keys, sees_pauses, serving, restarted }
    }

    /// Ends all that ran here, and begins anew with a clock that is off by something else.
    pub(super) fn restart(&self, dice: &mut Dice) {
        let clock = clock(&self.machine, self.sees_pauses, dice);
        *self.serving.lock() = (started(&clock, &self.below, self.region, &self.keys), clock);
        self.restarted.notify_waiters();
    }

    pub(super) fn pause(&self, duration: Duration) {
        self.machine.pause(duration);
        self.serving.lock().1.pause(duration);
    }

    pub(super) fn stream(&self) -> PullStream<NodeStore<S>> {
        self.serving.lock().0.clone()
    }

    /// Sets the clock forward or back, within what nodes may be apart.
    pub(super) fn step(&self, by: i64) {
        let clock = Arc::clone(&self.serving.lock().1);
        let off = clock.off.load(Ordering::Relaxed);
        clock.off.store((off + by).clamp(-MOST_OFF, MOST_OFF), Ordering::Relaxed);
    }
}

fn clock(machine: &Machine, sees_pauses: bool, dice: &mut Dice) -> Arc<Stepped> {
    let off = AtomicI64::new(dice.draw().cast_signed() % (MOST_OFF + 1));
    Arc::new(Stepped { machine: machine.clone(), off, pause: Mutex::default(), sees_pauses })
}

fn started<S: Store>(
    clock: &Arc<Stepped>,
    below: &FaultyStore<S>,
    region: &str,
    keys: &Arc<StaticKeys>,
) -> PullStream<NodeStore<S>> {
    let store = Reached { machine: clock.machine.clone(), store: below.clone() };
    let settings = PullStreamSettings {
        region: region.into(),
        lease: Duration::from_millis(1_500),
        hold: Duration::from_millis(500),
        token_life: Duration::from_secs(30),
        ..PullStreamSettings::default()
    };
    let shared: SharedClock = Arc::clone(clock) as SharedClock;
    PullStream::new(store, shared, keys.clone(), settings).expect("legal settings")
}
