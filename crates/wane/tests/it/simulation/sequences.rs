//! Sequences in simulated worlds: every number once, growing, and one block for one key.
//!
//! Machines with callers share two sequences over a network that loses, delays and delivers late.
//! Machines pause and are restarted under their callers, and callers give up and ask again, also
//! elsewhere. Looked at with every answer: no number comes twice (S1), not even after a restart
//! (S3); each is above all that were given out before its call began (S2); a key has one block, as
//! there are no more keys than a sequence remembers; and whoever has a lower fence than one that was
//! given numbers gets none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use wane::clock::ManualClock;
use wane::services::ClusterAppId;
use wane::services::sequences::{
    AppSequences, Block, IdempotencyKey, REMEMBERED, Sequences, SequencesError,
};
use wane::store::{Faults, FaultyStore, Fence, Store};

use super::machine::{Machine, Reached, Wall, begin, true_sleep};
use super::{Dice, first_failure, seeds};
use crate::inner_store;
use crate::lying_store::{Lie, LyingStore};

const APP: ClusterAppId = ClusterAppId(7);
const NAMES: [&str; 2] = ["orders", "invoices"];
const MACHINES: usize = 3;
const CALLERS: usize = 12;

/// True time that a world lasts.
const LASTS: Duration = Duration::from_secs(6);

/// Seeds that failed once.
const REGRESSIONS: [u64; 0] = [];

/// What is true of a kind of world.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// Whether the store changes a record in one step.
    atomic: bool,
    /// Whether who asks again does so with the same key.
    same_key: bool,
    /// Whether calls of leaders carry their fence.
    fenced: bool,
}

const USUAL: Kind = Kind { atomic: true, same_key: true, fenced: true };

/// What callers were told of one sequence.
#[derive(Debug, Default)]
struct Told {
    /// First numbers of all blocks, with their ends.
    blocks: BTreeMap<u64, u64>,
    /// The end of the highest block.
    end: u64,
    /// Of each key: the end of the highest block when it was first used, and its block.
    keys: BTreeMap<u64, (u64, Option<Block>)>,
    /// The highest fence that was given numbers.
    fence: u64,
}

/// What a caller asks for, and what it knows when it does.
#[derive(Debug, Clone, Copy)]
struct Request {
    sequence: usize,
    count: u64,
    key: Option<u64>,
    fence: u64,
    /// The highest end that anybody had been told.
    floor: u64,
    /// The highest fence that anybody had been given numbers with.
    newest: u64,
}

impl Told {
    /// Takes note of a block, or says what is wrong with it.
    fn note(&mut self, request: &Request, given: Block) -> Result<(), String> {
        let told = |what: &str| Err(format!("{what}: {given:?} for {request:?}"));
        if given.count != request.count || given.first == 0 {
            return told("another count");
        }
        if request.fence > 0 && request.fence < request.newest {
            return told("a stale leader was given numbers");
        }
        if let Some(key) = request.key {
            let (floor, block) = self.keys.get_mut(&key).expect("noted when it was first used");
            match *block {
                Some(block) if block == given => return Ok(()),
                Some(_) => return told("two blocks for one key"),
                None if given.first < *floor => return told("a block from before the call"),
                None => *block = Some(given),
            }
        } else if given.first < request.floor {
            return told("a block from before the call");
        }
        let numbers = given.numbers();
        let before = self.blocks.range(..numbers.end).next_back();
        if before.is_some_and(|(_, end)| *end > numbers.start) {
            return told("numbers given twice");
        }
        self.blocks.insert(numbers.start, numbers.end);
        self.end = self.end.max(numbers.end);
        self.fence = self.fence.max(request.fence);
        Ok(())
    }
}

type NodeStore<S> = Reached<FaultyStore<S>>;

