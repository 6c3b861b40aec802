//! Crashes: a process that runs transactions ends at any step, again and again, and the next one
//! goes on with the same store and log.
//!
//! A step is a turn of the background task: half a call of the store, or a read of the log. Also the
//! caller may end between any two of its own. After every step the stored offset must tell the
//! truth, and every event is judged as it enters the log.

use std::sync::Arc;
use std::time::Duration;

use wane::clock::{ManualClock, SharedClock};
use wane::services::ClusterAppId;
use wane::services::sequencer::{
    Closed, Event, Phase, Sequencer, SequencerError, SequencerSettings, Start, WorkspaceId,
};
use wane::store::{Faults, FaultyStore, Store};

use super::journal::JournalStore;
use super::log::MemoryLog;
use super::{BILLS, Dice, ORDERS, SHOP, look_at_offset, settings, stored_number, stored_offset};
use crate::gated::{Gate, GatedStore};
use crate::{InnerStore, inner_store, manual_clock};

/// Seeds of the random runs.
const SEEDS: u64 = 1_000;

const LOSSY: Faults = Faults {
    lost_answer: 0.08,
    lost_request: 0.08,
    late: 0.08,
    error: 0.04,
    delay: 0.05,
    longest_delay: Duration::from_millis(100),
};

/// More steps than a process needs that nothing happens to.
const ENOUGH: u64 = 100_000;

/// The process ends here.
#[derive(Debug)]
struct Crash;

/// A store and a log that outlive processes, and the chance that decides about them.
struct World<S> {
    app: ClusterAppId,
    store: S,
    log: Arc<MemoryLog>,
    clock: Arc<ManualClock>,
    dice: Dice,
    /// The store itself, for looking at what really happened.
    truth: InnerStore,
    /// Whether the stored offset is looked at.
    watched: bool,
    /// Steps until the process ends.
    fuse: u64,
}

impl<S: Store + Clone> World<S> {
    fn new(seed: u64, truth: &InnerStore, wrap: impl FnOnce(InnerStore, SharedClock) -> S) -> Self {
        let clock = ManualClock::seeded(seed);
        Self {
            app: ClusterAppId(u32::try_from(seed).expect("seeds are few") + 1),
            store: wrap(truth.clone(), clock.clone()),
            log: Arc::default(),
            clock,
            dice: Dice::seeded(!seed),
            truth: truth.clone(),
            watched: true,
            fuse: ENOUGH,
        }
    }

    fn sequencer(&self) -> Sequencer<S> {
        let settings = SequencerSettings {
            cache_size: 1 + self.dice.roll(3) as usize,
            max_unflushed: 1 + self.dice.roll(6) as usize,
            concurrency: 1 + self.dice.roll(3) as usize,
            gather: Duration::from_millis(self.dice.roll(2) * 10),
            page: 1 + self.dice.roll(4) as usize,
            ..settings(self.app)
        };
        let (store, log) = (self.store.clone(), Arc::clone(&self.log));
        Sequencer::new(store, log, self.clock.clone(), settings).expect("good settings")
    }

    /// Lets the background task take a step, unless this is the end.
    async fn step(&mut self) -> Result<(), Crash> {
        self.fuse = self.fuse.checked_sub(1).ok_or(Crash)?;
        if self.dice.one_in(3) {
            self.clock.advance(Duration::from_millis(self.dice.roll(50)));
        }
        tokio::task::yield_now().await;
        if self.watched {
            look_at_offset(&self.log, &self.truth, self.app).await;
        }
        Ok(())
    }

    async fn steps(&mut self, most: u64) -> Result<(), Crash> {
        for _ in 0..self.dice.roll(most) {
            self.step().await?;
        }
        Ok(())
    }

