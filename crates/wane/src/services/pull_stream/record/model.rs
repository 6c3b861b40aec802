//! The whole machine against a simple model, by sequences that are drawn and shrunk.
//!
//! The model has a queue of messages by number and, of each reader, what it was given and by which
//! calls; it knows nothing of rows, spans, heads or epochs. Beside equal answers, looked at after
//! every step: nothing is lost, nothing is on two leases, a retry is the same byte by byte, no more
//! than six readers are live, a refused call changes nothing, order within a slot, epochs that grow.
//! The control is the same machine with a mistake in it, which must be found.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use super::tests::{World, given, key, text};
use super::*;
use crate::services::pull_stream::Refusal;
use crate::services::pull_stream::keys::TokenKeys;

const LEASE: u64 = 30_000;

/// What happens to a stream.
#[derive(Debug, Clone)]
enum Event {
    Append(u8),
    Start(bool),
    /// A token by when it was issued, and whether ten messages are asked for.
    Next(usize, bool),
    End(usize),
    Wait(u64),
    Rotate,
    /// So many readers may be live from here on.
    Allow(usize),
}

/// A token: whose it is, which tenancy of the slot, and its number there.
#[derive(Debug, Clone, Copy)]
struct Issued {
    slot: usize,
    tenancy: u64,
    number: u64,
}

#[derive(Debug, Clone, Default)]
struct Tenant {
    tenancy: u64,
    /// The last token; zero where nobody has the slot.
    number: u64,
    /// The first token that was answered with what it has.
    since: u64,
    has: Vec<u64>,
    lease_until: u64,
}

/// What a call is answered, by the model.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expected {
    Given(Vec<u64>),
    Ended,
    Refused(&'static str),
    Nothing,
}

#[derive(Debug, Clone)]
struct Model {
    now: u64,
    allowed: usize,
    appended: u64,
    unread: VecDeque<u64>,
    again: VecDeque<u64>,
    done: BTreeSet<u64>,
    slots: Vec<Tenant>,
    tokens: Vec<Issued>,
    expected: Expected,
}

impl Model {
    fn live(&self) -> usize {
        self.slots.iter().filter(|slot| slot.lease_until > self.now).count()
    }

    fn requeue(&mut self, slot: usize) {
        for message in std::mem::take(&mut self.slots[slot].has).into_iter().rev() {
            self.again.push_front(message);
        }
    }

    fn vacate(&mut self, slot: usize) {
        self.requeue(slot);
        let tenancy = self.slots[slot].tenancy + 1;
        self.slots[slot] = Tenant { tenancy, ..Tenant::default() };
    }

    fn take(&mut self, own: usize, many: bool) -> Vec<u64> {
        let most = if many { 10 } else { 1 };
        for slot in 0..MAX_READERS {
            let tenant = &self.slots[slot];
            let is_long_gone = tenant.lease_until + LEASE <= self.now && !tenant.has.is_empty();
            if slot != own && is_long_gone {
                self.vacate(slot);
            }
        }
        if self.again.is_empty() && self.unread.is_empty() {
            let gone = |slot: &&usize| {
                let tenant = &self.slots[**slot];
                **slot != own && tenant.lease_until <= self.now && !tenant.has.is_empty()
            };
            let gone = [0, 1, 2, 3, 4, 5].iter().find(gone).copied();
            if let Some(slot) = gone {
                self.vacate(slot);
            }
        }
        let mut taken = Vec::new();
        while taken.len() < most {
            match self.again.pop_front().or_else(|| self.unread.pop_front()) {
                Some(message) => taken.push(message),
                None => break,
            }
        }
        taken
    }

    fn issue(&mut self, slot: usize, has: Vec<u64>) -> Expected {
        let tenant = &mut self.slots[slot];
        tenant.number += 1;
        tenant.lease_until = self.now + LEASE;
        tenant.has = has.clone();
        Expected::Given(has)
    }

    fn hand_out(&mut self, slot: usize) {
        let Tenant { tenancy, number, .. } = self.slots[slot];
        self.tokens.push(Issued { slot, tenancy, number });
    }

    fn start(&mut self, many: bool) -> Expected {
        if self.live() >= self.allowed {
            return Expected::Refused("too many");
        }
        let free = (0..MAX_READERS).filter(|slot| self.slots[*slot].lease_until <= self.now);
        let slot = free.min_by_key(|slot| self.slots[*slot].lease_until).expect("one is free");
        if self.slots[slot].number > 0 {
            self.vacate(slot);
        }
        self.slots[slot] = Tenant { tenancy: self.slots[slot].tenancy + 1, ..Tenant::default() };
        let taken = self.take(slot, many);
        let answer = self.issue(slot, taken);
        self.hand_out(slot);
        answer
    }

