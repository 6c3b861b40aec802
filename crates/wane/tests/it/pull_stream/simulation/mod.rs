//! Streams in simulated worlds: every message accounted for, by id and bytes, whatever fails.
//!
//! Nodes with clocks that are off share one institution over a network that loses, delays and
//! delivers late. Nodes pause past leases and are restarted, their clocks are set forward and back,
//! and keys are rotated from node to node; readers crash, give up, ask again elsewhere and twice at
//! once; and in some worlds two regions take over from each other. Looked at with every answer: a token has one answer, byte by byte (P4); a message whose
//! batch was acknowledged was on no other lease since it was delivered (P3); no token is tampered
//! with or out of order that a reader was given (P2, P5). At the end: nothing that was taken in is
//! lost, every token is in the audit once, and by it no batch was handed out when it was another's.
//!
//! The controls are worlds in which one rule is left out: each must be found.

mod ledger;
mod node;
mod regions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use wane::clock::ManualClock;
use wane::services::pull_stream::{
    Chain, PullStream, PullStreamError, Pulled, Refusal, StaticKeys, TokenKeys, Verdict,
};
use wane::store::{Faults, FaultyStore, Store};

use self::ledger::Ledger;
use self::node::{MOST_OFF, Node, NodeStore};
use self::regions::{REGIONS, Turns};
use super::blundering::{Blunder, Blundering};
use super::{Client, batch, ispb, many, message, single, token_hash, token_key};
use crate::inner_store;
use crate::lying_store::{Lie, LyingStore};
use crate::simulation::machine::{Machine, Wall, begin, true_sleep};
use crate::simulation::{Dice, first_failure, seeds};

const NODES: usize = 3;
const READERS: usize = 8;
const PRODUCERS: usize = 2;

/// True time that a world lasts.
const LASTS: Duration = Duration::from_secs(10);

/// Seeds that failed once.
const REGRESSIONS: [u64; 0] = [];

/// What is true of a kind of world.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// Whether the store changes a record in one step.
    atomic: bool,
    /// What the record of the stream suffers.
    blunder: Option<Blunder>,
    /// Whether all nodes have the same keys.
    same_keys: bool,
    /// Whether readers ask again with the token that was not answered.
    same_token: bool,
    /// Whether a node that was stopped sees that its lease has ended.
    sees_pauses: bool,
    /// Whether regions take over from each other.
    regions: bool,
}

const USUAL: Kind = Kind {
    atomic: true,
    blunder: None,
    same_keys: true,
    same_token: true,
    sees_pauses: true,
    regions: false,
};

/// What the tasks of one world share.
struct World<S> {
    kind: Kind,
    /// A machine that is never paused.
    truth: Machine,
    nodes: Vec<Node<S>>,
    ledger: Mutex<Ledger>,
    turns: Mutex<Turns>,
    numbers: AtomicU64,
    failure: watch::Sender<Option<String>>,
    answers: AtomicU64,
}

/// What became of a call.
enum Heard {
    Answer(Pulled),
    Refused(Refusal),
    Nothing,
}

impl<S: Store> World<S> {
    fn fail(&self, failure: String) {
        self.failure.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
    }

    fn node(&self, dice: &mut Dice) -> &Node<S> {
        &self.nodes[(dice.draw() % NODES as u64) as usize]
    }

    async fn produce(self: Arc<Self>, mut dice: Dice) {
        loop {
            true_sleep(dice.millis(1, 300)).await;
            let count = 1 + dice.draw() % 4;
            let from = self.numbers.fetch_add(count, Ordering::Relaxed);
            let numbers = from as usize..(from + count) as usize;
            self.ledger.lock().possible.extend(numbers.clone().map(message));
            let node = self.node(&mut dice);
            let (restarted, stream) = (node.restarted.notified(), node.stream());
            let patience = dice.millis(5, 2_000);
            let taken = tokio::select! {
                biased;
                taken = stream.ingest(ispb(), batch(numbers.clone())) => taken,
                () = restarted => continue,
                () = true_sleep(patience) => continue,
            };
            // Errors are what the faults are for: it may be in the log, or not.
            if let Ok(ids) = taken {
                self.ledger.lock().known.extend(ids.into_iter().zip(numbers.map(message)));
            }
        }
    }

