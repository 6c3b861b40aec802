//! Controls: a proof that cannot fail proves nothing. Here each kind of wrong is done, and found.

use std::collections::BTreeSet;
use std::sync::Arc;

use wane::clock::SystemClock;
use wane::store::{
    ClusteringRange, Fence, Key, Life, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Ttl, Write,
};
use wane_backends::file::{FileScanCursor, FileStore};

use crate::proof::ledger::{self, Answer, Held, Ledger, Line, Operation, Verb, store_key, value};
use crate::proof::runtime;
use crate::proof::verifier::{Verifier, Wrong};
use crate::proof::workload::{COUNTERS, LEASE, LEASE_MILLIS, Workload};

const KEY: &str = "caller-0/0";

/// A caller's question and answer.
fn told(key: &str, operation: Operation, at: u64, answer: Answer) -> [Line; 2] {
    let began = Line::Began { caller: 0, key: key.into(), at, operation };
    [began, Line::Ended { caller: 0, key: key.into(), at, answer }]
}

fn insert(number: u64, life: Life) -> Operation {
    Operation { verb: Verb::Insert, expected: 0, number, life, fence: 0 }
}

fn delete(expected: u64) -> Operation {
    Operation { verb: Verb::Delete, expected, number: 0, life: Life::Permanent, fence: 0 }
}

fn applied(key: &str, operation: Operation) -> [Line; 2] {
    told(key, operation, 1_000, Answer::Applied { expires_at: None })
}

/// What the verifier says of a store into which `fill` has put something else than `lines` tell.
fn verdict(
    lines: &[Line],
    fill: impl AsyncFnOnce(&FileStore) -> Result<(), StoreError>,
) -> Vec<Wrong> {
    let home = tempfile::tempdir().expect("a directory");
    let clock = SystemClock::shared();
    let store = FileStore::create(home.path(), Arc::clone(&clock)).expect("a store");
    let mut verifier = Verifier::default();
    verifier.replay(lines);
    runtime().block_on(async {
        fill(&store).await.expect("the store takes it");
        verifier.check(&store, &clock).await;
    });
    verifier.wrongs().into_iter().collect()
}

async fn put(store: &FileStore, key: &str, number: u64, life: Life) -> Result<(), StoreError> {
    store.put(&store_key(key), Write::new(value(key, number), life)).await.map(drop)
}

#[test]
fn a_true_ledger_is_sound() {
    let lines = applied(KEY, insert(7, Life::Permanent));
    assert_eq!(verdict(&lines, async |s| put(s, KEY, 7, Life::Permanent).await), []);
}

#[test]
fn a_lost_record_is_found() {
    let lines = applied(KEY, insert(7, Life::Permanent));
    assert_eq!(verdict(&lines, async |_| Ok(())), [Wrong::Lost]);
}

#[test]
fn a_lost_update_is_found() {
    let swap = Operation { verb: Verb::Swap, expected: 7, ..insert(8, Life::Permanent) };
    let lines = [applied(KEY, insert(7, Life::Permanent)), applied(KEY, swap)].concat();
    assert_eq!(verdict(&lines, async |s| put(s, KEY, 7, Life::Permanent).await), [Wrong::Lost]);
}

#[test]
fn a_deleted_record_that_is_back_is_found() {
    let lines = [applied(KEY, insert(7, Life::Permanent)), applied(KEY, delete(7))].concat();
    let found = verdict(&lines, async |s| put(s, KEY, 7, Life::Permanent).await);
    assert_eq!(found, [Wrong::Resurrected]);
}

/// Its expiry was acknowledged and is long past, yet the store still has it.
#[test]
fn an_expired_record_that_is_back_is_found() {
    let life = Life::For(Ttl::from_millis(500).unwrap());
    let lines = told(KEY, insert(7, life), 1_000, Answer::Applied { expires_at: Some(1_500) });
    let found = verdict(&lines, async |s| put(s, KEY, 7, Life::Permanent).await);
    assert_eq!(found, [Wrong::Resurrected]);
}

#[test]
fn a_tampered_record_is_found() {
    let lines = applied(KEY, insert(7, Life::Permanent));
    let tamper = async |store: &FileStore| {
        let mut bytes = value(KEY, 7).to_vec();
        bytes[3] ^= 1;
        let write = Write::new(wane::store::Value::new(bytes)?, Life::Permanent);
        store.put(&store_key(KEY), write).await.map(drop)
    };
    assert_eq!(verdict(&lines, tamper), [Wrong::Foreign]);
}

#[test]
fn a_record_with_another_expiry_or_fence_is_found() {
    let lines = applied(KEY, insert(7, Life::Permanent));
    let hour = Life::For(Ttl::from_secs(3_600).unwrap());
    let expiring = verdict(&lines, async |s| put(s, KEY, 7, hour).await);
    assert_eq!(expiring, [Wrong::Impossible]);
    let fence = async |store: &FileStore| {
        let write = Write::new(value(KEY, 7), Life::Permanent).fenced(Fence(3));
        store.put(&store_key(KEY), write).await.map(drop)
    };
    assert_eq!(verdict(&lines, fence), [Wrong::Impossible]);
}

