//! What a caller gets: offsets and numbers, one transaction after the other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use wane::clock::SystemClock;
use wane::services::sequencer::{Busy, Closed, Offset, Phase, Sequencer, Start, WorkspaceId};

use super::{
    APP, BILLS, FIRST_BILL, ORDERS, SHOP, draw, ground, ground_over, let_run, started,
    stored_number, until,
};
use crate::gated::{Gate, GatedStore};

#[tokio::test]
async fn a_new_sequencer_is_busy_until_it_has_recovered() {
    let ground = ground();
    let mut sequencer = ground.sequencer();
    let start = sequencer.start(SHOP, WorkspaceId(1)).unwrap();
    assert_eq!(start, Start::Busy(Busy::Recovering));
    assert_eq!(sequencer.status().phase, Phase::Recovering);
    sequencer.ready().await.unwrap();
    assert_eq!(sequencer.status().phase, Phase::Running { next: Offset(1) });
    assert_eq!(started(&mut sequencer, 1), Offset(1));
}

#[tokio::test]
async fn numbers_begin_with_the_initial_one_and_go_up_by_one() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    let drawn = ground.write_event(&mut sequencer, 1, &[ORDERS, BILLS, ORDERS]).await;
    assert_eq!(drawn, [1, FIRST_BILL, 2]);
    let drawn = ground.write_event(&mut sequencer, 1, &[BILLS, ORDERS]).await;
    assert_eq!(drawn, [FIRST_BILL + 1, 3]);
}

#[tokio::test]
async fn workspaces_and_partitions_of_other_applications_count_apart() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    assert_eq!(ground.write_event(&mut sequencer, 1, &[ORDERS]).await, [1]);
    assert_eq!(ground.write_event(&mut sequencer, u64::MAX, &[ORDERS]).await, [1]);
    assert_eq!(ground.write_event(&mut sequencer, 1, &[ORDERS]).await, [2]);

    let mut other = super::ground();
    other.settings.app.0 += 1;
    other.store = ground.store.clone();
    let mut stranger = other.ready().await;
    assert_eq!(other.write_event(&mut stranger, 1, &[ORDERS]).await, [1]);
}

#[tokio::test]
async fn the_offset_moves_on_with_a_flush_and_stays_with_an_actualize() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    ground.write_event(&mut sequencer, 1, &[]).await;
    assert_eq!(started(&mut sequencer, 1), Offset(2));
    sequencer.actualize().unwrap();
    sequencer.ready().await.unwrap();
    assert_eq!(started(&mut sequencer, 1), Offset(2));
}

#[tokio::test]
async fn actualize_drops_what_was_drawn_and_is_busy_meanwhile() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    assert_eq!(ground.write_event(&mut sequencer, 1, &[ORDERS]).await, [1]);
    let lost = draw(&mut sequencer, 1, &[ORDERS, BILLS]).await;
    assert_eq!(lost.numbers, [(ORDERS, 2), (BILLS, FIRST_BILL)]);
    sequencer.actualize().unwrap();
    let start = sequencer.start(SHOP, WorkspaceId(1)).unwrap();
    assert_eq!(start, Start::Busy(Busy::Recovering));
    sequencer.ready().await.unwrap();
    let drawn = ground.write_event(&mut sequencer, 1, &[ORDERS, BILLS]).await;
    assert_eq!(drawn, [2, FIRST_BILL], "the event was not written, so its numbers were not used");
}

/// The append may have reached the log although nobody said so.
#[tokio::test]
async fn an_event_of_unknown_outcome_that_was_written_uses_its_numbers() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    let unclear = draw(&mut sequencer, 1, &[ORDERS]).await;
    ground.log.append(unclear).unwrap();
    sequencer.actualize().unwrap();
    sequencer.ready().await.unwrap();
    assert_eq!(draw(&mut sequencer, 1, &[ORDERS]).await.numbers, [(ORDERS, 2)]);
    assert_eq!(sequencer.status().phase, Phase::Running { next: Offset(2) });
}

