//! What is not replayed: nothing, times that are none, tokens of others, and what is over or gone.

use super::*;
use wane::store::{Life, StoreError, Value, Write};

fn millis(from: u64, to: u64) -> Range<Timestamp> {
    Timestamp::from_unix_millis(from)..Timestamp::from_unix_millis(to)
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_replayed_is_refused_and_audited_and_changes_nothing() {
    let setup = setup();
    let node = setup.node();
    let nothing = replay(&node, ever()).await;
    assert!(matches!(nothing, Err(PullStreamError::Absent { .. })), "{nothing:?}");
    ingest(&node, 5).await;
    let now = setup.now().as_unix_millis();
    let long = "why ".repeat(129);
    let cases = [
        (millis(now - 9_000, now - 5_000), "why", Verdict::Absent),
        (millis(now + 1, now + 5_000), "why", Verdict::Absent),
        (millis(now, now), "why", Verdict::Invalid),
        (millis(now + 1, now), "why", Verdict::Invalid),
        (millis(0, now + 1), "", Verdict::Invalid),
        (millis(0, now + 1), " \t ", Verdict::Invalid),
        (millis(0, now + 1), "two\nlines", Verdict::Invalid),
        (millis(0, now + 1), &long, Verdict::Invalid),
    ];
    let before = stored(&setup).await;
    for (times, reason, verdict) in cases.clone() {
        let refused = node.replay(ispb(), times.clone(), reason, &operator()).await.unwrap_err();
        let is_expected = if verdict == Verdict::Absent {
            matches!(refused, PullStreamError::Absent { .. })
        } else {
            matches!(refused, PullStreamError::Invalid { .. })
        };
        assert!(is_expected, "{times:?} {reason:?}: {refused}");
    }
    assert_eq!(stored(&setup).await, before);
    let entries = remarks(&node).await;
    let verdicts: Vec<_> = entries[1..].iter().map(|entry| entry.verdict).collect();
    assert_eq!(verdicts, cases.map(|(_, _, verdict)| verdict));
    assert!(entries.iter().all(|entry| entry.who == operator() && entry.reason.is_some()));
    assert!(replay(&node, millis(now, now + 1)).await.is_ok(), "the control");
    assert_ne!(stored(&setup).await, before, "the control: a replay has a record");
}

/// Everything that is stored of streams but for the audit.
async fn stored(setup: &Setup) -> Vec<wane::store::Row> {
    let page = setup.store.scan(None, wane::store::PageLimit::MAX).await;
    let page = page.expect("nothing fails here");
    let is_audit = |row: &wane::store::Row| {
        let is_hint = row.key == state_key("remarks") || row.key == state_key("tail");
        is_hint || Keyspace::of(row.key.partition()) == Some(Keyspace::Audit)
    };
    page.rows.into_iter().filter(|row| !is_audit(row)).collect()
}

#[tokio::test(start_paused = true)]
async fn no_token_is_good_for_both_a_stream_and_a_replay() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 25).await;
    let pulled = node.start(ispb(), &many()).await.unwrap();
    let started = replay(&node, ever()).await.unwrap();
    true_sleep(SECOND * 2).await;
    let before = stored(&setup).await;
    let client = Client::default();
    for refused in [
        refusal(node.next(ispb(), &started.token, &many()).await),
        refusal(node.end(ispb(), &started.token, &client).await),
        refusal(node.replay_next(ispb(), &pulled.next, &many()).await),
        refusal(node.replay_next(ispb(), "e30.e30.e30", &many()).await),
    ] {
        assert_eq!(refused, Refusal::Tampered);
    }
    let other = "99999999".parse().unwrap();
    assert_eq!(refusal(node.replay_next(other, &started.token, &many()).await), Refusal::Foreign);
    assert_eq!(stored(&setup).await, before);
    let entries: Vec<_> = remarks(&node).await.iter().map(told).collect();
    let tampered = |action| (action, Verdict::Tampered, 0);
    let expected = [Action::Next, Action::End, Action::Replay, Action::Replay].map(tampered);
    assert_eq!(entries[1..], expected);
    assert!(node.next(ispb(), &pulled.next, &many()).await.is_ok(), "both go on");
    assert!(node.replay_next(ispb(), &started.token, &many()).await.is_ok(), "both go on");
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_over_when_its_life_is() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 25).await;
    let began = setup.now();
    let started = replay(&node, ever()).await.unwrap();
    assert_eq!(began.until(started.expires_at), HOUR * 24);
    let first = node.replay_next(ispb(), &started.token, &many()).await.unwrap();
    true_sleep(HOUR * 24 - SECOND).await;
    assert_eq!(node.replay_next(ispb(), &started.token, &many()).await.unwrap(), first);
    true_sleep(SECOND * 2).await;
    for token in [&started.token, &first.next] {
        assert_eq!(refusal(node.replay_next(ispb(), token, &many()).await), Refusal::Expired);
    }
    assert_eq!(told(remarks(&node).await.last().unwrap()), (Action::Replay, Verdict::Expired, 0));
}

