//! How often a device may poll: `slow_down`, kept in the memory of the node.
//!
//! The first poll is never early. One that comes before four fifths of the interval have passed
//! since the last accepted one is told to slow down, and the interval grows by 5 s, up to 60 s.
//! What comes within a second of a poll that was judged is the same poll sent again and gets the
//! same answer, without a penalty.
//!
//! Being told to slow down does not move the time of the last accepted poll: whoever polls steadily
//! is accepted again as soon as the interval has passed. Only polls of pending grants are judged,
//! so what is decided is never withheld. What a node forgets or another node does not know makes a
//! poll a first one.

use std::time::Duration;

use parking_lot::Mutex;

use super::INTERVAL;
use super::fading::Fading;
use super::place::DeviceId;
use crate::clock::SharedClock;

/// By how much the interval grows.
const GROWTH: Duration = Duration::from_secs(5);

/// The longest interval.
const LONGEST: Duration = Duration::from_secs(60);

/// What comes within this time of a poll is that poll again.
const SAME_POLL: Duration = Duration::from_secs(1);

/// What a poll of a pending grant is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing is decided yet.
    Pending,
    /// The poll came early: poll no more often than this from now on.
    SlowDown(Duration),
}

/// The polls of all grants.
#[derive(Debug)]
pub struct PollThrottle {
    clock: SharedClock,
    polled: Mutex<Fading<DeviceId, Polls>>,
}

#[derive(Debug, Clone, Copy)]
struct Polls {
    interval: Duration,
    accepted_at: Duration,
    judged_at: Duration,
    judgement: Judgement,
}

impl PollThrottle {
    /// Knows of no poll yet.
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, polled: Mutex::default() }
    }

    /// Judges a poll of a grant that has so much time left.
    pub fn judge(&self, grant: DeviceId, left: Duration) -> Judgement {
        let now = self.clock.monotonic();
        let mut polled = self.polled.lock();
        if let Some(polls) = polled.get_mut(&grant) {
            return polls.judge(now);
        }
        polled.insert(grant, Polls::first(now), now + left, now);
        Judgement::Pending
    }
}

impl Polls {
    fn first(now: Duration) -> Self {
        Self { interval: INTERVAL, accepted_at: now, judged_at: now, judgement: Judgement::Pending }
    }

    fn judge(&mut self, now: Duration) -> Judgement {
        if now.saturating_sub(self.judged_at) < SAME_POLL {
            return self.judgement;
        }
        self.judged_at = now;
        // Clocks of devices run fast: a fifth of the interval is forgiven.
        if now.saturating_sub(self.accepted_at) * 5 >= self.interval * 4 {
            self.accepted_at = now;
            self.judgement = Judgement::Pending;
        } else {
            self.interval = (self.interval + GROWTH).min(LONGEST);
            self.judgement = Judgement::SlowDown(self.interval);
        }
        self.judgement
    }
}
