//! Room on the disk: whether there is some, and when to look and to try where there is none.
//!
//! Looking is cheap: a file of some size is written and removed. Trying is not, as a commit that
//! does not fit costs opening the file anew. So a try follows a look that found room, and the next
//! look comes later where such a try was in vain or did not help for long. Once in a while a try is
//! made without, since records expire and leave room inside of the file.

use std::path::Path;
use std::time::Duration;

/// How often to look: at first, and at least.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LAST_LOOK: Duration = Duration::from_secs(4);

/// How long to wait before a try that no look encourages: at first, and at most.
const FIRST_TRY: Duration = Duration::from_secs(1);
const LAST_TRY: Duration = Duration::from_secs(60);

/// The room that is looked for.
const SOUGHT: usize = 1 << 20;

/// What is known of the room. Times are those of the clock's monotonic reading.
#[derive(Debug)]
pub(super) struct Room {
    lacking: bool,
    /// The try under way, or the last one, followed a look that found room.
    encouraged: bool,
    found_at: Duration,
    look_at: Duration,
    look_every: Duration,
    try_at: Duration,
    try_after: Duration,
}

impl Room {
    /// As far as anybody knows there is room.
    pub(super) fn new() -> Self {
        Self {
            lacking: false,
            encouraged: false,
            found_at: Duration::ZERO,
            look_at: Duration::ZERO,
            look_every: FIRST_LOOK,
            try_at: Duration::ZERO,
            try_after: FIRST_TRY,
        }
    }

    pub(super) fn is_lacking(&self) -> bool {
        self.lacking
    }

    /// How long to rest between looks.
    pub(super) fn rest(&self) -> Duration {
        self.look_every
    }

    /// Something did not fit.
    pub(super) fn ran_out(&mut self, now: Duration) {
        let was_brief = self.lacking || now < self.found_at + 4 * self.look_every;
        let in_vain = self.encouraged && was_brief;
        self.look_every = if in_vain { (2 * self.look_every).min(LAST_LOOK) } else { FIRST_LOOK };
        self.try_after = if self.lacking { (2 * self.try_after).min(LAST_TRY) } else { FIRST_TRY };
        self.look_at = now + self.look_every;
        self.try_at = now + self.try_after;
        self.lacking = true;
    }

    /// Whether tries have become as rare as they get.
    pub(super) fn has_waited_long(&self) -> bool {
        self.try_after >= LAST_TRY
    }

    /// Something did fit.
    pub(super) fn found(&mut self, now: Duration) {
        self.lacking = false;
        self.found_at = now;
    }

    /// Whether to look now.
    pub(super) fn is_time(&self, now: Duration) -> bool {
        now >= self.look_at
    }

    /// Whether to try, after a look that found room or did not.
    pub(super) fn is_worth_a_try(&mut self, now: Duration, looks_good: bool) -> bool {
        self.look_at = now + self.look_every;
        self.encouraged = looks_good;
        looks_good || now >= self.try_at
    }
}

/// Whether the disk of this directory has room.
pub(super) fn look(directory: &Path) -> bool {
    let probe = directory.join("room.probe");
    let written = std::fs::write(&probe, vec![0xA5; SOUGHT]).is_ok();
    // Where it cannot be removed, the next look writes over it.
    drop(std::fs::remove_file(&probe));
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn lacking() -> Room {
        let mut room = Room::new();
        room.ran_out(NOW);
        room
    }

    #[test]
    fn a_look_that_finds_room_is_followed_by_a_try() {
        let mut room = lacking();
        assert!(!room.is_time(NOW));
        assert!(room.is_time(NOW + FIRST_LOOK));
        assert!(!room.is_worth_a_try(NOW + FIRST_LOOK, false));
        assert!(!room.is_time(NOW + FIRST_LOOK));
        assert!(room.is_worth_a_try(NOW + 2 * FIRST_LOOK, true));
        room.found(NOW + 2 * FIRST_LOOK);
        assert!(!room.is_lacking());
    }

    #[test]
    fn looks_stay_frequent_and_tries_become_rare_while_there_is_no_room() {
        let (mut room, mut now) = (lacking(), NOW);
        let mut tries = 0;
        while now < NOW + Duration::from_secs(3_600) {
            now += FIRST_LOOK;
            if room.is_time(now) && room.is_worth_a_try(now, false) {
                tries += 1;
                room.ran_out(now);
            }
            assert_eq!(room.rest(), FIRST_LOOK);
        }
        assert!((55..75).contains(&tries), "{tries} tries in an hour");
    }

    #[test]
    fn room_that_does_not_help_for_long_is_looked_for_less_often() {
        let (mut room, mut now) = (lacking(), NOW);
        let mut tries = 0;
        while now < NOW + Duration::from_secs(60) {
            now += FIRST_LOOK;
            if room.is_time(now) && room.is_worth_a_try(now, true) {
                tries += 1;
                room.found(now);
                room.ran_out(now);
            }
        }
        assert!((15..25).contains(&tries), "{tries} tries in a minute");
        room.found(now);
        room.ran_out(now + Duration::from_secs(60));
        assert_eq!(room.rest(), FIRST_LOOK, "and as before once it has helped for long");
    }

    #[test]
    fn a_look_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        assert!(look(directory.path()));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(!look(&directory.path().join("nowhere")));
    }
}