/// The store has a clock of its own: its record is gone before the token is over.
#[tokio::test(start_paused = true)]
async fn a_replay_that_is_not_known_is_over() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 25).await;
    let started = replay(&node, ever()).await.unwrap();
    setup.store_clock.advance(HOUR * 24 - SECOND);
    let first = node.replay_next(ispb(), &started.token, &many()).await.unwrap();
    setup.store_clock.advance(SECOND * 2);
    let gone = node.replay_next(ispb(), &first.next, &many()).await;
    assert_eq!(refusal(gone), Refusal::Expired, "reading does not make it live longer");
}

/// What retention has taken is not made up: a retry says so, and the rest can be read.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_gone_is_absent_and_the_reader_goes_on() {
    let setup = setup();
    let node = setup.node();
    let known = ingest(&node, 50).await;
    let started = replay(&node, ever()).await.unwrap();
    let first = node.replay_next(ispb(), &started.token, &many()).await.unwrap();
    take_out(&setup, &row_key(0)).await;
    take_out(&setup, &row_key(1)).await;
    let again = node.replay_next(ispb(), &started.token, &many()).await;
    assert!(matches!(again, Err(PullStreamError::Absent { .. })), "{again:?}");
    assert_eq!(told(remarks(&node).await.last().unwrap()), (Action::Replay, Verdict::Absent, 0));
    let second = node.replay_next(ispb(), &first.next, &many()).await.unwrap();
    assert_eq!(ids(&second), known[20..30], "what is gone is passed by");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_goes_while_it_is_read_is_passed_by() {
    let setup = setup();
    let node = setup.node();
    let known = ingest(&node, 30).await;
    let started = replay(&node, ever()).await.unwrap();
    let first = node.replay_next(ispb(), &started.token, &single()).await.unwrap();
    take_out(&setup, &row_key(0)).await;
    let second = node.replay_next(ispb(), &first.next, &many()).await.unwrap();
    assert_eq!((ids(&first), ids(&second)), (vec![known[0]], known[10..20].to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_told_and_nothing_is_delivered() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 25).await;
    let started = replay(&node, ever()).await.unwrap();
    let page = setup.store.scan(None, wane::store::PageLimit::MAX).await.unwrap();
    let is_replay = |row: &&wane::store::Row| {
        Keyspace::of(row.key.partition()) == Some(Keyspace::PullStreamState)
            && row.key.clustering().is_empty()
    };
    let record = page.rows.iter().find(is_replay).expect("the record of the replay");
    let damaged = Value::copy_from_slice(&record.record.value[1..]).unwrap();
    let write = Write::new(damaged, Life::Permanent);
    assert!(setup.store.put(&record.key, write).await.unwrap().is_applied());
    let failed = node.replay_next(ispb(), &started.token, &many()).await;
    let is_corrupt = matches!(failed, Err(PullStreamError::Store(StoreError::Corrupt { .. })));
    assert!(is_corrupt, "{failed:?}");
    assert_eq!(told(remarks(&node).await.last().unwrap()), (Action::Replay, Verdict::Failed, 0));
}

#[tokio::test(start_paused = true)]
async fn a_replay_lives_as_long_as_the_settings_say() {
    let setup = setup();
    let replay_life = Ttl::from_secs(60).unwrap();
    let settings = PullStreamSettings { replay_life, ..PullStreamSettings::default() };
    let node = setup.node_over(setup.store.clone(), settings);
    ingest(&node, 5).await;
    let started = replay(&node, ever()).await.unwrap();
    true_sleep(SECOND * 59).await;
    assert!(node.replay_next(ispb(), &started.token, &many()).await.is_ok());
    true_sleep(SECOND * 2).await;
    let over = node.replay_next(ispb(), &started.token, &many()).await;
    assert_eq!(refusal(over), Refusal::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_read_where_the_stream_is() {
    let setup = setup();
    let (own, other) = (setup.node_in("r1"), setup.node_in("r2"));
    ingest(&own, 20).await;
    own.set_regions(ispb(), "r1", "r2", &operator()).await.unwrap();
    let started = replay(&own, ever()).await.unwrap();
    true_sleep(SECOND * 2).await;
    for told in [
        replay(&other, ever()).await.map(drop),
        other.replay_next(ispb(), &started.token, &many()).await.map(drop),
    ] {
        let is_named =
            matches!(&told, Err(PullStreamError::Elsewhere { region }) if region == "r1");
        assert!(is_named, "{told:?}");
    }
    let verdicts: Vec<_> = remarks(&own).await.iter().map(|entry| entry.verdict).collect();
    assert_eq!(verdicts[verdicts.len() - 2..], [Verdict::Elsewhere; 2]);
    assert_eq!(read_all(&own, &started, &many()).await.len(), 20);
}
