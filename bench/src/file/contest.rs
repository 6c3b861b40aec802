//! What each contestant of the file benchmark can do, and how callers are let loose on it.
//!
//! Stores that block are called from a thread for each caller, as their users would; wane is called
//! from tasks on a runtime of two threads. Every write is on disk before its call returns.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::measured::Measured;
use crate::workload::Chance;
use crate::{BoxError, timing};

/// How many rows a range reads.
pub(crate) const RANGE_ROWS: usize = 10;

/// What a trial measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A conditional write of a record that is not there, durable.
    Insert,
    /// A swap of the same value that extends the expiry, durable.
    Renew,
    /// A read of one record.
    Get,
    /// A read of [`RANGE_ROWS`] rows in order.
    Range,
}

impl Operation {
    /// The name in tables, and in the arguments of the Go program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Renew => "renew",
            Self::Get => "get",
            Self::Range => "range",
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial {
    /// The operation.
    pub(crate) operation: Operation,
    /// How many callers at once.
    pub(crate) callers: usize,
    /// For how long.
    pub(crate) slice: Duration,
    /// Records from 0 to this were loaded.
    pub(crate) records: u64,
}

/// A store on disk with a set of records.
pub(crate) trait Contestant {
    /// The name in tables.
    fn name(&self) -> &'static str;

    /// Writes the records in bulk, by whatever way is fastest.
    fn load(&self, records: Range<u64>) -> Result<(), BoxError>;

    /// Runs the trial.
    fn run(&self, trial: Trial) -> Result<Measured, BoxError>;
}

/// A store whose calls block. Writes return when they are on disk.
pub(crate) trait BlockingStore: Sync {
    /// Writes record `index` where it is absent.
    fn insert(&self, index: u64) -> Result<bool, BoxError>;

    /// Swaps the value of record `index` for itself with a later expiry.
    fn renew(&self, index: u64) -> Result<bool, BoxError>;

    /// Reads record `index`; whether it is there.
    fn get(&self, index: u64) -> Result<bool, BoxError>;

    /// Reads rows in order from record `index` on; how many.
    fn range(&self, index: u64) -> Result<usize, BoxError>;

    /// Writes the records in bulk.
    fn load(&self, records: Range<u64>) -> Result<(), BoxError>;
}

/// A blocking store with its name.
#[derive(Debug)]
pub(crate) struct Blocking<S> {
    name: &'static str,
    store: S,
    next_absent: AtomicU64,
}

impl<S> Blocking<S> {
    /// Names the store.
    pub(crate) fn new(name: &'static str, store: S) -> Self {
        Self { name, store, next_absent: AtomicU64::new(FIRST_ABSENT) }
    }
}

/// Records that trials insert are numbered from here on, beyond any load.
pub(crate) const FIRST_ABSENT: u64 = 1 << 32;

impl<S: BlockingStore> Contestant for Blocking<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn load(&self, records: Range<u64>) -> Result<(), BoxError> {
        self.store.load(records)
    }

    fn run(&self, trial: Trial) -> Result<Measured, BoxError> {
        let (all_here, start) = (Barrier::new(trial.callers), OnceLock::new());
        let work = |caller: usize| -> Result<Calls, BoxError> {
            let mut calls = Calls::new(caller, trial);
            all_here.wait();
            calls.begin(&start);
            while let Some(index) = calls.next(&self.next_absent) {
                let applied = match trial.operation {
                    Operation::Insert => self.store.insert(index)?,
                    Operation::Renew => self.store.renew(index)?,
                    Operation::Get => self.store.get(index)?,
                    Operation::Range => self.store.range(index)? > 0,
                };
                calls.done(applied);
            }
            Ok(calls)
        };
        let all = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..trial.callers).map(|caller| scope.spawn(move || work(caller))).collect();
            let joined = threads.into_iter().map(|thread| thread.join().expect("no caller panics"));
            joined.collect::<Result<Vec<_>, _>>()
        })?;
        Calls::summary(all)
    }
}

/// The calls of one caller, timed one by one.
#[derive(Debug)]
pub(crate) struct Calls {
    trial: Trial,
    chance: Chance,
    times: Histogram<u64>,
    begin: Instant,
    called: Instant,
    finished: Instant,
    longest_wait: Duration,
}

