//! Sequences over a memory store: numbers and limits, idempotency keys, combined callers, guarded
//! calls, and swaps whose outcome nobody told.

mod combining;
mod guarded;
mod idempotency;
mod numbers;
mod scripted;
mod unclear;

use std::sync::Arc;

use tokio::task::JoinHandle;
use wane::clock::SharedClock;
use wane::services::ClusterAppId;
use wane::services::sequences::{AppSequences, Block, IdempotencyKey, Sequences, SequencesError};
use wane::store::{Fence, Key, Keyspace, Life, ObservedStore, Operation, Store, Value, Write};

use crate::gated::GatedStore;
use crate::{InnerStore, inner_store, manual_clock};

const APP: ClusterAppId = ClusterAppId(3);

/// A store whose calls are counted and held up.
type Below = ObservedStore<GatedStore<InnerStore>>;

type Answer = Result<Block, SequencesError>;

/// Sequences of one application, and what is below them.
struct Setup {
    all: Sequences<Below>,
    sequences: AppSequences<Below>,
    below: Below,
    gate: GatedStore<InnerStore>,
    clock: SharedClock,
}

fn setup() -> Setup {
    let (_, clock) = manual_clock();
    let gate = GatedStore::new(inner_store(Arc::clone(&clock)));
    let below = ObservedStore::new(gate.clone(), "mem", Arc::clone(&clock));
    let all = Sequences::new(below.clone(), Arc::clone(&clock));
    Setup { sequences: all.of(APP), all, below, gate, clock }
}

impl Setup {
    /// Writes that the store was asked for and has answered.
    fn swaps(&self) -> u64 {
        let metrics = self.below.metrics();
        let writes = [Operation::InsertIfNotExists, Operation::CompareAndSwap];
        writes.into_iter().map(|operation| metrics.of(operation).timed()).sum()
    }

    /// Writes that the store was asked for and has not answered.
    fn swaps_in_flight(&self) -> u64 {
        let metrics = self.below.metrics();
        let writes = [Operation::InsertIfNotExists, Operation::CompareAndSwap];
        writes.into_iter().map(|operation| metrics.of(operation).in_flight).sum()
    }

    fn reads(&self) -> u64 {
        self.below.metrics().of(Operation::Get).timed()
    }

    async fn next(&self, count: u64) -> Block {
        self.sequences.next("s", count, None).await.expect("it answers")
    }

    async fn next_keyed(&self, count: u64, text: &str) -> Block {
        self.sequences.next("s", count, Some(key(text))).await.expect("it answers")
    }

    /// Another process on the same store.
    fn other_node(&self) -> AppSequences<InnerStore> {
        Sequences::new(self.gate.inner.clone(), Arc::clone(&self.clock)).of(APP)
    }

    /// Puts a record in the place of the sequence `s`.
    async fn put(&self, bytes: Vec<u8>) {
        let write = Write::new(Value::new(bytes).expect("short enough"), Life::Permanent);
        let outcome = self.gate.inner.put(&stored_key("s"), write).await.expect("it answers");
        assert!(outcome.is_applied());
    }

    async fn stamp(&self) -> Option<Fence> {
        let record = self.gate.inner.get(&stored_key("s")).await.expect("it answers");
        record.map(|record| record.fence)
    }
}

/// A call on a task of its own.
fn spawned<S: Store>(
    sequences: &AppSequences<S>,
    count: u64,
    key: Option<IdempotencyKey>,
) -> JoinHandle<Answer> {
    let sequences = sequences.clone();
    tokio::spawn(async move { sequences.next("s", count, key).await })
}

async fn joined(calls: impl IntoIterator<Item = JoinHandle<Answer>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.expect("no panic"));
    }
    answers
}

/// Blocks of calls that all succeeded.
fn blocks(answers: Vec<Answer>) -> Vec<Block> {
    answers.into_iter().map(|answer| answer.expect("it answers")).collect()
}

/// Lets everything run that can.
async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn key(text: &str) -> IdempotencyKey {
    text.parse().expect("a legal key")
}

fn block(first: u64, count: u64) -> Block {
    Block { first, count }
}

fn stored_key(name: &str) -> Key {
    let partition = Keyspace::Sequences.partition(&APP.0.to_be_bytes()).expect("short enough");
    Key::new(partition.as_bytes(), name.as_bytes()).expect("short enough")
}

/// The bytes of a record that remembers no key.
fn stored_at(next: u64) -> Vec<u8> {
    [&[1][..], &next.to_be_bytes(), &[7; 16]].concat()
}

/// The blocks follow each other without a gap, from 1 up to this number.
#[track_caller]
fn assert_gapless(blocks: impl IntoIterator<Item = Block>, next: u64) {
    let mut blocks: Vec<_> = blocks.into_iter().collect();
    blocks.sort_by_key(|block| block.first);
    let end = blocks.iter().fold(1, |expected, block| {
        assert_eq!(block.first, expected, "{blocks:?}");
        block.numbers().end
    });
    assert_eq!(end, next);
}
