//! How a full disk empties itself.
//!
//! ```text
//! full -> due? -> give some of the reserve up -> remove, more at a time -> fill it up -> go on
//! ```
//!
//! What has expired must leave, young or in the tree, and leaving takes room first: that is what the
//! reserve is for. What is freed goes to the reserve before it goes to callers, so that the next time
//! there is one. Most of it lies inside of the file of large values: where its end is in use, values
//! are moved from there until so much can be cut off.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{BUSY, Batch, Checkpointer, Chores, Failure};
use crate::file::tentative_storage::TentativeStorage;

/// Records removed at a time: at first, and at most. What one step frees, a later one can use.
const FIRST_REMOVAL: usize = 8;
const LAST_REMOVAL: usize = 2_048;

/// Steps of removal before callers get their answers.
const STEPS: usize = 16;

/// Bytes of large values that are moved to fill the reserve up, at least.
const MOVED: u64 = 8 << 20;

impl Checkpointer {
    /// Whether the disk has room, as far as anybody knows. Where it had none, a commit of next to
    /// nothing tells from time to time.
    pub(super) fn has_room(&mut self) -> bool {
        if !self.room.is_lacking() {
            return true;
        }
        let shared = Arc::clone(&self.shared);
        let _nobody_else = shared.clearing.lock();
        let now = self.shared.clock.monotonic();
        if !self.room.is_time(now) {
            return false;
        }
        let time = self.shared.clock.now();
        let has_died = self.is_due(time) || shared.has_died_young(time);
        let can_remove = has_died && self.shared.reserve.lock().has_some();
        let looks_good = can_remove || self.looks_good();
        if !self.room.is_worth_a_try(now, looks_good) {
            return false;
        }
        let fits = self.fits(now, BUSY) || (can_remove && self.fits_with_reserve(now));
        if !fits || !self.has_made_up(now) || !self.is_accepted() {
            return false;
        }
        self.room.found(now);
        self.shared.lacks_room.store(false, Ordering::SeqCst);
        true
    }

    /// Whether there is room, as far as that can be told without a commit.
    fn looks_good(&mut self) -> bool {
        let is_given_up = self.shared.reserve.lock().is_given_up();
        if is_given_up { self.refills() } else { self.file.directory.has_room() }
    }

    /// Whether a commit of nothing but chores fits.
    fn fits(&mut self, now: Duration, chores: Chores) -> bool {
        if let Err(error) = self.unaccepted.as_ref().map_or(Ok(()), TentativeStorage::accept) {
            self.room.ran_out(now);
            if !self.file.lender.only_lacked_room() {
                self.shared.fail(&error.to_string());
            }
            return false;
        }
        self.unaccepted = None;
        // One that did not fit may turn out to be in the file, which is then opened anew, and that may
        // not have fitted.
        self.commit(Batch::default(), chores, None).is_ok() && self.is_accepted()
    }

    /// The same for a small removal, once some of the reserve is given up.
    fn fits_with_reserve(&mut self, now: Duration) -> bool {
        let removal = Chores { sweep: FIRST_REMOVAL, pack: 0 };
        self.goes_on() && self.shared.reserve.lock().give_up() && self.fits(now, removal)
    }

    /// Whether the reserve is as it was before it was given up, after removing what is due.
    fn has_made_up(&mut self, now: Duration) -> bool {
        if !self.shared.reserve.lock().is_given_up() {
            return true;
        }
        if self.remove_due().is_err() || !self.goes_on() {
            return false;
        }
        let is_made_up = self.refills() || (self.makes_up().is_ok() && self.refills());
        // Somebody else may have taken what was given up. Callers are then served from what is free
        // inside of the files, but not soon, as long as that is not known.
        if is_made_up || self.room.has_waited_long() {
            return true;
        }
        self.room.ran_out(now);
        false
    }

    /// Whether the reserve is as it was before it was given up, or nothing can be done about it.
    /// `false` means that there is more to do.
    pub(super) fn is_made_up(&mut self) -> bool {
        if !self.shared.reserve.lock().is_given_up() || self.refills() {
            return true;
        }
        self.makes_up().is_ok_and(|moved| moved == 0)
    }

    /// Moves values from the end of their file, so that the reserve can be filled up from what is cut
    /// off, and returns how many bytes were.
    fn makes_up(&mut self) -> Result<u64, Failure> {
        // Those of the young generations are not listed in the tree, and cannot be moved.
        while self.bring_oldest()? {}
        let pack = Chores { sweep: 0, pack: MOVED };
        Ok(self.commit(Batch::default(), pack, None)?.packed)
    }

    fn remove_due(&mut self) -> Result<(), Failure> {
        self.shared.seal(None);
        while self.shared.has_died_young(self.shared.clock.now()) && self.bring_oldest()? {}
        let mut sweep = FIRST_REMOVAL;
        for _ in 0..STEPS {
            if !self.is_due(self.shared.clock.now()) {
                break;
            }
            self.commit(Batch::default(), Chores { sweep, pack: 0 }, None)?;
            sweep = (2 * sweep).min(LAST_REMOVAL);
        }
        Ok(())
    }

    /// Cuts off what is free at the end, and fills the reserve up from that. Says whether it could.
    fn refills(&mut self) -> bool {
        if let Err(error) = self.trim_values() {
            self.shared.fail(&error.to_string());
            return false;
        }
        self.shared.reserve.lock().fill()
    }

    /// Sets room aside, where large values may come to need it. Where there is too little, the log
    /// says so, and it is tried again when there is time.
    pub(super) fn set_room_aside(&mut self) {
        if self.engine.values_extent().1 > 0 {
            self.shared.reserve.lock().fill();
        }
    }
}