    /// Asks a node once, and notes what it answers.
    async fn ask(&self, token: Option<&str>, dice: &mut Dice) -> Heard {
        let node = self.node(dice);
        let (restarted, stream) = (node.restarted.notified(), node.stream());
        // Some wait for a node that is stopped for longer than a lease.
        let is_patient = dice.hits(0.5);
        let patience = if is_patient { dice.millis(1_000, 5_000) } else { dice.millis(5, 1_000) };
        let reader = if dice.hits(0.5) { many() } else { single() };
        let began = self.ledger.lock().begin(token);
        let call = async {
            match token {
                None => stream.start(ispb(), &reader).await,
                Some(token) => stream.next(ispb(), token, &reader).await,
            }
        };
        let answer = tokio::select! {
            biased;
            answer = call => Some(answer),
            () = restarted => None,
            () = true_sleep(patience) => None,
        };
        let mut ledger = self.ledger.lock();
        match answer {
            Some(Ok(pulled)) => {
                if let Err(failure) = self.turns.lock().may_serve(node.region, began) {
                    self.fail(failure);
                }
                self.answers.fetch_add(1, Ordering::Relaxed);
                ledger.heard(began);
                let at = self.truth.elapsed();
                if let Err(failure) = ledger.note(token, began, at, &pulled) {
                    self.fail(failure);
                }
                Heard::Answer(pulled)
            }
            Some(Err(PullStreamError::Refused(refusal))) => {
                // It may have been carried out, and its lease have ended before it was answered.
                if refusal == Refusal::Expired {
                    ledger.unheard(began);
                }
                ledger.heard(began);
                Heard::Refused(refusal)
            }
            Some(Err(_)) | None => {
                ledger.unheard(began);
                Heard::Nothing
            }
        }
    }

    /// Reads until it crashes, ends, or is told to start again.
    async fn read(self: Arc<Self>, mut dice: Dice) {
        loop {
            true_sleep(dice.millis(1, 400)).await;
            let mut token = match self.ask(None, &mut dice).await {
                Heard::Answer(pulled) => pulled.next,
                // Expired where its node was stopped between the claim and the answer.
                Heard::Refused(Refusal::TooManyReaders { .. } | Refusal::Expired)
                | Heard::Nothing => continue,
                Heard::Refused(refusal) => {
                    self.fail(format!("a start was refused: {refusal:?}"));
                    continue;
                }
            };
            while let Some(next) = self.go_on(&token, &mut dice).await {
                token = next;
            }
        }
    }

    /// One step of a reader: its next token, or `None` where it starts again.
    async fn go_on(&self, token: &str, dice: &mut Dice) -> Option<String> {
        // One in twenty takes longer than its lease.
        let thinks = if dice.hits(0.05) { dice.millis(1_200, 2_000) } else { dice.millis(0, 200) };
        true_sleep(thinks).await;
        if dice.hits(0.05) {
            return None;
        }
        if dice.hits(0.03) {
            self.end(token, dice).await;
            return None;
        }
        if dice.hits(0.1) {
            let (mut one, mut two) = (Dice::of(dice.draw()), Dice::of(dice.draw()));
            let twice =
                tokio::join!(self.ask(Some(token), &mut one), self.ask(Some(token), &mut two));
            if let (Heard::Answer(one), Heard::Answer(two)) = &twice {
                let both = one.batch.is_some() && two.batch.is_some();
                if both && one != two {
                    self.fail("two answers to one token at once".into());
                }
            }
            // Whichever was given messages is the one that the reader goes on with.
            let answers = [twice.0, twice.1].into_iter().filter_map(|heard| match heard {
                Heard::Answer(pulled) => Some(pulled),
                Heard::Refused(_) | Heard::Nothing => None,
            });
            let last = answers.max_by_key(|pulled| pulled.batch.is_some());
            if let Some(pulled) = last {
                return Some(pulled.next);
            }
        }
        self.insist(token, dice).await
    }

