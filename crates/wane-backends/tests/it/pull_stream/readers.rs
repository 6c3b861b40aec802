//! Six readers whatever storms, policies that hold on every node, and readers that wait.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use wane::services::pull_stream::{
    Client, Ispb, MAX_READERS, Policy, PullStreamError, PullStreamSettings, Pulled, Refusal,
};
use wane::store::Ttl;

use super::stage::{
    LONG_LEASE, PATIENCE, Stage, Stream, batch, fresh_ispb, ids, is_fault, keys, many,
    on_every_backend, single, unhurried,
};

const STORM: usize = 24;

/// What a storm of starts over two nodes came to.
#[derive(Debug, Default)]
struct Storm {
    started: Vec<Pulled>,
    refused: usize,
    /// Starts without an answer: each may have a slot.
    lost: usize,
}

async fn storm(it: &Stage, nodes: &[Stream; 2], ispb: Ispb) -> Storm {
    let (many, single) = (many(), single());
    let starts = (0..STORM)
        .map(|number| nodes[number % 2].start(ispb, if number % 3 == 0 { &single } else { &many }));
    let mut storm = Storm::default();
    for answer in join_all(starts).await {
        match answer {
            Ok(pulled) => storm.started.push(pulled),
            Err(PullStreamError::Refused(Refusal::TooManyReaders { retry_after })) => {
                assert!(!retry_after.is_zero() && retry_after <= LONG_LEASE, "{retry_after:?}");
                storm.refused += 1;
            }
            Err(error) if is_fault(&error) => storm.lost += 1,
            Err(error) => panic!("{}: {error:?}", it.backend),
        }
    }
    storm
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_storm_of_starts_makes_a_seventh_reader() {
    on_every_backend(a_storm_makes_six_readers).await;
}

pub(super) async fn a_storm_makes_six_readers(it: &Stage) {
    let (ispb, nodes, backend) = (fresh_ispb(), it.two(), it.backend);
    it.take_in(&nodes, ispb, 90).await;
    let mut first = storm(it, &nodes, ispb).await;
    let (six, lost) = (MAX_READERS, first.lost);
    assert!(first.started.len() <= six, "{backend}: {} have started", first.started.len());
    assert!(first.started.len() + lost >= six, "{backend}: {first:?}");
    let reader = many();
    if lost > 0 {
        // Where an answer was lost, its start may be without a slot.
        while let Ok(pulled) = it.answer(async || nodes[0].start(ispb, &reader).await).await {
            first.started.push(pulled);
        }
    }
    let given: Vec<_> = first.started.iter().flat_map(ids).collect();
    assert_eq!(
        given.iter().collect::<BTreeSet<_>>().len(),
        given.len(),
        "{backend}: on two leases"
    );

    let before = it.record(ispb).await;
    for _ in 0..2 {
        let second = storm(it, &nodes, ispb).await;
        assert_eq!(second.started, [], "{backend}: a seventh reader");
    }
    assert_eq!(it.record(ispb).await, before, "{backend}: who is refused changes nothing");
    for node in &nodes {
        let status = it.insist(async || node.status(ispb).await).await;
        assert_eq!(status.live_readers, six, "{backend}");
        assert!(status.in_flight >= given.len(), "{backend}: {status:?}");
    }

    let leaving = first.started.pop().expect("six have started");
    let end = async || nodes[1].end(ispb, &leaving.next, &reader.client).await;
    let ended = it.answer(end).await;
    assert!(matches!(ended, Ok(()) | Err(Refusal::Gone)), "{backend}: {ended:?}");
    let third = storm(it, &nodes, ispb).await;
    assert!(third.started.len() <= 1, "{backend}: one place was free: {third:?}");
    assert!(third.started.len() + third.lost >= 1, "{backend}: {third:?}");
    let again: BTreeSet<_> = third.started.iter().flat_map(ids).collect();
    assert!(ids(&leaving).iter().all(|id| !again.contains(id)), "{backend}: acknowledged");
    let tokens = first.started.len();
    for Pulled { next, .. } in first.started.into_iter().chain(third.started) {
        let ended = it.answer(async || nodes[0].end(ispb, &next, &reader.client).await).await;
        assert!(matches!(ended, Ok(()) | Err(Refusal::Gone)), "{backend}: {ended:?}");
    }
    it.audited(&nodes, ispb, tokens).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_of_one_node_holds_on_the_other() {
    on_every_backend(a_policy_holds_everywhere).await;
}

async fn a_policy_holds_everywhere(it: &Stage) {
    let (ispb, nodes, backend) = (fresh_ispb(), it.two(), it.backend);
    let (single, operator) = (single(), Client::new("operator").expect("within the limits"));
    let retention = Ttl::from_secs(3).expect("within the limits");
    it.take_in(&nodes, ispb, 30).await;
    let kept = it.insist(async || nodes[1].start(ispb, &single).await).await;
    let policy = Policy { retention, max_readers: 2 };
    it.insist(async || nodes[0].set_policy(ispb, policy, &operator).await).await;
    it.clock.sleep(Duration::from_millis(1_100)).await;
    assert_eq!(it.insist(async || nodes[1].policy(ispb).await).await, policy, "{backend}");
    // The second has its slot already where its answer was lost.
    drop(it.answer(async || nodes[1].start(ispb, &single).await).await);
    for node in &nodes {
        let third = it.answer(async || node.start(ispb, &single).await).await;
        assert!(matches!(third, Err(Refusal::TooManyReaders { .. })), "{backend}: {third:?}");
        let status = it.insist(async || node.status(ispb).await).await;
        assert_eq!(status.live_readers, 2, "{backend}");
    }
    // What the other node takes in is kept for no longer; what was there is.
    let brief = it.insist(async || nodes[1].ingest(ispb, batch([1_000])).await).await;
    it.clock.sleep(retention.as_duration() + it.max_skew + Duration::from_secs(1)).await;
    let (mut read, mut pulled) = (Vec::new(), kept);
    while pulled.batch.is_some() {
        read.extend(ids(&pulled));
        let (token, reader) = (pulled.next, many());
        pulled = it.insist(async || nodes[0].next(ispb, &token, &reader).await).await;
    }
    assert!(!read.contains(&brief[0]), "{backend}: it outlived its retention");
    assert!(read.len() >= 25, "{backend}: {} of those that were there before", read.len());
}

/// How long a wake may take, and how often it is tried: a machine may have other things to do.
const AT_ONCE: Duration = Duration::from_secs(1);
const TRIES: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_waits_on_one_node_is_woken_by_a_message_of_the_other() {
    on_every_backend(async |it| {
        let settings = PullStreamSettings { hold: Duration::from_secs(60), ..unhurried() };
        let took = woken_within(it, settings).await;
        println!("{}: woken after {took:?}", it.backend);
        assert!(took < AT_ONCE, "{}: woken after {took:?}", it.backend);
    })
    .await;
}

/// The shortest of several times from when a message was taken in to when it was delivered elsewhere.
pub(super) async fn woken_within(it: &Stage, settings: PullStreamSettings) -> Duration {
    let (ispb, source) = (fresh_ispb(), keys("a", None));
    let [near, far] = [0, 1].map(|number| it.node(number, &source, settings.clone()));
    let (reader, mut token, mut shortest) = (many(), None::<String>, Duration::MAX);
    for number in 0..TRIES {
        let answered = AtomicBool::new(false);
        let waiting = async {
            let pulled = match &token {
                None => it.insist(async || far.start(ispb, &reader).await).await,
                Some(token) => it.insist(async || far.next(ispb, token, &reader).await).await,
            };
            answered.store(true, Ordering::SeqCst);
            (pulled, it.clock.monotonic())
        };
        let sending = async {
            let began = it.clock.monotonic();
            let is_parked = || far.parked() > 0 && far.at_work() == 0;
            while !is_parked() && !answered.load(Ordering::SeqCst) {
                it.clock.sleep(Duration::from_millis(20)).await;
                assert!(it.clock.monotonic() - began < PATIENCE, "{}: nobody waits", it.backend);
            }
            let sent = it.insist(async || near.ingest(ispb, batch([number])).await).await;
            (sent, it.clock.monotonic())
        };
        let ((pulled, woken), (sent, at)) = tokio::join!(waiting, sending);
        // A message whose answer was lost is taken in twice, and the first of them wakes.
        if ids(&pulled).ends_with(&sent) {
            shortest = shortest.min(woken.saturating_sub(at));
        }
        token = Some(pulled.next);
        if shortest < AT_ONCE && number > 1 {
            break;
        }
    }
    shortest
}
