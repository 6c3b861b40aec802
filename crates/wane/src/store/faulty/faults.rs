//! Which faults there are, how likely each is, and which one a call meets.

use std::fmt;
use std::time::Duration;

/// How likely each fault is, from 0 (never) to 1 (always).
///
/// A call meets at most one of the four losses; they are tried in the order of the fields. A
/// delay may come on top.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// The request is applied and its answer is lost. Writes: `Unknown`; reads: `Unavailable`.
    pub lost_answer: f64,
    /// The request is lost and never applied. Writes: `Unavailable` or `Unknown`, equally often.
    pub lost_request: f64,
    /// The caller gives up with `Unknown`, and the write is applied after all, later.
    pub late: f64,
    /// A plain error: the request is not applied, and `Unavailable` says so.
    pub error: f64,
    /// The request waits before it is sent.
    pub delay: f64,
    /// The longest time that a delayed request waits or that a late one is late.
    pub longest_delay: Duration,
}

impl Faults {
    /// Nothing ever fails.
    pub const NONE: Self = Self {
        lost_answer: 0.0,
        lost_request: 0.0,
        late: 0.0,
        error: 0.0,
        delay: 0.0,
        longest_delay: Duration::from_millis(100),
    };

    /// What happens to the `call`-th call of a store with this seed.
    pub(super) fn draw(&self, seed: u64, call: u64) -> Fate {
        let mut chance = Chance::of_call(seed, call);
        // Every draw is made whatever came before it, so that one probability can be changed
        // without moving the faults of the others.
        let [answer, request, late, error] =
            [self.lost_answer, self.lost_request, self.late, self.error].map(|p| chance.hits(p));
        let noticed = chance.hits(0.5);
        let by = chance.duration(self.longest_delay);
        let delay = chance.hits(self.delay).then(|| chance.duration(self.longest_delay));
        let loss = match () {
            () if answer => Some(Loss::Answer),
            () if request => Some(Loss::Request { noticed }),
            () if late => Some(Loss::Late { by }),
            () if error => Some(Loss::Error),
            () => None,
        };
        Fate { delay, loss }
    }
}

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fate {
    pub(super) delay: Option<Duration>,
    pub(super) loss: Option<Loss>,
}

/// What a call loses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Loss {
    Answer,
    /// `noticed`: the sender knows that it never left.
    Request {
        noticed: bool,
    },
    Late {
        by: Duration,
    },
    Error,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answer => "the answer was lost",
            Self::Request { .. } => "the request was lost",
            Self::Late { .. } => "the request was given up",
            Self::Error => "the server failed",
        })
    }
}

/// The draws of one call: SplitMix64, started from seed and call.
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn of_call(seed: u64, call: u64) -> Self {
        let mut chance = Self(seed);
        let start = chance.next() ^ call;
        Self(start.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in [0, 1).
    fn share(&mut self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        (self.next() >> 11) as f64 / STEPS
    }

    fn hits(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    fn duration(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.share())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_comes_as_often_as_its_probability_says() {
        let faults = Faults { lost_answer: 0.1, late: 0.25, ..Faults::NONE };
        let fates: Vec<_> = (0..20_000).map(|call| faults.draw(7, call)).collect();
        let share = |wanted: fn(&Loss) -> bool| {
            let hits = fates.iter().filter(|fate| fate.loss.as_ref().is_some_and(wanted)).count();
            hits as f64 / fates.len() as f64
        };
        let answers = share(|loss| matches!(loss, Loss::Answer));
        let late = share(|loss| matches!(loss, Loss::Late { .. }));
        assert!((0.09..0.11).contains(&answers), "{answers}");
        assert!((0.21..0.24).contains(&late), "{late}: a quarter of the nine tenths left");
        assert_eq!(share(|loss| matches!(loss, Loss::Error | Loss::Request { .. })), 0.0);
    }

    #[test]
    fn certain_faults_always_come_and_impossible_ones_never() {
        let certain = Faults { error: 1.0, ..Faults::NONE };
        assert!((0..1_000).all(|call| certain.draw(1, call).loss == Some(Loss::Error)));
        let none = Fate { delay: None, loss: None };
        assert!((0..1_000).all(|call| Faults::NONE.draw(1, call) == none));
    }

    #[test]
    fn seeds_and_calls_differ_in_their_faults() {
        let faults = Faults { error: 0.5, ..Faults::NONE };
        let pattern =
            |seed| (0..64).map(|call| faults.draw(seed, call).loss.is_some()).collect::<Vec<_>>();
        assert_eq!(pattern(1), pattern(1));
        assert_ne!(pattern(1), pattern(2));
    }
}
