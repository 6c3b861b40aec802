//! What was observed, as plain data, and its text for Prometheus.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::store::{Outcome, StoreError};

/// Bounds of the duration histogram: 1 us, doubling up to 16.8 s.
pub(super) const BUCKETS: usize = 25;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// An operation of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the method of the same name")]
pub enum Operation {
    Get,
    GetBatch,
    Read,
    Scan,
    Put,
    PutBatch,
    InsertIfNotExists,
    CompareAndSwap,
    CompareAndDelete,
    QueryTtl,
}

impl Operation {
    /// Every operation, in the order of the contract.
    pub const ALL: [Self; 10] = [
        Self::Get,
        Self::GetBatch,
        Self::Read,
        Self::Scan,
        Self::Put,
        Self::PutBatch,
        Self::InsertIfNotExists,
        Self::CompareAndSwap,
        Self::CompareAndDelete,
        Self::QueryTtl,
    ];

    /// The name as a label: that of the method.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetBatch => "get_batch",
            Self::Read => "read",
            Self::Scan => "scan",
            Self::Put => "put",
            Self::PutBatch => "put_batch",
            Self::InsertIfNotExists => "insert_if_not_exists",
            Self::CompareAndSwap => "compare_and_swap",
            Self::CompareAndDelete => "compare_and_delete",
            Self::QueryTtl => "query_ttl",
        }
    }

    const fn is_write(self) -> bool {
        match self {
            Self::Get | Self::GetBatch | Self::Read | Self::Scan | Self::QueryTtl => false,
            Self::Put
            | Self::PutBatch
            | Self::InsertIfNotExists
            | Self::CompareAndSwap
            | Self::CompareAndDelete => true,
        }
    }
}

/// How a call ended. Of a batch or a page: found if anything was, applied if everything was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A write took effect.
    Applied,
    /// A write's condition did not hold.
    Refused,
    /// A read found a live record.
    Found,
    /// A read found none.
    Absent,
    /// [`StoreError::Invalid`].
    Invalid,
    /// [`StoreError::Unavailable`].
    Unavailable,
    /// [`StoreError::Unknown`].
    Unknown,
    /// [`StoreError::Corrupt`].
    Corrupt,
    /// The caller dropped the call before it ended. Such calls have no duration.
    Cancelled,
}

impl Answer {
    /// Every way a call can end.
    pub const ALL: [Self; 9] = [
        Self::Applied,
        Self::Refused,
        Self::Found,
        Self::Absent,
        Self::Invalid,
        Self::Unavailable,
        Self::Unknown,
        Self::Corrupt,
        Self::Cancelled,
    ];

    /// The name as a label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
            Self::Found => "found",
            Self::Absent => "absent",
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Corrupt => "corrupt",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn found(found: bool) -> Self {
        if found { Self::Found } else { Self::Absent }
    }

    pub(super) fn applied(applied: bool) -> Self {
        if applied { Self::Applied } else { Self::Refused }
    }

    pub(super) fn of_write(outcome: &Outcome) -> Self {
        Self::applied(outcome.is_applied())
    }

    pub(super) fn of_error(error: &StoreError) -> Self {
        match error {
            StoreError::Invalid { .. } => Self::Invalid,
            StoreError::Unavailable { .. } => Self::Unavailable,
            StoreError::Unknown { .. } => Self::Unknown,
            StoreError::Corrupt { .. } => Self::Corrupt,
        }
    }

    fn is_of(self, operation: Operation) -> bool {
        match self {
            Self::Applied | Self::Refused => operation.is_write(),
            Self::Found | Self::Absent => !operation.is_write(),
            Self::Invalid | Self::Unavailable | Self::Unknown | Self::Corrupt | Self::Cancelled => {
                true
            }
        }
    }
}

/// What one store was asked and how it answered, since it was wrapped.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// The label given at construction.
    pub backend: &'static str,
    /// One entry per operation, in the order of [`Operation::ALL`].
    pub operations: Vec<OperationMetrics>,
}

/// The numbers of one operation.
#[derive(Debug, Clone)]
pub struct OperationMetrics {
    /// Which one.
    pub operation: Operation,
    /// Time that ended calls took together.
    pub total: Duration,
    /// Calls under way.
    pub in_flight: u64,
    pub(super) answers: [u64; Answer::ALL.len()],
    pub(super) durations: [u64; BUCKETS + 1],
}

impl OperationMetrics {
    /// How many calls ended this way.
    pub fn count(&self, answer: Answer) -> u64 {
        self.answers[answer as usize]
    }

