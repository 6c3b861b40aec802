//! Replays: what came in between two moments is read once more, each message once and in order, and
//! nothing else is touched.

mod faults;
mod modelled;
mod refusing;

use std::ops::Range;

use super::*;
use wane::services::pull_stream::{Action, AuditEntry, Chain, Delivered, ReplayStarted, Verdict};
use wane::store::{Fence, Key, Keyspace, Timestamp, Ttl};

const HOUR: Duration = Duration::from_secs(3_600);

/// All time there is, but for the last of it.
fn ever() -> Range<Timestamp> {
    Timestamp::from_unix_millis(0)..Timestamp::from_unix_millis(u64::MAX / 2)
}

fn operator() -> Client {
    Client::new("key 7").expect("within the limits")
}

impl Setup {
    fn now(&self) -> Timestamp {
        self.machine.clock().now()
    }

    /// The record of the stream, as it stands in the store.
    async fn state(&self) -> Option<wane::store::Record> {
        let key = state_key("state");
        self.store.get(&key).await.expect("nothing fails here")
    }
}

fn state_key(name: &str) -> Key {
    let rest = [&[5][..], b"local", b"00000208"].concat();
    let partition = Keyspace::PullStreamState.partition(&rest).expect("within the limits");
    Key::new(partition.as_bytes(), name.as_bytes()).expect("within the limits")
}

/// The key of a row of the log.
fn row_key(row: u64) -> Key {
    let range = (row / 256).to_be_bytes();
    let rest = [&[5][..], b"local", b"00000208", &range].concat();
    let partition = Keyspace::PullStreamLog.partition(&rest).expect("within the limits");
    Key::new(partition.as_bytes(), &row.to_be_bytes()).expect("within the limits")
}

async fn take_out(setup: &Setup, key: &Key) {
    let record = setup.store.get(key).await.expect("nothing fails here").expect("it is there");
    let gone = setup.store.compare_and_delete(key, &record.value, Fence::NONE).await;
    assert!(gone.expect("nothing fails here").is_applied());
}

/// A replay of a time, by an operator who says why.
async fn replay<S: Store>(
    node: &PullStream<S>,
    times: Range<Timestamp>,
) -> Result<ReplayStarted, PullStreamError> {
    node.replay(ispb(), times, "court order 17", &operator()).await
}

/// Reads a replay to its end.
async fn read_all<S: Store>(
    node: &PullStream<S>,
    started: &ReplayStarted,
    reader: &Reader,
) -> Vec<Delivered> {
    let (mut read, mut token) = (Vec::new(), started.token.clone());
    loop {
        let pulled = node.replay_next(ispb(), &token, reader).await.expect("nothing fails here");
        let Some(batch) = pulled.batch else {
            assert_eq!(pulled.next, token, "the end is the same token again");
            return read;
        };
        assert_ne!(pulled.next, token);
        read.extend(batch.messages().iter().cloned());
        token = pulled.next;
    }
}

async fn remarks<S: Store>(node: &PullStream<S>) -> Vec<AuditEntry> {
    node.verify_audit(ispb(), Chain::Remarks).await.expect("it is whole");
    let (mut entries, mut from) = (Vec::new(), Some(0));
    while let Some(row) = from {
        let page = node.audit(ispb(), Chain::Remarks, row).await.expect("nothing fails here");
        entries.extend(page.entries);
        from = page.next;
    }
    entries
}

fn told(entry: &AuditEntry) -> (Action, Verdict, u64) {
    (entry.action, entry.verdict, entry.messages)
}

#[tokio::test(start_paused = true)]
async fn a_replay_has_the_ids_and_bytes_of_the_stream_in_every_form() {
    let setup = setup();
    let node = setup.node();
    let known = ingest(&node, 37).await;
    let streamed = drain(&node).await;
    for multipart in [false, true] {
        for gzip in [false, true] {
            let started = replay(&node, ever()).await.unwrap();
            let read = read_all(&node, &started, &reader(Form { multipart, gzip })).await;
            assert_eq!(read.iter().map(|message| message.id).collect::<Vec<_>>(), known);
            assert!(read.iter().all(|message| streamed[&message.id] == message.bytes[..]));
        }
    }
}

