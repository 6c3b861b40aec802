//! Two regions on one store take over from each other while both are asked: one of them serves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use wane::clock::SharedClock;
use wane::services::pull_stream::{
    Chain, Client, Failover, Ispb, PullStreamError, PullStreamSettings, Pulled, ResourceId,
};

use super::stage::{
    PATIENCE, Stage, Stream, batch, fresh_ispb, ids, is_fault, keys, many, on_every_backend,
    unhurried,
};

const REGIONS: [&str; 2] = ["r1", "r2"];

/// An answer that was given: by which region, from when to when, and what.
struct Given {
    region: usize,
    began: Duration,
    ended: Duration,
    ids: Vec<ResourceId>,
}

/// What producers and readers share.
struct Turns {
    ispb: Ispb,
    clock: SharedClock,
    taken_in: Mutex<BTreeSet<ResourceId>>,
    given: Mutex<Vec<Given>>,
    /// Whether the producer shall end, and whether it has: its last message may come after the first.
    is_over: AtomicBool,
    all_sent: AtomicBool,
}

/// What one call came to.
enum Heard {
    Answer(Pulled),
    Elsewhere,
    Nothing,
}

fn heard(answer: Result<Pulled, PullStreamError>) -> Heard {
    match answer {
        Ok(pulled) => Heard::Answer(pulled),
        Err(PullStreamError::Elsewhere { .. }) => Heard::Elsewhere,
        Err(error) if is_fault(&error) => Heard::Nothing,
        Err(error) => panic!("{error:?}"),
    }
}

impl Turns {
    /// Whether nothing more comes, and all that was taken in was delivered.
    fn are_read(&self) -> bool {
        let all_sent = self.all_sent.load(Ordering::SeqCst);
        all_sent && self.taken_in.lock().is_subset(&self.delivered())
    }

    fn delivered(&self) -> BTreeSet<ResourceId> {
        self.given.lock().iter().flat_map(|given| given.ids.clone()).collect()
    }

    /// Sends messages to whichever region takes them, until it is over.
    async fn produce(self: Arc<Self>, nodes: [Stream; 2]) {
        let mut number = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            number += 1;
            match nodes[number % 2].ingest(self.ispb, batch([number])).await {
                Ok(ids) => self.taken_in.lock().extend(ids),
                Err(PullStreamError::Elsewhere { .. }) => {}
                Err(error) if is_fault(&error) => {}
                Err(error) => panic!("{error:?}"),
            }
            self.clock.sleep(Duration::from_millis(2)).await;
        }
        self.all_sent.store(true, Ordering::SeqCst);
    }

    /// A reader of one region, which asks again where it is refused.
    async fn read(self: Arc<Self>, node: Stream, region: usize) {
        let (reader, mut token): (_, Option<String>) = (many(), None);
        while !self.are_read() {
            let began = self.clock.monotonic();
            let answer = match &token {
                None => node.start(self.ispb, &reader).await,
                Some(token) => node.next(self.ispb, token, &reader).await,
            };
            let ended = self.clock.monotonic();
            match heard(answer) {
                Heard::Answer(pulled) => {
                    let ids = ids(&pulled);
                    self.given.lock().push(Given { region, began, ended, ids });
                    token = Some(pulled.next);
                }
                Heard::Elsewhere | Heard::Nothing => {
                    self.clock.sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }

    /// What is wrong with the answers, where a region was known to serve from then to then.
    fn wrong(&self, reigns: &[(usize, Duration, Duration)]) -> Option<String> {
        let given = self.given.lock();
        for (owner, since, until) in reigns {
            let within = |it: &&Given| it.began > *since && it.ended < *until;
            if given.iter().filter(within).any(|it| it.region != *owner) {
                return Some("served by the region that had lost it".into());
            }
        }
        let delivered: usize = given.iter().map(|given| given.ids.len()).sum();
        drop(given);
        (delivered > self.delivered().len()).then(|| "a message came twice".into())
    }
}

async fn turns(it: &Stage) {
    let (source, operator) = (keys("a", None), Client::default());
    let settings = |region: usize| PullStreamSettings {
        region: REGIONS[region].into(),
        hold: Duration::from_millis(100),
        ..unhurried()
    };
    let nodes = [0, 1].map(|region| it.node(region, &source, settings(region)));
    let ispb = fresh_ispb();
    it.insist(async || nodes[1].set_regions(ispb, "r1", "r2", &operator).await).await;
    let world = Arc::new(Turns {
        ispb,
        clock: Arc::clone(&it.clock),
        taken_in: Mutex::default(),
        given: Mutex::default(),
        is_over: AtomicBool::new(false),
        all_sent: AtomicBool::new(false),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&world).produce(nodes.clone()));
    for (region, node) in nodes.iter().enumerate() {
        tasks.spawn(Arc::clone(&world).read(node.clone(), region));
    }
    let (mut reigns, last) = (Vec::new(), if it.is_slow { 5 } else { 15 });
    for epoch in 2..=last {
        let owner = (epoch as usize + 1) % 2;
        let to = Failover { to: Some(REGIONS[owner].into()), ..Failover::default() };
        let node = &nodes[epoch as usize / 2 % 2];
        let map = it.insist(async || node.fail_over(ispb, &to, &operator).await).await;
        assert_eq!((map.epoch, &*map.primary), (epoch, REGIONS[owner]), "{}", it.backend);
        let since = it.clock.monotonic();
        it.clock.sleep(Duration::from_millis(if it.is_slow { 800 } else { 150 })).await;
        reigns.push((owner, since, it.clock.monotonic()));
    }
    world.is_over.store(true, Ordering::SeqCst);
    let ending = async { while tasks.join_next().await.is_some_and(|ended| ended.is_ok()) {} };
    tokio::select! {
        () = ending => {}
        () = it.clock.sleep(PATIENCE) => panic!("{}: not all was delivered", it.backend),
    }
    assert!(world.are_read(), "{}: a task panicked", it.backend);
    assert_eq!(world.wrong(&reigns), None, "{}", it.backend);
    let of = |region| world.given.lock().iter().filter(|given| given.region == region).count();
    let by = [of(0), of(1)];
    assert!(by.iter().all(|answers| *answers > 2), "{}: {by:?} answers", it.backend);
    println!("{}: {last} epochs, {by:?} answers of each region", it.backend);
    for node in &nodes {
        for chain in [Chain::Transitions, Chain::Remarks] {
            it.insist(async || node.verify_audit(ispb, chain).await).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_regions_that_are_asked_one_serves() {
    on_every_backend(turns).await;
}
