//! Waiting for writes that nobody waits for any more.
//!
//! A write whose future was dropped, or that was given up at a deadline, may still be on its way to
//! whoever decides it, where no read sees it. Another write to its key is decided after it on stores that
//! decide in the order in which they are asked, as those of one process do.

use super::{Fence, Key, Store, StoreError};
use crate::clock::SharedClock;

/// Returns once the writes that were sent to `key` before are decided. Changes nothing.
pub(crate) async fn outwait(
    store: &impl Store,
    key: &Key,
    clock: &SharedClock,
) -> Result<(), StoreError> {
    let mut nobodys = [0; 32];
    clock.fill_random(&mut nobodys);
    match store.compare_and_delete(key, &nobodys, Fence::NONE).await {
        Ok(_) => Ok(()),
        // Of whoever called nothing was sent.
        Err(StoreError::Unknown { backend, source }) => {
            Err(StoreError::Unavailable { backend, source })
        }
        Err(error) => Err(error),
    }
}
