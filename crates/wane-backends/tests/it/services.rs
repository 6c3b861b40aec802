//! Coordination on every backend: elections, fenced writes, sequences and the sequencer, from two
//! nodes where the store is shared and from one process where it is not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use wane::clock::{SharedClock, SystemClock};
use wane::services::ClusterAppId;
use wane::services::app_ttl::{AppTtl, AppTtlError, Quota};
use wane::services::elections::{
    AppElections, Campaigned, Elections, ElectionsError, Guard, Lease, LeaseRules, Renewed,
    Resigned, Token,
};
use wane::services::sequencer::{
    Closed, Event, EventLog, Offset, SequenceId, Sequencer, SequencerSettings, Start, WorkspaceId,
    WorkspaceKind,
};
use wane::services::sequences::Sequences;
use wane::store::{BoxError, WatchedStore};
use wane_backends::AnyStore;

use crate::harness::urls::{Address, shared_stores};

const APP: ClusterAppId = ClusterAppId(5);

type Node = WatchedStore<AnyStore>;

/// A backend: what a lease on it must be, and two nodes of it.
struct Stage {
    backend: &'static str,
    rules: LeaseRules,
    lease: Duration,
    nodes: [Node; 2],
    clock: SharedClock,
    _directory: Option<TempDir>,
}

async fn node(url: &str, clock: &SharedClock) -> Node {
    let store = wane_backends::open(url, Arc::clone(clock)).await;
    WatchedStore::new(store.expect("the store opens"), Arc::clone(clock))
}

/// Every backend of the run.
async fn stages() -> Vec<Stage> {
    let clock = SystemClock::shared();
    let mut stages = Vec::new();
    let directory = tempfile::tempdir().expect("a directory");
    let file = format!("file:{}", directory.path().join("store").display());
    for (backend, url, directory) in
        [("mem", "mem:".to_owned(), None), ("file", file, Some(directory))]
    {
        let one = node(&url, &clock).await;
        stages.push(Stage {
            backend,
            rules: LeaseRules::ONE_PROCESS,
            lease: Duration::from_secs(1),
            nodes: [one.clone(), one],
            clock: Arc::clone(&clock),
            _directory: directory,
        });
    }
    for Address { backend, url, max_skew } in shared_stores() {
        let shortest = Duration::from_secs(if backend == "dynamodb" { 10 } else { 3 });
        stages.push(Stage {
            backend,
            rules: LeaseRules::shared(shortest, max_skew),
            lease: shortest,
            nodes: [node(&url, &clock).await, node(&url, &clock).await],
            clock: Arc::clone(&clock),
            _directory: None,
        });
    }
    stages
}

impl Stage {
    fn elections(&self) -> [AppElections<AnyStore>; 2] {
        self.nodes
            .clone()
            .map(|node| Elections::new(node, Arc::clone(&self.clock), self.rules).of(APP))
    }

    async fn won(&self, elections: &AppElections<AnyStore>, name: &str) -> Lease {
        match elections.campaign(name, "node", self.lease * 3).await.expect("it answers") {
            Campaigned::Won(lease) => lease,
            Campaigned::Held(by) => panic!("{}: held, {by:?}", self.backend),
        }
    }
}

