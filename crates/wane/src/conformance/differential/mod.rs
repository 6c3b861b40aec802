//! Differential runs: random operations on a store and on the model must be answered alike.
//!
//! A case is a list of [`Step`]s, each an operation of the contract or a move of the clock, run
//! one by one on a fresh store and on a fresh [`ModelStore`] that share one manual clock. The keys
//! are few and awkward (empty, 0x00, 0xFF, prefixes of each other), so that steps meet. A failing
//! case is shrunk to the fewest and simplest steps that still differ.
//!
//! Pages are compared joined, scans as sets, errors by kind: the contract promises no more.

mod steps;

pub use steps::{Age, Draft, Step};

use std::fmt;
use std::sync::Arc;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::ModelStore;
use super::history::number_from_env;
use crate::clock::{ManualClock, SharedClock};
use crate::store::{
    ClusteringRange, Outcome, PAGE_BYTES, PageLimit, Partition, Record, Remaining, Row, Store,
    StoreError,
};
use steps::Asked;

/// More pages than any case has rows: a store that needs them never ends.
const ENDLESS: usize = 1_000;

/// How many cases a test runs: `WANE_TEST_DIFFERENTIAL_CASES`, or 256.
pub fn cases_to_run() -> u32 {
    number_from_env("WANE_TEST_DIFFERENTIAL_CASES", 256).try_into().unwrap_or(u32::MAX)
}

/// How a differential run is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trials {
    /// How many cases are run.
    pub cases: u32,
    /// What decides the cases: the same seed gives the same ones.
    pub seed: u64,
    /// How many smaller cases are tried once one has failed; 0 reports it as it is.
    pub shrink: u32,
}

impl Trials {
    /// As many cases as the environment asks for, from this seed.
    pub fn seeded(seed: u64) -> Self {
        Self { cases: cases_to_run(), seed, shrink: 20_000 }
    }
}

/// A case in which a store answered otherwise than the model.
#[derive(Debug)]
pub struct Difference {
    /// The seed that led to it.
    pub seed: u64,
    /// The steps, as few as were found.
    pub steps: Vec<Step>,
    /// The last step with both answers.
    pub reason: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the store differs from the model (seed {}); after the steps", self.seed)?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {number}: {step:?}")?;
        }
        writeln!(f, "{}", self.reason)
    }
}

impl std::error::Error for Difference {}

/// Compares stores that `make` builds on the given clock with the model, one for each case.
///
/// Starts a runtime of its own for each case, so it must not be called from within one.
pub fn compare_with_model<S: Store>(
    trials: Trials,
    make: impl AsyncFn(Arc<ManualClock>) -> S,
) -> Result<(), Box<Difference>> {
    let Trials { cases, seed, shrink } = trials;
    let config =
        Config { cases, max_shrink_iters: shrink, failure_persistence: None, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let run = TestRunner::new_with_rng(config, rng)
        .run(&steps::cases(), |steps| run_case(&steps, &make).map_err(TestCaseError::fail));
    match run {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, steps)) => {
            Err(Box::new(Difference { seed, steps, reason: reason.to_string() }))
        }
        Err(TestError::Abort(reason)) => {
            Err(Box::new(Difference { seed, steps: Vec::new(), reason: reason.to_string() }))
        }
    }
}

/// Runs one case; the error shows the first answer that differs.
fn run_case<S: Store>(
    steps: &[Step],
    make: &impl AsyncFn(Arc<ManualClock>) -> S,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let clock = ManualClock::seeded(0);
        let store = make(Arc::clone(&clock)).await;
        let model = ModelStore::new(Arc::clone(&clock) as SharedClock);
        // A scan at the end shows what no step looked at.
        let end = Step::Scan(PageLimit::MAX);
        for (number, step) in steps.iter().chain([&end]).enumerate() {
            let asked = step.resolve(&clock);
            let (answer, expected) = (answer(&store, &asked).await, answer(&model, &asked).await);
            if answer != expected {
                return Err(format!(
                    "step {number}: {asked:?}\n  the store: {answer:?}\n  the model: {expected:?}"
                ));
            }
        }
        Ok(())
    })
}

/// An answer in the form in which it is compared.
#[derive(Debug, PartialEq)]
enum Answer {
    Records(Vec<Option<Record>>),
    Rows(Vec<Row>),
    Outcomes(Vec<Outcome>),
    Remaining(Remaining),
    Failed(&'static str),
    /// The page had more rows or bytes than it may.
    Overfull(usize),
    Endless,
    /// Nothing was asked: the clock was moved.
    Moved,
}

async fn answer<S: Store>(store: &S, asked: &Asked) -> Answer {
    let answered = match asked.clone() {
        Asked::Nothing => Ok(Answer::Moved),
        Asked::Get(key) => store.get(&key).await.map(|found| Answer::Records(vec![found])),
        Asked::GetBatch(keys) => store.get_batch(&keys).await.map(Answer::Records),
        Asked::Read(partition, range, limit) => read(store, &partition, range, limit).await,
        Asked::Scan(limit) => scan(store, limit).await,
        Asked::Put(key, write) => store.put(&key, write).await.map(one),
        Asked::PutBatch(writes) => store.put_batch(writes).await.map(Answer::Outcomes),
        Asked::Insert(key, write) => store.insert_if_not_exists(&key, write).await.map(one),
        Asked::Swap(key, old, write) => store.compare_and_swap(&key, &old, write).await.map(one),
        Asked::Delete(key, old, fence) => {
            store.compare_and_delete(&key, &old, fence).await.map(one)
        }
        Asked::QueryTtl(key) => store.query_ttl(&key).await.map(Answer::Remaining),
    };
    answered.unwrap_or_else(|error| Answer::Failed(kind(&error)))
}

fn one(outcome: Outcome) -> Answer {
    Answer::Outcomes(vec![outcome])
}

fn kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::Invalid { .. } => "invalid",
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::Unknown { .. } => "unknown",
        StoreError::Corrupt { .. } => "corrupt",
    }
}

/// Whether a row is on the page that belonged on the next.
fn is_overfull(rows: &[Row], limit: PageLimit) -> bool {
    let size = |row: &Row| row.key.size() + row.record.value.len();
    let before_last = rows.split_last().map_or(0, |(_, others)| others.iter().map(size).sum());
    rows.len() > limit.rows() || before_last >= PAGE_BYTES
}

async fn read<S: Store>(
    store: &S,
    partition: &Partition,
    range: ClusteringRange,
    limit: PageLimit,
) -> Result<Answer, StoreError> {
    let mut rows = Vec::new();
    let mut rest = range;
    for _ in 0..ENDLESS {
        let page = store.read(partition, &rest, limit).await?;
        if is_overfull(&page.rows, limit) {
            return Ok(Answer::Overfull(page.rows.len()));
        }
        rows.extend(page.rows);
        let Some(next) = page.rest else { return Ok(Answer::Rows(rows)) };
        rest = next;
    }
    Ok(Answer::Endless)
}

async fn scan<S: Store>(store: &S, limit: PageLimit) -> Result<Answer, StoreError> {
    let mut rows: Vec<Row> = Vec::new();
    let mut after = None;
    for _ in 0..ENDLESS {
        let page = store.scan(after, limit).await?;
        if is_overfull(&page.rows, limit) {
            return Ok(Answer::Overfull(page.rows.len()));
        }
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            rows.sort_by(|one, other| one.key.cmp(&other.key));
            rows.dedup();
            return Ok(Answer::Rows(rows));
        }
    }
    Ok(Answer::Endless)
}