    fn checked(&self, token: Issued) -> Result<(), &'static str> {
        let tenant = &self.slots[token.slot];
        let is_live = tenant.lease_until > self.now;
        match () {
            () if tenant.tenancy != token.tenancy => Err("expired"),
            () if token.number < tenant.since => Err("out of order"),
            () if !is_live && self.live() >= self.allowed => Err("expired"),
            () => Ok(()),
        }
    }

    fn next(&mut self, token: Issued, many: bool) -> Expected {
        if let Err(refusal) = self.checked(token) {
            return Expected::Refused(refusal);
        }
        let slot = token.slot;
        let is_last = token.number == self.slots[slot].number;
        let fades = self.slots[slot].lease_until.saturating_sub(self.now) < LEASE / 2;
        if !is_last && !self.slots[slot].has.is_empty() {
            if fades {
                self.slots[slot].lease_until = self.now + LEASE;
            }
            self.hand_out(slot);
            return Expected::Given(self.slots[slot].has.clone());
        }
        let (taken, had) = (self.take(slot, many), std::mem::take(&mut self.slots[slot].has));
        let answer = if taken.is_empty() && had.is_empty() && !fades {
            Expected::Given(Vec::new())
        } else {
            if is_last {
                self.slots[slot].since = token.number;
            }
            self.issue(slot, taken)
        };
        self.done.extend(had);
        self.hand_out(slot);
        answer
    }

    fn end(&mut self, token: Issued) -> Expected {
        match self.checked(token) {
            Err("expired") => return Expected::Refused("gone"),
            Err(refusal) => return Expected::Refused(refusal),
            Ok(()) => {}
        }
        if token.number == self.slots[token.slot].number {
            let had = std::mem::take(&mut self.slots[token.slot].has);
            self.done.extend(had);
        }
        self.vacate(token.slot);
        Expected::Ended
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self {
            now: World::with_rows(&[]).now,
            allowed: MAX_READERS,
            appended: 0,
            unread: VecDeque::new(),
            again: VecDeque::new(),
            done: BTreeSet::new(),
            slots: vec![Tenant::default(); MAX_READERS],
            tokens: Vec::new(),
            expected: Expected::Nothing,
        })
        .boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Event> {
        let count = state.tokens.len();
        let always = prop_oneof![
            3 => (1_u8..=10).prop_map(Event::Append),
            3 => any::<bool>().prop_map(Event::Start),
            3 => prop_oneof![1_u64..2_000, 10_000_u64..20_000, Just(LEASE), Just(2 * LEASE)].prop_map(Event::Wait),
            1 => Just(Event::Rotate),
            1 => (1..=MAX_READERS).prop_map(Event::Allow),
        ];
        if count == 0 {
            return always.boxed();
        }
        // Mostly the last ones, as readers do.
        let token = prop_oneof![
            5 => count.saturating_sub(6)..count,
            1 => 0..count,
        ];
        prop_oneof![
            4 => always,
            6 => (token.clone(), any::<bool>()).prop_map(|(token, many)| Event::Next(token, many)),
            1 => token.prop_map(Event::End),
        ]
        .boxed()
    }

    fn preconditions(state: &Self, event: &Event) -> bool {
        match event {
            Event::Next(token, _) | Event::End(token) => *token < state.tokens.len(),
            Event::Append(_)
            | Event::Start(_)
            | Event::Wait(_)
            | Event::Rotate
            | Event::Allow(_) => true,
        }
    }

    fn apply(mut state: Self, event: &Event) -> Self {
        state.expected = match event {
            Event::Append(count) => {
                let from = state.appended;
                state.appended += u64::from(*count);
                state.unread.extend(from..state.appended);
                Expected::Nothing
            }
            Event::Start(many) => state.start(*many),
            Event::Next(token, many) => state.next(state.tokens[*token], *many),
            Event::End(token) => state.end(state.tokens[*token]),
            Event::Wait(millis) => {
                state.now += millis;
                Expected::Nothing
            }
            Event::Rotate => Expected::Nothing,
            Event::Allow(readers) => {
                state.allowed = *readers;
                Expected::Nothing
            }
        };
        state
    }
}

/// A mistake that the check must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A batch is acknowledged by the call that asks for it again.
    RetryAcknowledges,
    /// What a reader that is gone had is dropped.
    ForgetsTheGone,
    /// The lease of a slot is not looked at.
    GivesLiveSlotsAway,
    /// As many readers as there are slots are let in.
    IgnoresThePolicy,
}

