//! A replay is the same on every backend: what came in, once and in order, by two nodes, under races,
//! and the record of the stream stays as it is, byte by byte.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use wane::services::pull_stream::{Chain, Delivered, Ispb, PullStreamSettings, Refusal, Verdict};
use wane::store::{Timestamp, Ttl};

use super::doctored::Lie;
use super::stage::{
    Stage, Stream, fresh_ispb, ids, keys, many, message, on_every_backend, single, unhurried,
};

fn ever() -> Range<Timestamp> {
    Timestamp::from_unix_millis(0)..Timestamp::from_unix_millis(u64::MAX / 2)
}

async fn order(it: &Stage, node: &Stream, ispb: Ispb, times: Range<Timestamp>) -> String {
    let client = many().client;
    let started = it.insist(async || node.replay(ispb, times.clone(), "why", &client).await).await;
    started.token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_is_what_came_in_and_moves_nothing() {
    on_every_backend(a_replay_moves_nothing).await;
}

async fn a_replay_moves_nothing(it: &Stage) {
    let (ispb, [one, other]) = (fresh_ispb(), it.two());
    it.take_in(&[one.clone(), other.clone()], ispb, 45).await;
    let (many, single) = (many(), single());
    let first = it.insist(async || one.start(ispb, &many).await).await;
    it.clock.sleep(Duration::from_millis(1_500)).await;
    let before = it.record(ispb).await;
    let mut token = order(it, &one, ispb, ever()).await;
    let mut read: Vec<Delivered> = Vec::new();
    loop {
        // Two nodes at once, in two forms: one answer.
        let (mine, theirs) = tokio::join!(
            it.insist(async || one.replay_next(ispb, &token, &many).await),
            it.insist(async || other.replay_next(ispb, &token, &single).await),
        );
        assert_eq!(mine, theirs, "{}", it.backend);
        let Some(batch) = mine.batch else { break };
        read.extend(batch.messages().iter().cloned());
        token = mine.next;
    }
    let bytes: Vec<_> = read.iter().map(|message| message.bytes.to_vec()).collect();
    assert_eq!(bytes, (0..45).map(message).collect::<Vec<_>>(), "{}", it.backend);
    assert_eq!(read[..10].iter().map(|m| m.id).collect::<Vec<_>>(), ids(&first), "{}", it.backend);
    let foreign = it.answer(async || one.next(ispb, &token, &many).await).await;
    assert_eq!(foreign, Err(Refusal::Tampered), "{}", it.backend);
    assert_eq!(it.record(ispb).await, before, "{}: the record of the stream", it.backend);
    let second = it.insist(async || other.next(ispb, &first.next, &many).await).await;
    assert_eq!(ids(&second).len(), 10, "{}", it.backend);
    assert_ne!(it.record(ispb).await, before, "{}: the control: a pull changes it", it.backend);
    for node in [&one, &other] {
        it.insist(async || node.verify_audit(ispb, Chain::Remarks).await).await;
    }
    let page = it.insist(async || one.audit(ispb, Chain::Remarks, 0).await).await;
    let delivered = page.entries.iter().filter(|entry| entry.verdict == Verdict::Delivered);
    let told: u64 = delivered.map(|entry| entry.messages).sum();
    assert!(told >= 45, "{}: the audit tells of {told}", it.backend);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_ends_by_itself() {
    on_every_backend(a_replay_is_over).await;
}

/// Its record has the life that it was given, whatever is read of it.
async fn a_replay_is_over(it: &Stage) {
    let ispb = fresh_ispb();
    let life = Duration::from_secs(4) + it.max_skew;
    let replay_life = Ttl::try_from(life).expect("within the limits");
    let settings = PullStreamSettings { replay_life, ..unhurried() };
    let node = it.node(0, &keys("a", None), settings);
    it.take_in(std::slice::from_ref(&node), ispb, 20).await;
    let token = order(it, &node, ispb, ever()).await;
    let many = many();
    let first = it.insist(async || node.replay_next(ispb, &token, &many).await).await;
    assert_eq!(ids(&first).len(), 10, "{}", it.backend);
    it.clock.sleep(life + it.max_skew + Duration::from_millis(1_500)).await;
    let over = it.answer(async || node.replay_next(ispb, &first.next, &many).await).await;
    assert_eq!(over, Err(Refusal::Expired), "{}", it.backend);
}

/// The control: over a store whose swaps are two steps, racing readers are told apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_swaps_in_two_steps_is_caught() {
    for _ in 0..20 {
        let it = Stage::memory(Lie::SwapsInTwoSteps).await;
        if AssertUnwindSafe(a_replay_moves_nothing(&it)).catch_unwind().await.is_err() {
            return;
        }
    }
    panic!("both readers went on, and nobody noticed");
}
