//! What each contestant of the memory benchmark can do, and how it is made to do it.
//!
//! Loops are generic, so that no contestant pays for dynamic calls; [`Contestant`] is the same
//! thing behind a pointer, one call for each loop.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use wane::store::{ClusteringRange, Key, Partition, Ttl};

use crate::machine::ThreadWaits;
use crate::timing;
use crate::workload::{Chance, VALUE, clustering, key, long_life, partition};

/// A store in memory whose records expire.
pub(crate) trait Peer: Send + Sync {
    /// What a read returns: owned, so that it outlives any lock.
    type Owned;

    /// Returns the live record.
    fn get(&self, key: &Key) -> Option<Self::Owned>;

    /// Writes where nothing lives; says whether it did. The value comes as a slice, as from a
    /// request, and the peer makes of it what it keeps.
    fn insert(&self, key: &Key, value: &[u8], life: Ttl) -> bool;

    /// Replaces `expected` and renews the expiry in one step; says whether it did.
    fn swap(&self, key: &Key, expected: &[u8], value: &[u8], life: Ttl) -> bool;

    /// Removes the record.
    fn remove(&self, key: &Key);

    /// Rows found from the start of the query on, at most `limit`; `None` without an order.
    fn range(&self, _query: &RangeQuery, _limit: usize) -> Option<usize> {
        None
    }

    /// Finishes what was put off, so that memory shows what is really kept.
    fn settle(&self) {}
}

/// Where a range begins.
#[derive(Debug)]
pub(crate) struct RangeQuery {
    /// The partition.
    pub(crate) partition: Partition,
    /// The rows from a random one on.
    pub(crate) range: ClusteringRange,
}

/// What a trial measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A read of one record.
    Get,
    /// A write of a record that is not there.
    Insert,
    /// A replacement that renews the expiry.
    Swap,
    /// A read of this many rows in order.
    Range(usize),
}

/// One measurement: an operation by some threads, for a while.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial<'a> {
    /// The operation.
    pub(crate) operation: Operation,
    /// How many threads.
    pub(crate) threads: usize,
    /// For how long; inserts take as many keys as there are instead.
    pub(crate) slice: Duration,
    /// How many records are in the store: those from 0 on.
    pub(crate) records: u64,
    /// Which of several trials of the same; each takes records in an order of its own.
    pub(crate) round: u64,
    /// Keys that are not in the store, a share for each thread.
    pub(crate) absent: &'a [Vec<Key>],
}

/// A [`Peer`] with its name, callable through a pointer.
pub(crate) trait Contestant: Send + Sync {
    /// The name in tables.
    fn name(&self) -> &'static str;

    /// Writes the records from 0 to `records`, each with a key and a value of its own.
    fn load(&self, records: u64, life: &dyn Fn() -> Ttl);

    /// Writes over one record.
    fn rewrite(&self, key: &Key);

    /// Reads the records from 0 to `records` once each and says how many were there.
    fn read_all(&self, records: u64) -> usize;

    /// Finishes what was put off.
    fn settle(&self);