    /// How many calls ended with an answer, and so have a duration.
    pub fn timed(&self) -> u64 {
        self.durations.iter().sum()
    }
}

impl Metrics {
    /// The numbers of one operation.
    pub fn of(&self, operation: Operation) -> &OperationMetrics {
        &self.operations[operation as usize]
    }
}

/// The bucket of a duration: the first whose bound is not below it.
pub(super) fn bucket_of(elapsed: Duration) -> usize {
    let micros = elapsed.as_nanos().div_ceil(1_000).max(1);
    let micros = u64::try_from(micros).unwrap_or(u64::MAX);
    // The exponent of the power of two at or above.
    let exponent = u64::BITS - (micros - 1).leading_zeros();
    (exponent as usize).min(BUCKETS)
}

/// The snapshots of any number of stores in the text format that Prometheus scrapes.
pub fn prometheus_text(stores: &[Metrics]) -> String {
    let mut text = String::new();
    write_text(&mut text, stores).expect("writing to a string cannot fail");
    text
}

fn write_text(text: &mut String, stores: &[Metrics]) -> fmt::Result {
    let each = || stores.iter().flat_map(|store| store.operations.iter().map(move |o| (store, o)));
    family(text, "wane_store_operations_total", "counter", "Calls by how they ended.")?;
    for (store, numbers) in each() {
        write_answers(text, store.backend, numbers)?;
    }
    family(text, "wane_store_operation_seconds", "histogram", "Duration of calls that ended.")?;
    for (store, numbers) in each() {
        write_durations(text, store.backend, numbers)?;
    }
    family(text, "wane_store_in_flight", "gauge", "Calls under way.")?;
    for (store, numbers) in each() {
        let labels = labels(store.backend, numbers);
        writeln!(text, "wane_store_in_flight{{{labels}}} {}", numbers.in_flight)?;
    }
    Ok(())
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn labels(backend: &str, numbers: &OperationMetrics) -> String {
    let backend = backend.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
    format!("backend=\"{backend}\",operation=\"{}\"", numbers.operation.name())
}

fn write_answers(text: &mut String, backend: &str, numbers: &OperationMetrics) -> fmt::Result {
    let labels = labels(backend, numbers);
    for answer in Answer::ALL.iter().filter(|answer| answer.is_of(numbers.operation)) {
        let (name, count) = (answer.name(), numbers.count(*answer));
        writeln!(text, "wane_store_operations_total{{{labels},outcome=\"{name}\"}} {count}")?;
    }
    Ok(())
}

fn write_durations(text: &mut String, backend: &str, numbers: &OperationMetrics) -> fmt::Result {
    let labels = labels(backend, numbers);
    let name = "wane_store_operation_seconds";
    let mut count = 0;
    for (bucket, calls) in numbers.durations[..BUCKETS].iter().enumerate() {
        count += calls;
        let bound = seconds(1_000 << bucket);
        writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}")?;
    }
    count += numbers.durations[BUCKETS];
    writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
    writeln!(text, "{name}_sum{{{labels}}} {}", seconds(numbers.total.as_nanos() as u64))?;
    writeln!(text, "{name}_count{{{labels}}} {count}")
}

/// Nanoseconds as exact decimal seconds.
fn seconds(nanos: u64) -> String {
    let digits = format!("{}.{:09}", nanos / NANOS_PER_SEC, nanos % NANOS_PER_SEC);
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_on_a_bound_is_within_it_and_one_beyond_is_not() {
        assert_eq!(bucket_of(Duration::ZERO), 0);
        for bucket in 0..BUCKETS {
            let bound = Duration::from_nanos(1_000 << bucket);
            assert_eq!(bucket_of(bound), bucket, "{bound:?}");
            assert_eq!(bucket_of(bound + Duration::from_nanos(1)), bucket + 1, "{bound:?}");
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKETS);
    }

    #[test]
    fn every_operation_and_answer_sits_at_its_own_index() {
        assert!(Operation::ALL.iter().enumerate().all(|(at, o)| *o as usize == at));
        assert!(Answer::ALL.iter().enumerate().all(|(at, a)| *a as usize == at));
    }

    #[test]
    fn seconds_are_exact_decimals() {
        assert_eq!(seconds(0), "0");
        assert_eq!(seconds(1_000), "0.000001");
        assert_eq!(seconds(16_777_216_000), "16.777216");
        assert_eq!(seconds(3_000_000_000), "3");
    }
}