/// A machine that serves callers.
#[derive(Debug)]
struct Node<S> {
    machine: Machine,
    below: FaultyStore<S>,
    serving: Mutex<AppSequences<NodeStore<S>>>,
    /// Whoever waits for an answer hears nothing any more.
    restarted: Notify,
}

impl<S: Store> Node<S> {
    fn new(below: &FaultyStore<S>, seed: u64) -> Self {
        let machine = Machine::new(1.0, Wall::Monotonic, seed);
        let serving = Mutex::new(started(&machine, below));
        Self { machine, below: below.clone(), serving, restarted: Notify::new() }
    }

    fn restart(&self) {
        *self.serving.lock() = started(&self.machine, &self.below);
        self.restarted.notify_waiters();
    }

    fn sequences(&self) -> AppSequences<NodeStore<S>> {
        self.serving.lock().clone()
    }
}

fn started<S: Store>(machine: &Machine, below: &FaultyStore<S>) -> AppSequences<NodeStore<S>> {
    let store = Reached { machine: machine.clone(), store: below.clone() };
    Sequences::new(store, machine.clock()).of(APP)
}

/// What the callers of one world share.
#[derive(Debug)]
struct World<S> {
    kind: Kind,
    nodes: Vec<Node<S>>,
    told: Mutex<[Told; NAMES.len()]>,
    /// The newest token of an election that callers follow.
    token: AtomicU64,
    failure: watch::Sender<Option<String>>,
    answers: AtomicU64,
}

impl<S: Store> World<S> {
    /// Calls until the world ends.
    async fn call(self: Arc<Self>, mut dice: Dice) {
        loop {
            true_sleep(dice.millis(1, 60)).await;
            let request = self.request(&mut dice);
            // Errors are what the faults are for; who has a key asks again.
            while let Err(error) = self.ask(request, &mut dice).await {
                if let Err(failure) = self.is_allowed(&request, &error) {
                    self.failure.send_replace(Some(failure));
                }
                if request.key.is_none() || dice.hits(0.3) {
                    break;
                }
            }
        }
    }

    fn request(&self, dice: &mut Dice) -> Request {
        let sequence = (dice.draw() % NAMES.len() as u64) as usize;
        let key = dice.hits(0.3).then(|| dice.draw() % REMEMBERED as u64);
        if dice.hits(0.02) {
            self.token.fetch_add(1, Ordering::Relaxed);
        }
        let token = self.token.load(Ordering::Relaxed);
        let leads = key.is_none() && dice.hits(0.3);
        // One in three leaders is one that was replaced and has not heard of it.
        let stale = u64::from(dice.hits(0.3));
        let mut told = self.told.lock();
        let told = &mut told[sequence];
        if let Some(key) = key {
            told.keys.entry(key).or_insert((told.end, None));
        }
        Request {
            sequence,
            count: key.map_or_else(|| 1 + dice.draw() % 5, |key| 1 + key % 3),
            key,
            fence: if leads { token.saturating_sub(stale) } else { 0 },
            floor: told.end,
            newest: told.fence,
        }
    }

    /// Asks any machine once, and notes what it answers. Giving up is an error of its own.
    async fn ask(&self, request: Request, dice: &mut Dice) -> Result<(), Option<SequencesError>> {
        let node = &self.nodes[(dice.draw() % MACHINES as u64) as usize];
        let (restarted, sequences) = (node.restarted.notified(), node.sequences());
        let patience = dice.millis(5, 2_000);
        let made_up = if self.kind.same_key { 0 } else { dice.draw() };
        let key = request.key.map(|key| IdempotencyKey::new(format!("{key}-{made_up}")));
        let key = key.transpose().expect("a legal key");
        let fence = if self.kind.fenced { Fence(request.fence) } else { Fence::NONE };
        let name = NAMES[request.sequence];
        let given = tokio::select! {
            biased;
            given = sequences.next_fenced(name, request.count, key, fence) => given?,
            () = restarted => return Err(None),
            () = true_sleep(patience) => return Err(None),
        };
        self.answers.fetch_add(1, Ordering::Relaxed);
        if let Err(failure) = self.told.lock()[request.sequence].note(&request, given) {
            self.failure.send_replace(Some(failure));
        }
        Ok(())
    }