/// The machine, with what its readers hold.
struct Machine {
    world: World,
    mistake: Mistake,
    /// Tokens as they were handed out: their text, and how they are presented.
    tokens: Vec<(String, Presented)>,
    /// Numbers of messages by their place.
    places: Vec<(u64, u8)>,
    acknowledged: BTreeSet<(u64, u8)>,
    rotations: u64,
    epochs: Vec<u64>,
    /// The last message that each tenancy was given from the head of the log.
    last_given: Vec<(u64, Option<(u64, u8)>)>,
}

impl Machine {
    fn new(mistake: Mistake) -> Self {
        Self {
            world: World::with_rows(&[]),
            mistake,
            tokens: Vec::new(),
            places: Vec::new(),
            acknowledged: BTreeSet::new(),
            rotations: 0,
            epochs: vec![0; MAX_READERS],
            last_given: vec![(0, None); MAX_READERS],
        }
    }

    fn take_note(&mut self, answer: &Answer) {
        if let Answer::Batch { .. } | Answer::Empty { .. } = answer {
            self.tokens.push((text(answer).to_owned(), self.world.token(answer)));
        }
    }

    fn err(&mut self, token: Presented) {
        match self.mistake {
            Mistake::None | Mistake::IgnoresThePolicy => {}
            Mistake::RetryAcknowledges => {
                let slot = &mut self.world.state.slots[usize::from(token.thread)];
                if token.seq < slot.seq && token.epoch == slot.epoch {
                    slot.in_flight.clear();
                }
            }
            Mistake::ForgetsTheGone => {
                let now = Timestamp::from_unix_millis(self.world.now);
                let slots = &mut self.world.state.slots;
                slots.iter_mut().filter(|s| !s.is_live(now)).for_each(|s| s.in_flight.clear());
            }
            Mistake::GivesLiveSlotsAway => self.world.state.slots[0].lease_until = 0,
        }
    }

    fn carry_out(&mut self, event: &Event) -> Option<Answer> {
        let form = |many: bool| if many { Form::MULTIPART } else { Form::SINGLE };
        let answer = match event {
            Event::Append(count) => {
                let row = self.world.supply.end;
                self.places.extend((0..*count).map(|index| (row, index)));
                self.world.append(*count);
                return None;
            }
            Event::Wait(millis) => {
                self.world.now += millis;
                return None;
            }
            Event::Rotate => {
                // Twice within the life of a token ends it, which the model does not tell of.
                if self.rotations == 0 {
                    self.rotations += 1;
                    self.world.keys = TokenKeys::new(key("b"), Some(key("a"))).unwrap();
                }
                return None;
            }
            Event::Allow(readers) => {
                if self.mistake != Mistake::IgnoresThePolicy {
                    self.world.max_readers = *readers;
                }
                return None;
            }
            Event::Start(many) => self.world.start(form(*many)),
            Event::Next(token, many) => {
                let presented = self.tokens[*token].1;
                self.err(presented);
                self.world.next(presented, form(*many))
            }
            Event::End(token) => self.world.end(self.tokens[*token].1),
        };
        Some(answer)
    }

    fn agrees(&self, answer: &Answer, expected: &Expected) {
        let told = match answer {
            Answer::Batch { .. } | Answer::Empty { .. } => {
                let number = |place| self.places.iter().position(|known| *known == place);
                let numbers = given(answer).into_iter().map(|place| number(place).unwrap() as u64);
                Expected::Given(numbers.collect())
            }
            Answer::Ended => Expected::Ended,
            Answer::Unsigned => Expected::Nothing,
            Answer::Refused(refusal) => Expected::Refused(match refusal {
                Refusal::Expired => "expired",
                Refusal::OutOfOrder => "out of order",
                Refusal::TooManyReaders { .. } => "too many",
                Refusal::Gone => "gone",
                Refusal::Tampered | Refusal::Foreign | Refusal::Ahead => "never",
            }),
        };
        assert_eq!(&told, expected);
    }

    /// Every message is in one place, and in none twice.
    fn nothing_is_lost_or_doubled(&mut self, model: &Model) {
        let number = |place: &(u64, u8)| self.places.iter().position(|known| known == place);
        self.acknowledged =
            model.done.iter().map(|message| self.places[*message as usize]).collect();
        let state = &self.world.state;
        let spans = state.requeued.iter().chain(state.slots.iter().flat_map(|s| &s.in_flight));
        let mut seen = self.acknowledged.clone();
        for span in spans {
            for index in span.index..span.index + span.count {
                assert!(seen.insert((span.row, index)), "{span:?} is in two places");
            }
        }
        for place in &self.places {
            let unread = (place.0, place.1) >= (state.head.row, state.head.index);
            assert_ne!(unread, seen.contains(place), "{place:?}, message {:?}", number(place));
        }
    }