    /// One process: transactions until it ends, by itself or not.
    async fn process(&mut self, transactions: u64) -> Result<(), Crash> {
        let mut sequencer = self.sequencer();
        for _ in 0..transactions {
            self.steps(6).await?;
            self.transaction(&mut sequencer).await?;
        }
        if self.dice.one_in(4) {
            let closing = tokio::spawn(sequencer.close(Duration::from_millis(200)));
            while !closing.is_finished() {
                self.clock.advance(Duration::from_millis(1));
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn transaction(&mut self, sequencer: &mut Sequencer<S>) -> Result<(), Crash> {
        let workspace = WorkspaceId(1 + self.dice.roll(4));
        let offset = loop {
            match sequencer.start(SHOP, workspace).expect("the task runs") {
                Start::Started { offset } => break offset,
                Start::Busy(_) => self.step().await?,
            }
        };
        let mut event = Event { offset, workspace, numbers: Vec::new() };
        for _ in 0..self.dice.roll(4) {
            let sequence = [ORDERS, BILLS][self.dice.roll(2) as usize];
            match self.draw(sequencer.next(sequence)).await? {
                Ok(number) => {
                    self.log.look_at_draw(workspace, sequence, number);
                    event.numbers.push((sequence, number));
                }
                Err(SequencerError::Store(_)) => {
                    sequencer.actualize().expect("the task runs");
                    return Ok(());
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.steps(3).await?;
        self.end(sequencer, event).await
    }

    /// Waits for a number while time passes.
    async fn draw<T>(&mut self, drawing: impl Future<Output = T>) -> Result<T, Crash> {
        let mut drawing = std::pin::pin!(drawing);
        loop {
            tokio::select! {
                biased;
                drawn = &mut drawing => return Ok(drawn),
                () = std::future::ready(()) => self.step().await?,
            }
        }
    }

    /// Writes the event, or not, and knows about it, or not.
    async fn end(&mut self, sequencer: &mut Sequencer<S>, event: Event) -> Result<(), Crash> {
        let (written, known) = match self.dice.roll(10) {
            0 => (false, false),
            1 => (true, false),
            _ => (true, true),
        };
        if written {
            self.log.append(event).expect("nobody else writes");
        }
        self.steps(3).await?;
        if known {
            sequencer.flush().expect("the task runs")
        } else {
            sequencer.actualize().expect("the task runs")
        }
        Ok(())
    }

    /// A last process that nothing happens to leaves the store with exactly what the log says.
    async fn finish(&mut self) {
        let sequencer = self.sequencer();
        for _ in 0..ENOUGH {
            if let Phase::Running { .. } = sequencer.status().phase {
                break;
            }
            self.clock.advance(Duration::from_millis(50));
            tokio::task::yield_now().await;
        }
        let status = sequencer.status();
        assert!(matches!(status.phase, Phase::Running { .. }), "app {:?}: {status:?}", self.app);
        assert_eq!(sequencer.close(Duration::from_secs(1)).await, Closed::Flushed);
        let end = self.log.end();
        let stored = stored_offset(&self.truth, self.app).await;
        assert_eq!(stored.unwrap_or(1), end, "app {:?}", self.app);
        for ((workspace, sequence), last) in self.log.highest_below(end) {
            let stored = stored_number(&self.truth, self.app, workspace.0, sequence).await;
            assert_eq!(stored, Some(last), "app {:?}: {workspace:?} {sequence:?}", self.app);
        }
    }
}

type Network = FaultyStore<GatedStore<InnerStore>>;

/// A store whose calls take several steps.
fn in_steps(store: InnerStore) -> GatedStore<InnerStore> {
    let gated = GatedStore::new(store);
    gated.set(Gate::GiveWay);
    gated
}

fn lossy(store: InnerStore, clock: SharedClock) -> Network {
    FaultyStore::new(in_steps(store), LOSSY, clock.random_u64(), clock)
}

/// Processes that end after a while, over a store that loses messages.
async fn crash_often(seed: u64, truth: &InnerStore) -> World<Network> {
    let mut world = World::new(seed, truth, lossy);
    for _ in 0..6 {
        world.fuse = world.dice.roll(120);
        let transactions = 1 + world.dice.roll(10);
        // A crash is how most of them end.
        let _ended = world.process(transactions).await;
    }
    world.fuse = ENOUGH;
    world.store.set_faults(Faults::NONE);
    world.store.settle().await;
    world.finish().await;
    world
}

#[tokio::test]
async fn numbers_are_unique_and_growing_whatever_crashes() {
    let truth = inner_store(manual_clock().1);
    let mut events = 0;
    for seed in 0..SEEDS {
        let world = crash_often(seed, &truth).await;
        assert_eq!(world.log.broken(), None, "seed {seed}");
        events += world.log.end() - 1;
    }
    assert!(events > 5 * SEEDS, "only {events} events were written");
}

/// Or a seed that failed could not be looked into.
#[tokio::test]
async fn the_same_seed_is_the_same_run() {
    for seed in 0..10 {
        let (one, two) = (inner_store(manual_clock().1), inner_store(manual_clock().1));
        let (one, two) = (crash_often(seed, &one).await, crash_often(seed, &two).await);
        assert_eq!(one.log.events(), two.log.events(), "seed {seed}");
    }
}

/// Every step of one run, none left out.
#[tokio::test]
async fn a_crash_at_every_step_of_a_run_loses_nothing() {
    let truth = inner_store(manual_clock().1);
    for seed in 0..4 {
        let mut ended = false;
        for fuse in 0.. {
            let app = seed * 10_000 + fuse;
            let mut world = World::new(app, &truth, |store, _| in_steps(store));
            world.dice = Dice::seeded(seed);
            world.fuse = fuse;
            ended = world.process(8).await.is_ok();
            world.fuse = ENOUGH;
            world.process(3).await.expect("no end is near");
            world.finish().await;
            assert_eq!(world.log.broken(), None, "seed {seed}, a crash after {fuse} steps");
            if ended {
                assert!(fuse > 50, "a run of {fuse} steps is too short");
                break;
            }
        }
        assert!(ended);
    }
}

/// Processes that end after a while, over a store that loses numbers it acknowledged.
async fn crash_carelessly(seed: u64, truth: &InnerStore, watched: bool) -> Option<String> {
    let mut world = World::new(seed, truth, |store, _| JournalStore::careless(in_steps(store)));
    world.watched = watched;
    for _ in 0..6 {
        world.fuse = world.dice.roll(120);
        let _ended = world.process(10).await;
        world.store.cut_power();
    }
    world.log.broken()
}

/// The control: a store that acknowledges numbers which a power cut loses is found out, though its
/// offsets are safe. By the numbers in the log alone, and before that by the stored offset.
#[tokio::test]
async fn numbers_that_are_not_safe_before_the_offset_are_found_out() {
    for (watched, sign) in [(false, "S"), (true, "offset")] {
        let truth = inner_store(manual_clock().1);
        let mut caught = 0;
        for seed in 0..SEEDS {
            let broken = crash_carelessly(seed, &truth, watched).await;
            caught += u32::from(broken.is_some_and(|broken| broken.starts_with(sign)));
            if caught == 3 {
                break;
            }
        }
        assert_eq!(caught, 3, "found out too rarely by {sign}");
    }
}
