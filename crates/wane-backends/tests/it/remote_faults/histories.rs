//! Histories of clients behind a proxy that fails by a seed.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wane::clock::{Clock, ManualClock, SharedClock};
use wane::conformance::history::{Failure, Plan, Stage, Tally, Time, check_staged_histories};
use wane::store::Store;

use super::Ground;
use super::liar::{Guess, Liar};
use crate::proxy::{Chance, Counts, Ending, Proxy, Rules};

/// What may go wrong in the histories of a backend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    /// The longest that one kind of trouble lasts.
    pub(crate) spell: Duration,
    /// The longest that messages are held back.
    pub(crate) delay: Duration,
    /// One spell in so many leaves connections half-open, which callers wait for.
    pub(crate) silence_one_in: u64,
}

impl<S: Store> Ground<S> {
    /// Histories through both handles have an order, under faults that really happened.
    pub(crate) async fn assert_linearizable(&self, count: u64, plan: &Plan, trouble: Trouble) {
        let before = self.proxy.counts();
        let handles = [Arc::clone(&self.through), Arc::clone(&self.second)];
        let checked = self.histories(0..count, plan, trouble, handles).await;
        self.assert_sound(checked, before);
    }

    /// The control: a store that guesses is caught within so many histories.
    pub(crate) async fn assert_caught(
        &self,
        guess: Guess,
        count: u64,
        plan: &Plan,
        trouble: Trouble,
    ) {
        let liar = |inner: &Arc<S>| {
            let (inner, clock) = (Arc::clone(inner), Arc::clone(&self.clock));
            Arc::new(Liar { inner, clock, guess })
        };
        let handles = [liar(&self.through), liar(&self.second)];
        let checked = self.histories(0..count, plan, trouble, handles).await;
        println!("{}", checked.expect_err("the guess must be caught"));
    }

    /// Records and checks histories of clients that take turns with both handles, with trouble
    /// all along.
    async fn histories<T: Store>(
        &self,
        seeds: Range<u64>,
        plan: &Plan,
        trouble: Trouble,
        handles: [Arc<T>; 2],
    ) -> Result<Tally, Failure> {
        let checked = check_staged_histories(seeds, plan, async |seed| {
            self.recover().await;
            let time = Time::Real(Arc::clone(&self.clock));
            let stage = Stage::with_handles(handles.to_vec(), time);
            let (proxy, clock) = (Arc::clone(&self.proxy), Arc::clone(&self.clock));
            stage.beside(make_trouble(proxy, clock, seed, trouble))
        });
        let checked = checked.await;
        self.recover().await;
        checked
    }

    /// The histories had an order, and there was something to be explained in them.
    fn assert_sound(&self, checked: Result<Tally, Failure>, before: Counts) {
        let tally = checked.unwrap_or_else(|failure| panic!("{}: {failure}", self.name));
        let now = self.proxy.counts();
        println!("{}: {tally:?}; {now:?}", self.name);
        let histories = tally.linearizable + tally.undecided;
        let lost =
            (now.lost_answers - before.lost_answers, now.lost_requests - before.lost_requests);
        assert!(lost.0 >= histories && lost.1 > 0, "hardly any fault: {lost:?} lost");
        assert!(now.cut > before.cut && now.delayed > before.delayed, "{before:?}, {now:?}");
        let unclear = tally.unknown_answers + tally.unavailable_answers;
        assert!(tally.unknown_answers > 0 && tally.unavailable_answers > 0, "{tally:?}");
        assert!(tally.clear_answers > unclear, "hardly anything was answered: {tally:?}");
        assert!(tally.absent_answers > histories, "hardly anything expired: {tally:?}");
        assert!(tally.undecided * 10 <= histories, "too many undecided: {tally:?}");
    }
}

/// Changes the rules of the proxy, by the seed, until it is dropped.
async fn make_trouble(proxy: Arc<Proxy>, clock: SharedClock, seed: u64, trouble: Trouble) {
    let dice = ManualClock::seeded(seed ^ 0x5EED_0F7A_0B1E_5EED);
    let below = |limit: u64| dice.random_u64() % limit.max(1);
    let up_to = |most: Duration| Duration::from_millis(1 + below(most.as_millis() as u64));
    loop {
        let ending = if below(2) == 0 { Ending::Reset } else { Ending::Close };
        let rules = match below(16) {
            0..5 => Rules { lose_answers: Chance::OneIn(4 + below(12)), ending, ..Rules::PASS },
            5..9 => Rules { lose_requests: Chance::OneIn(8 + below(24)), ending, ..Rules::PASS },
            9 | 10 => Rules { delay_requests: up_to(trouble.delay), ..Rules::PASS },
            11 | 12 => Rules { delay_answers: up_to(trouble.delay), ..Rules::PASS },
            13 => Rules { refuse: true, ..Rules::PASS },
            _ if below(trouble.silence_one_in) == 0 => Rules::SILENCE,
            _ => Rules { lose_answers: Chance::Next(1), ending, ..Rules::PASS },
        };
        proxy.set(rules).await;
        if rules.refuse {
            proxy.cut(ending);
        }
        clock.sleep(up_to(trouble.spell)).await;
        proxy.set(Rules::PASS).await;
        clock.sleep(up_to(trouble.spell)).await;
    }
}
