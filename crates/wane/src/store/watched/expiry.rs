//! The task of a [`WatchedStore`](super::WatchedStore): looks at keys when they come due.
//!
//! A key that is due is read from the store under its stripe, so that a renewal that won is seen
//! and an expiry that is reported has happened. Looks run side by side: a slow one delays few.
//!
//! The task holds no store, only a way to reach it: it ends by itself once the store is gone.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;

use super::Shared;
use super::board::Board;
use crate::store::{Key, Record, Store, StoreError, outwait};

/// How many keys are looked at side by side.
const LOOKS: usize = 64;

/// The longest sleep before the clock is looked at again.
///
/// Sleeps follow elapsed time. The wall clock, by which records expire, runs up to 2 % faster
/// while it slews: 5 ms within this time.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

pub(super) async fn watch_expiries<S: Store>(store: Weak<Shared<S>>, board: Arc<Board>) {
    let mut looks = JoinSet::new();
    loop {
        while looks.try_join_next().is_some() {}
        let now = board.clock.now();
        board.remove_ended(now);
        for key in board.take_due(now, LOOKS - looks.len()) {
            let Some(store) = store.upgrade() else { return };
            looks.spawn(look(store, key));
        }
        let busy = looks.len() == LOOKS;
        tokio::select! {
            Some(_) = looks.join_next() => {}
            () = board.changed(), if !busy => {}
            () = until_due(&board), if !busy => {}
        }
    }
}

async fn until_due(board: &Board) {
    match board.next_due() {
        Some(due) => board.clock.sleep(board.clock.now().until(due).min(LONGEST_SLEEP)).await,
        None => std::future::pending().await,
    }
}

/// Reads a key that is due, and posts what became of it.
async fn look<S: Store>(store: Arc<Shared<S>>, key: Key) {
    let board = &store.board;
    let _turn = board.stripes.lock(&key).await;
    if !board.is_due(&key) {
        return;
    }
    match seen(&store, &key).await {
        Ok(seen) => board.correct(&key, seen),
        Err(_) => board.look_after_failure(&key),
    }
}

/// What the store has, once no write that is in doubt can change it any more.
async fn seen<S: Store>(store: &Shared<S>, key: &Key) -> Result<Option<Record>, StoreError> {
    if store.board.is_doubtful(key) {
        outwait(&store.inner, key, &store.board.clock).await?;
    }
    store.inner.get(key).await
}
