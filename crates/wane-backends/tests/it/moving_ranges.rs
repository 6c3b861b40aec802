//! Ranges while generations are sealed and reach the tree: each page is the store at one instant.
//!
//! One writer takes one step after the other, so that the states that there ever were are known, in
//! order. Every page that a reader gets must be of one that was there while it read, and no earlier
//! than what was read before.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tempfile::TempDir;
use wane::clock::{ManualClock, SharedClock, SystemClock};
use wane::store::{
    ClusteringRange, Fence, Key, Life, PageLimit, Partition, Store, Ttl, Value, Write,
};
use wane_backends::file::{DiskStep, FaultyDisk, FileSettings, FileStore};

use crate::proof::{Chance, count};

const PARTITION: &[u8] = b"range";
const KEYS: u64 = 24;
const READERS: u64 = 3;

/// Rows of a page.
const ROWS: usize = 8;

/// What lives, by key: the number of its value.
type Live = BTreeMap<u64, u64>;

/// A store, and the states that it was in.
struct Stage {
    _home: TempDir,
    disk: FaultyDisk,
    clock: Arc<ManualClock>,
    store: FileStore,
    /// After each step, from none on.
    states: RwLock<Vec<Live>>,
    /// The last step that was begun, and the last one that is over.
    begun: AtomicU64,
    over: AtomicU64,
    /// The step that somebody has seen.
    seen: AtomicU64,
    is_done: AtomicBool,
    checkpoints: AtomicU64,
}

/// What became of a run.
#[derive(Debug, Default)]
struct Tally {
    pages: u64,
    /// Pages during which a checkpoint ended.
    crossing: u64,
}

fn key(number: u64) -> Key {
    Key::new(PARTITION, &number.to_be_bytes()).unwrap()
}

/// Large enough for segments to fill up.
fn value(number: u64) -> Value {
    Value::new([&number.to_be_bytes()[..], &[7; 2_500]].concat()).unwrap()
}

impl Stage {
    fn new() -> Arc<Self> {
        let home = tempfile::tempdir().unwrap();
        let clock = ManualClock::seeded(1);
        drop(FileStore::create(home.path(), Arc::clone(&clock) as SharedClock).unwrap());
        let disk = FaultyDisk::seeded(1);
        let settings = FileSettings::default().with_few_young_bytes(7 << 20);
        let shared = Arc::clone(&clock) as SharedClock;
        let store = FileStore::open_on_as(&disk, home.path(), settings, shared).unwrap();
        Arc::new(Self {
            _home: home,
            disk,
            clock,
            store,
            states: RwLock::new(vec![Live::new()]),
            begun: AtomicU64::new(0),
            over: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            is_done: AtomicBool::new(false),
            checkpoints: AtomicU64::new(0),
        })
    }

