//! The unclear answers of the contract, one case each, on any backend behind the proxy.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use wane::store::{Fence, Key, Life, Outcome, Record, Store, StoreError, Value, Write};

use super::Ground;
use crate::proxy::{Chance, Ending, Rules};

const OLD: &[u8] = b"old";
const NEW: &[u8] = b"new";
const FOREIGN: &[u8] = b"foreign";

/// The writes of the contract, each over the record that it wants to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Put,
    Insert,
    Swap,
    Delete,
}

const VERBS: [Verb; 4] = [Verb::Put, Verb::Insert, Verb::Swap, Verb::Delete];

fn permanent(value: &'static [u8]) -> Write {
    Write::new(Value::new(value).expect("a short value"), Life::Permanent)
}

async fn value_at<S: Store>(store: &S, key: &Key) -> Option<Vec<u8>> {
    let found: Option<Record> = store.get(key).await.expect("nothing stands before the server");
    found.map(|record| record.value.to_vec())
}

async fn overwrite<S: Store>(store: &S, key: &Key, value: &'static [u8]) {
    let put = store.put(key, permanent(value)).await.expect("nothing stands before the server");
    assert!(put.is_applied());
}

impl Verb {
    /// Puts there what this write wants to find.
    async fn prepare<S: Store>(self, ground: &Ground<S>) -> Key {
        let key = ground.fresh_key();
        if self != Verb::Insert {
            overwrite(&*ground.direct, &key, OLD).await;
        }
        key
    }

    async fn call<S: Store>(self, store: &S, key: &Key) -> Result<Outcome, StoreError> {
        match self {
            Verb::Put => store.put(key, permanent(NEW)).await,
            Verb::Insert => store.insert_if_not_exists(key, permanent(NEW)).await,
            Verb::Swap => store.compare_and_swap(key, OLD, permanent(NEW)).await,
            Verb::Delete => store.compare_and_delete(key, OLD, Fence::NONE).await,
        }
    }

    /// Puts back what it found: were it sent again, it would be applied again.
    async fn undo<S: Store>(self, store: &S, key: &Key) {
        if self != Verb::Insert {
            return overwrite(store, key, OLD).await;
        }
        let gone = store.compare_and_delete(key, NEW, Fence::NONE).await;
        assert!(gone.expect("nothing stands before the server").is_applied());
    }

    fn before(self) -> Option<Vec<u8>> {
        (self != Verb::Insert).then(|| OLD.to_vec())
    }

    fn after(self) -> Option<Vec<u8>> {
        (self != Verb::Delete).then(|| NEW.to_vec())
    }
}

/// A write of each kind on a key of its own.
async fn prepared<S: Store>(ground: &Ground<S>) -> Vec<(Verb, Key)> {
    let mut keys = Vec::new();
    for verb in VERBS {
        keys.push((verb, verb.prepare(ground).await));
    }
    keys
}

/// What became of each, called at once.
async fn called<S: Store>(
    ground: &Ground<S>,
    writes: &[(Verb, Key)],
) -> Vec<Result<Outcome, StoreError>> {
    join_all(writes.iter().map(|(verb, key)| verb.call(&*ground.through, key))).await
}

#[track_caller]
fn assert_names_backend_and_address<S: Store>(ground: &Ground<S>, error: &StoreError) {
    let told = error.to_string();
    assert!(told.contains(ground.name), "the backend is not named: {told}");
    let port = ground.proxy.address().port().to_string();
    assert!(told.contains(&port), "the address is not named: {told}");
}

/// The operation's id stands in the record: no guess, and no second write.
pub(crate) async fn an_applied_write_whose_answer_is_lost_is_reported_applied<S: Store>(
    ground: &Ground<S>,
) {
    for ending in [Ending::Reset, Ending::Close] {
        for verb in VERBS {
            let key = verb.prepare(ground).await;
            ground.recover().await;
            let lost = ground.proxy.counts().lost_answers;
            let reads_first = verb == Verb::Delete && ground.patience.delete_reads_first;
            let lose_answers = Chance::Nth(if reads_first { 2 } else { 1 });
            ground.proxy.set(Rules { lose_answers, ending, ..Rules::PASS }).await;
            let outcome = verb.call(&*ground.through, &key).await;
            assert_eq!(ground.proxy.counts().lost_answers, lost + 1, "{verb:?}");
            let applied = Outcome::Applied { expires_at: None };
            assert_eq!(outcome.unwrap_or_else(|e| panic!("{verb:?}, {ending:?}: {e}")), applied);
            assert_eq!(value_at(&*ground.direct, &key).await, verb.after(), "{verb:?}");
        }
    }
}

