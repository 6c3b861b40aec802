//! The check against one too simple to be wrong: every order, every time, every unclear write.
//!
//! Small random histories, half of them with a forged answer, are judged by both.

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::store::{Change, Current, Life, Step, Ttl, Value};

const HISTORIES: u64 = 20_000;

/// The time by which every unclear write of a small history has arrived or never will.
const END: u64 = 12;

/// Whether some order of the events not yet in `done` explains their answers.
fn ordered(events: &[Event], done: u32, now: u64, current: Option<&Record>) -> bool {
    let clear = |event: &Event| !matches!(event.answer, Answer::Unknown | Answer::Unavailable);
    let left = |index: &usize| done & (1 << index) == 0;
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
                let live = current.filter(|it| it.is_live(Timestamp::from_unix_millis(now)));
                // A life counts from any time between the call and its effect.
                let first =
                    if counts(&event.call) { event.invoked.clock.as_unix_millis() } else { now };
                (first..=now).any(|counted| {
                    let (answer, after) = execute(&event.call, live, counted);
                    (answer == event.answer || event.answer == Answer::Unknown)
                        && ordered(events, done | 1 << index, now, after.as_ref())
                })
            })
    })
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
struct Draw(std::sync::Arc<ManualClock>);

impl Draw {
    fn below(&self, limit: u64) -> u64 {
        self.0.random_u64() % limit
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
            let live = current.filter(|it| it.is_live(Timestamp::from_unix_millis(now)));
            let call = self.call();
            let (answer, after) = execute(&call, live.as_ref(), now);
            let lost = self.below(5) == 0;
            current = if lost && self.below(2) == 0 { live } else { after };
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

#[test]
fn agrees_with_trying_everything() {
    let (mut sound, mut broken) = (0, 0);
    for seed in 0..HISTORIES {
        let draw = Draw(ManualClock::seeded(seed));
        let mut events = draw.history();
        if seed % 2 == 0 {
            draw.forge(&mut events);
        }
        let expected = ordered(&events, 0, 0, None);
        let found = match check(&events) {
            Verdict::Linearizable => true,
            Verdict::Undecided => panic!("seed {seed}: undecided"),
            Verdict::Violated(_) => false,
        };
        assert_eq!(found, expected, "seed {seed}: {events:?}");
        if expected { sound += 1 } else { broken += 1 }
    }
    assert!(sound > HISTORIES / 4 && broken > HISTORIES / 10, "{sound} sound, {broken} broken");
}
