//! The numbers behind [`ObservedStore`](super::ObservedStore): atomics of fixed count per
//! operation.
//!
//! Invariant: every call that begins ends once, by its answer or by being dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::metrics::{Answer, BUCKETS, Metrics, Operation, OperationMetrics, bucket_of};
use crate::clock::SharedClock;

/// The meters of all operations of one store.
#[derive(Debug)]
pub(super) struct Meters {
    backend: &'static str,
    clock: SharedClock,
    operations: [Meter; Operation::ALL.len()],
}

/// The meter of one operation, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Meter {
    answers: [AtomicU64; Answer::ALL.len()],
    /// Calls by duration; the last bucket takes what is longer than every bound.
    durations: [AtomicU64; BUCKETS + 1],
    nanos: AtomicU64,
    in_flight: AtomicU64,
}

impl Meters {
    pub(super) fn new(backend: &'static str, clock: SharedClock) -> Self {
        Self { backend, clock, operations: Default::default() }
    }

    /// Counts a call as under way until the returned value is ended or dropped.
    pub(super) fn begin(&self, operation: Operation) -> Call<'_> {
        let meter = &self.operations[operation as usize];
        meter.in_flight.fetch_add(1, Ordering::Relaxed);
        Call { meters: self, meter, began: self.clock.monotonic(), answer: None }
    }

    pub(super) fn snapshot(&self) -> Metrics {
        let operations = Operation::ALL.iter().map(|operation| {
            let meter = &self.operations[*operation as usize];
            OperationMetrics {
                operation: *operation,
                answers: meter.answers.each_ref().map(load),
                durations: meter.durations.each_ref().map(load),
                total: Duration::from_nanos(load(&meter.nanos)),
                in_flight: load(&meter.in_flight),
            }
        });
        Metrics { backend: self.backend, operations: operations.collect() }
    }
}

fn load(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Call<'a> {
    meters: &'a Meters,
    meter: &'a Meter,
    began: Duration,
    answer: Option<Answer>,
}

impl Call<'_> {
    pub(super) fn end(mut self, answer: Answer) {
        let elapsed = self.meters.clock.monotonic().saturating_sub(self.began);
        self.meter.durations[bucket_of(elapsed)].fetch_add(1, Ordering::Relaxed);
        self.meter.nanos.fetch_add(elapsed.as_nanos() as u64, Ordering::Relaxed);
        self.answer = Some(answer);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let answer = self.answer.unwrap_or(Answer::Cancelled);
        self.meter.answers[answer as usize].fetch_add(1, Ordering::Relaxed);
        self.meter.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
