//! Combined callers: few swaps, nobody harmed by who leaves, and nothing kept of a sequence at rest.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::task::JoinHandle;
use wane::clock::SystemClock;
use wane::services::sequences::{Block, MAX_WAITING, Sequences, SequencesError};
use wane::store::{ObservedStore, Operation, Store, StoreError};

use super::{
    APP, Answer, assert_gapless, block, blocks, joined, key, settled, setup, spawned, stored_key,
};
use crate::gated::Gate;
use crate::inner_store;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn sixty_four_callers_at_once_cost_one_swap() {
    let it = setup();
    for round in 1..=3 {
        let calls: Vec<_> = (0..64).map(|_| spawned(&it.sequences, 1, None)).collect();
        let given = blocks(joined(calls).await);
        let first = (round - 1) * 64 + 1;
        assert_eq!(given, (first..first + 64).map(|number| block(number, 1)).collect::<Vec<_>>());
        assert_eq!(it.swaps(), round, "in the order in which they came");
    }
}

/// Callers on threads of their own that come back as soon as they are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_busy_callers_cost_far_fewer_swaps_than_calls() {
    const CALLS: u64 = 200;
    let clock = SystemClock::shared();
    let store = ObservedStore::new(inner_store(Arc::clone(&clock)), "mem", Arc::clone(&clock));
    let sequences = Sequences::new(store.clone(), clock).of(APP);
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let sequences = sequences.clone();
            tokio::spawn(async move {
                let mut given = Vec::new();
                for _ in 0..CALLS {
                    given.push(sequences.next("s", 1, None).await.unwrap());
                }
                assert!(given.is_sorted_by_key(|block| block.first), "they grow");
                given
            })
        })
        .collect();
    let mut given = Vec::new();
    for caller in callers {
        given.extend(caller.await.unwrap());
    }
    assert_gapless(given, 64 * CALLS + 1);
    let swaps = store.metrics().of(Operation::CompareAndSwap).timed();
    println!("{} calls, {swaps} swaps", 64 * CALLS);
    assert!(swaps * 8 < 64 * CALLS, "{swaps} swaps for {} calls", 64 * CALLS);
}

#[tokio::test]
async fn a_busy_sequence_is_read_once() {
    let it = setup();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let sequences = it.sequences.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    sequences.next("s", 1, None).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(it.reads(), 1);
    assert_eq!(it.sequences.show("s").await.unwrap(), Some(401));
}

#[tokio::test]
async fn who_leaves_the_line_takes_no_numbers_and_fails_nobody() {
    let it = setup();
    it.gate.set(Gate::HoldBefore);
    let sent = spawned(&it.sequences, 1, None);
    settled().await;
    let waiting: Vec<_> = (0..10).map(|_| spawned(&it.sequences, 1, None)).collect();
    settled().await;
    let (leave, stay): (Vec<_>, Vec<_>) =
        waiting.into_iter().enumerate().partition(|(place, _)| place % 2 == 0);
    for (_, call) in leave {
        call.abort();
    }
    settled().await;
    it.gate.set(Gate::Open);
    assert_eq!(blocks(joined([sent]).await), [block(1, 1)]);
    let stayed = blocks(joined(stay.into_iter().map(|(_, call)| call)).await);
    assert_eq!(stayed, (2..7).map(|number| block(number, 1)).collect::<Vec<_>>());
    assert_eq!(it.swaps(), 2);
}

#[tokio::test]
async fn who_leaves_a_swap_under_way_fails_nobody() {
    let it = setup();
    it.gate.set(Gate::HoldBefore);
    let calls: Vec<_> = (0..4).map(|_| spawned(&it.sequences, 1, None)).collect();
    settled().await;
    assert_eq!(it.swaps_in_flight(), 1);
    calls[0].abort();
    calls[2].abort();
    settled().await;
    it.gate.set(Gate::Open);
    assert_eq!(given_to(calls).await, [None, Some(block(2, 1)), None, Some(block(4, 1))]);
    assert_eq!(it.next(1).await, block(5, 1));
}

/// What the calls were given; nothing where they were given up.
async fn given_to(calls: Vec<JoinHandle<Answer>>) -> Vec<Option<Block>> {
    let mut given = Vec::new();
    for call in calls {
        given.push(call.await.ok().map(|answer| answer.expect("it answers")));
    }
    given
}

