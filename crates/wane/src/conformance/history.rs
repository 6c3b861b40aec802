//! Histories: what concurrent clients asked of a store, what they were told, and when.
//!
//! [`record`] runs clients against a few keys with few values and short lives, so that they get
//! in each other's way and records expire under them. A seed decides what each client asks; how
//! the clients interleave is up to the scheduler. [`check_histories`] records many and checks
//! each with [`check_within`].
//!
//! A [`Stage`] is what one history is played on: a store, or several handles on one whose clients
//! take them in turn, and whatever shall go wrong meanwhile.
//!
//! Invariant: a call's effects lie between the two [`Moment`]s recorded around it, by order and
//! by clock, because both are taken outside of the call.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::{JoinSet, yield_now};

use super::linearizability::{
    Allowance, Answer, Call, Event, Moment, Verdict, Violation, check_within,
};
use crate::clock::{Clock, ManualClock, SharedClock};
use crate::store::{Fence, Key, Life, Outcome, Store, StoreError, Timestamp, Ttl, Value, Write};

/// What the clients of a history do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How many clients call at the same time.
    pub clients: usize,
    /// How many calls each makes, one after the other.
    pub operations: usize,
    /// How many keys they share.
    pub keys: u64,
    /// How many different values they write.
    pub values: u64,
    /// The longest life that they give a record, in milliseconds.
    pub longest_ttl: u64,
    /// How far the clocks that judge expiry may be from the one that stamps the history.
    pub allowance: Allowance,
    /// How long a client rests after the store was unavailable, so that an outage does not use up
    /// its calls. For time that passes by itself.
    pub rest: Duration,
}

impl Default for Plan {
    /// Eight clients with 50 calls each on one key: 400 operations.
    fn default() -> Self {
        Self {
            clients: 8,
            operations: 50,
            keys: 1,
            values: 3,
            longest_ttl: 30,
            allowance: Allowance::NONE,
            rest: Duration::ZERO,
        }
    }
}

/// The clock that the store lives by, and how time passes while clients call.
#[derive(Debug, Clone)]
pub enum Time {
    /// It passes by itself; clients pause for a millisecond now and then.
    Real(SharedClock),
    /// Clients move the clock by a millisecond now and then.
    Manual(Arc<ManualClock>),
}

impl Time {
    /// A clock that starts over and that clients move.
    pub fn manual(seed: u64) -> Self {
        Self::Manual(ManualClock::seeded(seed))
    }

    /// The clock to give to the store.
    pub fn clock(&self) -> SharedClock {
        match self {
            Self::Real(clock) => Arc::clone(clock),
            Self::Manual(clock) => Arc::clone(clock) as SharedClock,
        }
    }

    async fn pass(&self) {
        const STEP: Duration = Duration::from_millis(1);
        match self {
            Self::Real(clock) => clock.sleep(STEP).await,
            Self::Manual(clock) => clock.advance(STEP),
        }
    }
}

/// What runs beside the clients of a history.
type Beside = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a history is played on.
pub struct Stage<S> {
    stores: Vec<Arc<S>>,
    time: Time,
    beside: Option<Beside>,
}

impl<S> fmt::Debug for Stage<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = self.beside.is_some();
        write!(f, "Stage {{ handles: {}, beside: {beside} }}", self.stores.len())
    }
}

impl<S: Store> Stage<S> {
    /// One store for all clients, and the clock that stamps what they do.
    pub fn new(store: Arc<S>, time: Time) -> Self {
        Self::with_handles(vec![store], time)
    }

    /// Several handles on one store, which the clients take in turn. Each may have a clock of its
    /// own, as nodes have; `time` stamps the history.
    ///
    /// # Panics
    ///
    /// If there is no handle.
    pub fn with_handles(stores: Vec<Arc<S>>, time: Time) -> Self {
        assert!(!stores.is_empty(), "a history needs a store");
        Self { stores, time, beside: None }
    }

    /// Runs `future` while the clients call, such as a plan of faults. It is dropped once they are
    /// done, wherever it is.
    #[must_use]
    pub fn beside(self, future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { beside: Some(Box::pin(future)), ..self }
    }
}