    async fn insist(&self, token: &str, dice: &mut Dice) -> Option<String> {
        for _ in 0..3 {
            let made_up =
                (!self.kind.same_token).then(|| self.ledger.lock().some_token()).flatten();
            match self.ask(Some(made_up.as_deref().unwrap_or(token)), dice).await {
                Heard::Answer(pulled) => return Some(pulled.next),
                Heard::Refused(Refusal::Expired) => return None,
                Heard::Refused(refusal) => {
                    self.fail(format!("a token that was given is refused: {refusal:?}"));
                    return None;
                }
                Heard::Nothing => {}
            }
        }
        None
    }

    async fn end(&self, token: &str, dice: &mut Dice) {
        let stream = self.node(dice).stream();
        let patience = dice.millis(5, 2_000);
        let began = self.ledger.lock().begin(Some(token));
        let nobody = Client::default();
        let answer = tokio::select! {
            biased;
            answer = stream.end(ispb(), token, &nobody) => Some(answer),
            () = true_sleep(patience) => None,
        };
        let mut ledger = self.ledger.lock();
        match answer {
            Some(Ok(())) => {
                ledger.heard(began);
                if let Err(failure) = ledger.acknowledge(token) {
                    self.fail(failure);
                }
            }
            Some(Err(
                PullStreamError::Store(_)
                | PullStreamError::Contended
                | PullStreamError::Elsewhere { .. },
            ))
            | None => ledger.unheard(began),
            // It may have been carried out, and planned once more for an answer that was lost.
            Some(Err(PullStreamError::Refused(Refusal::Gone | Refusal::Expired))) => {
                ledger.unheard(began);
            }
            Some(Err(error)) => self.fail(format!("an end failed: {error:?}")),
        }
    }

    /// Pauses and restarts machines, and sets their clocks.
    async fn meddle(self: Arc<Self>, mut dice: Dice) {
        loop {
            true_sleep(dice.millis(20, 750)).await;
            let node = self.node(&mut dice);
            match dice.draw() % 5 {
                0 => node.pause(dice.millis(1_200, 3_500)),
                1 | 2 => node.pause(dice.millis(1, 300)),
                3 => node.restart(&mut dice),
                _ => node.step(dice.draw().cast_signed() % 150),
            }
        }
    }

    /// Rotates keys once, from node to node: all know the new key before any of them signs with it.
    async fn rotate(self: Arc<Self>, mut dice: Dice) {
        true_sleep(dice.millis(500, 6_000)).await;
        for (current, previous) in [("a", "b"), ("b", "a")] {
            for node in &self.nodes {
                true_sleep(dice.millis(0, 500)).await;
                let keys = TokenKeys::new(token_key(current), Some(token_key(previous)));
                node.keys.replace(keys.expect("two keys"));
            }
        }
    }

