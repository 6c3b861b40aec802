//! Messages and rows: bytes as they came, rows that fill up, retention, policies.

use super::metered::{Metered, Op, Quirk};
use super::*;
use wane::clock::OffClock;
use wane::services::pull_stream::{MAX_MESSAGE, Policy, XML};
use wane::store::{Fence, Key, Keyspace, Life, PageLimit, Row, Ttl, Value, Write};

/// How many rows the log has.
async fn rows(setup: &Setup) -> usize {
    let (mut count, mut next) = (0, None);
    loop {
        let page = setup.store.scan(next, PageLimit::MAX).await.expect("nothing fails here");
        // What has an empty clustering says when the rows beside it came in.
        let is_row = |row: &&Row| {
            let is_log = Keyspace::of(row.key.partition()) == Some(Keyspace::PullStreamLog);
            is_log && !row.key.clustering().is_empty()
        };
        count += page.rows.iter().filter(is_row).count();
        next = page.next;
        if next.is_none() {
            return count;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_come_out_as_they_went_in_single_and_multipart() {
    let setup = setup();
    let node = setup.node();
    let odd = [b"\xFF\x00\r\n--pi-\r\n".to_vec(), vec![b'x'; MAX_MESSAGE], b"<a>\n\n</a>".to_vec()];
    let batch = odd.iter().map(|bytes| Message::new(bytes.clone()).unwrap()).collect();
    let known = node.ingest(ispb(), Batch::new(batch).unwrap()).await.unwrap();
    let first = node.start(ispb(), &single()).await.unwrap();
    let body = first.batch.as_ref().unwrap().body();
    assert_eq!((&body.content_type[..], body.resource_id), (XML, Some(known[0])));
    assert_eq!(body.plain, odd[0]);
    let rest = node.next(ispb(), &first.next, &many()).await.unwrap().batch.unwrap();
    let delivered: Vec<_> = rest.messages().iter().map(|message| &message.bytes[..]).collect();
    assert_eq!(delivered, [&odd[1][..], &odd[2]]);
    let body = rest.body();
    let boundary = body.content_type.strip_prefix("multipart/mixed; boundary=").unwrap();
    let text = &body.plain[..];
    assert!(text.starts_with(format!("--{boundary}\r\n").as_bytes()));
    assert!(text.ends_with(format!("\r\n--{boundary}--\r\n").as_bytes()));
    assert_eq!(odd.len() - 1, rest.messages().len());
}

/// A batch that is one whole row is served from the row, and is the same as put together anew.
#[tokio::test(start_paused = true)]
async fn a_whole_row_is_served_as_it_was_sealed() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 10).await;
    let whole = node.start(ispb(), &many()).await.unwrap();
    node.end(ispb(), &whole.next, &Client::default()).await.unwrap();
    let body = whole.batch.unwrap().body();
    let parts = String::from_utf8(body.plain.to_vec()).unwrap();
    assert_eq!(parts.matches("PI-ResourceId: ").count(), 10);
    for number in 0..10 {
        let message = String::from_utf8(message(number)).unwrap();
        assert!(parts.contains(&format!("\r\n\r\n{message}\r\n--")), "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn producers_that_come_together_share_rows_and_a_lone_one_does_not_wait() {
    let setup = setup();
    let node = setup.node();
    let began = setup.machine.elapsed();
    node.ingest(ispb(), batch([0])).await.unwrap();
    assert_eq!(setup.machine.elapsed(), began, "a lone message is not delayed");
    let producers = (1..101).map(|number| node.ingest(ispb(), batch([number])));
    for done in futures_util::future::join_all(producers).await {
        done.unwrap();
    }
    let rows = rows(&setup).await;
    assert!((11..=14).contains(&rows), "{rows} rows for 101 messages");
    let read = drain(&node).await;
    assert_eq!(read.len(), 101);
}

#[tokio::test(start_paused = true)]
async fn long_messages_are_laid_in_as_many_rows_as_they_need() {
    let setup = setup();
    let node = setup.node();
    let messages = (0..10).map(|_| Message::new(vec![b'x'; MAX_MESSAGE]).unwrap()).collect();
    let known = node.ingest(ispb(), Batch::new(messages).unwrap()).await.unwrap();
    assert_eq!(rows(&setup).await, 10);
    assert_eq!(ids(&node.start(ispb(), &many()).await.unwrap()), known, "and delivered as one");
}

#[tokio::test(start_paused = true)]
async fn the_log_goes_on_over_many_ranges_and_nodes() {
    let setup = setup();
    let nodes = [setup.node(), setup.node(), setup.node()];
    let mut known = BTreeMap::new();
    for number in 0..900 {
        let ids = nodes[number % 3].ingest(ispb(), batch([number])).await.unwrap();
        known.insert(ids[0], message(number));
    }
    assert_eq!(rows(&setup).await, 900);
    assert_eq!(drain(&nodes[1]).await, known);
}

/// Once retention has taken all rows, nothing but the tail tells which sequences were used.
#[tokio::test(start_paused = true)]
async fn rows_expire_are_passed_over_and_their_sequences_are_not_used_again() {
    let setup = setup();
    let node = setup.node();
    let policy = Policy { retention: Ttl::from_secs(3_600).unwrap(), max_readers: 6 };
    node.set_policy(ispb(), policy, &Client::default()).await.unwrap();
    for number in 0..300 {
        node.ingest(ispb(), batch([number])).await.unwrap();
    }
    true_sleep(SECOND * 5).await;
    setup.store_clock.advance(SECOND * 3_600);
    assert_eq!(rows(&setup).await, 0);
    let fresh = setup.node();
    let known = fresh.ingest(ispb(), batch([1_000])).await.unwrap();
    let pulled = fresh.start(ispb(), &many()).await.unwrap();
    assert_eq!(ids(&pulled), known);
    assert_eq!(fresh.status(ispb()).await.unwrap().head_row, 301);
}

/// Longer retention is in force for what comes after it was set.
#[tokio::test(start_paused = true)]
async fn a_gap_in_the_middle_is_passed_over() {
    let setup = setup();
    let node = setup.node();
    let kept = node.ingest(ispb(), batch([0])).await.unwrap();
    let policy = Policy { retention: Ttl::from_secs(60).unwrap(), max_readers: 6 };
    node.set_policy(ispb(), policy, &Client::default()).await.unwrap();
    for number in 1..300 {
        node.ingest(ispb(), batch([number])).await.unwrap();
    }
    let policy = Policy { retention: Ttl::from_secs(86_400).unwrap(), max_readers: 6 };
    node.set_policy(ispb(), policy, &Client::default()).await.unwrap();
    let last = node.ingest(ispb(), batch([300])).await.unwrap();
    true_sleep(SECOND * 2).await;
    setup.store_clock.advance(SECOND * 60);
    let read: Vec<_> = drain(&setup.node()).await.into_values().collect();
    assert_eq!(read.len(), 2, "{kept:?} and {last:?}");
    assert!(read.contains(&message(0)) && read.contains(&message(300)));
}

#[tokio::test(start_paused = true)]
async fn a_policy_limits_readers_on_every_node_within_a_second() {
    let setup = setup();
    let (node, other) = (setup.node(), setup.node());
    ingest(&node, 30).await;
    other.start(ispb(), &single()).await.unwrap();
    let policy = Policy { retention: Ttl::MAX, max_readers: 2 };
    node.set_policy(ispb(), policy, &Client::default()).await.unwrap();
    true_sleep(SECOND).await;
    other.start(ispb(), &single()).await.unwrap();
    for node in [&node, &other] {
        let refused = refusal(node.start(ispb(), &single()).await);
        assert!(matches!(refused, Refusal::TooManyReaders { .. }));
    }
    assert_eq!(other.policy(ispb()).await.unwrap(), policy);
    let short = Ttl::from_millis(999).unwrap();
    for wrong in [Policy { max_readers: 7, ..policy }, Policy { retention: short, ..policy }] {
        let told = node.set_policy(ispb(), wrong, &Client::default()).await;
        assert!(matches!(told, Err(PullStreamError::Invalid { .. })), "{told:?}");
    }
}

/// A node that was started with its clock far ahead: its leases do not keep others out once it is gone.
#[tokio::test(start_paused = true)]
async fn leases_of_a_clock_that_was_far_ahead_count_as_ended() {
    let setup = setup();
    let day = 24 * 60 * 60 * 1_000;
    let clock = Arc::new(OffClock::ahead_of(setup.machine.clock(), day));
    let settings = PullStreamSettings::default();
    let ahead = PullStream::new(setup.store.clone(), clock, setup.keys.clone(), settings).unwrap();
    let node = setup.node();
    let known = ingest(&node, 60).await;
    for _ in 0..6 {
        ahead.start(ispb(), &many()).await.unwrap();
    }
    assert_eq!(node.status(ispb()).await.unwrap().live_readers, 0);
    assert_eq!(drain(&node).await.into_keys().count(), known.len(), "what they had comes again");
}

/// A reader that comes back after months: its log is gone beyond in steps, and each of them is kept.
#[tokio::test(start_paused = true)]
async fn a_long_stretch_that_expired_is_gone_beyond_step_by_step() {
    let setup = setup();
    let store = Metered::new(setup.store.clone());
    let node = setup.node_over(store.clone(), PullStreamSettings::default());
    let ranges = 300;
    let rest = [&[5][..], b"local", b"00000208"].concat();
    let partition = Keyspace::PullStreamState.partition(&rest).unwrap();
    let tail = Key::new(partition.as_bytes(), b"tail").unwrap();
    let value = Value::copy_from_slice(&(ranges * 256_u64).to_be_bytes()).unwrap();
    let write = Write::new(value, Life::Permanent).fenced(Fence(ranges * 256));
    assert!(setup.store.put(&tail, write).await.unwrap().is_applied());
    let known = node.ingest(ispb(), batch([1])).await.unwrap();

    store.set(Quirk::Fails(Op::Insert, Keyspace::PullStreamState));
    assert!(node.start(ispb(), &many()).await.is_err());
    let reads = store.calls(Op::Read, Keyspace::PullStreamLog);
    assert!(reads <= 64, "{reads} reads before anything is written");
    store.set(Quirk::None);
    assert_eq!(node.status(ispb()).await.unwrap().head_row, 0);
    assert!(store.calls(Op::Read, Keyspace::PullStreamLog) <= 64, "a status is no exception");

    let began = setup.machine.elapsed();
    store.set(Quirk::None);
    let pulled = node.start(ispb(), &many()).await.unwrap();
    assert_eq!(ids(&pulled), known, "within one call");
    assert!(setup.machine.elapsed() - began < SECOND);
    let reads = store.calls(Op::Read, Keyspace::PullStreamLog);
    assert!(reads <= ranges as usize + 5, "{reads} reads, none of them twice");
    assert_eq!(node.status(ispb()).await.unwrap().head_row, ranges * 256 + 1);
}

/// Two nodes append in turn, and everything expires again and again: nothing lands behind the readers.
#[tokio::test(start_paused = true)]
async fn messages_of_a_second_are_delivered_while_they_live() {
    let setup = setup();
    let (one, other) = (setup.node(), setup.node());
    let retention = Ttl::from_secs(1).unwrap();
    let policy = Policy { retention, max_readers: 6 };
    let mut pulled = one.start(ispb(), &many()).await.unwrap();
    one.set_policy(ispb(), policy, &Client::default()).await.unwrap();
    true_sleep(2 * SECOND).await;
    for round in 0..20 {
        let (producer, reader) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let known = ingest(producer, 1).await;
        pulled = reader.next(ispb(), &pulled.next, &many()).await.unwrap();
        assert_eq!(ids(&pulled), known, "round {round}");
        // The store forgets the row.
        setup.store_clock.advance(2 * SECOND);
    }
    assert_eq!(one.status(ispb()).await.unwrap().head_row, 20, "no sequence was used twice");
}
