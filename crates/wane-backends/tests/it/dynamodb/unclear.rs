//! Answers that were not heard: applied is told only where our operation stands, `Unavailable`
//! only where nothing was applied, and nothing is sent twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use wane::clock::{SharedClock, SystemClock};
use wane::store::{Fence, Key, Life, Outcome, Record, Store, StoreError, Ttl, Value, Write};
use wane_backends::dynamodb::DynamodbStore;

use super::front::{Fault, Front};
use crate::harness::dynamodb::Server;

/// The store through a front, and past it.
pub(super) struct Pair {
    pub(super) server: Server,
    pub(super) front: Front,
    pub(super) store: DynamodbStore,
    pub(super) direct: DynamodbStore,
    pub(super) clock: SharedClock,
}

impl Pair {
    pub(super) async fn listed() -> Option<Self> {
        let server = Server::listed()?;
        let clock = SystemClock::shared();
        let front = Front::before(&server.endpoint).await;
        let direct = server.connect(clock.clone()).await;
        let store = server.connect_through(&front.endpoint, clock.clone()).await;
        front.seen();
        Some(Self { server, front, store, direct, clock })
    }

    pub(super) async fn end(self) {
        self.front.assert_done();
        self.server.remove_table().await;
    }
}

pub(super) fn row(name: &str) -> Key {
    Key::new(b"partition", name.as_bytes()).expect("a legal key")
}

pub(super) fn permanent(value: &str) -> Write {
    Write::new(Value::copy_from_slice(value.as_bytes()).expect("a legal value"), Life::Permanent)
}

fn lasting(value: &str) -> Write {
    Write { life: Life::For(Ttl::from_secs(600).expect("a legal life")), ..permanent(value) }
}

/// Every kind of write, on a record `old` that lives for ten minutes and has fence 5.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Put,
    FencedPut,
    Insert,
    Swap,
    FencedSwap,
    KeepingSwap,
    Delete,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Put,
        Self::FencedPut,
        Self::Insert,
        Self::Swap,
        Self::FencedSwap,
        Self::KeepingSwap,
        Self::Delete,
    ];

    fn operation(self) -> &'static str {
        match self {
            Self::FencedPut | Self::Insert | Self::FencedSwap => "PutItem",
            Self::Put | Self::Swap | Self::KeepingSwap | Self::Delete => "UpdateItem",
        }
    }

    async fn prepare(self, store: &DynamodbStore, key: &Key) {
        if !matches!(self, Self::Insert) {
            let old = store.put(key, lasting("old").fenced(Fence(5))).await.expect("an answer");
            assert!(old.is_applied());
        }
    }

    async fn write(self, store: &DynamodbStore, key: &Key) -> Result<Outcome, StoreError> {
        let new = lasting("new");
        match self {
            Self::Put => store.put(key, new).await,
            Self::FencedPut => store.put(key, new.fenced(Fence(6))).await,
            Self::Insert => store.insert_if_not_exists(key, new).await,
            Self::Swap => store.compare_and_swap(key, b"old", new).await,
            Self::FencedSwap => store.compare_and_swap(key, b"old", new.fenced(Fence(6))).await,
            Self::KeepingSwap => {
                let keeping = Write { life: Life::Keep, ..new };
                store.compare_and_swap(key, b"old", keeping).await
            }
            Self::Delete => store.compare_and_delete(key, b"old", Fence::NONE).await,
        }
    }

    fn assert_applied(self, before: Option<&Record>, outcome: &Outcome, after: Option<Record>) {
        let Outcome::Applied { expires_at } = outcome else { panic!("{self:?}: {outcome:?}") };
        assert!(expires_at.is_some(), "{self:?}: an expiry is told");
        let before = before.map(|record| record.expires_at);
        if matches!(self, Self::Delete | Self::KeepingSwap) {
            assert_eq!(before, Some(*expires_at), "{self:?}");
        }
        let after = after.map(|record| (record.value.to_vec(), record.expires_at));
        let stored = (!matches!(self, Self::Delete)).then(|| (b"new".to_vec(), *expires_at));
        assert_eq!(after, stored, "{self:?}");
    }
}

#[track_caller]
pub(super) fn assert_unknown<T: std::fmt::Debug>(answer: &Result<T, StoreError>, of: &str) {
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{of}: {answer:?}");
}

#[track_caller]
pub(super) fn assert_unavailable<T: std::fmt::Debug>(answer: &Result<T, StoreError>, of: &str) {
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{of}: {answer:?}");
}