    fn epochs_grow(&mut self) {
        for (index, slot) in self.world.state.slots.iter().enumerate() {
            assert!(slot.epoch >= self.epochs[index]);
            self.epochs[index] = slot.epoch;
        }
    }

    /// Within a tenancy messages come in the order of the log, but for those that were requeued.
    fn order_holds(&mut self, before: &State, answer: &Answer) {
        let Answer::Batch { held, spans, is_unnoted: false } = answer else { return };
        let slot = usize::from(held.presented.thread);
        let last = &mut self.last_given[slot];
        let epoch = self.world.state.slots[slot].epoch;
        if last.0 != epoch {
            *last = (epoch, None);
        }
        let fresh = spans
            .iter()
            .filter(|span| (span.row, span.index) >= (before.head.row, before.head.index));
        for span in fresh {
            assert!(last.1 < Some((span.row, span.index)), "{span:?} after {last:?}");
            last.1 = Some((span.row, span.index + span.count - 1));
        }
    }
}

/// The machine as it is.
struct Right;

impl StateMachineTest for Right {
    type SystemUnderTest = Machine;
    type Reference = Model;

    fn init_test(_: &Model) -> Machine {
        Machine::new(Mistake::None)
    }

    fn apply(machine: Machine, model: &Model, event: Event) -> Machine {
        step(machine, model, &event)
    }
}

fn step(mut machine: Machine, model: &Model, event: &Event) -> Machine {
    let before = machine.world.state.clone();
    let Some(answer) = machine.carry_out(event) else { return machine };
    if matches!(answer, Answer::Refused(_)) && machine.mistake == Mistake::None {
        assert_eq!(machine.world.state, before, "a refused call changed the state");
    }
    machine.agrees(&answer, &model.expected);
    machine.order_holds(&before, &answer);
    machine.take_note(&answer);
    machine.nothing_is_lost_or_doubled(model);
    machine.epochs_grow();
    let now = Timestamp::from_unix_millis(machine.world.now);
    assert!(machine.world.state.live_readers(now) <= MAX_READERS);
    if let Answer::Batch { held, .. } = &answer {
        // Asked again, the same call has the same answer, byte by byte.
        let mut copy = machine.world.clone();
        if held.presented.hash.is_some() {
            let again = copy.next(held.presented, Form::SINGLE);
            assert_eq!((text(&again), given(&again)), (text(&answer), given(&answer)));
        }
    }
    machine
}

/// Sequences of events, each with the count of those that were tried: what comes after the one that
/// failed is dropped first.
type Drawn = (Model, Vec<Event>, Option<Arc<AtomicUsize>>);

fn sequences(cases: u32) -> (TestRunner, BoxedStrategy<Drawn>) {
    let config =
        Config { cases, max_shrink_iters: 2_000, failure_persistence: None, ..Config::default() };
    (TestRunner::new(config), Model::sequential_strategy(1..120).boxed())
}

#[test]
fn the_machine_does_what_the_model_says() {
    let (mut runner, strategy) = sequences(600);
    let run = runner.run(&strategy, |(model, events, tried)| {
        Right::test_sequential(Config::default(), model, events, tried);
        Ok(())
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}

/// The control: each mistake is found, and what is left of the sequence is short.
#[test]
fn a_machine_with_a_mistake_is_found() {
    for mistake in [
        Mistake::RetryAcknowledges,
        Mistake::ForgetsTheGone,
        Mistake::GivesLiveSlotsAway,
        Mistake::IgnoresThePolicy,
    ] {
        let (mut runner, strategy) = sequences(600);
        let run = runner.run(&strategy, |(mut model, events, tried)| {
            let mut machine = Machine::new(mistake);
            for event in events {
                if let Some(tried) = &tried {
                    tried.fetch_add(1, Ordering::SeqCst);
                }
                model = Model::apply(model, &event);
                machine = step(machine, &model, &event);
            }
            Ok(())
        });
        let found = run.expect_err("the mistake must be found");
        let TestError::Fail(_, (_, events, _)) = found else { panic!("{mistake:?}") };
        println!("{mistake:?} is found by {events:?}");
        // Shrinking ends where no single event can go, which is not always the shortest.
        assert!((1..60).contains(&events.len()), "{mistake:?} needs {} events", events.len());
    }
}
