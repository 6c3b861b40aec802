//! Legal holds: what is under one stays, what is let go has its old end back, whatever dies in between.

use std::ops::Range;

use super::tripped::{Trip, Tripped};
use super::*;
use wane::services::pull_stream::{Action, Chain, Hold, HoldState, Policy, Verdict};
use wane::store::{
    Faults, FaultyStore, Key, Keyspace, Life, PageLimit, Timestamp, Ttl, Value, Write,
};

/// How long messages live here.
const RETENTION: u64 = 3_600;

/// A log of ten rows, one every ten seconds, and when each came in.
async fn log<S: Store>(setup: &Setup, node: &PullStream<S>) -> Vec<Timestamp> {
    let policy = Policy {
        retention: Ttl::from_secs(RETENTION).expect("nothing fails here"),
        max_readers: 6,
    };
    node.set_policy(ispb(), policy, &Client::default()).await.expect("nothing fails here");
    let mut times = Vec::new();
    for number in 0..10 {
        times.push(setup.machine.clock().now());
        node.ingest(ispb(), batch([number])).await.expect("nothing fails here");
        true_sleep(SECOND * 10).await;
        setup.store_clock.advance(SECOND * 10);
    }
    times
}

/// The times of some of these rows, and of no others.
fn of(times: &[Timestamp], rows: Range<usize>) -> Range<Timestamp> {
    let later = |at: &Timestamp| Timestamp::from_unix_millis(at.as_unix_millis() + 5_000);
    times[rows.start]..later(&times[rows.end - 1])
}

/// What is in the store: rows of the log with and without an end, and what holds keep beside them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kept {
    ending: Vec<u64>,
    endless: Vec<u64>,
    marks: usize,
}

async fn kept(setup: &Setup) -> Kept {
    let mut kept = Kept::default();
    let mut next = None;
    loop {
        let page = setup.store.scan(next, PageLimit::MAX).await.expect("nothing fails here");
        for row in page.rows {
            let clustering = row.key.clustering();
            let number = <[u8; 8]>::try_from(clustering).map(u64::from_be_bytes);
            match (Keyspace::of(row.key.partition()), number) {
                (Some(Keyspace::PullStreamLog), Ok(number)) => match row.record.expires_at {
                    Some(_) => kept.ending.push(number),
                    None => kept.endless.push(number),
                },
                // Others there have names instead of numbers.
                (Some(Keyspace::PullStreamState), Ok(0..10)) => kept.marks += 1,
                _ => {}
            }
        }
        next = page.next;
        if next.is_none() {
            kept.ending.sort_unstable();
            kept.endless.sort_unstable();
            return kept;
        }
    }
}

fn rows(rows: Range<u64>) -> Vec<u64> {
    rows.collect()
}

async fn hold<S: Store>(node: &PullStream<S>, times: Range<Timestamp>) -> Hold {
    node.hold(ispb(), times, "case 17", &Client::default()).await.expect("nothing fails here")
}

