//! One target, fed for a given time.
//!
//! The corpus goes first, unchanged, then mutations of it without end. The seed decides all
//! inputs; time decides only how many of them are tried.

use std::panic::{self, UnwindSafe};
use std::time::Duration;

use wane::clock::Clock;

use crate::shrink::shrink;
use crate::{Mutator, Random};

/// A function that panics where a property does not hold of the bytes.
pub type Target = fn(&[u8]);

/// What to feed a target with, and for how long.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// Decides the inputs.
    pub seed: u64,
    /// How long to go on if nothing fails.
    pub budget: Duration,
    /// Inputs to begin with.
    pub corpus: Vec<Vec<u8>>,
}

/// What came of a campaign.
#[derive(Debug)]
pub struct Report {
    /// How many inputs were tried.
    pub executions: u64,
    /// How long that took, without shrinking.
    pub elapsed: Duration,
    /// The first input that failed.
    pub failure: Option<Failure>,
}

/// An input for which a property does not hold.
#[derive(Debug)]
pub struct Failure {
    /// The smallest such input that was found.
    pub input: Vec<u8>,
    /// How long the input was before it was shrunk, in bytes.
    pub found_len: usize,
    /// What the target says about the smallest one.
    pub message: String,
}

impl Campaign {
    /// Feeds `target` until it fails or the time is up.
    pub fn run(&self, target: Target, clock: &dyn Clock) -> Report {
        let started = clock.monotonic();
        let elapsed = || clock.monotonic().saturating_sub(started);
        let mut mutator = Mutator::new(Random::seeded(self.seed), self.corpus.clone());
        let mut corpus = self.corpus.iter();
        let mut input = Vec::new();
        let mut executions = 0;
        loop {
            match corpus.next() {
                Some(seed) => input.clone_from(seed),
                None => mutator.next_into(&mut input),
            }
            executions += 1;
            if execute(target, &input).is_err() {
                let elapsed = elapsed();
                let failure = Some(Failure::shrunk(target, &input));
                return Report { executions, elapsed, failure };
            }
            if elapsed() >= self.budget && corpus.len() == 0 {
                return Report { executions, elapsed: elapsed(), failure: None };
            }
        }
    }
}

impl Failure {
    fn shrunk(target: Target, found: &[u8]) -> Self {
        let input = shrink(found, |smaller| execute(target, smaller).is_err());
        let message = execute(target, &input).err();
        let message = message.unwrap_or_else(|| "it fails only now and then".to_owned());
        Self { input, found_len: found.len(), message }
    }
}

/// Runs a target once. The error is what it said when it panicked.
pub fn execute(target: impl FnOnce(&[u8]) + UnwindSafe, input: &[u8]) -> Result<(), String> {
    panic::catch_unwind(|| target(input)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        text.unwrap_or_else(|| "it panicked without a text".to_owned())
    })
}
