//! The controls: over a store that swaps in two steps, or with a clock that is behind, the very
//! cases go red that pass on every backend.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::deciding::{one_of_approving_and_denying_wins, one_of_many_approvals_wins};
use super::expiring::what_is_told_is_what_became_of_it;
use super::redeeming::{a_revocation_has_the_last_word, many_polls_get_one_token};
use super::stage::Stage;

/// Runs a case in memory, over swaps in one step or in two; whether it was red.
async fn is_red(in_two_steps: bool, case: impl AsyncFn(&Stage)) -> bool {
    let it = Stage::memory().await;
    if in_two_steps {
        it.swaps.make_in_two_steps();
    }
    AssertUnwindSafe(case(&it)).catch_unwind().await.is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_swaps_in_two_steps_is_caught_deciding() {
    assert!(is_red(true, one_of_approving_and_denying_wins).await);
    assert!(is_red(true, one_of_many_approvals_wins).await);
    assert!(!is_red(false, one_of_approving_and_denying_wins).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_swaps_in_two_steps_is_caught_redeeming() {
    assert!(is_red(true, many_polls_get_one_token).await);
    assert!(is_red(true, a_revocation_has_the_last_word).await);
    assert!(!is_red(false, many_polls_get_one_token).await);
}

/// The device asks a node that takes the codes for alive.
async fn with_a_clock_that_is_behind(it: &Stage) {
    what_is_told_is_what_became_of_it(it, &it.behind(Duration::from_secs(30))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_is_behind_is_caught_at_the_expiry() {
    assert!(is_red(false, with_a_clock_that_is_behind).await);
}
