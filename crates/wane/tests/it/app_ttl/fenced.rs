//! Fenced writes: a leader's entries are out of reach of the leaders before it, for as long as they
//! are there.

use std::time::Duration;

use wane::services::ClusterAppId;
use wane::services::app_ttl::{AppTtl, AppTtlError, AppTtlStorage, Quota, Renewal};
use wane::store::{Fence, Key, Keyspace, ObservedStore, Operation, Outcome, Store};

use super::{MINUTE, inner_store, manual_clock};
use crate::InnerStore;
use crate::gated::{Gate, GatedStore};

const APP: ClusterAppId = ClusterAppId(7);

/// Each way to write an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Insert,
    Swap,
    SwapWrong,
    Set,
    Touch,
    Delete,
    DeleteExpected,
    DeleteWrong,
}

impl Way {
    const ALL: [Self; 8] = [
        Self::Insert,
        Self::Swap,
        Self::SwapWrong,
        Self::Set,
        Self::Touch,
        Self::Delete,
        Self::DeleteExpected,
        Self::DeleteWrong,
    ];

    /// Those whose condition holds for an entry `k` with the value `v`.
    const APPLICABLE: [Self; 5] =
        [Self::Swap, Self::Set, Self::Touch, Self::Delete, Self::DeleteExpected];

    /// Writes the entry `k`, whose value is taken to be `v`; says whether that was applied.
    async fn write<S: Store>(self, storage: &AppTtlStorage<S>) -> Result<bool, AppTtlError> {
        let swap = Renewal::For(MINUTE);
        let outcome = match self {
            Self::Insert => storage.insert_if_not_exists("k", "v", MINUTE).await,
            Self::Swap => storage.compare_and_swap("k", "v", "v", swap).await,
            Self::SwapWrong => storage.compare_and_swap("k", "wrong", "v", swap).await,
            Self::Set => storage.set("k", "v", MINUTE).await,
            Self::Touch => storage.touch("k", MINUTE).await,
            Self::Delete => return storage.delete("k").await,
            Self::DeleteExpected => storage.compare_and_delete("k", "v").await,
            Self::DeleteWrong => storage.compare_and_delete("k", "wrong").await,
        };
        outcome.map(|outcome| outcome.is_applied())
    }
}

/// The stamp of the entry `k`.
async fn stamp(store: &impl Store) -> Option<Fence> {
    let partition = Keyspace::AppTtl.partition(&APP.0.to_be_bytes()).expect("short enough");
    let key = Key::new(partition.as_bytes(), b"k").expect("short enough");
    store.get(&key).await.expect("it answers").map(|record| record.fence)
}

fn assert_fenced<T: std::fmt::Debug>(
    result: Result<T, AppTtlError>,
    (ours, theirs): (u64, u64),
    what: &str,
) {
    let error = result.expect_err(what);
    let AppTtlError::Fenced { fence, newer } = error else { panic!("{what}: {error:?}") };
    assert_eq!((fence, newer), (Fence(ours), Fence(theirs)), "{what}");
}

/// A storage without a fence, and the store below it.
fn setup() -> (AppTtlStorage<InnerStore>, InnerStore) {
    let (_, clock) = manual_clock();
    let store = inner_store(clock.clone());
    (AppTtl::new(store.clone(), clock).of(APP, Quota::default()), store)
}

#[tokio::test]
async fn every_write_that_leaves_an_entry_stamps_it() {
    for way in [Way::Insert, Way::Swap, Way::Set, Way::Touch] {
        let (storage, store) = setup();
        if way != Way::Insert {
            assert!(Way::Insert.write(&storage).await.unwrap());
            assert_eq!(stamp(&store).await, Some(Fence::NONE));
        }
        assert!(way.write(&storage.fenced(Fence(5))).await.unwrap(), "{way:?}");
        assert_eq!(stamp(&store).await, Some(Fence(5)), "{way:?}");
    }
}