impl Calls {
    /// No calls yet.
    pub(crate) fn new(caller: usize, trial: Trial) -> Self {
        // Two digits: with three, the histograms of 128 callers would not fit into the caches.
        let times = Histogram::new_with_bounds(100, 60_000_000_000, 2)
            .expect("100 ns to a minute with two digits are legal bounds");
        let (chance, now) = (Chance::seeded(caller as u64), timing::now());
        let longest_wait = Duration::ZERO;
        Self { trial, chance, times, begin: now, called: now, finished: now, longest_wait }
    }

    /// The clock starts with the first caller that begins, for all of them.
    pub(crate) fn begin(&mut self, start: &OnceLock<Instant>) {
        self.begin = *start.get_or_init(timing::now);
        self.finished = self.begin;
    }

    /// The record of the next call, which begins now; `None` once the time is up.
    pub(crate) fn next(&mut self, next_absent: &AtomicU64) -> Option<u64> {
        self.called = timing::now();
        if self.called.duration_since(self.begin) >= self.trial.slice {
            return None;
        }
        Some(match self.trial.operation {
            Operation::Insert => next_absent.fetch_add(1, Ordering::Relaxed),
            Operation::Renew | Operation::Get | Operation::Range => {
                self.chance.below(self.trial.records)
            }
        })
    }

    /// The call returned.
    pub(crate) fn done(&mut self, applied: bool) {
        assert!(applied, "every {} finds what it needs", self.trial.operation.name());
        self.answered(timing::now());
    }

    fn answered(&mut self, at: Instant) {
        self.longest_wait = self.longest_wait.max(at - self.finished);
        self.finished = at;
        let nanos = (at - self.called).as_nanos() as u64;
        self.times.saturating_record(nanos);
    }

    /// The longest that any caller was without an answer, from the beginning or the last one on.
    pub(crate) fn longest_wait(all: &[Self]) -> Duration {
        all.iter().map(|calls| calls.longest_wait).max().unwrap_or_default()
    }

    /// How many calls returned.
    pub(crate) fn count(&self) -> u64 {
        self.times.len()
    }

    /// All callers together.
    pub(crate) fn summary(all: Vec<Self>) -> Result<Measured, BoxError> {
        let begin = all.iter().map(|calls| calls.begin).min().ok_or("there was no caller")?;
        let end = all.iter().map(|calls| calls.finished).max().ok_or("there was no caller")?;
        let mut all = all.into_iter();
        let mut times = all.next().ok_or("there was no caller")?.times;
        for calls in all {
            times.add(calls.times)?;
        }
        let micros = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Measured {
            rate: times.len() as f64 / (end - begin).as_secs_f64(),
            p50: micros(0.5),
            p99: micros(0.99),
            p999: micros(0.999),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(answers: &[u64]) -> Calls {
        let slice = Duration::from_secs(1);
        let trial = Trial { operation: Operation::Insert, callers: 2, slice, records: 0 };
        let mut calls = Calls::new(0, trial);
        calls.begin(&OnceLock::new());
        for millis in answers {
            calls.called = calls.finished;
            calls.answered(calls.begin + Duration::from_millis(*millis));
        }
        calls
    }

    #[test]
    fn the_longest_wait_is_that_of_the_caller_that_was_left_alone() {
        let all = [calls(&[10, 20, 30, 40]), calls(&[5, 35, 40])];
        assert_eq!(Calls::longest_wait(&all), Duration::from_millis(30));
        assert_eq!(Calls::longest_wait(&all[..1]), Duration::from_millis(10));
        assert_eq!(Calls::longest_wait(&[]), Duration::ZERO);
    }

    #[test]
    fn a_first_answer_that_comes_late_is_a_wait() {
        assert_eq!(Calls::longest_wait(&[calls(&[300, 310])]), Duration::from_millis(300));
    }

    #[test]
    fn percentiles_are_those_of_all_callers_together() {
        let brisk: Vec<u64> = (1..=98).collect();
        let measured = Calls::summary(vec![calls(&brisk), calls(&[50, 100])]).unwrap();
        assert!((0.98e3..1.02e3).contains(&measured.p50), "{measured:?}");
        assert!((49e3..51e3).contains(&measured.p999), "{measured:?}");
    }
}