    /// Whether the faults of this world explain the error.
    fn is_allowed(&self, request: &Request, error: &Option<SequencesError>) -> Result<(), String> {
        match error {
            None | Some(SequencesError::Store(_)) => Ok(()),
            Some(SequencesError::Fenced { newer, .. })
                if newer.0 > request.fence && newer.0 <= self.token.load(Ordering::Relaxed) =>
            {
                Ok(())
            }
            Some(error) => Err(format!("{error:?} for {request:?}")),
        }
    }

    /// A key that was used is not free for another count.
    async fn misuse_keys(self: Arc<Self>, mut dice: Dice) {
        loop {
            true_sleep(dice.millis(50, 300)).await;
            let sequence = (dice.draw() % NAMES.len() as u64) as usize;
            let used = {
                let told = self.told.lock();
                let used = told[sequence].keys.iter().find(|(_, (_, block))| block.is_some());
                used.map(|(key, _)| *key)
            };
            let Some(number) = used.filter(|_| self.kind.same_key) else { continue };
            let node = &self.nodes[(dice.draw() % MACHINES as u64) as usize];
            let sequences = node.sequences();
            let key = IdempotencyKey::new(format!("{number}-0")).expect("a legal key");
            let count = 2 + number % 3;
            match sequences.next(NAMES[sequence], count, Some(key)).await {
                Err(SequencesError::KeyReused { count: first }) if first == count - 1 => {}
                Err(SequencesError::Store(_)) => {}
                other => {
                    let failure = format!("key {number} was reused with {count}: {other:?}");
                    self.failure.send_replace(Some(failure));
                }
            }
        }
    }

    /// Pauses and restarts machines.
    async fn meddle(self: Arc<Self>, mut dice: Dice) {
        loop {
            true_sleep(dice.millis(20, 1_000)).await;
            let node = &self.nodes[(dice.draw() % MACHINES as u64) as usize];
            if dice.hits(0.5) {
                node.machine.pause(dice.millis(1, 600));
            } else {
                node.restart();
            }
        }
    }

    /// What a machine says that comes when all is over: each key its block, and higher numbers.
    async fn agrees(&self, below: &FaultyStore<S>, seed: u64) -> Result<(), String> {
        below.set_faults(Faults::NONE);
        below.settle().await;
        let newcomer = Node::new(below, seed);
        let sequences = newcomer.sequences();
        let told = std::mem::take(&mut *self.told.lock());
        for (name, mut told) in NAMES.into_iter().zip(told) {
            let keys: Vec<_> = told.keys.iter().map(|(key, (_, block))| (*key, *block)).collect();
            for (number, block) in keys.into_iter().filter(|_| self.kind.same_key) {
                let Some(block) = block else { continue };
                let key = IdempotencyKey::new(format!("{number}-0")).expect("a legal key");
                let again = sequences.next(name, block.count, Some(key)).await;
                if again.as_ref().ok() != Some(&block) {
                    return Err(format!("key {number} was given {block:?}, then {again:?}"));
                }
            }
            let given = sequences.next(name, 1, None).await.map_err(|error| error.to_string())?;
            let (floor, newest) = (told.end, told.fence);
            let request = Request { sequence: 0, count: 1, key: None, fence: 0, floor, newest };
            told.note(&request, given)?;
        }
        Ok(())
    }
}

/// Nothing, a little, or a lot.
fn faults(dice: &mut Dice) -> Faults {
    let much = [0.0, 0.03, 0.15][(dice.draw() % 3) as usize];
    Faults {
        lost_answer: much,
        lost_request: much,
        late: much,
        error: much,
        delay: 0.3,
        longest_delay: Duration::from_millis(1 + dice.draw() % 400),
    }
}

