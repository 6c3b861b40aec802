//! Two sequencers on one partition, each believing that it is the only one: one of them slept.
//!
//! The log refuses the event of whoever comes second, and what a sleeper still sends to the store
//! raises nothing above what is true.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wane::services::ClusterAppId;
use wane::services::sequencer::{
    Closed, Event, Offset, Sequencer, SequencerSettings, Start, WorkspaceId,
};
use wane::store::Keyspace;

use super::journal::JournalStore;
use super::log::{MemoryLog, Taken};
use super::{
    APP, BILLS, Dice, Ground, ORDERS, SHOP, draw, ground, let_run, look_at_offset, settings,
    started, stored_number, stored_offset,
};
use crate::gated::{Gate, GatedStore};
use crate::{InnerStore, inner_store, manual_clock};

const SEEDS: u64 = 1_000;
const SOON: Duration = Duration::from_secs(1);

/// The same ground, reached through a gate of its own.
fn through_gate(ground: &Ground<InnerStore>) -> Ground<GatedStore<InnerStore>> {
    Ground {
        clock: Arc::clone(&ground.clock),
        store: GatedStore::new(ground.store.clone()),
        log: Arc::clone(&ground.log),
        settings: ground.settings.clone(),
    }
}

#[tokio::test]
async fn a_woken_older_sequencer_gets_no_event_through() {
    let ground = ground();
    let mut older = ground.ready().await;
    ground.write_event(&mut older, 1, &[ORDERS]).await;
    let asleep = draw(&mut older, 1, &[ORDERS]).await;

    let mut newer = ground.ready().await;
    assert_eq!(ground.write_event(&mut newer, 1, &[ORDERS]).await, [2]);
    assert_eq!(asleep.numbers, [(ORDERS, 2)], "both drew it");
    assert_eq!(ground.log.append(asleep), Err(Taken), "and one of them may use it");
    older.actualize().unwrap();
    older.ready().await.unwrap();
    assert_eq!(ground.write_event(&mut older, 1, &[ORDERS]).await, [3]);

    let late = draw(&mut newer, 1, &[ORDERS]).await;
    assert_eq!(ground.log.append(late), Err(Taken), "now the newer one is behind");
    assert_eq!(ground.log.broken(), None);
}

/// The older one stored its number and sleeps before it sends the offset. What the newer one wrote
/// since is not stored when it wakes.
#[tokio::test]
async fn a_late_offset_of_an_older_sequencer_covers_no_event_of_the_newer_one() {
    let ground = ground();
    let (older_ground, newer_ground) = (through_gate(&ground), through_gate(&ground));
    let mut older = older_ground.ready().await;
    older_ground.store.set(Gate::HoldAfter);
    ground.log.append(draw(&mut older, 1, &[ORDERS]).await).unwrap();
    older.flush().unwrap();
    let_run().await;
    assert_eq!(stored_number(&ground.store, APP, 1, ORDERS).await, Some(1));
    assert_eq!(stored_offset(&ground.store, APP).await, None, "it sleeps in between");

    let mut newer = newer_ground.ready().await;
    newer_ground.store.set(Gate::HoldBefore);
    for number in 2..=4 {
        assert_eq!(newer_ground.write_event(&mut newer, 1, &[ORDERS]).await, [number]);
    }
    let_run().await;
    older_ground.store.set(Gate::Open);
    let_run().await;
    assert_eq!(stored_offset(&ground.store, APP).await, Some(2), "event 1, and no other");

    drop(newer);
    let mut third = ground.ready().await;
    assert_eq!(started(&mut third, 1), Offset(5));
    assert_eq!(third.next(ORDERS).await.unwrap(), 5, "events 2 to 4 were read from the log");
}

/// The older one wakes with a whole batch to write, after the newer one went far beyond.
#[tokio::test]
async fn late_writes_of_an_older_sequencer_change_nothing_that_is_higher() {
    let ground = ground();
    let older_ground = through_gate(&ground);
    let older_journal = JournalStore::new(older_ground.store.clone());
    let (log, clock) = (Arc::clone(&ground.log), ground.clock.clone());
    let mut older =
        Sequencer::new(older_journal.clone(), log, clock, ground.settings.clone()).unwrap();
    older.ready().await.unwrap();
    older_ground.store.set(Gate::HoldBefore);
    for _ in 0..3 {
        ground.log.append(draw(&mut older, 1, &[ORDERS]).await).unwrap();
        older.flush().unwrap();
    }
    let_run().await;

    let mut newer = ground.ready().await;
    for number in 4..=10 {
        assert_eq!(ground.write_event(&mut newer, 1, &[ORDERS]).await, [number]);
    }
    assert_eq!(newer.close(SOON).await, Closed::Flushed);
    older_ground.store.set(Gate::Open);
    assert_eq!(older.close(SOON).await, Closed::Flushed);
    assert_eq!(older_journal.take(), [] as [(Keyspace, u64); 0], "nothing of it was applied");
    assert_eq!(stored_number(&ground.store, APP, 1, ORDERS).await, Some(10));
    assert_eq!(stored_offset(&ground.store, APP).await, Some(11));
}

