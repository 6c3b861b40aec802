//! What reaches the store: which records, in which order, how many at once.

use std::time::Duration;

use wane::services::sequencer::{Closed, Offset};
use wane::store::{Keyspace, Life, Store, Value, Write};

use super::journal::JournalStore;
use super::{
    APP, BILLS, Dice, FIRST_BILL, ORDERS, ground, ground_over, let_run, number_key, offset_key,
    started, stored_number, stored_offset, until,
};
use crate::gated::{Gate, GatedStore};

const NUMBERS: Keyspace = Keyspace::SequencerNumbers;
const OFFSETS: Keyspace = Keyspace::SequencerOffsets;
const SOON: Duration = Duration::from_secs(1);

/// The helpers of these tests spell the keys out byte by byte.
#[tokio::test]
async fn records_are_laid_out_as_the_table_of_keyspaces_says() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    ground.write_event(&mut sequencer, 0x0102, &[ORDERS, BILLS, ORDERS]).await;
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed);
    assert_eq!(stored_offset(&ground.store, APP).await, Some(2), "all below are stored");
    assert_eq!(stored_number(&ground.store, APP, 0x0102, ORDERS).await, Some(2));
    assert_eq!(stored_number(&ground.store, APP, 0x0102, BILLS).await, Some(FIRST_BILL));
}

#[tokio::test]
async fn numbers_are_stored_before_the_offset() {
    let ground = ground_over(|store| JournalStore::new(giving_way(store)));
    let mut sequencer = ground.ready().await;
    for workspace in 1..=40 {
        ground.write_event(&mut sequencer, workspace, &[ORDERS]).await;
    }
    let monitor = sequencer.monitor();
    until("all is stored", || monitor.status().covered == Offset(41)).await;
    let journal = ground.store.take();
    let mut stored = 0;
    for (keyspace, number) in &journal {
        if *keyspace == NUMBERS {
            stored += 1;
        } else {
            assert!(*number <= stored + 1, "offset {number} after {stored} numbers");
        }
    }
    assert_eq!(journal.last(), Some(&(OFFSETS, 41)));
    assert_eq!(stored, 40, "each once");
}

#[tokio::test]
async fn numbers_are_written_side_by_side_within_the_bound() {
    let mut ground = ground_over(|store| JournalStore::new(giving_way(store)));
    ground.settings.concurrency = 5;
    ground.settings.gather = Duration::from_secs(3_600);
    let mut sequencer = ground.ready().await;
    for workspace in 1..=40 {
        ground.write_event(&mut sequencer, workspace, &[ORDERS]).await;
    }
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed);
    assert_eq!(ground.store.most_under_way(), 5);
}

#[tokio::test]
async fn transactions_that_come_together_are_written_together() {
    let mut ground = ground_over(JournalStore::new);
    ground.settings.gather = Duration::from_millis(10);
    let mut sequencer = ground.ready().await;
    for _ in 0..100 {
        ground.write_event(&mut sequencer, 1, &[ORDERS]).await;
        let_run().await;
    }
    assert_eq!(ground.store.take(), [], "the time has not come");
    ground.clock.advance(Duration::from_millis(10));
    let_run().await;
    assert_eq!(ground.store.take(), [(NUMBERS, 100), (OFFSETS, 101)]);
}

#[tokio::test]
async fn gathering_ends_when_somebody_waits() {
    let mut ground = ground_over(JournalStore::new);
    ground.settings.gather = Duration::from_secs(3_600);
    ground.settings.max_unflushed = 3;
    let mut sequencer = ground.ready().await;
    for workspace in 1..=3 {
        assert_eq!(ground.store.take(), []);
        ground.write_event(&mut sequencer, workspace, &[ORDERS]).await;
        let_run().await;
    }
    assert_eq!(ground.store.take().last(), Some(&(OFFSETS, 4)), "the next start would be busy");
    ground.write_event(&mut sequencer, 4, &[ORDERS]).await;
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed, "closing does not wait for more");
    assert_eq!(ground.store.take(), [(NUMBERS, 1), (OFFSETS, 5)]);
}

#[tokio::test]
async fn events_without_numbers_move_the_offset() {
    let ground = ground_over(JournalStore::new);
    let mut sequencer = ground.ready().await;
    ground.write_event(&mut sequencer, 1, &[]).await;
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed);
    assert_eq!(ground.store.take(), [(OFFSETS, 2)]);
}

/// Another sequencer may have been faster, or slower.
#[tokio::test]
async fn records_only_grow() {
    let ground = ground_over(JournalStore::new);
    let mut sequencer = ground.ready().await;
    let higher = |number: u64| {
        Write::new(Value::copy_from_slice(&number.to_be_bytes()).unwrap(), Life::Permanent)
    };
    let drawn = ground.write_event(&mut sequencer, 1, &[ORDERS, BILLS]).await;
    assert_eq!(drawn, [1, FIRST_BILL]);
    let orders = number_key(APP, 1, ORDERS);
    let bills = number_key(APP, 1, BILLS);
    let offset = offset_key(APP);
    for (key, number) in [(&orders, 70), (&bills, 7), (&offset, 70)] {
        assert!(ground.store.put(key, higher(number)).await.unwrap().is_applied());
    }
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed);
    assert_eq!(stored_number(&ground.store, APP, 1, ORDERS).await, Some(70), "left");
    assert_eq!(stored_number(&ground.store, APP, 1, BILLS).await, Some(FIRST_BILL), "raised");
    assert_eq!(stored_offset(&ground.store, APP).await, Some(70), "left");
    assert_eq!(ground.store.take(), [(NUMBERS, FIRST_BILL)], "nothing else was written");
}

/// A cache of one entry loses nearly everything at once, while nothing reaches the store.
#[tokio::test]
async fn numbers_that_wait_for_the_store_are_not_lost_with_the_cache() {
    let mut ground = ground_over(GatedStore::new);
    ground.settings.cache_size = 1;
    let mut sequencer = ground.ready().await;
    ground.store.set(Gate::HoldBefore);
    for round in 1..=3 {
        for workspace in 1..=50 {
            let drawn = ground.write_event(&mut sequencer, workspace, &[ORDERS]).await;
            assert_eq!(drawn, [round], "workspace {workspace}");
        }
    }
    ground.store.set(Gate::Open);
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed);
    for workspace in 1..=50 {
        assert_eq!(stored_number(&ground.store, APP, workspace, ORDERS).await, Some(3));
    }
}

#[tokio::test]
async fn numbers_go_on_wherever_they_are_found() {
    let dice = Dice::seeded(1);
    let mut ground = ground_over(giving_way);
    ground.settings.cache_size = 8;
    let mut sequencer = ground.ready().await;
    let mut expected = [0_u64; 40];
    for _ in 0..2_000 {
        let workspace = dice.roll(40);
        sequencer.ready().await.unwrap();
        let drawn = ground.write_event(&mut sequencer, workspace, &[ORDERS]).await;
        expected[workspace as usize] += 1;
        assert_eq!(drawn, [expected[workspace as usize]], "workspace {workspace}");
        for _ in 0..dice.roll(6) {
            tokio::task::yield_now().await;
        }
    }
    started(&mut sequencer, 1);
    assert_eq!(sequencer.close(SOON).await, Closed::Flushed, "an open transaction is dropped");
    assert_eq!(stored_offset(&ground.store, APP).await, Some(2_001));
}

/// A store whose calls take several steps.
fn giving_way<S: Store>(store: S) -> GatedStore<S> {
    let gated = GatedStore::new(store);
    gated.set(Gate::GiveWay);
    gated
}