    /// Takes one step after the other: writes, deletions, and milliseconds in which something expires.
    async fn write(&self, steps: u64) {
        let chance = Chance::seeded(7);
        // By key: the number, and how many milliseconds it lives.
        let mut rows: BTreeMap<u64, (u64, Option<u64>)> = BTreeMap::new();
        let mut time = 0;
        for step in 1..=steps {
            let at = chance.below(KEYS);
            let ttl = 1 + chance.below(20);
            let held = rows.get(&at).copied();
            let kind = chance.below(8);
            let life = match kind {
                0 => {
                    time += 1;
                    rows.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > time));
                    None
                }
                1 | 2 if held.is_some() => {
                    rows.remove(&at);
                    None
                }
                3 | 4 => {
                    rows.insert(at, (step, Some(time + ttl)));
                    Some(Life::For(Ttl::from_millis(ttl).unwrap()))
                }
                _ => {
                    rows.insert(at, (step, None));
                    Some(Life::Permanent)
                }
            };
            let live = rows.iter().map(|(key, (number, _))| (*key, *number)).collect();
            self.states.write().push(live);
            self.begun.store(step, Ordering::SeqCst);
            let name = key(at);
            match (life, held) {
                (Some(life), _) => {
                    let put = self.store.put(&name, Write::new(value(step), life));
                    assert!(put.await.unwrap().is_applied());
                }
                (None, Some((number, _))) if kind > 0 => {
                    let gone = value(number);
                    let delete = self.store.compare_and_delete(&name, &gone, Fence::NONE);
                    assert!(delete.await.unwrap().is_applied(), "step {step}");
                }
                (None, _) => self.clock.advance(Duration::from_millis(1)),
            }
            self.over.store(step, Ordering::SeqCst);
        }
        self.is_done.store(true, Ordering::SeqCst);
    }

    /// Seals what is active, by a scan or with all that is young on its way into the tree.
    async fn checkpoint(&self) {
        let pause = SystemClock::shared();
        while !self.is_done.load(Ordering::SeqCst) {
            drop(self.store.scan(None, PageLimit::new(1).unwrap()).await.unwrap());
            self.store.flush().await.unwrap();
            self.checkpoints.fetch_add(1, Ordering::SeqCst);
            pause.sleep(Duration::from_micros(300)).await;
        }
    }

    /// Reads pages until the writer is done; `is_torn` puts two together, as if they were one.
    async fn read(&self, reader: u64, is_torn: bool) -> Result<Tally, String> {
        let chance = Chance::seeded(reader);
        let mut tally = Tally::default();
        while !self.is_done.load(Ordering::SeqCst) {
            let start = chance.below(KEYS);
            let first = self.over.load(Ordering::SeqCst).max(self.seen.load(Ordering::SeqCst));
            let checkpoints = self.checkpoints.load(Ordering::SeqCst);
            let (page, end) = self.page(start, is_torn).await;
            let last = self.begun.load(Ordering::SeqCst);
            let is_of =
                |state: &Live| state.range(start..end).map(|(k, n)| (*k, *n)).eq(page.clone());
            let states = self.states.read();
            let of = (first..=last).find(|state| is_of(&states[*state as usize]));
            let of = of.ok_or_else(|| {
                let shown: Vec<_> = states[first as usize..=last as usize].iter().collect();
                format!(
                    "{start}..{end} showed {page:?}, and there were, from {first} on, {shown:?}"
                )
            })?;
            self.seen.fetch_max(of, Ordering::SeqCst);
            tally.pages += 1;
            tally.crossing += u64::from(self.checkpoints.load(Ordering::SeqCst) > checkpoints);
        }
        Ok(tally)
    }

    /// The rows from `start` on, and the key where they end.
    async fn page(&self, start: u64, is_torn: bool) -> (Vec<(u64, u64)>, u64) {
        let partition = Partition::new(PARTITION.to_vec()).unwrap();
        let rows = if is_torn { ROWS / 2 } else { ROWS };
        let limit = PageLimit::new(rows).unwrap();
        let number = |bytes: &[u8]| u64::from_be_bytes(*bytes[..8].as_array().unwrap());
        let all = ClusteringRange::new(start.to_be_bytes().to_vec(), Vec::new()).unwrap();
        let (mut range, mut found) = (Some(all), Vec::new());
        for _ in 0..if is_torn { 2 } else { 1 } {
            let Some(from) = range.take() else { break };
            let page = self.store.read(&partition, &from, limit).await.unwrap();
            let rows = page.rows.iter();
            found.extend(rows.map(|row| (number(row.key.clustering()), number(&row.record.value))));
            range = page.rest;
            tokio::task::yield_now().await;
        }
        (found, range.map_or(u64::MAX, |rest| number(rest.start())))
    }
}

async fn run(stage: &Arc<Stage>, steps: u64, is_torn: bool) -> Result<Tally, String> {
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..READERS {
        let stage = Arc::clone(stage);
        readers.spawn(async move { stage.read(reader, is_torn).await });
    }
    tokio::join!(stage.write(steps), stage.checkpoint());
    let mut all = Tally::default();
    for tally in readers.join_all().await {
        let Tally { pages, crossing } = tally?;
        (all.pages, all.crossing) = (all.pages + pages, all.crossing + crossing);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_of_one_instant_whatever_is_sealed_and_reaches_the_tree() {
    let stage = Stage::new();
    let tally = run(&stage, count("WANE_TEST_RANGE_STEPS", 4_000), false).await;
    let tally = tally.unwrap_or_else(|wrong| panic!("{wrong}"));
    let passed = stage.disk.passed();
    let times = |step| passed.iter().filter(|(at, _)| at.step == step).map(|(_, n)| n).sum::<u64>();
    let (trees, segments) = (times(DiskStep::TreeSynced), times(DiskStep::SegmentReused));
    eprintln!("{tally:?}, {trees} transactions of the tree, {segments} segments written over");
    assert!(trees > 50 && segments > 2, "{trees} transactions, {segments} segments");
    assert!(tally.pages > 1_000 && tally.crossing > 20, "{tally:?}");
}

/// The control: a page that is put together from two instants is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_two_instants_is_caught() {
    let stage = Stage::new();
    let tally = run(&stage, 4_000, true).await;
    assert!(tally.is_err(), "not caught: {tally:?}");
}