    /// What a node finds that comes when all is over.
    async fn agrees(&self, below: &FaultyStore<S>, dice: &mut Dice) -> Result<(), String> {
        below.set_faults(Faults::NONE);
        below.settle().await;
        true_sleep(Duration::from_secs(10)).await;
        let node = Node::new(below, REGIONS[0], Arc::clone(&self.nodes[0].keys), true, dice);
        // Behind all others, its clock would still see leases that have ended.
        true_sleep(Duration::from_secs(60)).await;
        let stream = node.stream();
        let told = |error: PullStreamError| format!("after all: {error:?}");
        if self.kind.regions {
            regions::settle(&stream).await.map_err(told)?;
        }
        let began = self.ledger.lock().step();
        let mut pulled = stream.start(ispb(), &many()).await.map_err(told)?;
        self.ledger.lock().note(None, began, self.truth.elapsed(), &pulled)?;
        while pulled.batch.is_some() {
            let began = self.ledger.lock().step();
            let next = stream.next(ispb(), &pulled.next, &many()).await.map_err(told)?;
            self.ledger.lock().note(Some(&pulled.next), began, self.truth.elapsed(), &next)?;
            pulled = next;
        }
        let lost = self.ledger.lock().lost();
        if !lost.is_empty() {
            return Err(format!("lost: {lost:?}"));
        }
        stream.end(ispb(), &pulled.next, &Client::default()).await.map_err(told)?;
        true_sleep(Duration::from_secs(1)).await;
        self.is_audited(&stream).await
    }

    async fn is_audited(&self, stream: &PullStream<NodeStore<S>>) -> Result<(), String> {
        for chain in [Chain::Transitions, Chain::Remarks] {
            let check = stream.verify_audit(ispb(), chain).await;
            check.map_err(|error| format!("the audit: {error}"))?;
        }
        // Of each token, which claim it was.
        let (mut issued, mut from) = (BTreeMap::new(), Some(0));
        while let Some(row) = from {
            let page = stream.audit(ispb(), Chain::Transitions, row).await;
            let page = page.map_err(|error| error.to_string())?;
            for entry in &page.entries {
                let Some(hash) = entry.issued_hash() else { continue };
                // A retry that prolongs a lease names the token that it gives again.
                let is_again = entry.verdict == Verdict::Replayed;
                let place = issued.len();
                if issued.contains_key(&hash) && !is_again {
                    return Err(format!("the audit has an entry twice: {entry:?}"));
                }
                issued.entry(hash).or_insert(place);
            }
            from = page.next;
        }
        let ledger = self.ledger.lock();
        let claimed = |token: &str| issued.get(&token_hash(token)).copied();
        if let Some(token) = ledger.tokens.iter().find(|token| claimed(token).is_none()) {
            return Err(format!("a token is not in the audit: {token}"));
        }
        ledger.handed_out_in_time(claimed, Duration::from_millis(2 * MOST_OFF.unsigned_abs()))
    }
}

/// Nothing, a little, or a lot.
fn faults(dice: &mut Dice) -> Faults {
    let much = [0.0, 0.03, 0.1][(dice.draw() % 3) as usize];
    let delay = if dice.hits(0.5) { 0.2 } else { 0.6 };
    Faults {
        lost_answer: much,
        lost_request: much,
        late: much,
        error: much,
        delay,
        longest_delay: Duration::from_millis(1 + dice.draw() % 400),
    }
}

