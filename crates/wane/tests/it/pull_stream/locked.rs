//! Locks around the rounds of an institution change no result, whatever they are: honest, given to
//! everybody, to nobody, or never answered.

use std::collections::HashMap;

use parking_lot::Mutex;
use wane::services::pull_stream::{AdvanceGuard, AdvanceLock, LockFuture};

use super::races::storm;
use super::tripped::{Trip, Tripped};
use super::*;
use crate::gated::{Gate, GatedStore};

/// One at a time has it.
#[derive(Debug, Default)]
struct Honest(Mutex<HashMap<Ispb, Arc<tokio::sync::Mutex<()>>>>);

impl AdvanceLock for Honest {
    fn acquire(&self, ispb: Ispb) -> LockFuture<'_> {
        let lock = Arc::clone(self.0.lock().entry(ispb).or_default());
        Box::pin(async move { Some(AdvanceGuard::new(lock.lock_owned().await)) })
    }
}

/// Everybody has it at once.
#[derive(Debug)]
struct Everybody;

impl AdvanceLock for Everybody {
    fn acquire(&self, _: Ispb) -> LockFuture<'_> {
        Box::pin(async { Some(AdvanceGuard::new(())) })
    }
}

/// Nobody has it.
#[derive(Debug)]
struct Nobody;

impl AdvanceLock for Nobody {
    fn acquire(&self, _: Ispb) -> LockFuture<'_> {
        Box::pin(async { None })
    }
}

/// Nobody hears of it.
#[derive(Debug)]
struct Silence;

impl AdvanceLock for Silence {
    fn acquire(&self, _: Ispb) -> LockFuture<'_> {
        Box::pin(std::future::pending())
    }
}

fn with(lock: Option<Arc<dyn AdvanceLock>>) -> PullStreamSettings {
    PullStreamSettings { lock, ..PullStreamSettings::default() }
}

fn locks() -> [(&'static str, Option<Arc<dyn AdvanceLock>>); 5] {
    [
        ("none", None),
        ("honest", Some(Arc::new(Honest::default()))),
        ("everybody", Some(Arc::new(Everybody))),
        ("nobody", Some(Arc::new(Nobody))),
        ("silence", Some(Arc::new(Silence))),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_message_is_read_once_with_every_lock_and_without() {
    for (name, lock) in locks() {
        let setup = setup();
        let store = GatedStore::new(setup.store.clone());
        store.set(Gate::GiveWay);
        let (all, known) = storm(&setup, store, with(lock)).await;
        let all = all.lock();
        assert_eq!(all.doubled, [], "{name}: on one lease at a time");
        assert_eq!(all.acknowledged, known, "{name}: each message, byte by byte");
        assert!(known.len() > 600, "{name}: {}", known.len());
    }
}

/// The control: it is the swap that decides. Without one, a lock that goes to everybody helps nobody.
#[tokio::test(start_paused = true)]
async fn a_lock_that_always_succeeds_does_not_mend_a_careless_store() {
    let setup = setup();
    let below = GatedStore::new(setup.store.clone());
    below.set(Gate::GiveWay);
    let store = Tripped::new(below);
    store.set(Trip::CarelessSwap);
    let (all, known) = storm(&setup, store, with(Some(Arc::new(Everybody)))).await;
    let all = all.lock();
    assert!(!all.doubled.is_empty() || all.acknowledged != known);
}

/// One reader is answered the same with every lock: messages, order, bodies.
#[tokio::test(start_paused = true)]
async fn a_reader_is_given_the_same_with_every_lock() {
    let mut answers = Vec::new();
    for (name, lock) in locks() {
        let setup = setup();
        let node = setup.node_over(setup.store.clone(), with(lock));
        ingest(&node, 45).await;
        let mut bodies = Vec::new();
        let mut pulled = node.start(ispb(), &many()).await.unwrap();
        while let Some(batch) = &pulled.batch {
            let bytes = batch.messages().iter().map(|message| message.bytes.to_vec());
            bodies.push(bytes.collect::<Vec<_>>());
            let again = node.next(ispb(), &pulled.next, &many()).await.unwrap();
            let retried = node.next(ispb(), &pulled.next, &single()).await.unwrap();
            assert_eq!(again, retried, "{name}");
            pulled = again;
        }
        node.end(ispb(), &pulled.next, &Client::default()).await.unwrap();
        answers.push((name, bodies));
    }
    for (name, bodies) in &answers {
        assert_eq!(bodies.len(), 5, "{name}");
        assert_eq!(bodies, &answers[0].1, "{name}");
    }
}

/// A lock that never answers delays a round by a tenth of a second, and no more.
#[tokio::test(start_paused = true)]
async fn a_lock_that_never_answers_delays_a_call_by_a_bounded_time() {
    let setup = setup();
    let node = setup.node_over(setup.store.clone(), with(Some(Arc::new(Silence))));
    ingest(&node, 20).await;
    let began = setup.machine.elapsed();
    let first = node.start(ispb(), &many()).await.unwrap();
    node.next(ispb(), &first.next, &many()).await.unwrap();
    let took = setup.machine.elapsed() - began;
    let each = Duration::from_millis(100);
    assert!((each * 2..each * 3).contains(&took), "two rounds: {took:?}");
}
