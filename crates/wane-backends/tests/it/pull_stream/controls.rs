//! The controls: over a store that is not what it should be, the very cases go red that pass on
//! every backend.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use wane::services::pull_stream::PullStreamSettings;

use super::doctored::Lie;
use super::readers::{a_storm_makes_six_readers, woken_within};
use super::sharing::share;
use super::stage::{Stage, unhurried};
use super::tokens::{a_raced_token_has_one_answer, rotated};

/// Runs a case in memory over a store that lies so; whether it was red.
async fn is_red(lie: Lie, case: impl AsyncFn(&Stage)) -> bool {
    let it = Stage::memory(lie).await;
    AssertUnwindSafe(case(&it)).catch_unwind().await.is_err()
}

/// Whether it is red in one of several runs: racers of a busy machine do not meet each time.
async fn turns_red(lie: Lie, case: impl AsyncFn(&Stage)) -> bool {
    for _ in 0..20 {
        if is_red(lie, &case).await {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_swaps_in_two_steps_is_caught() {
    assert!(turns_red(Lie::SwapsInTwoSteps, a_raced_token_has_one_answer).await);
    assert!(turns_red(Lie::SwapsInTwoSteps, a_storm_makes_six_readers).await);
    assert!(!is_red(Lie::None, a_storm_makes_six_readers).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_swaps_in_two_steps_is_caught_by_the_account() {
    // By what readers were told, or by what the audit says of it.
    let sound = async |it: &Stage| {
        share(it).await.map(|_| ()).expect("it is sound");
    };
    assert!(turns_red(Lie::SwapsInTwoSteps, sound).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_acknowledges_rows_and_forgets_them_is_caught() {
    let it = Stage::memory(Lie::ForgetsRows(20)).await;
    let wrong = share(&it).await.expect_err("it must be caught");
    println!("{wrong}");
}

/// A key that is used before all nodes know it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_that_was_not_announced_is_caught() {
    assert!(is_red(Lie::None, async |it| rotated(it, false).await).await);
    assert!(!is_red(Lie::None, async |it| rotated(it, true).await).await);
}

/// Nodes that do not look for what the others have taken in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_lookout_is_caught() {
    let it = Stage::memory(Lie::None).await;
    let hold = Duration::from_secs(3);
    let settings = PullStreamSettings { hold, look_every: None, ..unhurried() };
    assert!(woken_within(&it, settings).await > Duration::from_secs(1));
}