/// Applied and the answer lost: our operation is found there, and told with its expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_found() {
    let Some(mut pair) = Pair::listed().await else { return };
    // Silence is waited for.
    pair.server.timeout = Duration::from_secs(2);
    pair.store = pair.server.connect_through(&pair.front.endpoint, pair.clock.clone()).await;
    pair.front.seen();
    for fault in
        [Fault::CutAfter, Fault::AnswerAfter(500, "InternalServerError"), Fault::SilenceAfter]
    {
        for kind in Kind::ALL {
            let key = row(&format!("{fault:?} {kind:?}"));
            kind.prepare(&pair.direct, &key).await;
            let before = pair.direct.get(&key).await.unwrap();
            pair.front.next(kind.operation(), fault.clone());
            let outcome = kind.write(&pair.store, &key).await.unwrap();
            kind.assert_applied(before.as_ref(), &outcome, pair.direct.get(&key).await.unwrap());
            assert_eq!(pair.front.seen(), [kind.operation(), "GetItem"], "{kind:?} {fault:?}");
        }
    }
    pair.end().await;
}

/// Sent and not applied, which the front knows and we do not: never a false "applied", and never
/// a false "nothing was applied" either, for the request may still arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_lost_on_its_way_is_unknown() {
    let Some(pair) = Pair::listed().await else { return };
    let faults = [
        Fault::CutBefore,
        Fault::Answer(500, "InternalServerError"),
        Fault::Answer(503, "ServiceUnavailable"),
        Fault::Answer(504, ""),
    ];
    for fault in faults {
        for kind in Kind::ALL {
            let key = row(&format!("{fault:?} {kind:?}"));
            kind.prepare(&pair.direct, &key).await;
            let before = pair.direct.get(&key).await.unwrap();
            pair.front.next(kind.operation(), fault.clone());
            assert_unknown(&kind.write(&pair.store, &key).await, &format!("{kind:?} {fault:?}"));
            assert_eq!(pair.direct.get(&key).await.unwrap(), before, "{kind:?} {fault:?}");
            assert_eq!(pair.front.seen(), [kind.operation(), "GetItem"], "{kind:?} {fault:?}");
        }
    }
    pair.end().await;
}

/// Another writer came between: whether ours was there before cannot be told any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_overwritten_before_it_was_found_is_unknown() {
    let Some(pair) = Pair::listed().await else { return };
    for kind in Kind::ALL {
        let key = row(&format!("{kind:?}"));
        kind.prepare(&pair.direct, &key).await;
        let looked_for = Arc::new(Notify::new());
        pair.front.next(kind.operation(), Fault::CutAfter);
        pair.front.next("GetItem", Fault::Hold(Arc::clone(&looked_for)));
        let other = async {
            while pair.direct.get(&key).await.unwrap().is_some_and(|old| *old.value == *b"old")
                || (matches!(kind, Kind::Insert) && pair.direct.get(&key).await.unwrap().is_none())
            {
                pair.clock.sleep(Duration::from_millis(5)).await;
            }
            let other = pair.direct.put(&key, permanent("other")).await.unwrap();
            looked_for.notify_one();
            other
        };
        let (answer, other) = tokio::join!(kind.write(&pair.store, &key), other);
        assert!(other.is_applied());
        assert_unknown(&answer, &format!("{kind:?}"));
    }
    pair.end().await;
}

/// The id of a delete stands where the record was, for whoever was not told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_cannot_be_looked_for_is_unknown() {
    let Some(pair) = Pair::listed().await else { return };
    for kind in Kind::ALL {
        let key = row(&format!("{kind:?}"));
        kind.prepare(&pair.direct, &key).await;
        pair.front.next(kind.operation(), Fault::CutAfter);
        pair.front.next_times(4, "GetItem", &Fault::CutBefore);
        assert_unknown(&kind.write(&pair.store, &key).await, &format!("{kind:?}"));
    }
    pair.end().await;
}

/// Nobody listens: nothing was sent, so nothing was applied, and that is said at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_never_sent_is_unavailable() {
    let Some(Pair { server, front, store, direct, clock }) = Pair::listed().await else { return };
    let endpoint = front.endpoint.clone();
    drop(front);
    for kind in Kind::ALL {
        let key = row(&format!("{kind:?}"));
        kind.prepare(&direct, &key).await;
        let started = clock.monotonic();
        // A pooled connection may be left from before: its end is no answer.
        while let Err(StoreError::Unknown { .. }) = kind.write(&store, &key).await {}
        let answer = kind.write(&store, &key).await;
        let told = answer.as_ref().map_err(ToString::to_string).unwrap_err().clone();
        assert!(told.contains(&endpoint) && told.contains("endpoint"), "{told}");
        assert_unavailable(&answer, &format!("{kind:?}"));
        assert!(clock.monotonic() - started < Duration::from_secs(10));
    }
    server.remove_table().await;
}

/// The control: a write by another operation is not taken for ours, even with our value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_value_by_another_writer_is_not_ours() {
    let Some(pair) = Pair::listed().await else { return };
    let key = row("k");
    assert!(pair.direct.put(&key, permanent("same")).await.unwrap().is_applied());
    pair.front.next("UpdateItem", Fault::CutBefore);
    assert_unknown(&pair.store.put(&key, permanent("same")).await, "put");
    pair.end().await;
}