/// Whether it was applied before the other write can no longer be seen.
pub(crate) async fn an_applied_write_that_another_followed_is_unknown<S: Store>(
    ground: &Ground<S>,
) {
    let mut writes = prepared(ground).await;
    // The answer to the read would be lost, and nothing written.
    writes.retain(|(verb, _)| *verb != Verb::Delete || !ground.patience.delete_reads_first);
    let ending = Ending::Silence;
    ground.proxy.set(Rules { lose_answers: Chance::Always, ending, ..Rules::PASS }).await;
    let others = async {
        for (verb, key) in &writes {
            let applied = async || value_at(&*ground.direct, key).await == verb.after();
            ground.until("the write", applied).await;
            overwrite(&*ground.direct, key, FOREIGN).await;
        }
        ground.proxy.set(Rules::PASS).await;
    };
    let (outcomes, ()) = tokio::join!(called(ground, &writes), others);
    for ((verb, key), outcome) in writes.iter().zip(outcomes) {
        let unknown = matches!(outcome, Err(StoreError::Unknown { .. }));
        assert!(unknown, "{verb:?}: {outcome:?}");
        assert_eq!(value_at(&*ground.direct, key).await.as_deref(), Some(FOREIGN), "{verb:?}");
    }
}

/// Neither guess is allowed: "applied" would be false, and nobody refused anything.
pub(crate) async fn a_write_that_never_arrived_is_never_reported_applied_or_refused<S: Store>(
    ground: &Ground<S>,
) {
    for ending in [Ending::Reset, Ending::Close] {
        let writes = prepared(ground).await;
        ground.recover().await;
        let lost = ground.proxy.counts().lost_requests;
        ground.proxy.set(Rules { lose_requests: Chance::Always, ending, ..Rules::PASS }).await;
        let outcomes = called(ground, &writes).await;
        assert!(ground.proxy.counts().lost_requests > lost, "nothing was lost");
        ground.recover().await;
        for ((verb, key), outcome) in writes.iter().zip(outcomes) {
            match outcome {
                Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) => {}
                other => panic!("{verb:?}, {ending:?}: {other:?}"),
            }
            assert_eq!(value_at(&*ground.direct, key).await, verb.before(), "{verb:?}");
        }
    }
}

/// Nobody listens, so nothing was sent: the caller may try again without reading first.
pub(crate) async fn a_write_that_cannot_be_sent_is_unavailable<S: Store>(ground: &Ground<S>) {
    let writes = prepared(ground).await;
    ground.proxy.set(Rules { refuse: true, ..Rules::PASS }).await;
    ground.proxy.cut(Ending::Reset);
    // The driver notices by and by that its connections are gone.
    let noticed = async || {
        let probe = ground.through.put(&ground.fresh_key(), permanent(NEW)).await;
        matches!(probe, Err(StoreError::Unavailable { .. }))
    };
    ground.until("the notice that nobody listens", noticed).await;
    let outcomes = called(ground, &writes).await;
    for ((verb, key), outcome) in writes.iter().zip(outcomes) {
        let Err(error @ StoreError::Unavailable { .. }) = outcome else {
            panic!("{verb:?}: {outcome:?}")
        };
        assert_names_backend_and_address(ground, &error);
        assert_eq!(value_at(&*ground.direct, key).await, verb.before(), "{verb:?}");
    }
    let read = ground.through.get(&writes[0].1).await;
    assert!(matches!(read, Err(StoreError::Unavailable { .. })), "{read:?}");
}