#[tokio::test]
async fn a_higher_initial_number_in_the_settings_is_skipped_to() {
    let mut ground = ground();
    let mut sequencer = ground.ready().await;
    ground.write_event(&mut sequencer, 1, &[ORDERS]).await;
    assert_eq!(sequencer.close(Duration::from_secs(1)).await, Closed::Flushed);
    ground.settings.kinds.get_mut(&SHOP).unwrap().insert(ORDERS, 50);
    let mut sequencer = ground.ready().await;
    assert_eq!(ground.write_event(&mut sequencer, 1, &[ORDERS, ORDERS]).await, [50, 51]);
    assert_eq!(sequencer.close(Duration::from_secs(1)).await, Closed::Flushed);
    ground.settings.kinds.get_mut(&SHOP).unwrap().insert(ORDERS, 1);
    let mut sequencer = ground.ready().await;
    assert_eq!(ground.write_event(&mut sequencer, 1, &[ORDERS]).await, [52], "never back");
}

/// `next` is as fast as memory: a store that does not answer is not asked.
#[tokio::test]
async fn numbers_in_memory_are_drawn_without_the_store() {
    let ground = ground_over(GatedStore::new);
    let mut sequencer = ground.ready().await;
    ground.write_event(&mut sequencer, 1, &[ORDERS]).await;
    let monitor = sequencer.monitor();
    until("the number is stored", || monitor.status().unflushed == 0).await;
    ground.store.set(Gate::HoldReads);
    started(&mut sequencer, 1);
    for number in 2..10 {
        let drawn = sequencer.next(ORDERS).now_or_never().expect("drawn without waiting");
        assert_eq!(drawn.unwrap(), number);
    }
    assert!(sequencer.next(BILLS).now_or_never().is_none(), "a first number is in the store only");
}

#[tokio::test]
async fn a_draw_that_is_given_up_leaves_the_transaction_as_it_was() {
    let ground = ground_over(GatedStore::new);
    let mut sequencer = ground.ready().await;
    ground.store.set(Gate::HoldReads);
    started(&mut sequencer, 1);
    assert!(sequencer.next(ORDERS).now_or_never().is_none());
    ground.store.set(Gate::Open);
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), 1);
}

#[tokio::test]
async fn whoever_waits_for_recovery_is_woken() {
    let ground = ground_over(GatedStore::new);
    ground.store.set(Gate::HoldReads);
    let mut sequencer = ground.sequencer();
    let waiting = tokio::spawn(async move {
        sequencer.ready().await.unwrap();
        draw(&mut sequencer, 1, &[ORDERS]).await
    });
    let_run().await;
    assert!(!waiting.is_finished());
    ground.store.set(Gate::Open);
    assert_eq!(waiting.await.unwrap().numbers, [(ORDERS, 1)]);
}

/// The caller, its task and the time of a real machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_go_on_while_the_task_works_on_another_thread() {
    let mut ground = ground();
    ground.settings.cache_size = 8;
    ground.settings.max_unflushed = 20;
    ground.settings.gather = Duration::from_micros(100);
    let (clock, log) = (SystemClock::shared(), Arc::clone(&ground.log));
    let mut sequencer =
        Sequencer::new(ground.store.clone(), log, clock, ground.settings.clone()).unwrap();
    let mut expected = [0_u64; 40];
    for round in 0..10_000 {
        let workspace = (round * 7 + round / 40) % 40;
        sequencer.ready().await.unwrap();
        let drawn = ground.write_event(&mut sequencer, workspace as u64, &[ORDERS]).await;
        expected[workspace] += 1;
        assert_eq!(drawn, [expected[workspace]], "round {round}");
    }
    assert_eq!(sequencer.close(Duration::from_secs(10)).await, Closed::Flushed);
    for (workspace, last) in expected.into_iter().enumerate() {
        let stored = stored_number(&ground.store, APP, workspace as u64, ORDERS).await;
        assert_eq!(stored, Some(last));
    }
}