/// Lives through the world of a seed: how many answers there were, or what was wrong.
async fn live(kind: Kind, seed: u64) -> Result<u64, String> {
    begin().await;
    let mut dice = Dice::of(seed);
    let clock = ManualClock::seeded(dice.draw());
    if kind.atomic {
        return live_on(inner_store(clock), kind, dice).await;
    }
    let lying = LyingStore::new(clock, dice.draw(), Lie::ChecksThenWrites);
    live_on(lying, kind, dice).await
}

async fn live_on<S: Store>(bottom: S, kind: Kind, mut dice: Dice) -> Result<u64, String> {
    let network = Machine::new(1.0, Wall::Monotonic, dice.draw());
    let (faults, seed) = (faults(&mut dice), dice.draw());
    let below = FaultyStore::new(bottom, faults, seed, network.clock());
    let world = Arc::new(World {
        kind,
        nodes: (0..MACHINES).map(|_| Node::new(&below, dice.draw())).collect(),
        told: Mutex::default(),
        token: AtomicU64::new(1),
        failure: watch::Sender::new(None),
        answers: AtomicU64::new(0),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        tasks.spawn(Arc::clone(&world).call(Dice::of(dice.draw())));
    }
    tasks.spawn(Arc::clone(&world).misuse_keys(Dice::of(dice.draw())));
    tasks.spawn(Arc::clone(&world).meddle(Dice::of(dice.draw())));
    let mut failed = world.failure.subscribe();
    tokio::select! {
        biased;
        _ = failed.changed() => {}
        () = true_sleep(LASTS) => {}
    }
    tasks.shutdown().await;
    let failure = world.failure.borrow().clone();
    if let Some(failure) = failure {
        return Err(format!("{failure}; {:?} in", network.elapsed()));
    }
    world.agrees(&below, dice.draw()).await?;
    Ok(world.answers.load(Ordering::Relaxed))
}

/// The first seed that shows what is wrong with `kind`.
fn found(kind: Kind, what: &str) {
    let (seed, failure) = first_failure(0..300, async |seed| live(kind, seed).await.map(drop))
        .expect("found within 300 seeds");
    assert!(failure.contains(what), "seed {seed}: {failure}");
    println!("found by seed {seed}: {failure}");
}

#[test]
fn every_number_once_and_growing_whatever_fails() {
    let (count, answers) = (seeds(400), AtomicU64::new(0));
    let all = REGRESSIONS.into_iter().chain(0..count);
    let world = async |seed| {
        answers.fetch_add(live(USUAL, seed).await?, Ordering::Relaxed);
        Ok(())
    };
    if let Some((seed, failure)) = first_failure(all, world) {
        panic!("seed {seed}: {failure}; add it to REGRESSIONS");
    }
    let answers = answers.into_inner();
    println!("{count} worlds, {answers} blocks given");
    assert!(answers > count * 100, "too little happened: {answers} blocks in {count} worlds");
}

/// Whoever looks at a failing seed depends on it.
#[test]
fn a_failing_world_fails_again() {
    let broken = Kind { atomic: false, ..USUAL };
    let failures = || -> Vec<_> {
        let failure = |seed| first_failure([seed], async |seed| live(broken, seed).await.map(drop));
        (0..20).filter_map(failure).collect()
    };
    let once = failures();
    assert!(!once.is_empty());
    assert_eq!(failures(), once);
}

#[test]
fn a_store_that_checks_and_then_writes_is_found() {
    found(Kind { atomic: false, ..USUAL }, "numbers given twice");
}

#[test]
fn a_caller_that_asks_again_under_another_key_is_found() {
    found(Kind { same_key: false, ..USUAL }, "two blocks for one key");
}

#[test]
fn a_leader_that_writes_without_its_fence_is_found() {
    found(Kind { fenced: false, ..USUAL }, "a stale leader was given numbers");
}