/// The request is on its way when its caller is told that nobody knows.
pub(crate) async fn a_write_that_arrives_late_was_reported_unknown_and_is_applied_once<S: Store>(
    ground: &Ground<S>,
) {
    let mut writes = prepared(ground).await;
    // The read would be late, and nothing written.
    writes.retain(|(verb, _)| *verb != Verb::Delete || !ground.patience.delete_reads_first);
    ground.recover().await;
    // Longer than a call takes: a driver may look for the write on the connection that is late.
    let delay_requests = ground.patience.call;
    ground.proxy.set(Rules { delay_requests, ..Rules::PASS }).await;
    let pass_what_follows = async {
        // By now each request has left; connections made from here on are not held back.
        ground.clock.sleep(ground.patience.request / 2).await;
        ground.proxy.set(Rules::PASS).await;
    };
    let (outcomes, ()) = tokio::join!(called(ground, &writes), pass_what_follows);
    for ((verb, key), outcome) in writes.iter().zip(outcomes) {
        let unknown = matches!(outcome, Err(StoreError::Unknown { .. }));
        assert!(unknown, "{verb:?}: {outcome:?}");
        assert_eq!(value_at(&*ground.direct, key).await, verb.before(), "{verb:?} was not late");
    }
    for (verb, key) in &writes {
        let arrived = async || value_at(&*ground.direct, key).await == verb.after();
        ground.until("the late arrival", arrived).await;
        verb.undo(&*ground.direct, key).await;
    }
    ground.clock.sleep(ground.patience.request + Duration::from_millis(500)).await;
    for (verb, key) in &writes {
        assert_eq!(value_at(&*ground.direct, key).await, verb.before(), "{verb:?} came again");
    }
}

/// Half-open: the connection stands and leads nowhere.
pub(crate) async fn a_server_that_stops_answering_is_told_within_the_deadline<S: Store>(
    ground: &Ground<S>,
) {
    let writes = prepared(ground).await;
    ground.recover().await;
    ground.proxy.set(Rules::SILENCE).await;
    let calls = async { tokio::join!(called(ground, &writes), ground.through.get(&writes[0].1)) };
    let ended = timeout(ground.patience.call, calls).await;
    let (outcomes, read) = ended.unwrap_or_else(|_| panic!("{} waits on", ground.name));
    for ((verb, _), outcome) in writes.iter().zip(outcomes) {
        let error = outcome.expect_err("nobody answered");
        if *verb == Verb::Delete && ground.patience.delete_reads_first {
            assert!(matches!(error, StoreError::Unavailable { .. }), "{verb:?}: {error:?}");
        } else {
            assert!(matches!(error, StoreError::Unknown { .. }), "{verb:?}: {error:?}");
        }
        assert_names_backend_and_address(ground, &error);
    }
    let error = read.expect_err("nobody answered");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert_names_backend_and_address(ground, &error);
    ground.recover().await;
    for (verb, key) in &writes {
        assert_eq!(value_at(&*ground.direct, key).await, verb.before(), "{verb:?}");
    }
}

/// Counters that callers raise through swaps, while connections break and answers are lost.
pub(crate) async fn nothing_is_applied_twice<S: Store>(ground: &Ground<S>) {
    let key = ground.fresh_key();
    overwrite(&*ground.direct, &key, b"0").await;
    ground.recover().await;
    let rules =
        Rules { lose_answers: Chance::OneIn(12), lose_requests: Chance::OneIn(25), ..Rules::PASS };
    ground.proxy.set(rules).await;
    let tallies = join_all((0..4).map(|_| raise(ground, &key))).await;
    ground.recover().await;
    let applied: u64 = tallies.iter().map(|(applied, _)| applied).sum();
    let unclear: u64 = tallies.iter().map(|(_, unclear)| unclear).sum();
    let value = value_at(&*ground.direct, &key).await.expect("the counter");
    let value = number(&value);
    assert!(ground.proxy.counts().lost_answers > 0, "no answer was lost");
    assert!(applied > 0, "nothing was applied at all");
    assert!(
        (applied..=applied + unclear).contains(&value),
        "{applied} raises were applied and {unclear} are unclear, but the counter says {value}"
    );
}

/// Raises the counter for a while; returns how often that was confirmed, and how often unclear.
async fn raise<S: Store>(ground: &Ground<S>, key: &Key) -> (u64, u64) {
    let (mut applied, mut unclear) = (0, 0);
    for _ in 0..30 {
        let Ok(Some(record)) = ground.through.get(key).await else {
            ground.clock.sleep(Duration::from_millis(50)).await;
            continue;
        };
        let next = (number(&record.value) + 1).to_string();
        let write = Write::new(Value::new(next).expect("a short value"), Life::Permanent);
        match ground.through.compare_and_swap(key, &record.value, write).await {
            Ok(Outcome::Applied { .. }) => applied += 1,
            Ok(Outcome::Refused { .. }) | Err(StoreError::Unavailable { .. }) => {}
            Err(StoreError::Unknown { .. }) => unclear += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (applied, unclear)
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).expect("a counter")
}