/// The answers to readers of the stream and of a replay are the same, byte by byte.
#[tokio::test(start_paused = true)]
async fn a_batch_of_a_replay_is_a_batch_of_the_stream() {
    for reader in [many(), single()] {
        let node = setup().node();
        ingest(&node, 40).await;
        let mut of_stream = node.start(ispb(), &reader).await.unwrap();
        let mut of_replay = {
            let started = replay(&node, ever()).await.unwrap();
            node.replay_next(ispb(), &started.token, &reader).await.unwrap()
        };
        for _ in 0..2 {
            let (left, right) = (of_stream.batch.unwrap(), of_replay.batch.unwrap());
            assert_eq!((left.form(), left.body()), (right.form(), right.body()));
            of_stream = node.next(ispb(), &of_stream.next, &reader).await.unwrap();
            of_replay = node.replay_next(ispb(), &of_replay.next, &reader).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_changes_nothing_of_the_stream() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 40).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    true_sleep(SECOND * 2).await;
    let before = setup.state().await;
    let started = replay(&node, ever()).await.unwrap();
    assert_eq!(read_all(&node, &started, &many()).await.len(), 40);
    refusal(node.replay_next(ispb(), &first.next, &many()).await);
    refusal(node.next(ispb(), &started.token, &many()).await);
    true_sleep(SECOND * 2).await;
    assert_eq!(setup.state().await, before);
    let second = node.next(ispb(), &first.next, &many()).await.unwrap();
    assert_eq!(ids(&second).len(), 10);
    assert_ne!(setup.state().await, before, "the control: a pull does");
}

#[tokio::test(start_paused = true)]
async fn a_retry_gets_the_same_answer_until_the_next_token_is_used() {
    let setup = setup();
    let nodes = [setup.node(), setup.node()];
    ingest(&nodes[0], 35).await;
    let started = replay(&nodes[0], ever()).await.unwrap();
    let mut tokens = vec![started.token];
    for number in 0..4 {
        let token = tokens[number].clone();
        let first = nodes[0].replay_next(ispb(), &token, &many()).await.unwrap();
        true_sleep(SECOND * 3).await;
        for (node, reader) in [(&nodes[1], single()), (&nodes[0], many())] {
            assert_eq!(node.replay_next(ispb(), &token, &reader).await.unwrap(), first);
        }
        for earlier in &tokens[..number] {
            let again = nodes[1].replay_next(ispb(), earlier, &many()).await;
            assert_eq!(refusal(again), Refusal::OutOfOrder);
        }
        tokens.push(first.next);
    }
    let end = nodes[1].replay_next(ispb(), &tokens[4], &many()).await.unwrap();
    assert_eq!((end.batch, &end.next), (None, &tokens[4]));
    let last = nodes[1].replay_next(ispb(), &tokens[3], &many()).await.unwrap();
    assert_eq!(ids(&last).len(), 5, "the last batch can be asked for again after the end");
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_of_what_was_there_when_it_was_asked_for() {
    let setup = setup();
    let node = setup.node();
    let known = ingest(&node, 15).await;
    let started = replay(&node, ever()).await.unwrap();
    ingest(&node, 15).await;
    let read = read_all(&node, &started, &many()).await;
    assert_eq!(read.iter().map(|message| message.id).collect::<Vec<_>>(), known);
}

/// Tokens of one change of keys ago are good, and the same token is issued again after it.
#[tokio::test(start_paused = true)]
async fn a_replay_outlives_one_change_of_keys_and_not_two() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 40).await;
    let started = replay(&node, ever()).await.unwrap();
    let first = node.replay_next(ispb(), &started.token, &many()).await.unwrap();
    setup.keys.rotate(token_key("b")).unwrap();
    assert_eq!(node.replay_next(ispb(), &started.token, &many()).await.unwrap(), first);
    let second = node.replay_next(ispb(), &first.next, &many()).await.unwrap();
    setup.keys.rotate(token_key("c")).unwrap();
    let gone = node.replay_next(ispb(), &first.next, &many()).await;
    assert_eq!(refusal(gone), Refusal::Tampered);
    let third = node.replay_next(ispb(), &second.next, &many()).await.unwrap();
    assert_eq!(ids(&third).len(), 10);
}

#[tokio::test(start_paused = true)]
async fn everything_about_a_replay_is_in_the_audit() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 12).await;
    let times = Timestamp::from_unix_millis(1)..ever().end;
    let started = node.replay(ispb(), times, "court order 17", &operator()).await.unwrap();
    let first = node.replay_next(ispb(), &started.token, &many()).await.unwrap();
    node.replay_next(ispb(), &started.token, &many()).await.unwrap();
    let second = node.replay_next(ispb(), &first.next, &many()).await.unwrap();
    node.replay_next(ispb(), &second.next, &many()).await.unwrap();
    refusal(node.replay_next(ispb(), &started.token, &many()).await);

    let entries = remarks(&node).await;
    let expected = [
        (Verdict::Done, 0, None, Some(&started.token)),
        (Verdict::Delivered, 10, Some(&started.token), Some(&first.next)),
        (Verdict::Replayed, 10, Some(&started.token), Some(&first.next)),
        (Verdict::Delivered, 2, Some(&first.next), Some(&second.next)),
        (Verdict::Empty, 0, Some(&second.next), Some(&second.next)),
        (Verdict::OutOfOrder, 0, Some(&started.token), None),
    ];
    assert_eq!(entries.len(), expected.len());
    for (entry, (verdict, messages, used, issued)) in entries.iter().zip(expected) {
        assert_eq!(told(entry), (Action::Replay, verdict, messages));
        assert_eq!(entry.used_hash(), used.map(|token| token_hash(token)));
        assert_eq!(entry.issued_hash(), issued.map(|token| token_hash(token)));
    }
    assert_eq!(entries[0].who, operator());
    let reason = entries[0].reason.as_deref().unwrap();
    assert_eq!(reason, format!("court order 17 [1 to {}, rows 0 to 2]", u64::MAX / 2));
    assert!(entries[1..].iter().all(|entry| entry.who.as_str() == "tests"));
}
