//! What a new sequencer knows: the highest of store and log, stored before anything follows.

use std::time::Duration;

use wane::services::sequencer::{
    Closed, Event, Fault, Offset, Phase, SequenceId, Sequencer, WorkspaceId,
};
use wane::store::{Faults, FaultyStore, Key, Keyspace, Life, Store, Value, Write};

use super::journal::JournalStore;
use super::log::MemoryLog;
use super::{
    APP, BILLS, FIRST_BILL, ORDERS, draw, ground, ground_over, let_run, number_key, started,
    stored_number, stored_offset, until,
};
use crate::gated::{Gate, GatedStore};

const SOON: Duration = Duration::from_secs(1);

fn event(offset: u64, workspace: u64, numbers: &[(SequenceId, u64)]) -> Event {
    let workspace = WorkspaceId(workspace);
    Event { offset: Offset(offset), workspace, numbers: numbers.to_vec() }
}

/// Events 1 to `count`, one number each, over ten workspaces.
fn fill(log: &MemoryLog, count: u64) {
    for offset in 1..=count {
        log.append(event(offset, offset % 10, &[(ORDERS, offset)])).expect("nobody else writes");
    }
}

async fn put(store: &impl Store, key: &Key, number: u64) {
    let value = Value::copy_from_slice(&number.to_be_bytes()).expect("short enough");
    assert!(
        store
            .put(key, Write::new(value, Life::Permanent))
            .await
            .expect("the store answers")
            .is_applied()
    );
}

#[tokio::test]
async fn the_higher_of_store_and_log_counts() {
    let ground = ground();
    put(&ground.store, &number_key(APP, 1, ORDERS), 50).await;
    put(&ground.store, &number_key(APP, 2, ORDERS), 50).await;
    ground.log.append(event(1, 1, &[(ORDERS, 7), (BILLS, 300)])).unwrap();
    ground.log.append(event(2, 2, &[(ORDERS, 70), (ORDERS, 69)])).unwrap();
    let mut sequencer = ground.ready().await;
    assert_eq!(started(&mut sequencer, 1), Offset(3), "after the last event");
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), 51, "the store has more");
    assert_eq!(sequencer.next(BILLS).await.unwrap(), 301, "the store has none");
    sequencer.flush().unwrap();
    started(&mut sequencer, 2);
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), 71, "the log has more");
}

#[tokio::test]
async fn recovery_begins_at_the_stored_offset() {
    let ground = ground();
    fill(&ground.log, 20);
    let sequencer = ground.ready().await;
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed);
    assert_eq!(stored_offset(&ground.store, APP).await, Some(21));
    let before = ground.log.reads().len();
    ground.ready().await;
    assert_eq!(ground.log.reads()[before..], [(21, 1_000)]);
}

#[tokio::test]
async fn a_long_log_is_read_in_pages_and_stored_page_by_page() {
    let mut ground = ground_over(JournalStore::new);
    ground.settings.page = 100;
    fill(&ground.log, 1_050);
    let sequencer = ground.ready().await;
    assert_eq!(sequencer.status().phase, Phase::Running { next: Offset(1_051) });
    let pages: Vec<_> = (0..=10).map(|page| (page * 100 + 1, 100)).collect();
    assert_eq!(ground.log.reads()[..11], pages);
    let journal = ground.store.take();
    let offsets = journal.iter().filter(|(keyspace, _)| *keyspace == Keyspace::SequencerOffsets);
    let offsets: Vec<_> = offsets.map(|(_, offset)| *offset).collect();
    let ends: Vec<_> = (1..=10).map(|page| page * 100 + 1).chain([1_051]).collect();
    assert_eq!(offsets, ends);
    assert_eq!(journal.len(), 11 * (10 + 1), "ten counters and an offset a page");
}

/// The subtle rule: an offset written later covers recovered events as well.
#[tokio::test]
async fn recovered_numbers_are_stored_before_any_offset_and_any_start() {
    let ground = ground_over(|store| JournalStore::new(GatedStore::new(store)));
    fill(&ground.log, 20);
    ground.store.inner.set(Gate::HoldBefore);
    let mut sequencer = ground.sequencer();
    let_run().await;
    assert_eq!(sequencer.status().phase, Phase::Recovering, "nothing is stored yet");
    ground.store.inner.set(Gate::GiveWay);
    sequencer.ready().await.unwrap();
    let journal = ground.store.take();
    assert_eq!(journal.len(), 11);
    let (last, numbers) = journal.split_last().unwrap();
    assert!(numbers.iter().all(|(keyspace, _)| *keyspace == Keyspace::SequencerNumbers));
    assert_eq!(*last, (Keyspace::SequencerOffsets, 21));
}

