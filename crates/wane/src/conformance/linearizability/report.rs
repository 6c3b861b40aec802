//! What to show of a history that has no order: the fewest answers that rule it out.
//!
//! If the first answers of a history cannot be ordered, no more answers can mend it. So the
//! shortest such beginning is found by halving, and the last answer in it is the one that does
//! not fit what went before.

use std::fmt;

use super::register::{Expiry, Op, State, Values};
use super::search::{Finding, search};
use super::{Allowance, Answer, Call, Event};
use crate::store::{Fence, Life, Outcome, Record, Timestamp, Write};

/// How many events of the order found are shown before the place where it ends.
const SHOWN: usize = 12;

/// A history that no order of single steps explains.
#[derive(Debug)]
pub struct Violation {
    answers: usize,
    last: Event,
    ordered: Vec<Event>,
    /// The state in which the order ended.
    state: Option<State>,
    values: Values,
    waiting: Vec<Event>,
    origin: u64,
    allowance: Allowance,
}

/// Finds the shortest beginning of `events` that has no order.
pub(super) fn explain(events: &[&Event], allowance: Allowance, budget: usize) -> Violation {
    let mut returns: Vec<&&Event> = events.iter().collect();
    returns.sort_by_key(|event| event.returned.order);
    let mut values = Values::default();
    let mut stuck = |answers: usize| {
        let cut = returns[answers - 1].returned.order;
        match search(&Op::all(events, cut, allowance, &mut values), budget) {
            Finding::Stuck(deepest) => Some(deepest),
            Finding::Ordered | Finding::GaveUp => None,
        }
    };
    let (mut fits, mut fails) = (0, returns.len());
    while fits + 1 < fails {
        let middle = usize::midpoint(fits, fails);
        if stuck(middle).is_some() { fails = middle } else { fits = middle }
    }
    let deepest = stuck(fails).unwrap_or_default();
    let pick = |places: &[usize]| places.iter().map(|place| events[*place].clone()).collect();
    let hidden = deepest.order.len().saturating_sub(SHOWN);
    Violation {
        answers: fails,
        last: Event::clone(returns[fails - 1]),
        ordered: pick(&deepest.order[hidden..]),
        state: deepest.state,
        values,
        waiting: pick(&deepest.waiting),
        origin: events.first().map_or(0, |event| event.invoked.clock.as_unix_millis()),
        allowance,
    }
}

impl Violation {
    /// How many answers, in the order they came in, suffice to rule out every order.
    pub fn answers(&self) -> usize {
        self.answers
    }

    /// The event whose answer does not fit those before it.
    pub fn last(&self) -> &Event {
        &self.last
    }

    fn line(&self, event: &Event) -> String {
        let since = |clock: Timestamp| clock.as_unix_millis() as i128 - i128::from(self.origin);
        let (invoked, returned) = (event.invoked, event.returned);
        if returned.order > self.last.returned.order {
            let (call, start) = (self.call(&event.call), since(invoked.clock));
            let (client, place) = (event.client, invoked.order);
            return format!(
                "  client {client:<2} {call} -> not yet  at +{start} ms, point {place}"
            );
        }
        format!(
            "  client {:<2} {} -> {}  at +{}..+{} ms, points {}..{}",
            event.client,
            self.call(&event.call),
            self.answer(&event.answer),
            since(invoked.clock),
            since(returned.clock),
            invoked.order,
            returned.order,
        )
    }

    fn call(&self, call: &Call) -> String {
        match call {
            Call::Get => "get".into(),
            Call::Put(write) => format!("put {}", self.write(write)),
            Call::Insert(write) => format!("insert {}", self.write(write)),
            Call::Swap { expected, write } => {
                format!("swap \"{}\" for {}", expected.escape_ascii(), self.write(write))
            }
            Call::Delete { expected, fence } => {
                format!("delete \"{}\"{}", expected.escape_ascii(), fenced(*fence))
            }
        }
    }

    fn write(&self, write: &Write) -> String {
        let life = match write.life {
            Life::Permanent => "for good".into(),
            Life::For(ttl) => format!("for {} ms", ttl.as_millis()),
            Life::Until(instant) => self.until(Some(instant)),
            Life::Keep => "keeping the expiry".into(),
        };
        format!("{:?} {life}{}", write.value, fenced(write.fence))
    }

    fn answer(&self, answer: &Answer) -> String {
        match answer {
            Answer::Read(record) => self.record(record.as_ref()),
            Answer::Written(Outcome::Applied { expires_at }) => {
                format!("applied, {}", self.until(*expires_at))
            }
            Answer::Written(Outcome::Refused { current }) => {
                format!("refused by {}", self.record(current.as_ref()))
            }
            Answer::Unavailable => "unavailable".into(),
            Answer::Unknown => "unknown".into(),
        }
    }

    fn record(&self, record: Option<&Record>) -> String {
        record.map_or("absent".into(), |record| {
            format!("{:?} {}{}", record.value, self.until(record.expires_at), fenced(record.fence))
        })
    }

    fn until(&self, instant: Option<Timestamp>) -> String {
        self.until_millis(instant.map(Timestamp::as_unix_millis))
    }

    fn until_millis(&self, millis: Option<u64>) -> String {
        let since = |millis| i128::from(millis) - i128::from(self.origin);
        millis.map_or("for good".into(), |millis: u64| format!("until +{} ms", since(millis)))
    }

    fn state(&self) -> String {
        let Some(state) = self.state else { return "an unknown state".into() };
        let held = state.held.map_or("absent".into(), |held| {
            let value = self.values.text(held.value);
            let until = match held.expiry {
                Expiry::Never => self.until_millis(None),
                Expiry::At(at) => self.until_millis(Some(at)),
                Expiry::Within { first, .. } => {
                    format!("{} or longer", self.until_millis(Some(first)))
                }
            };
            format!("\"{value}\" {until}")
        });
        let now = i128::from(state.now) - i128::from(self.origin);
        format!("{held}, at +{now} ms or later")
    }
}

fn fenced(fence: Fence) -> String {
    if fence == Fence::NONE { String::new() } else { format!(" fence {}", fence.0) }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no order explains the first {} answers about {:?}",
            self.answers, self.last.key
        )?;
        if self.allowance != Allowance::NONE {
            write!(f, ", with clocks up to {} ms off", self.allowance.skew.as_millis())?;
        }
        writeln!(f, ";")?;
        writeln!(f, "the last of them is")?;
        writeln!(f, "{}", self.line(&self.last))?;
        writeln!(f, "the longest order found ends with")?;
        for event in &self.ordered {
            writeln!(f, "{}", self.line(event))?;
        }
        writeln!(f, "which leaves {}; none of these may follow", self.state())?;
        for event in &self.waiting {
            writeln!(f, "{}", self.line(event))?;
        }
        Ok(())
    }
}
