//! The same over a network that cuts connections, loses requests and answers, and holds them back:
//! every message is accounted for in the end.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use wane::clock::{Clock as _, ManualClock, SharedClock};
use wane_backends::cassandra::Replication;

use super::doctored::Lie;
use super::run::Run;
use super::sharing::settings;
use super::stage::{Stage, fresh_ispb, keys, open};
use crate::harness::cassandra::Place;
use crate::harness::redis::{fresh_settings, listed_url};
use crate::proxy::{Chance, Counts, Ending, Proxy, Rules};

/// Runs within which a lie must come to light.
const LIARS_PATIENCE: u64 = 10;

/// The URL of a store of its own by the addresses at which its servers are reached.
type UrlAt = Box<dyn Fn(&[String]) -> String>;

/// A backend on a server, or several, that networks are between.
struct Way {
    backend: &'static str,
    servers: Vec<SocketAddr>,
    url: UrlAt,
    /// The longest that one kind of trouble lasts.
    spell: Duration,
    batches: usize,
}

fn redis() -> Option<Way> {
    let url = listed_url()?;
    let server = url.trim_start_matches("redis://").parse().expect("an address");
    let prefix = fresh_settings(&url).prefix;
    Some(Way {
        backend: "redis",
        servers: vec![server],
        url: Box::new(move |at| format!("redis://{}?prefix={prefix}", at[0])),
        spell: Duration::from_millis(60),
        batches: 60,
    })
}

fn cas3() -> Option<Way> {
    let Place { settings } = Place::new(Replication::Cas3)?;
    let servers = settings.hosts.iter().map(|host| host.parse().expect("an address")).collect();
    let datacenter = settings.datacenter.unwrap_or_else(|| "dc1".into());
    let rest = format!("{}?datacenter={datacenter}", settings.keyspace);
    Some(Way {
        backend: "cas3",
        servers,
        url: Box::new(move |at| format!("cas3://{}/{rest}", at.join(","))),
        spell: Duration::from_millis(400),
        batches: 12,
    })
}

/// What all proxies together did.
fn counts(proxies: &[Proxy]) -> Counts {
    proxies.iter().map(Proxy::counts).fold(Counts::default(), |sum, one| Counts {
        connections: sum.connections + one.connections,
        requests: sum.requests + one.requests,
        answers: sum.answers + one.answers,
        delayed: sum.delayed + one.delayed,
        lost_requests: sum.lost_requests + one.lost_requests,
        lost_answers: sum.lost_answers + one.lost_answers,
        cut: sum.cut + one.cut,
    })
}

/// Whether there was something that a store could lose its head over.
fn has_suffered(counts: Counts) -> bool {
    counts.lost_answers >= 10 && counts.lost_requests >= 3 && counts.cut >= 13
}

/// Changes the rules of one proxy after the other, by the seed, until it is dropped.
async fn make_trouble(proxies: &[Proxy], clock: &SharedClock, seed: u64, spell: Duration) {
    let dice = ManualClock::seeded(seed ^ 0x5EED_0F7A_0B1E_5EED);
    let below = |limit: u64| dice.random_u64() % limit;
    let up_to = |most: Duration| Duration::from_millis(1 + below(most.as_millis() as u64));
    loop {
        let proxy = &proxies[below(proxies.len() as u64) as usize];
        let ending = if below(2) == 0 { Ending::Reset } else { Ending::Close };
        let rules = match below(8) {
            0..3 => Rules { lose_answers: Chance::OneIn(3 + below(8)), ending, ..Rules::PASS },
            3..5 => Rules { lose_requests: Chance::OneIn(3 + below(12)), ending, ..Rules::PASS },
            5 => Rules { delay_answers: up_to(spell), ..Rules::PASS },
            6 => Rules { refuse: true, ..Rules::PASS },
            _ => Rules { lose_answers: Chance::Next(1), ending, ..Rules::PASS },
        };
        proxy.set(rules).await;
        if rules.refuse {
            proxy.cut(ending);
        }
        clock.sleep(up_to(spell)).await;
        proxy.set(Rules::PASS).await;
        clock.sleep(up_to(spell)).await;
    }
}

/// Producers and readers over two nodes with trouble all along: how many messages there were, or
/// what is wrong.
async fn survive(way: &Way, lie: Lie, seed: u64) -> Result<usize, String> {
    let proxies = Proxy::before_all(&way.servers, seed).await;
    let past: Vec<_> = way.servers.iter().map(ToString::to_string).collect();
    let through: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let direct = Box::pin(open(&(way.url)(&past))).await;
    let stores =
        [Box::pin(open(&(way.url)(&through))).await, Box::pin(open(&(way.url)(&through))).await];
    let it = Stage::over(way.backend, lie, stores);
    let safe = Stage::over(way.backend, Lie::None, [direct.clone(), direct]);
    let (source, settings) = (keys("a", None), settings(it.is_slow));
    let nodes = [0, 1].map(|number| it.node(number, &source, settings.clone()));
    let run = Run::new(fresh_ispb(), nodes, settings.lease, it.clock.clone());
    let mut tasks = JoinSet::new();
    for producer in 0..2 {
        run.expect_producer();
        tasks.spawn(run.clone().produce(producer, way.batches));
    }
    for number in 0..6 {
        tasks.spawn(run.clone().read(number, None));
    }
    let suffering = async {
        while !has_suffered(counts(&proxies)) && !run.has_failed() {
            it.clock.sleep(Duration::from_millis(50)).await;
        }
        run.has_suffered.store(true, Ordering::SeqCst);
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no task panics");
        }
    };
    tokio::select! {
        () = make_trouble(&proxies, &it.clock, seed, way.spell) => {}
        () = suffering => {}
    }
    for proxy in &proxies {
        proxy.set(Rules::PASS).await;
    }
    run.vanish(0);
    run.vanish(1);
    let last = [0, 1].map(|number| safe.node(number, &source, settings.clone()));
    let messages = run.settle(&last[0]).await?;
    let (tokens, unheard) = {
        let account = run.account.lock();
        (account.tokens(), account.count_unheard())
    };
    safe.audited(&last, run.ispb, tokens).await;
    let counts = counts(&proxies);
    println!("{}: {messages} messages, {unheard} calls without an answer; {counts:?}", way.backend);
    assert!(counts.requests > 100, "{} goes round the proxy", way.backend);
    assert!(unheard > 0, "{}: nobody noticed", way.backend);
    Ok(messages)
}

async fn survives(way: Option<Way>) {
    let Some(way) = way else { return };
    let survived = Box::pin(survive(&way, Lie::None, 1)).await;
    let messages = survived.unwrap_or_else(|wrong| panic!("{}: {wrong}", way.backend));
    assert!(messages > way.batches, "{}: hardly anything was taken in", way.backend);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_loses_nothing_over_a_network_that_fails() {
    survives(redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_lose_nothing_over_a_network_that_fails() {
    survives(cas3()).await;
}

/// The control: the same account of a store that guesses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_takes_unclear_writes_for_applied_is_caught() {
    let Some(way) = redis() else { return };
    for seed in 0..LIARS_PATIENCE {
        let run = Box::pin(survive(&way, Lie::TakesUnclearForApplied, seed));
        // What the audit says of it is a panic.
        match AssertUnwindSafe(run).catch_unwind().await {
            Ok(Ok(_)) => {}
            Ok(Err(wrong)) => return println!("caught by seed {seed}: {wrong}"),
            Err(_) => return println!("caught by seed {seed}, by the audit"),
        }
    }
    panic!("the guess was not caught");
}
