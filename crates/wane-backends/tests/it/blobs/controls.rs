//! The controls: what a broken store does to BLOBs turns the very cases red that pass on the others.

use super::downloads::as_many_win_as_there_are_downloads;
use super::life::what_fails_leaves_nothing;
use super::noted::Lie;
use super::resumable::the_later_append_has_it;
use super::stage::Stage;
use super::whole::every_border;

/// Runs a case on a store that lies; whether it was red.
macro_rules! is_red {
    ($case:ident, $lie:expr) => {{
        let it = Stage::memory().await;
        it.notes.tell($lie);
        let run = tokio::spawn(async move { $case(&it).await });
        run.await.is_err_and(|ended| ended.is_panic())
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_loses_mixes_up_or_cuts_chunks_is_caught() {
    for lie in [Lie::Drop(1), Lie::Shuffle(0, 1), Lie::Shorten(0)] {
        assert!(is_red!(every_border, lie), "{lie:?} was not noticed");
    }
    assert!(!is_red!(every_border, Lie::None), "and it is green where nothing is wrong");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_removes_nothing_is_caught() {
    assert!(is_red!(what_fails_leaves_nothing, Lie::KeepWhatGoes));
    assert!(is_red!(every_border, Lie::KeepWhatGoes));
    assert!(!is_red!(what_fails_leaves_nothing, Lie::None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_that_swaps_without_looking_is_caught() {
    assert!(is_red!(as_many_win_as_there_are_downloads, Lie::SwapBlindly));
    assert!(!is_red!(as_many_win_as_there_are_downloads, Lie::None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_fences_is_caught() {
    assert!(is_red!(the_later_append_has_it, Lie::IgnoreFences));
    assert!(!is_red!(the_later_append_has_it, Lie::None));
}