/// Runs the plan's clients on the current runtime, which should have several threads.
///
/// The keys are the same for the same seed and differ between seeds.
///
/// # Panics
///
/// If the store calls a legal request invalid or reports a corrupt record, or if what runs beside
/// the clients panics.
pub async fn record<S: Store>(stage: Stage<S>, seed: u64, plan: &Plan) -> Vec<Event> {
    let Stage { stores, time, beside } = stage;
    let points = Arc::new(AtomicU64::new(0));
    let mut trouble = JoinSet::new();
    if let Some(beside) = beside {
        trouble.spawn(beside);
    }
    let mut clients = JoinSet::new();
    for number in 0..plan.clients {
        let client = Client {
            number,
            store: Arc::clone(&stores[number % stores.len()]),
            clock: time.clock(),
            time: time.clone(),
            points: Arc::clone(&points),
            dice: Dice::of(seed, number),
            seed,
            plan: plan.clone(),
            last_seen: Bytes::new(),
        };
        clients.spawn(client.run());
    }
    let mut events: Vec<Event> = clients.join_all().await.into_iter().flatten().collect();
    trouble.abort_all();
    while let Some(ended) = trouble.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    events.sort_by_key(|event| event.invoked.order);
    events
}

/// What became of many histories, none of which was violated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many had an order.
    pub linearizable: u64,
    /// How many the check gave up on.
    pub undecided: u64,
    /// How many calls were answered with what was read or became of the write.
    pub clear_answers: u64,
    /// How many calls ended in `Unknown`.
    pub unknown_answers: u64,
    /// How many calls ended in `Unavailable`.
    pub unavailable_answers: u64,
    /// How many answers showed that a record had expired or was deleted, or never written.
    pub absent_answers: u64,
}

/// A seed whose history has no order.
#[derive(Debug)]
pub struct Failure {
    /// The seed, for [`record`].
    pub seed: u64,
    /// What could not be ordered.
    pub violation: Box<Violation>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the history of seed {} is not linearizable: {}", self.seed, self.violation)
    }
}

impl std::error::Error for Failure {}

/// Records and checks the histories of `seeds`, up to the first one that has no order.
///
/// `make` gives the store for a seed and the clock it lives by. It may be the same store again:
/// each seed has keys of its own.
pub async fn check_histories<S: Store>(
    seeds: std::ops::Range<u64>,
    plan: &Plan,
    mut make: impl FnMut(u64) -> (Arc<S>, Time),
) -> Result<Tally, Failure> {
    check_staged_histories(seeds, plan, async |seed| {
        let (store, time) = make(seed);
        Stage::new(store, time)
    })
    .await
}

/// The same on stages: several handles, and faults beside the clients.
pub async fn check_staged_histories<S: Store>(
    seeds: std::ops::Range<u64>,
    plan: &Plan,
    mut make: impl AsyncFnMut(u64) -> Stage<S>,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for seed in seeds {
        let events = record(make(seed).await, seed, plan).await;
        tally.count(&events);
        match check_within(&events, plan.allowance) {
            Verdict::Linearizable => tally.linearizable += 1,
            Verdict::Undecided => tally.undecided += 1,
            Verdict::Violated(violation) => return Err(Failure { seed, violation }),
        }
    }
    Ok(tally)
}

/// How many histories a test checks: `WANE_TEST_HISTORIES`, or 500.
pub fn histories_to_check() -> u64 {
    number_from_env("WANE_TEST_HISTORIES", 500)
}

/// The number in the environment variable `name`, or `default` where it is not set.
///
/// # Panics
///
/// If it is set to anything else than a whole number.
pub fn number_from_env(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, it is {text:?}"))
}

impl Tally {
    fn count(&mut self, events: &[Event]) {
        for event in events {
            match &event.answer {
                Answer::Unknown => self.unknown_answers += 1,
                Answer::Unavailable => self.unavailable_answers += 1,
                Answer::Read(None) | Answer::Written(Outcome::Refused { current: None }) => {
                    self.clear_answers += 1;
                    self.absent_answers += 1;
                }
                Answer::Read(Some(_)) | Answer::Written(_) => self.clear_answers += 1,
            }
        }
    }
}

/// One client of a history.
#[derive(Debug)]
struct Client<S> {
    number: usize,
    store: Arc<S>,
    clock: SharedClock,
    time: Time,
    points: Arc<AtomicU64>,
    dice: Dice,
    seed: u64,
    plan: Plan,
    /// The value that stood there when the client last looked: what swaps and deletes expect.
    last_seen: Bytes,
}