/// Also where the write would be refused anyway: whoever is told "refused" may go on, and a leader
/// that has a successor must not.
#[tokio::test]
async fn a_lower_fence_is_told_so_whatever_else_stands_in_the_way() {
    let (storage, store) = setup();
    assert!(Way::Set.write(&storage.fenced(Fence(5))).await.unwrap());
    for way in Way::ALL {
        assert_fenced(way.write(&storage.fenced(Fence(4))).await, (4, 5), &format!("{way:?}"));
    }
    assert_eq!(stamp(&store).await, Some(Fence(5)));
    let error = storage.fenced(Fence(4)).delete("k").await.unwrap_err();
    assert!(error.to_string().contains("stop"), "it says what to do: {error}");
}

#[tokio::test]
async fn a_lower_fence_is_told_before_a_full_quota() {
    let (_, clock) = manual_clock();
    let all = AppTtl::new(inner_store(clock.clone()), clock);
    let quota = Quota { keys: None, bytes: Some(2) };
    let storage = all.of(APP, quota);
    assert!(Way::Set.write(&storage.fenced(Fence(5))).await.unwrap());
    let longer = storage.fenced(Fence(4)).set("k", "longer", MINUTE).await;
    assert_fenced(longer, (4, 5), "set");
    let longer = storage.fenced(Fence(5)).set("k", "longer", MINUTE).await.unwrap_err();
    assert!(matches!(longer, AppTtlError::OverQuota { .. }), "{longer}");
}

#[tokio::test]
async fn equal_and_higher_fences_pass() {
    for way in Way::APPLICABLE {
        for fence in [5, 6] {
            let (storage, store) = setup();
            assert!(Way::Set.write(&storage.fenced(Fence(5))).await.unwrap());
            assert!(way.write(&storage.fenced(Fence(fence))).await.unwrap(), "{way:?} at {fence}");
            let deletes = matches!(way, Way::Delete | Way::DeleteExpected);
            assert_eq!(stamp(&store).await, (!deletes).then_some(Fence(fence)), "{way:?}");
        }
    }
}

#[tokio::test]
async fn a_condition_that_does_not_hold_is_a_plain_refusal_at_an_equal_fence() {
    let (storage, _) = setup();
    let storage = storage.fenced(Fence(5));
    assert!(Way::Set.write(&storage).await.unwrap());
    for way in [Way::Insert, Way::SwapWrong, Way::DeleteWrong] {
        assert!(!way.write(&storage).await.unwrap(), "{way:?}");
    }
    assert_eq!(
        storage.touch("absent", MINUTE).await.unwrap(),
        Outcome::Refused { current: None },
        "an absent entry has no stamp"
    );
}

#[tokio::test]
async fn writes_without_a_fence_pass_any_stamp_and_leave_it() {
    for way in Way::APPLICABLE {
        let (storage, store) = setup();
        assert!(Way::Set.write(&storage.fenced(Fence(5))).await.unwrap());
        assert!(way.write(&storage).await.unwrap(), "{way:?}");
        let deletes = matches!(way, Way::Delete | Way::DeleteExpected);
        assert_eq!(stamp(&store).await, (!deletes).then_some(Fence(5)), "{way:?}");
    }
}

#[tokio::test]
async fn reads_are_not_fenced() {
    let (storage, _) = setup();
    assert!(Way::Set.write(&storage.fenced(Fence(5))).await.unwrap());
    let late = storage.fenced(Fence(4));
    assert_eq!(*late.ttl_get("k").await.unwrap().expect("just set").value, *b"v");
    assert!(late.query_ttl("k").await.is_ok());
}

#[tokio::test]
async fn a_bucket_of_a_fenced_storage_is_fenced() {
    let (storage, _) = setup();
    let (late, newer) = (storage.fenced(Fence(4)), storage.fenced(Fence(5)));
    let inserted = newer.bucket("b").insert_if_not_exists("k", "v", MINUTE).await.unwrap();
    assert!(inserted.is_applied());
    let bucket = late.bucket("b");
    assert_fenced(bucket.insert_if_not_exists("k", "v", MINUTE).await, (4, 5), "insert");
    assert_fenced(bucket.compare_and_swap("k", "v", "w", Renewal::Keep).await, (4, 5), "swap");
    assert_fenced(bucket.compare_and_delete("k", "v").await, (4, 5), "delete");
}

