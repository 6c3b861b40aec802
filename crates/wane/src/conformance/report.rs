//! Running the suite: every case gets its turn, and the report says what became of each.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;

use super::case::Running;
use super::{Case, CaseError, CaseResult, Harness, Need, Trial, cases};
use crate::clock::SystemClock;

/// A case that takes longer has hung. Stores that really wait for expiry need a few seconds, and a
/// server that shares two cores with many others some minutes.
const CASE_LIMIT: Duration = Duration::from_secs(300);

/// What became of the suite on one store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "failures are only in the report"]
pub struct Report {
    /// What the store under test is called.
    pub store: String,
    /// The names of the cases that passed.
    pub passed: Vec<&'static str>,
    /// The cases that failed.
    pub failed: Vec<Failure>,
    /// The cases that the harness cannot run, and what they need.
    pub not_applicable: Vec<(&'static str, Need)>,
}

/// A case that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The name of the case.
    pub case: &'static str,
    /// What it found.
    pub error: CaseError,
}

impl Report {
    /// Panics with the report unless cases ran and all of them passed.
    ///
    /// # Panics
    ///
    /// Where a case failed, or none ran.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.failed.is_empty() && !self.passed.is_empty(), "{self}");
    }
}

impl fmt::Display for Report {
    /// One line, and one more for each failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, passed, failed, not_applicable } = self;
        let total = passed.len() + failed.len() + not_applicable.len();
        let (passed, count) = (passed.len(), failed.len());
        write!(f, "conformance: {total} cases on {store}: {passed} passed, {count} failed")?;
        let mut needs: Vec<_> = not_applicable.iter().map(|(_, need)| need.missing()).collect();
        needs.dedup();
        match needs.as_slice() {
            [] => write!(f, ", 0 not applicable")?,
            needs => {
                let count = not_applicable.len();
                write!(f, ", {count} not applicable ({})", needs.join(", "))?;
            }
        }
        failed.iter().try_for_each(|Failure { case, error }| write!(f, "\n  {case}: {error}"))
    }
}

/// Runs every case that the harness allows, whatever becomes of the others.
pub async fn run_all<H: Harness>(harness: &H) -> Report {
    run(harness, |_| false).await
}

/// Runs the cases up to the first that fails, if any does: for stores that are known to be wrong.
pub async fn first_failure<H: Harness>(harness: &H) -> Option<Failure> {
    run(harness, |report| !report.failed.is_empty()).await.failed.pop()
}

async fn run<H: Harness>(harness: &H, is_enough: fn(&Report) -> bool) -> Report {
    let mut report = Report {
        store: harness.name().to_owned(),
        passed: Vec::new(),
        failed: Vec::new(),
        not_applicable: Vec::new(),
    };
    // A durable store still holds what an earlier run left in it.
    let run = SystemClock::shared().random_u64();
    for case in cases::<H>() {
        if is_enough(&report) {
            break;
        }
        match attempt(harness, &case, run).await {
            Some(Ok(())) => report.passed.push(case.name),
            Some(Err(error)) => report.failed.push(Failure { case: case.name, error }),
            None => report.not_applicable.push((case.name, case.need)),
        }
    }
    report
}

/// Runs one case, unless the harness lacks what it needs.
async fn attempt<H: Harness>(harness: &H, case: &Case<H>, run: u64) -> Option<CaseResult> {
    let able = match case.need {
        Need::Store | Need::Time => true,
        Need::Clock => harness.clock().is_some(),
        Need::Footprint => harness.footprint().is_some(),
        Need::Restart => match harness.reopen().await {
            Ok(keeps) => keeps,
            Err(error) => return Some(Err(error.into())),
        },
    };
    if !able {
        return None;
    }
    let trial = Trial::new(harness, case.name, run);
    let result = tokio::time::timeout(CASE_LIMIT, unwinding((case.run)(&trial))).await;
    Some(result.unwrap_or_else(|_| Err(CaseError::new("the case did not end"))))
}

/// Turns a panic below the case into its failure.
async fn unwinding(mut running: Running<'_>) -> CaseResult {
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(CaseError::new(said(&*panic)))))
    })
    .await
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}