#[tokio::test]
async fn a_recovery_that_was_cut_short_goes_on_where_it_was() {
    let mut ground = ground_over(GatedStore::new);
    ground.settings.page = 5;
    ground.store.set(Gate::GiveWay);
    fill(&ground.log, 50);
    let sequencer = ground.sequencer();
    let monitor = sequencer.monitor();
    until("it is under way", || ground.log.reads().len() >= 4).await;
    assert_eq!(monitor.status().phase, Phase::Recovering);
    assert!(monitor.status().covered > Offset(1), "an operator sees how far it is");
    drop(sequencer);
    let_run().await;
    let stored = stored_offset(&ground.store, APP).await.expect("some pages");
    let before = ground.log.reads().len();
    let sequencer = ground.ready().await;
    assert_eq!(ground.log.reads()[before].0, stored);
    assert_eq!(sequencer.status().phase, Phase::Running { next: Offset(51) });
    for workspace in 0..10 {
        let expected = if workspace == 0 { 50 } else { 40 + workspace };
        assert_eq!(stored_number(&ground.store, APP, workspace, ORDERS).await, Some(expected));
    }
}

/// Settings change; what was used stays used.
#[tokio::test]
async fn numbers_of_sequences_that_the_settings_do_not_name_are_kept() {
    let ground = ground();
    ground.log.append(event(1, 1, &[(SequenceId(99), 5)])).unwrap();
    ground.ready().await;
    assert_eq!(stored_number(&ground.store, APP, 1, SequenceId(99)).await, Some(5));
}

/// Numbers may have been used where events are missing.
#[tokio::test]
async fn a_log_with_a_gap_is_not_believed() {
    for lost in [1, 10] {
        let mut ground = ground();
        fill(&ground.log, 20);
        ground.log.lose(lost);
        ground.settings.page = 5;
        let sequencer = ground.sequencer();
        let monitor = sequencer.monitor();
        until("the gap is seen", || monitor.status().fault.is_some()).await;
        ground.clock.advance(SOON);
        let_run().await;
        assert_eq!(monitor.status().phase, Phase::Recovering);
        let fault = monitor.status().fault.expect("still there");
        let Fault::LogGap { expected, found } = *fault else { panic!("{fault}") };
        assert_eq!((expected, found), (Offset(lost), Offset(lost + 1)));
        let stored = stored_offset(&ground.store, APP).await;
        assert!(stored.is_none_or(|offset| offset <= lost), "{stored:?}");
    }
}

/// A log may be cut below the stored offset.
#[tokio::test]
async fn covered_events_may_leave_the_log() {
    let ground = ground();
    fill(&ground.log, 20);
    let sequencer = ground.ready().await;
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed);
    (1..=20).for_each(|offset| ground.log.lose(offset));
    let mut sequencer = ground.ready().await;
    assert_eq!(started(&mut sequencer, 1), Offset(21));
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), 12);
}

#[tokio::test]
async fn the_first_offset_is_that_of_the_settings() {
    let mut ground = ground();
    ground.settings.first_offset = Offset(0);
    let log = std::sync::Arc::new(ZeroBased);
    let store = ground.store.clone();
    let mut sequencer =
        Sequencer::new(store, log, ground.clock.clone(), ground.settings.clone()).unwrap();
    sequencer.ready().await.unwrap();
    assert_eq!(started(&mut sequencer, 1), Offset(1));
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), 10);
}

/// A log whose only event stands at offset 0.
#[derive(Debug)]
struct ZeroBased;

impl wane::services::sequencer::EventLog for ZeroBased {
    async fn events_from(
        &self,
        offset: Offset,
        _: usize,
    ) -> Result<Vec<Event>, wane::store::BoxError> {
        Ok(if offset == Offset(0) { vec![event(0, 1, &[(ORDERS, 9)])] } else { Vec::new() })
    }
}

#[tokio::test]
async fn recovery_outlasts_a_store_that_loses_half_of_everything() {
    let faults = Faults { lost_answer: 0.2, lost_request: 0.2, late: 0.1, ..Faults::NONE };
    let mut ground = {
        let (clock, shared) = crate::manual_clock();
        let store = FaultyStore::new(crate::inner_store(shared.clone()), faults, 3, shared);
        super::Ground { clock, store, log: Default::default(), settings: super::settings(APP) }
    };
    ground.settings.page = 10;
    fill(&ground.log, 100);
    let mut sequencer = ground.sequencer();
    let monitor = sequencer.monitor();
    for _ in 0..1_000 {
        ground.clock.advance(SOON);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(monitor.status().phase, Phase::Running { next: Offset(101) });
    ground.store.set_faults(Faults::NONE);
    ground.store.settle().await;
    assert_eq!(
        draw(&mut sequencer, 3, &[ORDERS, BILLS]).await.numbers,
        [(ORDERS, 94), (BILLS, FIRST_BILL)]
    );
    assert_eq!(stored_offset(ground.store.inner(), APP).await, Some(101));
}