#[tokio::test]
async fn everyone_may_leave() {
    let it = setup();
    it.gate.set(Gate::HoldReads);
    let calls: Vec<_> = (0..4).map(|_| spawned(&it.sequences, 1, None)).collect();
    settled().await;
    calls.iter().for_each(JoinHandle::abort);
    it.gate.set(Gate::Open);
    settled().await;
    assert_eq!(it.all.at_work(), 0);
    it.next(1).await;
}

#[tokio::test]
async fn sequences_at_rest_have_neither_task_nor_line() {
    let it = setup();
    it.gate.set(Gate::HoldBefore);
    let calls: Vec<_> = (0..300)
        .map(|number: u64| {
            let sequences = it.sequences.clone();
            tokio::spawn(async move { sequences.next(&format!("s{number}"), 1, None).await })
        })
        .collect();
    settled().await;
    assert_eq!(it.all.at_work(), 300, "none waits for another");
    assert_eq!(it.swaps_in_flight(), 300);
    it.gate.set(Gate::Open);
    assert!(blocks(joined(calls).await).iter().all(|given| *given == block(1, 1)));
    settled().await;
    assert_eq!(it.all.at_work(), 0);
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 0);
}

#[tokio::test]
async fn with_the_last_handle_the_task_ends() {
    let it = setup();
    let (gate, observed) = (it.gate.clone(), it.below.clone());
    gate.set(Gate::HoldBefore);
    let call = spawned(&it.sequences, 1, None);
    settled().await;
    call.abort();
    settled().await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(alive(), 1, "a handle is left, and so is the swap under way");
    drop(it);
    settled().await;
    assert_eq!(alive(), 0);
    gate.set(Gate::Open);
    settled().await;
    assert_eq!(gate.inner.get(&stored_key("s")).await.unwrap(), None, "it was never sent");
    assert_eq!(observed.metrics().of(Operation::InsertIfNotExists).in_flight, 0);
}

#[tokio::test]
async fn a_full_line_is_busy_until_somebody_leaves() {
    let it = setup();
    it.gate.set(Gate::HoldBefore);
    let sent = spawned(&it.sequences, 1, None);
    settled().await;
    let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| spawned(&it.sequences, 1, None)).collect();
    settled().await;
    for count in [1, 2] {
        let busy = it.sequences.next("s", count, None).await.unwrap_err();
        assert!(matches!(busy, SequencesError::Busy), "{busy:?}");
        assert!(busy.to_string().contains("try again after a pause"), "{busy}");
    }
    waiting.swap_remove(5).abort();
    settled().await;
    let late = spawned(&it.sequences, 1, Some(key("late")));
    settled().await;
    assert!(!late.is_finished(), "it has the place");
    it.gate.set(Gate::Open);
    let given = blocks(joined([sent, late].into_iter().chain(waiting)).await);
    assert_eq!(given.len(), MAX_WAITING + 1);
    assert_gapless(given, MAX_WAITING as u64 + 2);
    assert_eq!(it.swaps(), 2);
}

/// The first caller's runtime runs the task. Shut down, it must not leave callers of others waiting.
#[test]
fn a_task_that_is_ended_tells_those_who_wait() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_time().build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let it = setup();
    it.gate.set(Gate::HoldBefore);
    let sequences = it.sequences.clone();
    first.spawn(async move { sequences.next("s", 1, None).await });
    wait_until(|| it.swaps_in_flight() == 1);
    let mut waiting = Box::pin(it.sequences.next("s", 1, None));
    let joins = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(joins.is_pending(), "in the line of the first one's task");
    first.shutdown_timeout(MINUTE);
    let told = second.block_on(async { tokio::time::timeout(MINUTE, waiting).await });
    let error = told.expect("it is told").unwrap_err();
    assert!(matches!(error, SequencesError::Store(StoreError::Unknown { .. })), "{error:?}");
    it.gate.set(Gate::Open);
    let given = second.block_on(it.sequences.next("s", 1, None)).unwrap();
    assert_eq!(given, block(1, 1), "another task serves those who come after");
}

fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}
