//! A store or a log that fails: busy instead of wrong, tried again for ever, seen by an operator, and
//! never in the way of the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wane::clock::Clock;
use wane::services::sequencer::{
    Busy, Closed, Event, Fault, Monitor, Offset, Phase, SequencerError, Start, WorkspaceId,
};
use wane::store::{
    Answer, Faults, FaultyStore, Fence, Life, ObservedStore, Operation, Store, StoreError, Value,
    Write,
};

use super::{
    APP, BILLS, Ground, ORDERS, SHOP, draw, ground, ground_over, let_run, number_key, offset_key,
    started, stored_number, stored_offset, until,
};
use crate::gated::{Gate, GatedStore};
use crate::{InnerStore, inner_store, manual_clock, value};

const SOON: Duration = Duration::from_secs(1);
const DOWN: Faults = Faults { error: 1.0, ..Faults::NONE };
const ANSWERS_LOST: Faults = Faults { lost_answer: 1.0, ..Faults::NONE };

fn faulty_ground(faults: Faults) -> Ground<FaultyStore<InnerStore>> {
    let (clock, shared) = manual_clock();
    let store = FaultyStore::new(inner_store(shared.clone()), faults, 1, shared);
    Ground { store, clock, log: Arc::default(), settings: super::settings(APP) }
}

/// What the operator is told.
fn fault(monitor: &Monitor) -> Option<String> {
    monitor.status().fault.map(|fault| fault.to_string())
}

#[tokio::test]
async fn a_store_that_hangs_makes_the_sequencer_busy_at_500() {
    let ground = ground_over(GatedStore::new);
    let mut sequencer = ground.ready().await;
    ground.store.set(Gate::HoldBefore);
    for workspace in 0..500 {
        ground.write_event(&mut sequencer, workspace, &[ORDERS]).await;
        tokio::task::yield_now().await;
    }
    let busy = Start::Busy(Busy::Unflushed { numbers: 500 });
    assert_eq!(sequencer.start(SHOP, WorkspaceId(1)).unwrap(), busy);
    let_run().await;
    assert_eq!(sequencer.start(SHOP, WorkspaceId(1)).unwrap(), busy, "and stays so");

    ground.store.set(Gate::Open);
    sequencer.ready().await.unwrap();
    assert_eq!(ground.write_event(&mut sequencer, 1, &[ORDERS]).await, [2]);
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed);
    assert_eq!(stored_offset(&ground.store, APP).await, Some(502));
}

#[tokio::test]
async fn a_store_that_is_down_is_tried_again_with_longer_and_longer_pauses() {
    let mut gate = None;
    let mut ground = ground_over(|store| {
        let gated = gate.insert(GatedStore::new(store)).clone();
        ObservedStore::new(gated, "gated", manual_clock().1)
    });
    let gate = gate.expect("kept above");
    ground.settings.first_pause = Duration::from_millis(10);
    ground.settings.longest_pause = Duration::from_millis(80);
    let mut sequencer = ground.ready().await;
    let event = draw(&mut sequencer, 1, &[ORDERS]).await;
    ground.log.append(event).unwrap();
    gate.set(Gate::LoseRequest);
    sequencer.flush().unwrap();

    let mut at = Vec::new();
    for millis in 0..1_000_u64 {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let metrics = ground.store.metrics();
        if metrics.of(Operation::InsertIfNotExists).count(Answer::Unknown) > at.len() as u64 {
            at.push(millis);
        }
        ground.clock.advance(Duration::from_millis(1));
    }
    let pauses: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((5..=11).contains(&pauses[0]), "{pauses:?}");
    assert!((10..=21).contains(&pauses[1]), "{pauses:?}");
    assert!(pauses[4..].iter().all(|pause| (40..=81).contains(pause)), "{pauses:?}");
    assert!(pauses.len() > 10, "for ever: {pauses:?}");
}

#[tokio::test]
async fn an_operator_sees_what_the_store_says_until_it_works_again() {
    let ground = faulty_ground(Faults::NONE);
    let mut sequencer = ground.ready().await;
    let monitor = sequencer.monitor();
    let event = draw(&mut sequencer, 1, &[ORDERS]).await;
    ground.log.append(event).unwrap();
    ground.store.set_faults(DOWN);
    sequencer.flush().unwrap();
    assert_eq!(fault(&monitor), None);
    until("the fault is seen", || fault(&monitor).is_some()).await;
    assert_eq!(fault(&monitor).unwrap(), "faulty is unavailable: the server failed");
    assert_eq!(monitor.status().unflushed, 1);

    ground.store.set_faults(Faults::NONE);
    ground.clock.advance(SOON);
    until("the fault is gone", || fault(&monitor).is_none()).await;
    assert_eq!(monitor.status().unflushed, 0);
    assert_eq!(stored_number(ground.store.inner(), APP, 1, ORDERS).await, Some(1));
}

