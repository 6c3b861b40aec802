//! Strangers: calls for an institution by somebody who is not it, noted in its audit at a bounded rate.
//!
//! Anybody with a certificate can make such calls, so that they must not fill an institution's audit
//! or the line of those who write to it. One a second is noted; the others are counted, and the next
//! entry tells of them.
//!
//! Invariant: no more is remembered than [`MOST_KNOWN`] institutions.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::Ispb;

/// How often a stranger is noted, for each institution.
const NOTED_EVERY: Duration = Duration::from_secs(1);

/// Institutions that are remembered at a time.
const MOST_KNOWN: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Known {
    /// When one was noted last, of the monotonic clock.
    noted_at: Duration,
    /// How many came since.
    unnoted: u64,
}

/// Who came to which institution.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<HashMap<Ispb, Known>>);

/// What is to be done about one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coming {
    /// Note it, and so many before it that were not.
    Noted { unnoted: u64 },
    /// It is counted, and told of with the next one.
    Counted,
    /// Too many institutions are called at once to remember it.
    Lost,
}

impl Strangers {
    /// One comes at `now` of the monotonic clock.
    pub(super) fn come(&self, ispb: Ispb, now: Duration) -> Coming {
        let mut known = self.0.lock();
        if known.len() >= MOST_KNOWN && !known.contains_key(&ispb) {
            // Counts that have waited for longer are given up: others would be kept out by them.
            known.retain(|_, known| now < known.noted_at + NOTED_EVERY);
            if known.len() >= MOST_KNOWN {
                return Coming::Lost;
            }
        }
        match known.get_mut(&ispb) {
            Some(known) if now < known.noted_at + NOTED_EVERY => {
                known.unnoted += 1;
                Coming::Counted
            }
            Some(known) => {
                let unnoted = std::mem::take(&mut known.unnoted);
                known.noted_at = now;
                Coming::Noted { unnoted }
            }
            None => {
                known.insert(ispb, Known { noted_at: now, unnoted: 0 });
                Coming::Noted { unnoted: 0 }
            }
        }
    }

    /// So many could not be noted after all: they are told of with the next one.
    pub(super) fn put_back(&self, ispb: Ispb, count: u64) {
        if let Some(known) = self.0.lock().get_mut(&ispb) {
            known.unnoted += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_noted_and_tells_of_the_others() {
        let (strangers, ispb) = (Strangers::default(), "00000208".parse().unwrap());
        let at = |millis| strangers.come(ispb, Duration::from_millis(millis));
        assert_eq!(at(0), Coming::Noted { unnoted: 0 });
        assert_eq!((at(1), at(999)), (Coming::Counted, Coming::Counted));
        assert_eq!(at(1_000), Coming::Noted { unnoted: 2 });
        strangers.put_back(ispb, 3);
        assert_eq!(at(1_500), Coming::Counted);
        assert_eq!(at(9_000), Coming::Noted { unnoted: 4 });
        assert_eq!(at(99_000), Coming::Noted { unnoted: 0 });
    }

    #[test]
    fn whoever_calls_all_institutions_fills_no_memory() {
        let strangers = Strangers::default();
        let come = |number: usize, secs| {
            strangers.come(format!("{number:08}").parse().unwrap(), Duration::from_secs(secs))
        };
        for number in 0..MOST_KNOWN {
            assert_eq!(come(number, 5), Coming::Noted { unnoted: 0 });
        }
        assert_eq!(come(MOST_KNOWN, 5), Coming::Lost);
        assert_eq!(come(0, 5), Coming::Counted, "those that are known are counted on");
        assert_eq!(come(MOST_KNOWN, 6), Coming::Noted { unnoted: 0 });
        assert_eq!(strangers.0.lock().len(), 1);
    }
}
