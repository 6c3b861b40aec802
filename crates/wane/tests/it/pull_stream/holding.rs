//! Long polls: held for a while, answered as soon as a message comes, from wherever it comes.

use super::*;
use tokio::task::JoinSet;

#[tokio::test(start_paused = true)]
async fn an_empty_stream_is_answered_after_the_hold() {
    let setup = setup();
    let node = setup.node();
    let began = setup.machine.elapsed();
    let pulled = node.start(ispb(), &many()).await.unwrap();
    assert_eq!(pulled.batch, None);
    assert!((5..6).contains(&(setup.machine.elapsed() - began).as_secs()));
    let again = node.next(ispb(), &pulled.next, &many()).await.unwrap();
    assert_eq!(again, pulled, "nothing to acknowledge: the token that was used");
    assert_eq!(node.parked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_parked_reader_is_answered_when_a_message_comes_here_or_elsewhere() {
    let setup = setup();
    for (node, producer, at_most) in
        [(setup.node(), None, 5), (setup.node(), Some(setup.node()), 250)]
    {
        let parked = tokio::spawn({
            let node = node.clone();
            async move { node.start(ispb(), &many()).await.unwrap() }
        });
        true_sleep(SECOND).await;
        assert_eq!(node.parked(), 1);
        let came = setup.machine.elapsed();
        let known = ingest(producer.as_ref().unwrap_or(&node), 1).await;
        let pulled = parked.await.unwrap();
        assert_eq!(ids(&pulled), known);
        let waited = setup.machine.elapsed() - came;
        assert!(waited <= Duration::from_millis(at_most), "{waited:?}");
        node.end(ispb(), &pulled.next, &Client::default()).await.unwrap();
    }
}

/// A row wakes one of them; each of them that takes its one message leaves the rest to the next.
#[tokio::test(start_paused = true)]
async fn six_parked_readers_share_what_comes_in_one_row() {
    let setup = setup();
    let node = setup.node();
    let mut parked = JoinSet::new();
    for _ in 0..6 {
        let node = node.clone();
        parked.spawn(async move { node.start(ispb(), &single()).await.unwrap() });
    }
    true_sleep(SECOND).await;
    assert_eq!(node.parked(), 6);
    let came = setup.machine.elapsed();
    let known = ingest(&node, 6).await;
    let mut given: Vec<_> = parked.join_all().await.iter().flat_map(ids).collect();
    given.sort();
    let mut expected = known;
    expected.sort();
    assert_eq!(given, expected);
    let waited = setup.machine.elapsed() - came;
    assert!(waited <= Duration::from_millis(5), "{waited:?}");
}

/// A reader that gave up and asks again, while its first call still waits and is served first.
#[tokio::test(start_paused = true)]
async fn a_retry_of_a_call_that_waits_is_answered_with_it() {
    let setup = setup();
    let node = setup.node();
    for nodes in [[node.clone(), node], [setup.node(), setup.node()]] {
        let first = nodes[0].start(ispb(), &many()).await.unwrap();
        assert_eq!(first.batch, None);
        let mut waiting = Vec::new();
        for token in [Some(first.next.clone()), None, Some(first.next.clone())] {
            let node = nodes[usize::from(waiting.len() == 2)].clone();
            waiting.push(tokio::spawn(async move {
                match &token {
                    Some(token) => node.next(ispb(), token, &many()).await.unwrap(),
                    None => node.start(ispb(), &many()).await.unwrap(),
                }
            }));
            true_sleep(Duration::from_millis(500)).await;
        }
        let came = setup.machine.elapsed();
        let known = ingest(&nodes[0], 1).await;
        let retry = waiting.remove(2).await.unwrap();
        let waited = setup.machine.elapsed() - came;
        assert!(waited <= Duration::from_millis(250), "{waited:?}");
        let call = waiting.remove(0).await.unwrap();
        assert_eq!((ids(&call), &call), (known, &retry));
        for left in [call, waiting.remove(0).await.unwrap()] {
            nodes[0].end(ispb(), &left.next, &Client::default()).await.unwrap();
        }
    }
}

/// What lies between the head of the record and the end of the log is gone: the next row comes after it.
#[tokio::test(start_paused = true)]
async fn a_reader_of_a_log_that_expired_is_answered_when_a_message_comes_elsewhere() {
    let setup = setup();
    let (node, producer) = (setup.node(), setup.node());
    let first = node.start(ispb(), &many()).await.unwrap();
    assert_eq!(first.batch, None);
    ingest(&producer, 30).await;
    true_sleep(SECOND * 2).await;
    setup.store_clock.advance(SECOND * 31 * 86_400);
    let parked = tokio::spawn({
        let (node, token) = (node.clone(), first.next.clone());
        async move { node.next(ispb(), &token, &many()).await.unwrap() }
    });
    true_sleep(SECOND).await;
    assert_eq!(node.parked(), 1);
    let came = setup.machine.elapsed();
    let known = ingest(&producer, 1).await;
    assert_eq!(ids(&parked.await.unwrap()), known);
    let waited = setup.machine.elapsed() - came;
    assert!(waited <= Duration::from_millis(250), "{waited:?}");
}

/// What a parked reader's token is answered with is what every retry gets, and is acknowledged only
/// by the token that came with it.
#[tokio::test(start_paused = true)]
async fn a_token_that_waited_names_one_batch() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 1).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    let waiting = tokio::spawn({
        let (node, token) = (node.clone(), first.next.clone());
        async move { node.next(ispb(), &token, &many()).await.unwrap() }
    });
    true_sleep(SECOND).await;
    assert_eq!(node.status(ispb()).await.unwrap().in_flight, 0, "acknowledged before it waits");
    ingest(&node, 3).await;
    let second = waiting.await.unwrap();
    assert_eq!(ids(&second).len(), 3);
    assert_eq!(setup.node().next(ispb(), &first.next, &many()).await.unwrap(), second);
    let third = node.next(ispb(), &second.next, &many()).await.unwrap();
    assert_eq!(third.batch, None);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_batch_comes_to_a_reader_that_waits() {
    let setup = setup();
    let node = setup.node();
    let known = ingest(&node, 10).await;
    let began = setup.machine.elapsed();
    node.start(ispb(), &many()).await.unwrap();
    let mut pulled = node.start(ispb(), &many()).await.unwrap();
    while pulled.batch.is_none() {
        pulled = node.next(ispb(), &pulled.next, &many()).await.unwrap();
    }
    assert_eq!(ids(&pulled), known);
    let waited = setup.machine.elapsed() - began;
    assert!(waited >= LEASE && waited < LEASE + SECOND, "{waited:?}");
}

/// A hold of a minute outlives half a lease: the lease is prolonged meanwhile.
#[tokio::test(start_paused = true)]
async fn a_long_hold_keeps_its_lease() {
    let setup = setup();
    let settings = PullStreamSettings {
        hold: Duration::from_secs(60),
        lease: Duration::from_secs(61),
        ..PullStreamSettings::default()
    };
    let node = setup.node_over(setup.store.clone(), settings);
    let mut pulled = node.start(ispb(), &many()).await.unwrap();
    for _ in 0..10 {
        assert_eq!(pulled.batch, None);
        assert_eq!(node.status(ispb()).await.unwrap().live_readers, 1);
        pulled = node.next(ispb(), &pulled.next, &many()).await.unwrap();
    }
    assert!(setup.machine.elapsed() > TOKEN_LIFE, "tokens are renewed too");
}

#[tokio::test(start_paused = true)]
async fn parked_readers_have_no_task_and_no_call_under_way() {
    let setup = setup();
    let node = setup.node();
    let mut parked = JoinSet::new();
    for number in 0..500 {
        let (node, ispb) = (node.clone(), format!("{number:08}").parse().unwrap());
        let future = async move { node.start(ispb, &many()).await.map(drop) };
        assert!(size_of_val(&future) < 8_192, "{} bytes", size_of_val(&future));
        parked.spawn(future);
    }
    true_sleep(SECOND * 3).await;
    assert_eq!(node.parked(), 500);
    assert_eq!(node.at_work(), 0, "nobody serves an institution that waits");
    parked.shutdown().await;
    assert_eq!(node.parked(), 0, "a reader that goes away leaves its place");
}

/// A batch that could not be handed out while its lease lasted is asked for again: a process that
/// was stopped must not hand out what is another's by now.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_past_the_lease_hands_nothing_out() {
    let setup = setup();
    let other = setup.node();
    let store = crate::gated::GatedStore::new(setup.store.clone());
    let stopped = setup.node_over(store.clone(), PullStreamSettings::default());
    let known = ingest(&other, 10).await;
    store.set(crate::gated::Gate::HoldAfter);
    let started = tokio::spawn(async move { stopped.start(ispb(), &many()).await });
    true_sleep(LEASE + SECOND).await;
    let pulled = other.start(ispb(), &many()).await.unwrap();
    assert_eq!(ids(&pulled), known, "its lease has ended");
    store.set(crate::gated::Gate::Open);
    assert_eq!(refusal(started.await.unwrap()), Refusal::Expired);
    other.end(ispb(), &pulled.next, &Client::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_answers_whoever_is_held() {
    let setup = setup();
    let node = setup.node();
    let held = tokio::spawn({
        let node = node.clone();
        async move { node.start(ispb(), &many()).await.unwrap() }
    });
    true_sleep(SECOND).await;
    let asked = setup.machine.elapsed();
    node.end_holds();
    let pulled = held.await.unwrap();
    assert_eq!(pulled.batch, None);
    let again = node.next(ispb(), &pulled.next, &many()).await.unwrap();
    assert!(setup.machine.elapsed() - asked < SECOND, "nobody is held any more");
    let known = ingest(&node, 1).await;
    let elsewhere = setup.node().next(ispb(), &again.next, &many()).await.unwrap();
    assert_eq!(ids(&elsewhere), known, "the token is good on another node");
}
