//! Readers and producers that race over two nodes on one store.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::*;
use crate::gated::{Gate, GatedStore};

/// What readers were given and have acknowledged.
#[derive(Default)]
pub(super) struct Read {
    pub(super) acknowledged: BTreeMap<ResourceId, Vec<u8>>,
    pub(super) doubled: Vec<ResourceId>,
    refused: usize,
}

/// Reads until there is nothing for a whole hold.
async fn read<S: Store>(node: PullStream<S>, form: Form, all: Arc<Mutex<Read>>) {
    let reader = reader(form);
    let mut pulled = loop {
        match node.start(ispb(), &reader).await {
            Ok(pulled) => break pulled,
            Err(PullStreamError::Refused(Refusal::TooManyReaders { .. })) => {
                all.lock().refused += 1;
                true_sleep(SECOND).await;
            }
            Err(error) => panic!("{error}"),
        }
    };
    while let Some(batch) = pulled.batch {
        let next = node.next(ispb(), &pulled.next, &reader).await;
        let mut all = all.lock();
        let Ok(next) = next else {
            all.doubled.extend(batch.messages().iter().map(|message| message.id));
            return;
        };
        pulled = next;
        for message in batch.messages() {
            if all.acknowledged.insert(message.id, message.bytes.to_vec()).is_some() {
                all.doubled.push(message.id);
            }
        }
    }
    drop(node.end(ispb(), &pulled.next, &reader.client).await);
}

/// Twelve readers, three producers, two nodes: what was read and what was taken in. The first reader
/// that is refused what it was given counts as one that lost it.
pub(super) async fn storm<S: Store + Clone>(
    setup: &Setup,
    store: S,
    settings: PullStreamSettings,
) -> (Arc<Mutex<Read>>, BTreeMap<ResourceId, Vec<u8>>) {
    let nodes = [(); 2].map(|()| setup.node_over(store.clone(), settings.clone()));
    let (all, known) =
        (Arc::new(Mutex::new(Read::default())), Arc::new(Mutex::new(BTreeMap::new())));
    let mut tasks = JoinSet::new();
    for producer in 0..3 {
        let (node, known) = (nodes[producer % 2].clone(), Arc::clone(&known));
        tasks.spawn(async move {
            true_sleep(Duration::from_millis(20)).await;
            for turn in 0..40 {
                true_sleep(Duration::from_millis(1)).await;
                let from = producer * 1_000 + turn * 10;
                let numbers = from..from + 1 + turn % 10;
                let ids =
                    node.ingest(ispb(), batch(numbers.clone())).await.expect("nothing fails here");
                known.lock().extend(ids.into_iter().zip(numbers.map(message)));
            }
        });
    }
    for number in 0..12 {
        let form = if number % 3 == 0 { Form::SINGLE } else { Form::MULTIPART };
        let reading = read(nodes[number % 2].clone(), form, Arc::clone(&all));
        // One after the other, so that both nodes have readers.
        tasks.spawn(async move {
            true_sleep(Duration::from_millis(number as u64)).await;
            reading.await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics");
    }
    let known = std::mem::take(&mut *known.lock());
    (all, known)
}

#[tokio::test(start_paused = true)]
async fn readers_of_two_nodes_share_a_stream_and_each_message_is_read_once() {
    let setup = setup();
    let store = GatedStore::new(setup.store.clone());
    store.set(Gate::GiveWay);
    let (all, known) = storm(&setup, store, PullStreamSettings::default()).await;
    let all = all.lock();
    assert_eq!(all.doubled, [], "on one lease at a time");
    assert_eq!(all.acknowledged, known, "each message, byte by byte");
    assert!(all.refused > 0, "a seventh reader came");
}

/// The control: swaps that look first and write later give messages to two.
#[tokio::test(start_paused = true)]
async fn a_store_that_swaps_without_care_is_found() {
    use super::tripped::{Trip, Tripped};
    let setup = setup();
    let below = GatedStore::new(setup.store.clone());
    below.set(Gate::GiveWay);
    let store = Tripped::new(below);
    store.set(Trip::CarelessSwap);
    let (all, known) = storm(&setup, store, PullStreamSettings::default()).await;
    let all = all.lock();
    assert!(!all.doubled.is_empty() || all.acknowledged != known);
}

/// A storm of starts on both nodes: six of them have a lease, whatever they race for.
#[tokio::test(start_paused = true)]
async fn no_storm_of_starts_makes_a_seventh_reader() {
    let setup = setup();
    let store = GatedStore::new(setup.store.clone());
    store.set(Gate::GiveWay);
    let nodes = [(); 3].map(|()| setup.node_over(store.clone(), PullStreamSettings::default()));
    ingest(&nodes[0], 100).await;
    for _ in 0..20 {
        let (one, two) = (many(), single());
        let starts = (0..60).map(|number| {
            nodes[number % 3].start(ispb(), if number % 2 == 0 { &one } else { &two })
        });
        let answers = futures_util::future::join_all(starts).await;
        let started: Vec<_> = answers.into_iter().filter_map(Result::ok).collect();
        assert_eq!(started.len(), 6);
        let given: Vec<_> = started.iter().flat_map(ids).collect();
        let distinct: BTreeSet<_> = given.iter().collect();
        assert_eq!(distinct.len(), given.len(), "no message on two leases");
        let status = nodes[1].status(ispb()).await.unwrap();
        assert_eq!((status.live_readers, status.in_flight), (6, given.len()));
        true_sleep(LEASE).await;
    }
}

/// Two calls with one token at once, on two nodes: one answer.
#[tokio::test(start_paused = true)]
async fn one_token_used_twice_at_once_is_answered_once() {
    let setup = setup();
    let store = GatedStore::new(setup.store.clone());
    store.set(Gate::GiveWay);
    let nodes = [(); 2].map(|()| setup.node_over(store.clone(), PullStreamSettings::default()));
    ingest(&nodes[0], 300).await;
    let mut pulled = nodes[0].start(ispb(), &many()).await.unwrap();
    for _ in 0..29 {
        let (one, two) = (many(), single());
        let (one, two) = tokio::join!(
            nodes[0].next(ispb(), &pulled.next, &one),
            nodes[1].next(ispb(), &pulled.next, &two),
        );
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one, two);
        pulled = one;
    }
}
