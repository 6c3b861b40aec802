//! The sweeper: a thread that takes expired records out of memory and gives memory back.
//!
//! It holds the lock of one record at a time, so nobody waits for it longer than for another
//! writer of the same key. It sleeps while nothing can expire.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Builder;

use super::Core;
use super::points::SlotId;
use super::slot::SlotState;
use super::wheel::{Listing, TICK_MILLIS};
use crate::store::Timestamp;

/// How long freed chunks stay for reuse: giving them back at once would thrash.
const TIDY_AFTER: Duration = Duration::from_millis(500);

/// Leftovers in the wheel that are not worth looking for.
const FEW_LEFTOVERS: usize = 4_096;

/// Starts the sweeper. It ends when `core.closing` is set and it is nudged.
pub(super) fn start(core: Arc<Core>) -> std::io::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let thread = std::thread::Builder::new().name("wane-memory-sweep".into());
    thread.spawn(move || runtime.block_on(run(core)))
}

async fn run(core: Arc<Core>) {
    let mut tidied = core.clock.monotonic();
    while !core.closing.load(Ordering::SeqCst) {
        core.sweep(core.clock.now());
        let since = core.clock.monotonic().saturating_sub(tidied);
        if since >= TIDY_AFTER && core.wasteful.swap(false, Ordering::SeqCst) {
            core.points.tidy();
            tidied = core.clock.monotonic();
        }
        rest(&core).await;
    }
}

/// Waits for the next tick while anything is listed, or for a nudge.
async fn rest(core: &Core) {
    let nudged = core.nudge.notified();
    let pause = if core.wheel.lock().listed() > 0 {
        Duration::from_millis(TICK_MILLIS)
    } else if core.wasteful.load(Ordering::SeqCst) {
        TIDY_AFTER
    } else {
        return nudged.await;
    };
    tokio::select! {
        () = nudged => {}
        () = core.clock.sleep(pause) => {}
    }
}

impl Core {
    /// Looks at every slot whose time has come.
    fn sweep(&self, now: Timestamp) {
        loop {
            // The lock is released before anything is looked at.
            let due = self.wheel.lock().advance(now);
            let Some(due) = due else { break };
            for listing in due {
                self.look(listing, now);
            }
        }
        let slots = self.points.slots();
        if self.wheel.lock().listed() > 2 * slots + FEW_LEFTOVERS {
            self.relist();
        }
    }

    fn look(&self, listing: Listing, now: Timestamp) {
        // A slot that is gone had nothing to expire.
        self.points.visit(listing.id, |slot| {
            let mut state = slot.lock();
            if state.filed != Some(listing.tick) {
                return;
            }
            state.filed = None;
            let Some(entry) = &state.entry else { return };
            if entry.is_live(|| now) {
                self.file(listing.id, &mut state);
            } else {
                let key = entry.key.clone();
                let moment = self.pictures.moment(|| now);
                self.remove(listing.id, moment, &mut state, &key);
            }
        });
    }

    /// Builds the wheel anew, without leftovers.
    fn relist(&self) {
        self.wheel.lock().clear();
        for id in self.points.all_ids() {
            self.points.visit(id, |slot| {
                let mut state = slot.lock();
                state.filed = None;
                self.file(id, &mut state);
            });
        }
    }

    /// Lists the slot under its record's expiry, unless it is listed early enough.
    pub(super) fn file(&self, id: SlotId, state: &mut SlotState) {
        let Some(expiry) = state.entry.as_ref().and_then(|entry| entry.expires_at()) else {
            return;
        };
        let tick = self.ticks.tick_of(expiry);
        if state.filed.is_some_and(|filed| filed <= tick) {
            return;
        }
        state.filed = Some(tick);
        let mut wheel = self.wheel.lock();
        wheel.list(Listing { id, tick });
        if wheel.listed() == 1 {
            self.nudge.notify_one();
        }
    }
}