/// Each write is applied and nobody hears of it: the next attempt finds it done.
#[tokio::test]
async fn lost_answers_are_asked_for_again() {
    let ground = faulty_ground(Faults::NONE);
    let mut sequencer = ground.ready().await;
    let monitor = sequencer.monitor();
    for workspace in [1, 1, 2] {
        let event = draw(&mut sequencer, workspace, &[ORDERS]).await;
        ground.log.append(event).unwrap();
        ground.store.set_faults(ANSWERS_LOST);
        sequencer.flush().unwrap();
        until("the answer is lost", || fault(&monitor).is_some()).await;
        ground.store.set_faults(Faults::NONE);
        ground.clock.advance(SOON);
        until("all is stored", || fault(&monitor).is_none()).await;
    }
    assert_eq!(stored_number(ground.store.inner(), APP, 1, ORDERS).await, Some(2));
    assert_eq!(stored_number(ground.store.inner(), APP, 2, ORDERS).await, Some(1));
    assert_eq!(stored_offset(ground.store.inner(), APP).await, Some(4));
}

#[tokio::test]
async fn an_offset_that_was_not_stored_is_written_again() {
    let ground = ground_over(GatedStore::new);
    let mut sequencer = ground.ready().await;
    let monitor = sequencer.monitor();
    ground.store.set(Gate::LoseRequest);
    ground.write_event(&mut sequencer, 1, &[]).await;
    until("the fault is seen", || fault(&monitor).is_some()).await;
    ground.clock.advance(SOON);
    let_run().await;
    assert_eq!(monitor.status().covered, Offset(1), "not before it is stored");
    ground.store.set(Gate::Open);
    ground.clock.advance(SOON);
    until("the offset is stored", || monitor.status().covered == Offset(2)).await;
    assert_eq!(stored_offset(&ground.store, APP).await, Some(2));
}

#[tokio::test]
async fn a_number_that_cannot_be_read_leaves_the_transaction_open() {
    let ground = faulty_ground(Faults::NONE);
    let mut sequencer = ground.ready().await;
    started(&mut sequencer, 1);
    ground.store.set_faults(DOWN);
    let error = sequencer.next(ORDERS).await.unwrap_err();
    assert!(matches!(error, SequencerError::Store(StoreError::Unavailable { .. })), "{error}");
    ground.store.set_faults(Faults::NONE);
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), 1);
    sequencer.flush().unwrap();
}

#[tokio::test]
async fn a_record_that_is_no_number_is_corrupt_and_stays() {
    let ground = ground();
    let key = number_key(APP, 1, ORDERS);
    let garbage = Write::new(value("seven b"), Life::Permanent);
    let mut sequencer = ground.ready().await;
    started(&mut sequencer, 1);
    assert!(ground.store.put(&key, garbage.clone()).await.unwrap().is_applied());
    let error = sequencer.next(ORDERS).await.unwrap_err();
    assert!(matches!(error, SequencerError::Store(StoreError::Corrupt { .. })), "{error}");
    sequencer.actualize().unwrap();

    let numbers = vec![(ORDERS, 5)];
    let event = Event { offset: Offset(1), workspace: WorkspaceId(1), numbers };
    ground.log.append(event).unwrap();
    drop(sequencer);
    let mut sequencer = ground.sequencer();
    let monitor = sequencer.monitor();
    until("the fault is seen", || fault(&monitor).is_some()).await;
    assert!(fault(&monitor).unwrap().starts_with("corrupt record"), "{:?}", fault(&monitor));
    assert_eq!(ground.store.get(&key).await.unwrap().unwrap().value, garbage.value);

    let repaired = Value::copy_from_slice(&3_u64.to_be_bytes()).unwrap();
    let repaired = Write::new(repaired, Life::Permanent);
    assert!(ground.store.put(&key, repaired).await.unwrap().is_applied());
    ground.clock.advance(SOON);
    sequencer.ready().await.unwrap();
    assert_eq!(draw(&mut sequencer, 1, &[ORDERS]).await.numbers, [(ORDERS, 6)]);
}

/// A store that came back without its latest writes: its offset must not be raised over numbers that
/// it lost.
#[tokio::test]
async fn a_record_that_has_fallen_stops_the_flusher_and_a_new_sequencer_recovers() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    let monitor = sequencer.monitor();
    ground.write_event(&mut sequencer, 1, &[ORDERS]).await;
    ground.write_event(&mut sequencer, 2, &[ORDERS]).await;
    until("all is stored", || monitor.status().covered == Offset(3)).await;
    let keys = [number_key(APP, 1, ORDERS), number_key(APP, 2, ORDERS), offset_key(APP)];
    for key in keys {
        let value = ground.store.get(&key).await.unwrap().expect("stored").value;
        let lost = ground.store.compare_and_delete(&key, &value, Fence::NONE).await.unwrap();
        assert!(lost.is_applied());
    }

    ground.write_event(&mut sequencer, 1, &[BILLS]).await;
    until("the fault is seen", || fault(&monitor).is_some()).await;
    let told = fault(&monitor).unwrap();
    assert!(told.ends_with("it was 3 and is absent: the store lost what it had acknowledged"));
    ground.clock.advance(SOON);
    let_run().await;
    assert_eq!(stored_offset(&ground.store, APP).await, None, "not raised");
    drop(sequencer);
    let mut sequencer = ground.ready().await;
    assert_eq!(ground.write_event(&mut sequencer, 2, &[ORDERS]).await, [2]);
    assert_eq!(ground.log.broken(), None);
}

