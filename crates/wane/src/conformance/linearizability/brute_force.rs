//! The check against one too simple to be wrong: every order, every time, every unclear write.
//!
//! Small random histories, half of them with a forged answer, are judged by both, with clocks that
//! are right and with clocks that are off.

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::store::{Change, Current, Life, Step, Ttl, Value};

const HISTORIES: u64 = 20_000;

/// How many of them are judged for each allowance.
const HISTORIES_OFF: u64 = 1_000;

/// The time by which every unclear write of a small history has arrived or never will.
const END: u64 = 12;

/// A history under trial.
struct Trial<'a> {
    events: &'a [Event],
    skew: u64,
    dated: bool,
}

impl Trial<'_> {
    /// Whether some order of the events not yet in `done` explains their answers.
    fn ordered(&self, done: u32, now: u64, current: Option<&Record>) -> bool {
        let clear = |event: &Event| !matches!(event.answer, Answer::Unknown | Answer::Unavailable);
        let left = |index: &usize| done & (1 << index) == 0;
        let events = self.events;
        let waiting: Vec<usize> =
            (0..events.len()).filter(left).filter(|at| clear(&events[*at])).collect();
        if waiting.is_empty() {
            return true;
        }
        let first_return = waiting.iter().map(|at| events[*at].returned.order).min().unwrap();
        (0..events.len()).filter(left).any(|index| {
            let event = &events[index];
            let last = if clear(event) { event.returned.clock.as_unix_millis() } else { END };
            event.answer != Answer::Unavailable
                && event.invoked.order < first_return
                && (now.max(event.invoked.clock.as_unix_millis())..=last).any(|now| {
                    self.outcomes(event, now, current).into_iter().any(|(answer, after)| {
                        (answer == event.answer || event.answer == Answer::Unknown)
                            && self.ordered(done | 1 << index, now, after.as_ref())
                    })
                })
        })
    }

    /// Every answer that the event may have had at `now`, and the record after.
    fn outcomes(
        &self,
        event: &Event,
        now: u64,
        current: Option<&Record>,
    ) -> Vec<(Answer, Option<Record>)> {
        let called = event.invoked.clock.as_unix_millis();
        let shown = |from: u64| from.saturating_sub(self.skew)..=now + self.skew;
        let live_at =
            |clock| current.is_none_or(|it| it.is_live(Timestamp::from_unix_millis(clock)));
        let mut outcomes = Vec::new();
        for live in [true, false] {
            if !shown(if self.dated { called } else { now }).any(|clock| live_at(clock) == live) {
                continue;
            }
            // A life counts from any time between the call and its effect.
            for counted in if counts(&event.call) { shown(called) } else { now..=now } {
                let (answer, after) = execute(&event.call, current.filter(|_| live), counted);
                // A record that was taken for gone stays, unless something was written over it.
                let after = if answer_applied(&answer) { after } else { current.cloned() };
                outcomes.push((answer, after));
            }
        }
        outcomes
    }
}

fn answer_applied(answer: &Answer) -> bool {
    matches!(answer, Answer::Written(Outcome::Applied { .. }))
}

/// Whether the call gives a life that counts from when it is made.
fn counts(call: &Call) -> bool {
    let (Call::Put(write) | Call::Insert(write) | Call::Swap { write, .. }) = call else {
        return false;
    };
    matches!(write.life, Life::For(_))
}

/// What the contract answers at `now`, and the record after.
fn execute(call: &Call, current: Option<&Record>, now: u64) -> (Answer, Option<Record>) {
    let now = Timestamp::from_unix_millis(now);
    let change = match call {
        Call::Get => return (Answer::Read(current.cloned()), current.cloned()),
        Call::Put(write) => Change::put(write.clone(), || now),
        Call::Insert(write) => Change::insert(write.clone(), || now),
        Call::Swap { expected, write } => Change::swap(expected, write.clone(), || now),
        Call::Delete { expected, fence } => Ok(Change::delete(expected, *fence)),
    };
    let step = change.unwrap().decide(current.map(Current::from), now);
    let answer = Answer::Written(step.outcome(|| current.cloned()));
    match step {
        Step::Store(record) => (answer, Some(record)),
        Step::Remove(_) => (answer, None),
        Step::Refuse => (answer, current.cloned()),
    }
}

/// Draws small histories.
struct Draw {
    chance: std::sync::Arc<ManualClock>,
    skew: u64,
}

impl Draw {
    fn below(&self, limit: u64) -> u64 {
        self.chance.random_u64() % limit
    }