/// A sequencer may sleep in the middle of its recovery, with a page of the log in its hands.
#[tokio::test]
async fn a_recovery_that_slept_ends_where_the_log_ends() {
    let ground = ground();
    let mut first = ground.ready().await;
    ground.write_event(&mut first, 1, &[ORDERS, BILLS]).await;
    drop(first);
    let older_ground = through_gate(&ground);
    older_ground.store.set(Gate::HoldAfter);
    let mut older = older_ground.sequencer();
    let_run().await;

    let mut newer = ground.ready().await;
    for _ in 0..5 {
        ground.write_event(&mut newer, 1, &[ORDERS]).await;
    }
    assert_eq!(newer.close(SOON).await, Closed::Flushed);
    older_ground.store.set(Gate::Open);
    older.ready().await.unwrap();
    assert_eq!(started(&mut older, 1), Offset(7));
    assert_eq!(older.next(ORDERS).await.unwrap(), 7);
    assert_eq!(stored_offset(&ground.store, APP).await, Some(7));
}

/// A process with a sequencer: what it is doing, and whether it sleeps.
struct Rival {
    store: GatedStore<InnerStore>,
    sequencer: Sequencer<GatedStore<InnerStore>>,
    drawn: Option<Event>,
    asleep: bool,
}

/// Two rivals, and the chance that decides whose turn it is.
struct Contest {
    app: ClusterAppId,
    truth: InnerStore,
    log: Arc<MemoryLog>,
    dice: Dice,
    rivals: Vec<Rival>,
}

impl Contest {
    fn new(seed: u64, truth: &InnerStore) -> Self {
        let app = ClusterAppId(u32::try_from(seed).expect("seeds are few") + 1);
        let (truth, log) = (truth.clone(), Arc::default());
        let mut contest = Self { app, truth, log, dice: Dice::seeded(seed), rivals: Vec::new() };
        for _ in 0..2 {
            contest.rivals.push(contest.rival());
        }
        contest
    }

    fn rival(&self) -> Rival {
        let store = GatedStore::new(self.truth.clone());
        store.set(Gate::GiveWay);
        let settings = SequencerSettings {
            cache_size: 1 + self.dice.roll(3) as usize,
            max_unflushed: 1 + self.dice.roll(6) as usize,
            page: 1 + self.dice.roll(4) as usize,
            ..settings(self.app)
        };
        let (log, clock) = (Arc::clone(&self.log), manual_clock().1);
        let sequencer = Sequencer::new(store.clone(), log, clock, settings).expect("good settings");
        Rival { store, sequencer, drawn: None, asleep: false }
    }

    async fn run(&mut self, turns: u64) {
        for _ in 0..turns {
            let index = self.dice.roll(2) as usize;
            self.turn(index).await;
            for _ in 0..self.dice.roll(4) {
                tokio::task::yield_now().await;
            }
            look_at_offset(&self.log, &self.truth, self.app).await;
        }
    }

    async fn turn(&mut self, index: usize) {
        match self.dice.roll(24) {
            0 => self.rivals[index] = self.rival(),
            1 | 2 => {
                let gates = [Gate::HoldBefore, Gate::HoldAfter, Gate::HoldReads];
                let gate = gates[self.dice.roll(3) as usize];
                self.rivals[index].store.set(gate);
                self.rivals[index].asleep = true;
            }
            3 | 4 => {
                self.rivals[index].store.set(Gate::GiveWay);
                self.rivals[index].asleep = false;
            }
            _ if self.rivals[index].asleep => {}
            _ => self.act(index).await,
        }
    }

    async fn act(&mut self, index: usize) {
        let (dice, log, rival) = (&self.dice, &self.log, &mut self.rivals[index]);
        let Some(event) = rival.drawn.take() else {
            let workspace = WorkspaceId(1 + dice.roll(2));
            let start = rival.sequencer.start(SHOP, workspace).expect("the task runs");
            let Start::Started { offset } = start else { return };
            let mut numbers = Vec::new();
            for _ in 0..dice.roll(3) {
                let sequence = [ORDERS, BILLS][dice.roll(2) as usize];
                numbers.push((
                    sequence,
                    rival.sequencer.next(sequence).await.expect("the store answers"),
                ));
            }
            rival.drawn = Some(Event { offset, workspace, numbers });
            return;
        };
        match log.append(event) {
            Ok(()) if dice.one_in(10) => rival.sequencer.actualize().expect("the task runs"),
            Ok(()) => rival.sequencer.flush().expect("the task runs"),
            Err(Taken) => rival.sequencer.actualize().expect("the task runs"),
        }
    }
}

#[tokio::test]
async fn numbers_are_unique_and_growing_whoever_sleeps_and_wakes() {
    let truth = inner_store(manual_clock().1);
    let mut events = 0;
    for seed in 0..SEEDS {
        let mut contest = Contest::new(seed, &truth);
        contest.run(150).await;
        assert_eq!(contest.log.broken(), None, "seed {seed}");
        events += contest.log.end() - 1;
    }
    assert!(events > 5 * SEEDS, "only {events} events were written");
}

/// The control: without a log that refuses, two sequencers use the same numbers.
#[tokio::test]
async fn a_log_that_lets_both_write_is_found_out() {
    let truth = inner_store(manual_clock().1);
    let caught = (0..SEEDS).map(|seed| {
        let contest = Contest::new(seed, &truth);
        contest.log.careless.store(true, Ordering::Relaxed);
        contest
    });
    for mut contest in caught {
        contest.run(150).await;
        if contest.log.broken().is_some() {
            return;
        }
    }
    panic!("nobody noticed within {SEEDS} seeds");
}