#[tokio::test]
async fn a_log_that_fails_is_seen_and_asked_again() {
    let ground = ground();
    ground.log.failing.store(true, Ordering::Relaxed);
    let mut sequencer = ground.sequencer();
    let monitor = sequencer.monitor();
    until("the fault is seen", || fault(&monitor).is_some()).await;
    assert!(matches!(*monitor.status().fault.unwrap(), Fault::Log(_)));
    assert_eq!(fault(&monitor).unwrap(), "the event log failed: the log does not answer");
    assert_eq!(monitor.status().phase, Phase::Recovering);
    ground.log.failing.store(false, Ordering::Relaxed);
    ground.clock.advance(SOON);
    sequencer.ready().await.unwrap();
    assert_eq!(fault(&monitor), None);
}

#[tokio::test]
async fn closing_a_sequencer_whose_store_hangs_ends_at_its_deadline() {
    for gate in [Gate::HoldBefore, Gate::HoldAfter] {
        let ground = ground_over(GatedStore::new);
        let mut sequencer = ground.ready().await;
        ground.store.set(gate);
        for workspace in 1..=3 {
            ground.write_event(&mut sequencer, workspace, &[ORDERS]).await;
        }
        let began = ground.clock.monotonic();
        let closing = tokio::spawn(sequencer.close(SOON));
        let_run().await;
        assert!(!closing.is_finished(), "it tries until the deadline");
        ground.clock.advance(SOON);
        assert_eq!(closing.await.unwrap(), Closed::Unflushed { numbers: 3 });
        assert_eq!(ground.clock.monotonic() - began, SOON);
        assert_eq!(Arc::strong_count(&ground.log), 1, "the task is gone");

        ground.store.set(Gate::Open);
        let mut sequencer = ground.ready().await;
        assert_eq!(ground.write_event(&mut sequencer, 1, &[ORDERS]).await, [2], "from the log");
    }
}

#[tokio::test]
async fn closing_while_the_store_comes_back_stores_everything() {
    let ground = faulty_ground(Faults::NONE);
    let mut sequencer = ground.ready().await;
    let event = draw(&mut sequencer, 1, &[ORDERS]).await;
    ground.log.append(event).unwrap();
    ground.store.set_faults(DOWN);
    sequencer.flush().unwrap();
    let closing = tokio::spawn(sequencer.close(Duration::from_secs(60)));
    let_run().await;
    assert!(!closing.is_finished());
    ground.store.set_faults(Faults::NONE);
    ground.clock.advance(SOON);
    assert_eq!(closing.await.unwrap(), Closed::Flushed);
    assert_eq!(stored_offset(ground.store.inner(), APP).await, Some(2));
}

#[tokio::test]
async fn closing_during_recovery_ends_at_its_deadline_too() {
    let ground = ground_over(GatedStore::new);
    ground.store.set(Gate::HoldReads);
    let sequencer = ground.sequencer();
    let closing = tokio::spawn(sequencer.close(SOON));
    let_run().await;
    assert!(!closing.is_finished());
    ground.clock.advance(SOON);
    assert_eq!(closing.await.unwrap(), Closed::Unflushed { numbers: 0 });
}

#[tokio::test]
async fn dropping_a_sequencer_ends_its_task() {
    let ground = ground_over(GatedStore::new);
    let mut sequencer = ground.ready().await;
    ground.store.set(Gate::HoldBefore);
    ground.write_event(&mut sequencer, 1, &[ORDERS]).await;
    let_run().await;
    assert_eq!(Arc::strong_count(&ground.log), 2);
    drop(sequencer);
    until("the task is gone", || Arc::strong_count(&ground.log) == 1).await;
    ground.store.set(Gate::Open);
    let_run().await;
    assert_eq!(stored_offset(&ground.store, APP).await, None, "nothing is written after the end");
}

/// What is unflushed is dropped with an actualize, and comes back from the log.
#[tokio::test]
async fn an_actualize_while_the_store_hangs_loses_nothing() {
    let ground = ground_over(GatedStore::new);
    let mut sequencer = ground.ready().await;
    ground.store.set(Gate::HoldBefore);
    for _ in 0..3 {
        ground.write_event(&mut sequencer, 1, &[ORDERS]).await;
        let_run().await;
    }
    draw(&mut sequencer, 1, &[ORDERS]).await;
    sequencer.actualize().unwrap();
    assert_eq!(sequencer.status().unflushed, 0);
    let_run().await;
    assert_eq!(sequencer.status().phase, Phase::Recovering, "the log must be stored first");
    ground.store.set(Gate::Open);
    sequencer.ready().await.unwrap();
    assert_eq!(draw(&mut sequencer, 1, &[ORDERS]).await.numbers, [(ORDERS, 4)]);
    assert_eq!(stored_offset(&ground.store, APP).await, Some(4));
}
