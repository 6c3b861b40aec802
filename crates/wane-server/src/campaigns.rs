//! Fuzz campaigns as unit tests: five seconds on what holds, and until a planted mistake is caught.

use std::time::Duration;

use wane::clock::SystemClock;
use wane_fuzz::{Campaign, Report, Target};

fn run(seed: u64, seeds: &[&str], target: Target) -> Report {
    let corpus = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let campaign = Campaign { seed, budget: Duration::from_secs(5), corpus };
    campaign.run(target, &*SystemClock::shared())
}

/// Nothing that grows out of `seeds` breaks the target.
#[track_caller]
pub(crate) fn assert_holds(seeds: &[&str], target: Target) {
    let seed = SystemClock::shared().random_u64();
    let report = run(seed, seeds, target);
    println!("{} executions, seed {seed}", report.executions);
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert!(report.executions > 1_000, "too slow: {}", report.executions);
}

/// Something that grows out of `seeds` shows that the target lacks `property`.
#[track_caller]
pub(crate) fn assert_caught(seeds: &[&str], target: Target, property: &str) {
    let failure = run(1, seeds, target).failure.expect("the mistake is caught");
    assert!(failure.message.contains(property), "{}", failure.message);
}