/// Lives through the world of a seed: how many answers there were, or what was wrong.
async fn live(kind: Kind, seed: u64) -> Result<u64, String> {
    begin().await;
    let mut dice = Dice::of(seed);
    let clock = ManualClock::seeded(dice.draw());
    if let Some(blunder) = kind.blunder {
        return live_on(Blundering::new(inner_store(clock), blunder), kind, dice).await;
    }
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
    let keys = |kid: &str| {
        let keys = TokenKeys::new(token_key(kid), None).expect("one key");
        Arc::new(StaticKeys::new(keys))
    };
    let nodes = [("x", 0), ("y", 1), ("z", 0)].map(|(own, region)| {
        let keys = keys(if kind.same_keys { "a" } else { own });
        Node::new(&below, REGIONS[region], keys, kind.sees_pauses, &mut dice)
    });
    let world = Arc::new(World {
        kind,
        truth: network.clone(),
        nodes: nodes.into(),
        ledger: Mutex::default(),
        turns: Mutex::default(),
        numbers: AtomicU64::new(0),
        failure: watch::Sender::new(None),
        answers: AtomicU64::new(0),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..PRODUCERS {
        tasks.spawn(Arc::clone(&world).produce(Dice::of(dice.draw())));
    }
    for _ in 0..READERS {
        tasks.spawn(Arc::clone(&world).read(Dice::of(dice.draw())));
    }
    tasks.spawn(Arc::clone(&world).meddle(Dice::of(dice.draw())));
    if kind.same_keys {
        tasks.spawn(Arc::clone(&world).rotate(Dice::of(dice.draw())));
    }
    if kind.regions {
        tasks.spawn(Arc::clone(&world).take_turns(Dice::of(dice.draw())));
    }
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
    world.ledger.lock().close();
    world.agrees(&below, &mut dice).await?;
    Ok(world.answers.load(Ordering::Relaxed))
}

/// The first seed that shows what is wrong with `kind`.
fn found(kind: Kind, what: &[&str]) {
    let (seed, failure) = first_failure(0..300, async |seed| live(kind, seed).await.map(drop))
        .expect("found within 300 seeds");
    assert!(what.iter().any(|what| failure.contains(what)), "seed {seed}: {failure}");
    println!("found by seed {seed}: {failure}");
}

#[test]
fn every_message_is_accounted_for_whatever_fails() {
    let (count, answers) = (seeds(1_000), AtomicU64::new(0));
    let all = REGRESSIONS.into_iter().chain(0..count);
    let world = async |seed| {
        answers.fetch_add(live(USUAL, seed).await?, Ordering::Relaxed);
        Ok(())
    };
    if let Some((seed, failure)) = first_failure(all, world) {
        panic!("seed {seed}: {failure}; add it to REGRESSIONS");
    }
    let answers = answers.into_inner();
    println!("{count} worlds, {answers} answers");
    assert!(answers > count * 25, "too little happened: {answers} answers in {count} worlds");
}

/// Whoever looks at a failing seed depends on it.
#[test]
fn a_failing_world_fails_again() {
    let broken = Kind { blunder: Some(Blunder::SwapsBlindly), ..USUAL };
    let failures = || -> Vec<_> {
        let failure = |seed| first_failure([seed], async |seed| live(broken, seed).await.map(drop));
        (0..6).filter_map(failure).collect()
    };
    let once = failures();
    assert!(!once.is_empty());
    assert_eq!(failures(), once);
}

#[test]
fn a_store_that_checks_and_then_writes_is_found() {
    let kind = Kind { atomic: false, ..USUAL };
    found(
        kind,
        &["two leases", "after its acknowledgement", "two answers", "lost", "refused", "audit"],
    );
}

#[test]
fn nodes_with_other_keys_are_found() {
    found(Kind { same_keys: false, ..USUAL }, &["refused: Tampered"]);
}

#[test]
fn readers_that_use_others_tokens_are_found() {
    let kind = Kind { same_token: false, ..USUAL };
    found(kind, &["refused: OutOfOrder", "two leases", "two answers"]);
}

#[test]
fn a_swap_that_does_not_compare_is_found() {
    found(
        Kind { blunder: Some(Blunder::SwapsBlindly), ..USUAL },
        &["two leases", "after its acknowledgement", "two answers", "lost", "refused", "audit"],
    );
}

#[test]
fn a_slot_that_ends_without_a_requeue_is_found() {
    found(Kind { blunder: Some(Blunder::ForgetsRequeued), ..USUAL }, &["lost"]);
}

#[test]
fn a_head_that_passes_over_a_row_is_found() {
    found(Kind { blunder: Some(Blunder::SkipsRows(40)), ..USUAL }, &["lost"]);
}

/// The lease is looked at before a batch is handed out; a clock that stood still hides that it ended.
#[test]
fn a_batch_that_is_handed_out_after_its_lease_is_found() {
    found(Kind { sees_pauses: false, ..USUAL }, &["after it was another's"]);
}
