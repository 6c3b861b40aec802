//! What becomes of chunks: the rules in force, the dice, and the count of what was done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use wane::clock::{Clock, ManualClock};

/// How often something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chance {
    Never,
    Always,
    /// To one chunk in so many.
    OneIn(u64),
    /// To the next so many chunks, then never.
    Next(u64),
    /// To one chunk, the so many-th from now.
    Nth(u64),
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With a reset, at once.
    Reset,
    /// As if the other side had hung up.
    Close,
    /// Not at all: it stays open, and nothing comes this way any more.
    Silence,
}

/// What becomes of the bytes between both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// How long what the client sends is held back.
    pub(crate) delay_requests: Duration,
    /// How long what the server sends is held back.
    pub(crate) delay_answers: Duration,
    /// Which chunks of the client never reach the server.
    pub(crate) lose_requests: Chance,
    /// Which chunks of the server never reach the client. What they answer was done.
    pub(crate) lose_answers: Chance,
    /// What becomes of a connection that lost something.
    pub(crate) ending: Ending,
    /// Whether new connections are refused.
    pub(crate) refuse: bool,
}

impl Rules {
    /// Everything passes.
    pub(crate) const PASS: Self = Self {
        delay_requests: Duration::ZERO,
        delay_answers: Duration::ZERO,
        lose_requests: Chance::Never,
        lose_answers: Chance::Never,
        ending: Ending::Reset,
        refuse: false,
    };

    /// Half-open: both sides may talk, neither is heard.
    pub(crate) const SILENCE: Self = Self {
        lose_requests: Chance::Always,
        lose_answers: Chance::Always,
        ending: Ending::Silence,
        ..Self::PASS
    };
}

/// What a proxy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Connections carried.
    pub(crate) connections: u64,
    /// Chunks that reached the server.
    pub(crate) requests: u64,
    /// Chunks that reached the client.
    pub(crate) answers: u64,
    /// Chunks that were held back.
    pub(crate) delayed: u64,
    /// First losses of connections on their way to the server.
    pub(crate) lost_requests: u64,
    /// First losses of connections on their way to the client.
    pub(crate) lost_answers: u64,
    /// Connections ended by the proxy, for a loss or by a cut.
    pub(crate) cut: u64,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    ToServer,
    ToClient,
}

/// What becomes of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Pass(Duration),
    Lose(Ending),
}

/// Applies the rules, and counts.
#[derive(Debug)]
pub(super) struct Judge {
    rules: watch::Receiver<Rules>,
    dice: Arc<ManualClock>,
    /// What is left of [`Chance::Next`] or [`Chance::Nth`], by way.
    left: [AtomicU64; 2],
    counts: Mutex<Counts>,
    shut: watch::Sender<bool>,
}

impl Judge {
    pub(super) fn seeded(seed: u64, rules: watch::Receiver<Rules>) -> Self {
        Self {
            rules,
            dice: ManualClock::seeded(seed),
            left: Default::default(),
            counts: Mutex::default(),
            shut: watch::channel(false).0,
        }
    }

    /// Makes ready for rules that are about to hold.
    pub(super) fn begin(&self, rules: Rules) {
        for (left, chance) in self.left.iter().zip([rules.lose_requests, rules.lose_answers]) {
            let chunks = match chance {
                Chance::Next(chunks) | Chance::Nth(chunks) => chunks,
                Chance::Never | Chance::Always | Chance::OneIn(_) => 0,
            };
            left.store(chunks, Ordering::SeqCst);
        }
    }

    pub(super) fn fate(&self, way: Way) -> Fate {
        let rules = *self.rules.borrow();
        let (chance, delay) = match way {
            Way::ToServer => (rules.lose_requests, rules.delay_requests),
            Way::ToClient => (rules.lose_answers, rules.delay_answers),
        };
        let lost = match chance {
            Chance::Never => false,
            Chance::Always => true,
            Chance::OneIn(times) => self.dice.random_u64().is_multiple_of(times),
            Chance::Next(_) => self.take_one(way).is_some(),
            Chance::Nth(_) => self.take_one(way) == Some(1),
        };
        if lost { Fate::Lose(rules.ending) } else { Fate::Pass(delay) }
    }

    /// Takes one of what is left, and returns how many there were.
    fn take_one(&self, way: Way) -> Option<u64> {
        let take = |left: u64| left.checked_sub(1);
        self.left[way as usize].fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.counts.lock());
    }

    pub(super) fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    pub(super) fn tell_door(&self, shut: bool) {
        self.shut.send_replace(shut);
    }

    pub(super) fn door(&self) -> watch::Receiver<bool> {
        self.shut.subscribe()
    }
}