#[tokio::test(start_paused = true)]
async fn what_is_held_outlives_its_retention_and_goes_when_it_is_let_go() {
    let setup = setup();
    let node = setup.node();
    let times = log(&setup, &node).await;
    let held = hold(&node, of(&times, 3..6)).await;
    assert_eq!(held.rows, 3);
    setup.store_clock.advance(SECOND * 2 * RETENTION as u32);
    let stays = Kept { endless: rows(3..6), marks: 3, ..Kept::default() };
    assert_eq!(kept(&setup).await, stays, "the others are gone");
    let other = setup.node();
    assert_eq!(
        other.keep_holds().await.expect("nothing fails here"),
        1,
        "it was not settled: its time is just over"
    );
    true_sleep(SECOND * 120).await;
    other.keep_holds().await.expect("nothing fails here");
    let placed = other.holds(ispb()).await.expect("nothing fails here");
    assert_eq!((&placed[0].id, placed[0].state), (&held.id, HoldState::Placed));
    assert_eq!(other.keep_holds().await.expect("nothing fails here"), 0);
    other.release(&held.id, &Client::default()).await.expect("nothing fails here");
    assert_eq!(kept(&setup).await, Kept::default());
    assert_eq!(node.holds(ispb()).await.expect("nothing fails here"), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_let_go_early_has_what_is_left_of_its_retention() {
    let setup = setup();
    let node = setup.node();
    let times = log(&setup, &node).await;
    let held = hold(&node, of(&times, 0..10)).await;
    setup.store_clock.advance(SECOND * 1_000);
    node.release(&held.id, &Client::default()).await.expect("nothing fails here");
    assert_eq!(kept(&setup).await, Kept { ending: rows(0..10), ..Kept::default() });
    // Row 0 came in 1,100 s ago, row 9 1,010 s ago.
    setup.store_clock.advance(SECOND * (RETENTION as u32 - 1_051));
    assert_eq!(kept(&setup).await.ending, rows(5..10));
    setup.store_clock.advance(SECOND * 50);
    assert_eq!(kept(&setup).await, Kept::default());
}

#[tokio::test(start_paused = true)]
async fn a_row_under_several_holds_goes_with_the_last_of_them() {
    for first_to_go in [0, 1] {
        let setup = setup();
        let node = setup.node();
        let times = log(&setup, &node).await;
        let holds = [hold(&node, of(&times, 0..6)).await, hold(&node, of(&times, 4..10)).await];
        setup.store_clock.advance(SECOND * 2 * RETENTION as u32);
        node.release(&holds[first_to_go].id, &Client::default()).await.expect("nothing fails here");
        let left = if first_to_go == 0 { rows(4..10) } else { rows(0..6) };
        let marks = left.len();
        assert_eq!(kept(&setup).await, Kept { endless: left, marks, ..Kept::default() });
        node.release(&holds[1 - first_to_go].id, &Client::default())
            .await
            .expect("nothing fails here");
        assert_eq!(kept(&setup).await, Kept::default());
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_in_later_is_held_if_the_hold_covers_it() {
    let setup = setup();
    let node = setup.node();
    let times = log(&setup, &node).await;
    let to = Timestamp::from_unix_millis(times[9].as_unix_millis() + 600_000);
    let held = hold(&node, times[5]..to).await;
    assert_eq!((held.rows, held.state), (5, HoldState::Placing));
    for number in 10..20 {
        node.ingest(ispb(), batch([number])).await.expect("nothing fails here");
    }
    let other = setup.node();
    other.keep_holds().await.expect("nothing fails here");
    assert_eq!(other.holds(ispb()).await.expect("nothing fails here")[0].rows, 15);
    true_sleep(SECOND * 700).await;
    node.ingest(ispb(), batch([20])).await.expect("nothing fails here");
    other.keep_holds().await.expect("nothing fails here");
    let settled = other.holds(ispb()).await.expect("nothing fails here");
    assert_eq!((settled[0].rows, settled[0].state), (15, HoldState::Placed));
    setup.store_clock.advance(SECOND * 2 * RETENTION as u32);
    assert_eq!(kept(&setup).await.endless, rows(5..20));
}

/// Readers notice nothing: the bytes are the same, and the retry of a batch is answered.
#[tokio::test(start_paused = true)]
async fn a_hold_changes_nothing_for_readers() {
    let setup = setup();
    let node = setup.node();
    let times = log(&setup, &node).await;
    let first = node.start(ispb(), &many()).await.expect("nothing fails here");
    let second = node.next(ispb(), &first.next, &many()).await.expect("nothing fails here");
    let held = hold(&node, of(&times, 0..10)).await;
    assert_eq!(node.next(ispb(), &first.next, &many()).await.expect("nothing fails here"), second);
    node.release(&held.id, &Client::default()).await.expect("nothing fails here");
    assert_eq!(
        setup.node().next(ispb(), &first.next, &many()).await.expect("nothing fails here"),
        second
    );
}

/// Whatever call of a placing or a releasing fails, is lost or never returns: who comes after completes
/// it, and the rows are as if nothing had been.
#[tokio::test(start_paused = true)]
async fn what_somebody_left_is_completed() {
    let mut reached_end = 0;
    for at in 0..200 {
        let trips = [
            Trip::Hangs { at, after: false },
            Trip::Hangs { at, after: true },
            Trip::LosesAnswer(at),
            Trip::LosesRequest(at),
            Trip::Fails(at),
        ];
        for trip in trips {
            reached_end += usize::from(completes(trip).await);
        }
        if reached_end >= trips.len() * 2 {
            return;
        }
    }
    panic!("a hold of ten rows takes 200 calls");
}

/// Whether the trip came too late to matter.
async fn completes(trip: Trip) -> bool {
    let setup = setup();
    let store = Tripped::new(setup.store.clone());
    let node = setup.node_over(store.clone(), PullStreamSettings::default());
    let times = log(&setup, &node).await;
    let standing = hold(&node, of(&times, 0..4)).await;
    true_sleep(SECOND * 5).await;

    store.set(trip);
    let placed =
        within_a_minute(node.hold(ispb(), of(&times, 2..8), "x", &Client::default())).await;
    let calls = store.calls();
    store.set(Trip::Nothing);
    let other = setup.node();
    other.keep_holds().await.expect("nothing fails here");
    let holds = other.holds(ispb()).await.expect("nothing fails here");
    let second = holds.iter().find(|hold| hold.id != standing.id).cloned();
    let expected = if second.is_some() { rows(0..8) } else { rows(0..4) };
    assert_eq!(kept(&setup).await.endless, expected, "{trip:?}");
    assert!(second.as_ref().is_none_or(|hold| hold.rows == 6), "{trip:?}: {second:?}");
    assert!(second.is_some() || !matches!(placed, Some(Ok(_))), "{trip:?}");

    let third = hold(&other, of(&times, 2..8)).await;
    store.set(trip);
    let released = within_a_minute(node.release(&third.id, &Client::default())).await;
    store.set(Trip::Nothing);
    other.keep_holds().await.expect("nothing fails here");
    let is_there = other
        .holds(ispb())
        .await
        .expect("nothing fails here")
        .iter()
        .any(|hold| hold.id == third.id);
    assert!(!is_there || !matches!(released, Some(Ok(()))), "{trip:?}");
    if is_there {
        // It was not begun.
        other.release(&third.id, &Client::default()).await.expect("nothing fails here");
    }
    assert_eq!(kept(&setup).await.endless, expected, "{trip:?}");
    for hold in other.holds(ispb()).await.expect("nothing fails here") {
        other.release(&hold.id, &Client::default()).await.expect("nothing fails here");
    }
    assert_eq!(kept(&setup).await, Kept { ending: rows(0..10), ..Kept::default() }, "{trip:?}");
    let at = match trip {
        Trip::Hangs { at, .. }
        | Trip::LosesAnswer(at)
        | Trip::LosesRequest(at)
        | Trip::Fails(at) => at,
        Trip::Nothing | Trip::CarelessSwap => 0,
    };
    calls < at
}

async fn within_a_minute<T>(call: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = call => Some(done),
        () = true_sleep(SECOND * 60) => None,
    }
}

/// Operators who place and release at once, over a store that is slow, loses answers and applies some
/// writes late: what is left under a hold stays, and all else ends.
#[tokio::test(start_paused = true)]
async fn operators_may_place_and_release_at_once() {
    let faults = Faults {
        lost_answer: 0.05,
        lost_request: 0.02,
        late: 0.03,
        delay: 0.5,
        longest_delay: SECOND / 10,
        ..Faults::NONE
    };
    for seed in 0..300 {
        let setup = setup();
        let store =
            FaultyStore::new(setup.store.clone(), Faults::NONE, seed, setup.machine.clock());
        let node = || setup.node_over(store.clone(), PullStreamSettings::default());
        let nodes = [node(), node(), node()];
        let times = log(&setup, &nodes[0]).await;
        let old =
            [hold(&nodes[0], of(&times, 0..7)).await, hold(&nodes[1], of(&times, 3..10)).await];
        store.set_faults(faults);
        let who = Client::default();
        let (first, second, new) = tokio::join!(
            nodes[0].release(&old[0].id, &who),
            nodes[1].release(&old[1].id, &who),
            nodes[2].hold(ispb(), of(&times, 2..5), "case 18", &who),
        );
        store.set_faults(Faults::NONE);
        true_sleep(SECOND).await;
        for (released, hold) in [(first, &old[0]), (second, &old[1])] {
            if released.is_err() {
                // It was told that it may not be done, and an operator would ask again.
                drop(nodes[0].release(&hold.id, &who).await);
            }
        }
        nodes[0].keep_holds().await.expect("nothing fails here");
        let left = nodes[0].holds(ispb()).await.expect("nothing fails here");
        assert!(left.iter().all(|hold| hold.reason == "case 18"), "seed {seed}: {left:?}");
        assert!(new.is_err() || left.len() == 1, "seed {seed}: {new:?}");
        let held = if left.is_empty() { vec![] } else { rows(2..5) };
        let kept = kept(&setup).await;
        assert_eq!((kept.endless, kept.marks), (held.clone(), held.len()), "seed {seed}: {new:?}");
    }
}

/// The control: where a release swaps without looking, it takes other holds off rows, and it shows.
#[tokio::test(start_paused = true)]
async fn with_careless_swaps_holds_go_wrong() {
    let setup = setup();
    let store = Tripped::new(setup.store.clone());
    let careless = setup.node_over(store.clone(), PullStreamSettings::default());
    let node = setup.node();
    let times = log(&setup, &node).await;
    let (mut wrong, who) = (0, Client::default());
    for turns in 0..60 {
        let old = hold(&node, of(&times, 0..10)).await;
        store.set(Trip::CarelessSwap);
        let placing = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            hold(&node, of(&times, 0..10)).await
        };
        let (released, _) = tokio::join!(careless.release(&old.id, &who), placing);
        store.set(Trip::Nothing);
        wrong += usize::from(released.is_err() || kept(&setup).await.endless != rows(0..10));
        for hold in node.holds(ispb()).await.expect("nothing fails here") {
            node.release(&hold.id, &who).await.expect("nothing fails here");
        }
    }
    assert!(wrong > 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_wrongly_is_refused_and_noted_and_changes_nothing() {
    let setup = setup();
    let node = setup.node();
    let times = log(&setup, &node).await;
    let before = kept(&setup).await;
    let who = Client::new("operator").expect("nothing fails here");
    let inverted = times[5]..times[2];
    let empty = times[5]..times[5];
    for (times, reason, field) in [
        (inverted, "case 17", "to"),
        (empty, "case 17", "to"),
        (of(&times, 0..2), "", "reason"),
        (of(&times, 0..2), "  ", "reason"),
        (of(&times, 0..2), "a\nb", "reason"),
        (of(&times, 0..2), &"x".repeat(513), "reason"),
    ] {
        match node.hold(ispb(), times, reason, &who).await {
            Err(PullStreamError::Invalid { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{reason:?}: {other:?}"),
        }
    }
    let unknown = "00000208-0123456789abcdef".parse().expect("nothing fails here");
    let absent = node.release(&unknown, &who).await;
    assert!(matches!(absent, Err(PullStreamError::Absent { .. })), "{absent:?}");
    assert_eq!(kept(&setup).await, before);
    let held = hold(&node, of(&times, 0..2)).await;
    node.release(&held.id, &who).await.expect("nothing fails here");
    let entries = node.audit(ispb(), Chain::Remarks, 0).await.expect("nothing fails here").entries;
    let told: Vec<_> = entries
        .iter()
        .filter(|entry| matches!(entry.action, Action::Hold | Action::Release))
        .map(|entry| (entry.action, entry.verdict))
        .collect();
    let mut expected = vec![(Action::Hold, Verdict::Invalid); 6];
    expected.push((Action::Release, Verdict::Absent));
    expected.push((Action::Hold, Verdict::Done));
    expected.push((Action::Release, Verdict::Done));
    assert_eq!(told, expected);
    let about = |back: usize| entries[entries.len() - back].reason.clone().unwrap_or_default();
    let times = format!("{}..{}", held.from, held.to);
    assert_eq!(about(2), format!("{}, {times}: case 17", held.id));
    assert_eq!(about(1), held.id.to_string());
}

/// One hold that cannot be kept does not keep others from being kept.
#[tokio::test(start_paused = true)]
async fn a_damaged_hold_is_told_of_after_the_others_were_kept() {
    let setup = setup();
    let node = setup.node();
    let times = log(&setup, &node).await;
    let far = Timestamp::from_unix_millis(times[9].as_unix_millis() + 600_000);
    let first = hold(&node, times[0]..far).await;
    let page = setup.store.scan(None, PageLimit::MAX).await.expect("nothing fails here");
    let is_hold = |row: &&wane::store::Row| row.key.clustering() == first.id.to_string().as_bytes();
    let found = page.rows.iter().find(is_hold).expect("it is there");
    let before = [&b"00000000"[..], &found.key.clustering()[8..]].concat();
    let damaged = Key::new(found.key.partition(), &before).expect("within the limits");
    let write = Write::new(Value::new(&b"{"[..]).expect("short"), Life::Permanent);
    drop(setup.store.put(&damaged, write).await.expect("nothing fails here"));
    node.ingest(ispb(), batch([10])).await.expect("nothing fails here");
    let kept = node.keep_holds().await;
    assert!(matches!(kept, Err(PullStreamError::Store(_))), "{kept:?}");
    assert_eq!(node.holds(ispb()).await.expect("nothing fails here")[0].rows, 11);
}

/// A node that was placing a hold slept while it was released: what it put under it is let go.
#[tokio::test(start_paused = true)]
async fn what_was_put_under_a_hold_after_its_release_is_let_go() {
    let setup = setup();
    let store = Tripped::new(setup.store.clone());
    let (node, sleepy) = (setup.node(), setup.node_over(store.clone(), Default::default()));
    let times = log(&setup, &node).await;
    let far = Timestamp::from_unix_millis(times[9].as_unix_millis() + 600_000);
    let held = hold(&node, times[0]..far).await;
    node.ingest(ispb(), batch([10])).await.expect("nothing fails here");
    let mut at = 0;
    // Every moment at which it may fall asleep for good, having read that the hold is placed.
    loop {
        store.set(Trip::Hangs { at, after: false });
        let done = within_a_minute(sleepy.keep_holds()).await;
        store.set(Trip::Nothing);
        if done.is_some() {
            break;
        }
        at += 1;
    }
    assert!(at > 5);
    node.release(&held.id, &Client::default()).await.expect("nothing fails here");
    assert_eq!(node.holds(ispb()).await.expect("nothing fails here"), []);
    true_sleep(SECOND * 200).await;
    node.keep_holds().await.expect("nothing fails here");
    assert_eq!(kept(&setup).await.endless, rows(0..0));
    assert_eq!(node.keep_holds().await.expect("nothing fails here"), 0, "it is forgotten");
}

/// A trap: a damaged mark was taken for none, and the row's end was forgotten.
#[tokio::test(start_paused = true)]
async fn a_damaged_mark_is_an_error() {
    let setup = setup();
    let node = setup.node();
    let times = log(&setup, &node).await;
    let held = hold(&node, of(&times, 0..1)).await;
    let page = setup.store.scan(None, PageLimit::MAX).await.expect("nothing fails here");
    let is_mark = |row: &&wane::store::Row| {
        Keyspace::of(row.key.partition()) == Some(Keyspace::PullStreamState)
            && *row.key.clustering() == 0_u64.to_be_bytes()
    };
    let mark = page.rows.iter().find(is_mark).expect("nothing fails here");
    let damaged = Write::new(Value::new(&b"{"[..]).expect("nothing fails here"), Life::Permanent);
    drop(setup.store.put(&mark.key, damaged).await.expect("nothing fails here"));
    let released = node.release(&held.id, &Client::default()).await;
    assert!(matches!(released, Err(PullStreamError::Store(_))), "{released:?}");
    assert_eq!(kept(&setup).await.endless, rows(0..1));
}