impl<S: Store> Client<S> {
    async fn run(mut self) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.plan.operations);
        for _ in 0..self.plan.operations {
            if self.dice.one_in(12) {
                self.time.pass().await;
            }
            let event = self.call().await;
            if event.answer == Answer::Unavailable && !self.plan.rest.is_zero() {
                self.clock.sleep(self.plan.rest).await;
            }
            self.remember(&event.answer);
            events.push(event);
        }
        events
    }

    async fn call(&mut self) -> Event {
        let key = self.key();
        let call = self.choose();
        let invoked = self.moment();
        // Other clients get in between the call and the moments around it, as they would on a
        // machine with more cores.
        if self.dice.one_in(3) {
            yield_now().await;
        }
        let answer = ask(&*self.store, &key, &call).await;
        if self.dice.one_in(3) {
            yield_now().await;
        }
        let returned = self.moment();
        Event { client: self.number, key, call, answer, invoked, returned }
    }

    fn moment(&self) -> Moment {
        let order = self.points.fetch_add(1, Ordering::SeqCst);
        Moment { order, clock: self.clock.now() }
    }

    fn key(&mut self) -> Key {
        let partition = format!("history {}", self.seed);
        let clustering = self.dice.below(self.plan.keys).to_be_bytes();
        Key::new(partition.as_bytes(), &clustering).expect("both parts are short")
    }

    fn choose(&mut self) -> Call {
        match self.dice.below(20) {
            0..5 => Call::Get,
            5..8 => Call::Put(self.write(false)),
            8..12 => Call::Insert(self.write(false)),
            12..17 => Call::Swap { expected: self.expected(), write: self.write(true) },
            _ => Call::Delete { expected: self.expected(), fence: self.fence() },
        }
    }

    fn write(&mut self, swap: bool) -> Write {
        let life = match self.dice.below(10) {
            0 => Life::Permanent,
            1 => Life::Until(self.soon()),
            2..5 if swap => Life::Keep,
            _ => Life::For(self.ttl()),
        };
        let value = self.value();
        let value = Value::new(value).expect("one byte is a legal value");
        Write { value, life, fence: self.fence() }
    }

    fn value(&mut self) -> Bytes {
        // From "a" on, so that reports can be read.
        Bytes::from(vec![b'a' + self.dice.below(self.plan.values.min(26)) as u8])
    }

    fn expected(&mut self) -> Bytes {
        if self.dice.one_in(3) { self.value() } else { self.last_seen.clone() }
    }

    fn fence(&mut self) -> Fence {
        if self.dice.one_in(10) { Fence(1 + self.dice.below(3)) } else { Fence::NONE }
    }

    fn ttl(&mut self) -> Ttl {
        let millis = 1 + self.dice.below(self.plan.longest_ttl);
        Ttl::from_millis(millis).expect("a plan's TTLs are legal")
    }

    /// An instant shortly before or after this one.
    fn soon(&mut self) -> Timestamp {
        let ahead = self.dice.below(self.plan.longest_ttl + 3);
        Timestamp::from_unix_millis(self.clock.now().as_unix_millis() + ahead - 2)
    }

    fn remember(&mut self, answer: &Answer) {
        if let Answer::Read(Some(record))
        | Answer::Written(Outcome::Refused { current: Some(record) }) = answer
        {
            self.last_seen = record.value.clone().into_bytes();
        }
    }
}

async fn ask<S: Store>(store: &S, key: &Key, call: &Call) -> Answer {
    let outcome = match call.clone() {
        Call::Get => {
            let found = store.get(key).await;
            return found.map_or_else(|error| failure(&error), Answer::Read);
        }
        Call::Put(write) => store.put(key, write).await,
        Call::Insert(write) => store.insert_if_not_exists(key, write).await,
        Call::Swap { expected, write } => store.compare_and_swap(key, &expected, write).await,
        Call::Delete { expected, fence } => store.compare_and_delete(key, &expected, fence).await,
    };
    outcome.map_or_else(|error| failure(&error), Answer::Written)
}

fn failure(error: &StoreError) -> Answer {
    match error {
        StoreError::Unavailable { .. } => Answer::Unavailable,
        StoreError::Unknown { .. } => Answer::Unknown,
        StoreError::Invalid { .. } | StoreError::Corrupt { .. } => {
            panic!("the store failed a legal request: {error}")
        }
    }
}

/// Chance from a seed.
#[derive(Debug)]
struct Dice(Arc<ManualClock>);

impl Dice {
    fn of(seed: u64, client: usize) -> Self {
        // Seeds of a run are small numbers in a row: spread them, so that no two clients of
        // different histories draw the same.
        Self(ManualClock::seeded(seed.wrapping_mul(0xD129_0D3D_1B6C_9A35) ^ (client as u64) << 48))
    }

    fn below(&self, limit: u64) -> u64 {
        self.0.random_u64() % limit.max(1)
    }

    fn one_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }
}