    fn value(&self) -> &'static str {
        ["a", "b"][self.below(2) as usize]
    }

    fn call(&self) -> Call {
        let expected = Bytes::from(self.value());
        let fence = Fence([0, 0, 0, 1, 2][self.below(5) as usize]);
        match self.below(6) {
            0 => Call::Get,
            1 => Call::Put(self.write(false, fence)),
            2 | 3 => Call::Insert(self.write(false, fence)),
            4 => Call::Swap { expected, write: self.write(true, fence) },
            _ => Call::Delete { expected, fence },
        }
    }

    fn write(&self, swap: bool, fence: Fence) -> Write {
        let life = match self.below(6) {
            0 => Life::Permanent,
            1 => Life::Until(Timestamp::from_unix_millis(self.below(10))),
            2 if swap => Life::Keep,
            _ => Life::For(Ttl::from_millis(1 + self.below(3)).unwrap()),
        };
        Write::new(Value::new(self.value()).unwrap(), life).fenced(fence)
    }

    /// A history that did happen: each event takes effect at some point of its window.
    fn history(&self) -> Vec<Event> {
        let mut current: Option<Record> = None;
        let mut now = 1;
        let mut events: Vec<Event> = Vec::new();
        for client in 0..2 + self.below(4) as usize {
            now += self.below(2);
            let place = 100 * (client as u64 + 1);
            let clock = (now + self.below(2 * self.skew + 1)).saturating_sub(self.skew);
            let live = current.clone();
            let live = live.filter(|it| it.is_live(Timestamp::from_unix_millis(clock)));
            let call = self.call();
            let (answer, after) = execute(&call, live.as_ref(), clock);
            let lost = self.below(5) == 0;
            let arrived = answer_applied(&answer) && !(lost && self.below(2) == 0);
            current = if arrived { after } else { current };
            let invoked = self.moment(now, place, |by, back| by.saturating_sub(back));
            let returned = self.moment(now, place + 1, |by, on| by + on);
            let key = Key::new(b"p", b"").unwrap();
            let answer = if lost { Answer::Unknown } else { answer };
            events.push(Event { client, key, call, answer, invoked, returned });
        }
        events
    }

    /// A moment at most two places and as many milliseconds from where the effect was.
    fn moment(&self, now: u64, place: u64, shift: impl Fn(u64, u64) -> u64) -> Moment {
        let (places, jitter) = (self.below(3), self.below(50));
        let clock = shift(now, if places == 0 { 0 } else { self.below(places + 1) });
        Moment {
            order: 2 * shift(place, 100 * places + jitter) + place % 2,
            clock: Timestamp::from_unix_millis(clock),
        }
    }

    /// Replaces an answer by what the contract would have said at another time or over another
    /// record, so that lies are plausible.
    fn forge(&self, events: &mut [Event]) {
        let event = &mut events[self.below(events.len() as u64) as usize];
        let now = self.below(8);
        let expires_at = Some(Timestamp::from_unix_millis(now + 1 + self.below(4)))
            .filter(|_| self.below(3) > 0);
        let record =
            Record { value: Value::new(self.value()).unwrap(), expires_at, fence: Fence::NONE };
        let current = Some(record).filter(|_| self.below(2) == 0);
        event.answer = execute(&event.call, current.as_ref(), now).0;
    }
}

/// Judges histories of `seeds` both ways, and returns how many were sound and how many broken.
fn assert_agreement(seeds: std::ops::Range<u64>, skew: u64, dated: bool) -> (u64, u64) {
    let allowance = Allowance { skew: Duration::from_millis(skew), dated_requests: dated };
    let (mut sound, mut broken) = (0, 0);
    for seed in seeds {
        let draw = Draw { chance: ManualClock::seeded(seed), skew };
        let mut events = draw.history();
        if seed % 2 == 0 {
            draw.forge(&mut events);
        }
        let expected = Trial { events: &events, skew, dated }.ordered(0, 0, None);
        let found = match check_within(&events, allowance) {
            Verdict::Linearizable => true,
            Verdict::Undecided => panic!("seed {seed}: undecided"),
            Verdict::Violated(_) => false,
        };
        assert_eq!(found, expected, "seed {seed} with {allowance:?}: {events:?}");
        if expected { sound += 1 } else { broken += 1 }
    }
    (sound, broken)
}

#[test]
fn agrees_with_trying_everything() {
    let (sound, broken) = assert_agreement(0..HISTORIES, 0, false);
    assert!(sound > HISTORIES / 4 && broken > HISTORIES / 10, "{sound} sound, {broken} broken");
}

#[test]
fn agrees_with_trying_everything_where_clocks_are_off() {
    for (skew, dated) in [(0, true), (1, false), (1, true), (2, false), (2, true), (3, false)] {
        let (sound, broken) = assert_agreement(0..HISTORIES_OFF, skew, dated);
        assert!(
            sound > HISTORIES_OFF / 4 && broken > HISTORIES_OFF / 20,
            "{skew} ms: {sound} sound, {broken} broken"
        );
    }
}

/// The allowance is needed: without it, histories of clocks that are off are found broken.
#[test]
fn clocks_that_are_off_are_noticed_without_an_allowance() {
    let broken = (0..HISTORIES_OFF).filter(|seed| {
        let events = Draw { chance: ManualClock::seeded(*seed), skew: 2 }.history();
        matches!(check(&events), Verdict::Violated(_))
    });
    let broken = broken.count() as u64;
    assert!(broken > HISTORIES_OFF / 20, "{broken} broken");
}