/// What a guarded write leaves open, as the documentation says.
#[tokio::test]
async fn a_deleted_or_expired_entry_has_no_stamp_any_more() {
    let (hand, clock) = manual_clock();
    let store = inner_store(clock.clone());
    let storage = AppTtl::new(store.clone(), clock).of(APP, Quota::default());
    let (late, newer) = (storage.fenced(Fence(4)), storage.fenced(Fence(5)));
    assert!(Way::Set.write(&newer).await.unwrap());
    assert!(newer.delete("k").await.unwrap());
    assert!(Way::Insert.write(&late).await.unwrap(), "deleted by the later leader");
    assert_eq!(stamp(&store).await, Some(Fence(4)));

    assert!(newer.set("k", "v", Duration::from_millis(10)).await.unwrap().is_applied());
    hand.advance(Duration::from_millis(9));
    assert_fenced(Way::Set.write(&late).await, (4, 5), "the last millisecond");
    hand.advance(Duration::from_millis(1));
    assert!(Way::Set.write(&late).await.unwrap(), "expired");
}

type Gated = GatedStore<ObservedStore<InnerStore>>;

/// The storage of a stalled leader behind a gate, and the one of its successor.
fn stalled_and_successor() -> (Gated, AppTtlStorage<Gated>, AppTtlStorage<InnerStore>) {
    let (_, clock) = manual_clock();
    let below = inner_store(clock.clone());
    let gated = GatedStore::new(ObservedStore::new(below.clone(), "mem", clock.clone()));
    let stalled = AppTtl::new(gated.clone(), clock.clone()).of(APP, Quota::default());
    let successor = AppTtl::new(below, clock).of(APP, Quota::default());
    (gated, stalled.fenced(Fence(4)), successor.fenced(Fence(5)))
}

/// The write has looked and is on its way when the successor comes first: told by the refusal of the
/// store, and not tried again.
#[tokio::test]
async fn a_write_that_a_later_leader_overtakes_is_told_so_at_once() {
    for way in [Way::Swap, Way::Set, Way::Touch, Way::Delete, Way::DeleteExpected] {
        let (gate, stalled, successor) = stalled_and_successor();
        assert!(Way::Insert.write(&stalled).await.unwrap());
        gate.set(Gate::HoldBefore);
        let before = calls(&gate);
        let late = tokio::spawn(async move { way.write(&stalled).await });
        tokio::task::yield_now().await;
        assert!(Way::Set.write(&successor).await.unwrap());
        gate.set(Gate::Open);
        assert_fenced(late.await.unwrap(), (4, 5), &format!("{way:?}"));
        assert_eq!(calls(&gate) - before, 2, "{way:?}: one look and one write");
    }
}

#[tokio::test]
async fn an_insert_that_a_later_leader_overtakes_is_told_so_at_once() {
    for way in [Way::Insert, Way::Set] {
        let (gate, stalled, successor) = stalled_and_successor();
        gate.set(Gate::HoldBefore);
        let late = tokio::spawn(async move { way.write(&stalled).await });
        tokio::task::yield_now().await;
        assert!(Way::Insert.write(&successor).await.unwrap());
        gate.set(Gate::Open);
        assert_fenced(late.await.unwrap(), (4, 5), &format!("{way:?}"));
        assert_eq!(calls(&gate), 2, "{way:?}: one look and one write");
    }
}

/// The control of the two above: overtaken by nobody who is later, the same write goes on.
#[tokio::test]
async fn a_write_that_an_equal_fence_overtakes_is_tried_again() {
    let (gate, stalled, successor) = stalled_and_successor();
    let same = successor.fenced(Fence(4));
    assert!(Way::Insert.write(&stalled).await.unwrap());
    gate.set(Gate::HoldBefore);
    let before = calls(&gate);
    let late = tokio::spawn(async move { Way::Set.write(&stalled).await });
    tokio::task::yield_now().await;
    assert!(same.set("k", "other", MINUTE).await.unwrap().is_applied());
    gate.set(Gate::Open);
    assert!(late.await.unwrap().unwrap());
    assert_eq!(calls(&gate) - before, 4, "two looks and two writes");
}

/// Reads of one row, and writes, that reached the store.
fn calls(gate: &Gated) -> u64 {
    let operations = [
        Operation::Get,
        Operation::InsertIfNotExists,
        Operation::CompareAndSwap,
        Operation::CompareAndDelete,
    ];
    let metrics = gate.inner.metrics();
    operations.into_iter().map(|operation| metrics.of(operation).timed()).sum()
}
