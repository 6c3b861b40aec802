//! Histories with a power cut in them: one order explains what callers were told before it, and what
//! the store holds when it is opened again.
//!
//! So nobody has seen anything that was lost, whether it was their own or another's. The crash proofs
//! know what a caller was told of its own writes; here readers count as well.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;
use std::time::Duration;

use wane::clock::{SharedClock, SystemClock};
use wane::conformance::history::{Plan, Stage, Time, record};
use wane::conformance::linearizability::{Answer, Call, Event, Moment, Verdict, check_within};
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Write,
};
use wane_backends::file::{Fault, FaultyDisk, FileScanCursor, FileSettings, FileStore};

use crate::proof::{Chance, count};

/// A store that shows readers what was logged before that is durable, and answers its writers after.
///
/// Its disk does not sync the log by itself, which this does in its place.
#[derive(Debug)]
struct EarlyReaders {
    store: FileStore,
    disk: FaultyDisk,
}

impl EarlyReaders {
    /// Answers a writer once what it wrote is durable. A refusal has written nothing.
    async fn durable(&self, outcome: Outcome) -> Result<Outcome, StoreError> {
        if outcome.is_applied() {
            // Somebody else comes before the sync.
            SystemClock::shared().sleep(Duration::from_millis(1)).await;
            let unknown = |error: std::io::Error| {
                let source = error.into();
                StoreError::Unknown { backend: "file", source }
            };
            self.disk.sync_log().map_err(unknown)?;
        }
        Ok(outcome)
    }
}

impl Store for EarlyReaders {
    type ScanCursor = FileScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.store.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.store.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<FileScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<FileScanCursor>, StoreError> {
        self.store.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.durable(self.store.put(key, write).await?).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.store.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.durable(self.store.insert_if_not_exists(key, write).await?).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.durable(self.store.compare_and_swap(key, expected, write).await?).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.durable(self.store.compare_and_delete(key, expected, fence).await?).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.store.query_ttl(key).await
    }
}

/// What the clients do: long lives, so that little that was seen is gone for another reason.
fn plan() -> Plan {
    Plan { clients: 8, operations: 30, keys: 2, values: 20, longest_ttl: 10_000, ..Plan::default() }
}

/// Plays a history on a disk whose power is cut meanwhile, opens the store again and adds what is
/// found. `None` means that it could not be opened.
async fn verdict<S: Store>(
    seed: u64,
    disk: FaultyDisk,
    wrap: impl FnOnce(FileStore, FaultyDisk) -> S,
) -> Option<Verdict> {
    let home = tempfile::tempdir().unwrap();
    let time = Time::manual(seed);
    drop(FileStore::create(home.path(), time.clock()).unwrap());
    let settings = FileSettings::default().with_few_young_bytes(7 << 20);
    let store = FileStore::open_on_as(&disk, home.path(), settings, time.clock()).unwrap();
    disk.arm(Fault::PowerCut, 10 + Chance::seeded(seed).below(150));
    let wrapped = Arc::new(wrap(store.clone(), disk.clone()));
    let stage = Stage::new(wrapped, time.clone()).beside(checkpoints(store.clone()));
    let mut events = record(stage, seed, &plan()).await;
    disk.arm(Fault::PowerCut, 0);
    tokio::task::block_in_place(|| drop(store));
    let mut order = events.iter().map(|event| event.returned.order).max().unwrap_or_default();
    let mut moment = || {
        order += 1;
        Moment { order, clock: time.clock().now() }
    };
    disk.lose_what_was_not_synced(home.path()).unwrap();
    for note in ["acknowledged", "log/acknowledged"] {
        std::fs::remove_file(home.path().join(note)).unwrap();
    }
    let store = FileStore::open(home.path(), time.clock()).ok()?;
    let mut keys: Vec<Key> = events.iter().map(|event| event.key.clone()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let invoked = moment();
        let answer = Answer::Read(store.get(&key).await.unwrap());
        let (client, call) = (plan().clients, Call::Get);
        events.push(Event { client, key, call, answer, invoked, returned: moment() });
    }
    Some(check_within(&events, plan().allowance))
}

/// Generations reach the tree all the time.
async fn checkpoints(store: FileStore) {
    let clock: SharedClock = SystemClock::shared();
    loop {
        // A store that has failed says so to the clients.
        drop(store.flush().await);
        clock.sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_has_seen_what_a_power_cut_takes() {
    let seeds = count("WANE_TEST_DISK_FAULTS", 100);
    let mut undecided = 0;
    for seed in 0..seeds {
        let disk = FaultyDisk::seeded(seed);
        match verdict(seed, disk, |store, _| store).await {
            Some(Verdict::Linearizable) => {}
            Some(Verdict::Undecided) => undecided += 1,
            Some(Verdict::Violated(violation)) => panic!("seed {seed}: {violation}"),
            None => panic!("seed {seed}: the store does not open"),
        }
    }
    assert!(undecided * 20 <= seeds, "{undecided} of {seeds} are undecided");
}

/// How many of some histories are refused, by the checker or when the store is opened.
async fn caught<S: Store>(
    disk: impl Fn(u64) -> FaultyDisk,
    wrap: impl Fn(FileStore, FaultyDisk) -> S,
) -> u64 {
    let mut caught = 0;
    for seed in 0..40 {
        let verdict = verdict(seed, disk(seed), &wrap).await;
        caught += u64::from(matches!(verdict, Some(Verdict::Violated(_)) | None));
    }
    caught
}

/// The control: readers see what is logged, and its writer waits for the sync alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_shows_what_is_not_durable_is_caught() {
    let disk = |seed| FaultyDisk::seeded(seed).ignoring_syncs_of_the_log();
    let caught = caught(disk, |store, disk| EarlyReaders { store, disk }).await;
    eprintln!("readers before the sync: {caught} of 40 were caught");
    assert!(caught >= 2, "only {caught} of 40 were caught");
}

/// The control: nobody waits for a sync.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_answers_before_the_sync_is_caught() {
    let disk = |seed| FaultyDisk::seeded(seed).ignoring_syncs_of_the_log();
    let caught = caught(disk, |store, _| store).await;
    eprintln!("answers before the sync: {caught} of 40 were caught");
    assert!(caught >= 5, "only {caught} of 40 were caught");
}

/// The same wrapper on a disk that syncs is sound: it is the order alone that is wrong above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_syncs_twice_is_sound() {
    let caught = caught(FaultyDisk::seeded, |store, disk| EarlyReaders { store, disk }).await;
    assert_eq!(caught, 0);
}