    /// Runs the trial; operations a second, or `None` if the peer cannot do it.
    fn run(&self, trial: Trial<'_>) -> Option<f64>;
}

/// A peer and what it is called.
#[derive(Debug)]
pub(crate) struct Named<P>(pub(crate) &'static str, pub(crate) P);

impl<P: Peer> Contestant for Named<P> {
    fn name(&self) -> &'static str {
        self.0
    }

    fn load(&self, records: u64, life: &dyn Fn() -> Ttl) {
        for index in 0..records {
            self.1.insert(&key(index), VALUE, life());
        }
    }

    fn rewrite(&self, key: &Key) {
        if !self.1.swap(key, VALUE, VALUE, long_life()) {
            self.1.insert(key, VALUE, long_life());
        }
    }

    fn read_all(&self, records: u64) -> usize {
        (0..records).filter(|index| self.1.get(&key(*index)).is_some()).count()
    }

    fn settle(&self) {
        self.1.settle();
    }

    fn run(&self, trial: Trial<'_>) -> Option<f64> {
        let peer = &self.1;
        match trial.operation {
            Operation::Get => Some(strike(trial, 64, key, |key| {
                assert!(black_box(peer.get(key)).is_some(), "a loaded record is there");
            })),
            Operation::Swap => {
                let life = long_life();
                Some(strike(trial, 64, key, |key| {
                    let swapped = peer.swap(key, VALUE, VALUE, life);
                    assert!(swapped, "all swaps renew the same value");
                }))
            }
            Operation::Range(limit) => {
                peer.range(&range_from(0), limit)?;
                Some(strike(trial, 4, range_from, |query| {
                    black_box(peer.range(query, limit));
                }))
            }
            Operation::Insert => Some(insert_absent(peer, trial)),
        }
    }
}

/// The rows from record `index` on, in its partition.
fn range_from(index: u64) -> RangeQuery {
    RangeQuery {
        partition: Partition::new(partition(index).to_vec()).expect("the length is legal"),
        range: ClusteringRange::ALL.starting_at(clustering(index).to_vec()),
    }
}

/// Calls `work` in each thread on random records until the slice is over; the sum of the threads'
/// rates.
///
/// What names the records is made in batches, and only the work on a batch is timed: as with a
/// request, the key is in the cache and the record is not. The order never repeats. If it did, a
/// contestant that allocates as it goes would find its allocations in the order of the next walk.
fn strike<T>(
    trial: Trial<'_>,
    batch: usize,
    make: impl Fn(u64) -> T + Sync,
    work: impl Fn(&T) + Sync,
) -> f64 {
    let start = Barrier::new(trial.threads);
    let run = |thread: usize| {
        let mut chance = Chance::seeded(trial.round * trial.threads as u64 + thread as u64);
        let mut batches = Batches::start(&start);
        while batches.timed < trial.slice {
            let items: Vec<T> = (0..batch).map(|_| make(chance.below(trial.records))).collect();
            batches.time(batch, || items.iter().for_each(&work));
        }
        batches.rate()
    };
    in_threads(trial.threads, run)
}

/// Batches of work by one thread, and what they took.
struct Batches {
    whole: Stopwatch,
    timed: Duration,
    done: usize,
}

impl Batches {
    fn start(barrier: &Barrier) -> Self {
        barrier.wait();
        Self { whole: Stopwatch::start(), timed: Duration::ZERO, done: 0 }
    }

    fn time(&mut self, count: usize, work: impl FnOnce()) {
        let ((), took) = timing::timed(work);
        self.timed += took;
        self.done += count;
    }

    /// Operations a second. Waits for a core are taken out in proportion: whether they fell into a
    /// batch is not known.
    fn rate(&self) -> f64 {
        self.done as f64 / (self.timed.as_secs_f64() * self.whole.share_run())
    }
}

/// Inserts every absent key, each thread its own share, and removes them all again untimed. Small
/// shares are inserted several times over.
fn insert_absent<P: Peer>(peer: &P, trial: Trial<'_>) -> f64 {
    const AT_LEAST: usize = 50_000;
    let phase = Barrier::new(trial.threads);
    let life = long_life();
    let run = |thread: usize| {
        let share = &trial.absent[thread];
        let rounds = AT_LEAST.div_ceil(share.len());
        let mut rates = 0.0;
        for _ in 0..rounds {
            phase.wait();
            let stopwatch = Stopwatch::start();
            for key in share {
                assert!(peer.insert(key, VALUE, life), "the record was absent");
            }
            rates += stopwatch.rate(share.len());
            phase.wait();
            share.iter().for_each(|key| peer.remove(key));
        }
        rates / rounds as f64
    };
    let rate = in_threads(trial.threads, run);
    peer.settle();
    rate
}

/// Time of one thread without its waits for a core: what else the machine does is not the
/// contestant's. Waits for a lock count, as they are.
struct Stopwatch {
    waits: ThreadWaits,
    waited: Duration,
    begin: Instant,
}

impl Stopwatch {
    fn start() -> Self {
        let waits = ThreadWaits::open();
        Self { waited: waits.total(), waits, begin: timing::now() }
    }

    fn rate(&self, done: usize) -> f64 {
        done as f64 / (self.begin.elapsed().as_secs_f64() * self.share_run())
    }

    /// The share of the time so far that the thread did not wait for a core.
    fn share_run(&self) -> f64 {
        let waited = self.waits.total().saturating_sub(self.waited).as_secs_f64();
        1.0 - waited / self.begin.elapsed().as_secs_f64().max(waited)
    }
}

fn in_threads(threads: usize, run: impl Fn(usize) -> f64 + Sync) -> f64 {
    std::thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a trial does not panic")).sum()
    })
}