fn token(number: u64) -> Token {
    Token::new(number).expect("a legal token")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_goes_from_node_to_node_and_its_token_grows() {
    for it in stages().await {
        let [one, other] = it.elections();
        let first = it.won(&one, "e").await;
        let held = other.campaign("e", "node", it.lease).await.expect("it answers");
        assert!(matches!(held, Campaigned::Held(by) if by.token == token(1)), "{}", it.backend);
        let renewed = one.renew("e", first.id, first.token).await.expect("it answers");
        assert!(matches!(renewed, Renewed::Renewed(_)), "{}: {renewed:?}", it.backend);
        let resigned = one.resign("e", first.id, first.token).await.expect("it answers");
        assert_eq!(resigned, Resigned::Resigned, "{}", it.backend);
        let second = it.won(&other, "e").await;
        assert_eq!(second.token, token(2), "{}", it.backend);
        let lost = one.renew("e", first.id, first.token).await.expect("it answers");
        assert!(matches!(lost, Renewed::Lost(Some(_))), "{}: {lost:?}", it.backend);
        let standing = one.observe("e").await.expect("it answers").expect("it was campaigned in");
        assert_eq!(standing.token, token(2), "{}", it.backend);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racing_candidates_of_two_nodes_one_wins() {
    for it in stages().await {
        for round in 1..=3 {
            let racers = it.elections().into_iter().cycle().take(12).map(|elections| {
                let ttl = it.lease;
                tokio::spawn(async move { elections.campaign("race", "node", ttl).await })
            });
            let mut won = Vec::new();
            for racer in racers.collect::<Vec<_>>() {
                match racer.await.expect("no panic") {
                    Ok(Campaigned::Won(lease)) => won.push(lease),
                    Ok(Campaigned::Held(_)) | Err(ElectionsError::Contended) => {}
                    Err(error) => panic!("{}: {error}", it.backend),
                }
            }
            let [winner] = &*won else { panic!("{}: {} winners", it.backend, won.len()) };
            assert_eq!(winner.token, token(round), "{}", it.backend);
            let [one, _] = it.elections();
            one.resign("race", winner.id, winner.token).await.map(drop).expect("it answers");
        }
    }
}

/// E4, with as much more as the clocks of two nodes may be apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_gone_is_followed_when_its_lease_has_ended() {
    for it in stages().await {
        let [one, other] = it.elections();
        let began = it.clock.monotonic();
        let lease = one.campaign("gone", "node", it.lease).await.expect("it answers");
        assert!(matches!(lease, Campaigned::Won(_)), "{}", it.backend);
        let successor = other.lead("gone", "node", it.lease).await.expect("it leads");
        let took = it.clock.monotonic() - began;
        println!("{}: leases of {:?}, followed after {took:?}", it.backend, it.lease);
        assert!(successor.is_leader() && successor.token() == token(2), "{}", it.backend);
        let most = it.lease + Duration::from_secs(1);
        assert!(took >= it.lease && took <= most, "{}: {took:?}", it.backend);
        it.clock.sleep(it.lease).await;
        assert!(successor.is_leader(), "{}: it renews", it.backend);
        successor.resign().await.expect("it answers");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_a_leader_that_was_followed_are_refused() {
    for it in stages().await {
        let [one, other] = it.elections();
        let storage = |node: &Node| {
            AppTtl::new(node.clone(), Arc::clone(&it.clock)).of(APP, Quota::default())
        };
        let [mine, theirs] = [storage(&it.nodes[0]), storage(&it.nodes[1])];
        let life = Duration::from_secs(60);
        let lease = it.won(&one, "guard").await;
        let guard = Guard { election: "guard".into(), token: lease.token };
        let fence = one.fence(&guard).await.expect("it is the newest");
        let set = mine.fenced(fence).set("k", "one", life).await.expect("it answers");
        assert!(set.is_applied(), "{}", it.backend);
        one.resign("guard", lease.id, lease.token).await.map(drop).expect("it answers");
        let newer = it.won(&other, "guard").await;
        let stale = one.fence(&guard).await;
        assert!(matches!(stale, Err(ElectionsError::StaleToken { .. })), "{}", it.backend);
        let newer = Guard { election: "guard".into(), token: newer.token };
        let newer = other.fence(&newer).await.expect("it is the newest");
        assert!(theirs.fenced(newer).set("k", "two", life).await.expect("it answers").is_applied());
        // A server that stalled between the check and the write has the fence left.
        let late = mine.fenced(fence);
        for refused in [
            late.set("k", "late", life).await.map(drop),
            late.touch("k", life).await.map(drop),
            late.delete("k").await.map(drop),
            late.insert_if_not_exists("k", "late", life).await.map(drop),
        ] {
            let refused = refused.expect_err("it is refused");
            assert!(matches!(refused, AppTtlError::Fenced { .. }), "{}: {refused}", it.backend);
        }
        let entry = mine.ttl_get("k").await.expect("it answers").expect("it is there");
        assert_eq!(&*entry.value, b"two", "{}", it.backend);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_a_sequence_are_given_out_once_by_two_nodes() {
    const CALLERS: usize = 6;
    const CALLS: u64 = 10;
    for it in stages().await {
        let services = it.nodes.clone().map(|node| Sequences::new(node, Arc::clone(&it.clock)));
        let callers = services.iter().cycle().take(CALLERS).map(|service| {
            let sequences = service.of(APP);
            tokio::spawn(async move {
                let mut firsts = Vec::new();
                for _ in 0..CALLS {
                    firsts.push(sequences.next("s", 1, None).await.expect("it answers").first);
                }
                firsts
            })
        });
        let mut all = BTreeSet::new();
        for caller in callers.collect::<Vec<_>>() {
            let firsts = caller.await.expect("no panic");
            assert!(firsts.is_sorted_by(|a, b| a < b), "{}: {firsts:?}", it.backend);
            all.extend(firsts);
        }
        let count = CALLERS as u64 * CALLS;
        assert_eq!(all, (1..=count).collect(), "{}", it.backend);
        let [one, other] = services.map(|service| service.of(APP));
        let key = "retry".parse().expect("a legal key");
        let block = one.next("s", 5, Some(key)).await.expect("it answers");
        assert_eq!(other.next("s", 5, Some(key)).await.expect("it answers"), block);
    }
}

/// A log that refuses an offset that is taken.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<Event>>);

impl EventLog for Log {
    async fn events_from(&self, offset: Offset, limit: usize) -> Result<Vec<Event>, BoxError> {
        let events = self.0.lock();
        Ok(events.iter().filter(|event| event.offset >= offset).take(limit).cloned().collect())
    }
}

impl Log {
    fn append(&self, event: Event) -> bool {
        let mut events = self.0.lock();
        let is_free = event.offset == Offset(events.len() as u64 + 1);
        if is_free {
            events.push(event);
        }
        is_free
    }
}

const KIND: WorkspaceKind = WorkspaceKind(1);
const ORDERS: SequenceId = SequenceId(7);

/// One event: true if it stands in the log.
async fn transact(sequencer: &mut Sequencer<Node>, log: &Log, workspace: u64) -> bool {
    sequencer.ready().await.expect("it gets ready");
    let workspace = WorkspaceId(workspace);
    let Start::Started { offset } = sequencer.start(KIND, workspace).expect("no misuse") else {
        return false;
    };
    let number = sequencer.next(ORDERS).await.expect("the store answers");
    let is_written = log.append(Event { offset, workspace, numbers: vec![(ORDERS, number)] });
    if is_written { sequencer.flush() } else { sequencer.actualize() }.expect("no misuse");
    is_written
}

/// Two sequencers on one partition take turns, the older one not knowing of the other; one more is
/// dropped in the middle. Along the log the numbers of each workspace strictly grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_a_log_are_used_once_by_rivals_and_after_a_crash() {
    for it in stages().await {
        let log = Arc::new(Log::default());
        let sequencer = |node: &Node| {
            let kind = (KIND, [(ORDERS, 100)].into_iter().collect());
            let settings = SequencerSettings::new(APP, 3, [kind]);
            Sequencer::new(node.clone(), Arc::clone(&log), Arc::clone(&it.clock), settings)
                .expect("legal settings")
        };
        let (mut one, mut other) = (sequencer(&it.nodes[0]), sequencer(&it.nodes[1]));
        let mut written = 0;
        for turn in 0..12 {
            written += u64::from(transact(&mut one, &log, turn % 2).await);
            written += u64::from(transact(&mut other, &log, turn % 2).await);
        }
        // A crash: nothing is flushed any more.
        drop(one);
        let mut heir = sequencer(&it.nodes[0]);
        for turn in 0..6 {
            written += u64::from(transact(&mut heir, &log, turn % 2).await);
        }
        assert!(written >= 12, "{}: only {written} events", it.backend);
        let closed = heir.close(Duration::from_secs(30)).await;
        assert_eq!(closed, Closed::Flushed, "{}", it.backend);
        for workspace in [WorkspaceId(0), WorkspaceId(1)] {
            let events = log.0.lock();
            let of_workspace = events.iter().filter(|event| event.workspace == workspace);
            let numbers: Vec<_> = of_workspace.map(|event| event.numbers[0].1).collect();
            assert_eq!(numbers.first(), Some(&100), "{}", it.backend);
            assert!(numbers.is_sorted_by(|a, b| a < b), "{}: {numbers:?}", it.backend);
        }
        println!("{}: {written} events", it.backend);
        drop(other);
    }
}
