//! Six readers share a stream over two nodes, of which one vanishes with batches in flight.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use wane::services::pull_stream::PullStreamSettings;

use super::run::Run;
use super::stage::{Stage, fresh_ispb, keys, on_every_backend};

/// Readers that die with their first batch.
const DYING: [usize; 2] = [1, 3];

/// What a run came to.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
pub(super) struct Tally {
    messages: usize,
    tokens: usize,
    came_again: usize,
    unheard: usize,
}

/// A lease after which what a dead reader had comes again while the test waits for it.
pub(super) fn settings(is_slow: bool) -> PullStreamSettings {
    PullStreamSettings {
        lease: Duration::from_secs(if is_slow { 6 } else { 2 }),
        token_life: Duration::from_secs(120),
        hold: Duration::from_millis(500),
        ..PullStreamSettings::default()
    }
}

/// Two producers, six readers, two nodes: what it came to, or what is wrong.
pub(super) async fn share(it: &Stage) -> Result<Tally, String> {
    let (source, settings) = (keys("a", None), settings(it.is_slow));
    let node = |number: usize| it.node(number, &source, settings.clone());
    let run = Run::new(fresh_ispb(), [node(0), node(1)], settings.lease, it.clock.clone());
    let (mut tasks, mut dying) = (JoinSet::new(), JoinSet::new());
    for producer in 0..2 {
        run.expect_producer();
        tasks.spawn(run.clone().produce(producer, if it.is_slow { 12 } else { 60 }));
    }
    for number in 0..6 {
        if DYING.contains(&number) {
            dying.spawn(run.clone().read(number, Some(1)));
        } else {
            tasks.spawn(run.clone().read(number, None));
        }
    }
    tasks.spawn(run.clone().look_on());
    while let Some(died) = dying.join_next().await {
        died.expect("no reader panics");
    }
    run.vanish(1);
    for number in [7, 9] {
        tasks.spawn(run.clone().read(number, None));
    }
    it.clock.sleep(settings.lease / 4).await;
    run.come(1, node(1));
    run.has_suffered.store(true, Ordering::SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task panics");
    }
    let last = node(1);
    let messages = run.settle(&last).await?;
    let (tokens, came_again, unheard) = {
        let account = run.account.lock();
        (account.tokens(), account.came_again(), account.count_unheard())
    };
    if came_again == 0 {
        return Err("nothing of what the dead had came again".into());
    }
    it.audited(&[node(0), last], run.ispb, tokens).await;
    Ok(Tally { messages, tokens, came_again, unheard })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_accounted_for_when_a_node_vanishes() {
    on_every_backend(async |it| {
        let tally = share(it).await.unwrap_or_else(|wrong| panic!("{}: {wrong}", it.backend));
        println!("{}: {tally:?}", it.backend);
    })
    .await;
}