#[test]
fn a_record_that_nobody_wrote_is_found() {
    let found = verdict(&[], async |s| put(s, "stranger/1", 7, Life::Permanent).await);
    assert_eq!(found, [Wrong::Foreign]);
}

#[test]
fn an_undecided_write_may_be_there_or_not_but_an_unavailable_one_must_not() {
    let [began, _] = applied(KEY, insert(7, Life::Permanent));
    let there = async |store: &FileStore| put(store, KEY, 7, Life::Permanent).await;
    assert_eq!(verdict(std::slice::from_ref(&began), there), []);
    assert_eq!(verdict(&[began], async |_| Ok(())), []);
    let refused = told(KEY, insert(7, Life::Permanent), 1_000, Answer::Unavailable);
    assert_eq!(verdict(&refused, there), [Wrong::Resurrected]);
}

#[test]
fn an_answer_that_cannot_be_is_found() {
    let swap = Operation { verb: Verb::Swap, expected: 7, ..insert(8, Life::Permanent) };
    let over_nothing = applied(KEY, swap);
    let mut verifier = Verifier::default();
    verifier.replay(&over_nothing);
    assert_eq!(verifier.wrongs(), BTreeSet::from([Wrong::Impossible]));

    let held = Held { number: 7, expires_at: None, fence: 0 };
    let revived = told(KEY, insert(9, Life::Permanent), 1_000, Answer::Saw(Some(held)));
    let mut verifier = Verifier::default();
    verifier.replay(&revived);
    assert_eq!(verifier.wrongs(), BTreeSet::from([Wrong::Resurrected]));
}

#[test]
fn a_counter_that_lost_a_step_is_found() {
    let step = |n| Operation { verb: Verb::Swap, expected: n - 1, ..insert(n, Life::Permanent) };
    let key = COUNTERS[0];
    let lines = [applied(key, step(1)), applied(key, step(2))].concat();
    assert_eq!(verdict(&lines, async |s| put(s, key, 2, Life::Permanent).await), []);
    assert_eq!(verdict(&lines, async |s| put(s, key, 1, Life::Permanent).await), [Wrong::Lost]);
}

#[test]
fn leases_that_overlap_are_found() {
    let life = Life::For(Ttl::from_millis(LEASE_MILLIS).unwrap());
    let lease = |number, at| {
        let expires_at = Some(at + LEASE_MILLIS);
        told(LEASE, insert(number, life), at, Answer::Applied { expires_at })
    };
    let mut verifier = Verifier::default();
    verifier.replay(&[lease(1, 1_000), lease(2, 1_000 + LEASE_MILLIS)].concat());
    verifier.assert_sound();
    verifier.replay(&lease(3, 1_000 + 2 * LEASE_MILLIS - 1));
    assert_eq!(verifier.wrongs(), BTreeSet::from([Wrong::AppliedTwice]));
}

/// A store whose swap reads, compares and writes without holding the record still.
#[derive(Debug)]
struct UnlockedSwap(FileStore);

impl Store for UnlockedSwap {
    type ScanCursor = FileScanCursor;

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        match self.0.get(key).await? {
            Some(current) if *current.value == *expected => {
                let life = match (write.life, current.expires_at) {
                    (Life::Keep, Some(expiry)) => Life::Until(expiry),
                    (Life::Keep, None) => Life::Permanent,
                    (life, _) => life,
                };
                self.0.put(key, Write { life, ..write }).await
            }
            current => Ok(Outcome::Refused { current }),
        }
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.0.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.0.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<FileScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<FileScanCursor>, StoreError> {
        self.0.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.0.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.0.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.0.insert_if_not_exists(key, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.0.compare_and_delete(key, expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.0.query_ttl(key).await
    }
}

/// What the verifier says of 32 callers at work on `store`.
fn verdict_at_work<S: Store>(store: impl FnOnce(FileStore) -> S) -> BTreeSet<Wrong> {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("ledger");
    let clock = SystemClock::shared();
    let inner = FileStore::create(&home.path().join("store"), Arc::clone(&clock));
    let inner = inner.expect("a store");
    let store = Arc::new(store(inner));
    let ledger = Arc::new(Ledger::append_to(&path));
    let workload = Workload { callers: 32, keys_each: 8, rounds: 20, seed: 5 };
    let mut verifier = Verifier::default();
    runtime().block_on(async {
        workload.run(&store, &clock, &ledger).await;
        verifier.replay(&ledger::read(&path));
        verifier.check(&*store, &clock).await;
    });
    assert!(verifier.acknowledged() > 100, "the callers hardly came to work");
    verifier.wrongs()
}

#[test]
fn callers_at_work_are_sound() {
    assert_eq!(verdict_at_work(|store| store), BTreeSet::new());
}

#[test]
fn a_swap_without_its_lock_is_caught() {
    let wrongs = verdict_at_work(UnlockedSwap);
    assert!(wrongs.contains(&Wrong::AppliedTwice), "not caught: {wrongs:?}");
}
