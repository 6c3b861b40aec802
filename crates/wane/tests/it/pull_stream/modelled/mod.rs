//! The service against a model, by sequences that are drawn and shrunk.
//!
//! Two nodes over one store, restarted now and then, serve producers and readers that use any token
//! of theirs on any node. `told` is the model, and says what is wrong with an answer. At the end
//! every message that is not acknowledged is delivered again. The record alone, with its rows made
//! up, has a model of its own beside it.

mod told;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use serde_json::Value as Json;
use tokio::runtime::Runtime;
use wane::clock::Clock as _;

use self::told::{LEASE, Told};
use super::blundering::{Blunder, Blundering};
use super::*;

/// What happens to a stream. Numbers of nodes and readers are taken modulo those there are.
#[derive(Debug, Clone, Copy)]
enum Event {
    TakeIn { node: usize, count: usize },
    Start { node: usize, many: bool },
    Next { node: usize, token: Which, many: bool },
    End { node: usize, token: Which },
    Wait(u64),
    Restart(usize),
    Rotate,
}

/// A token: whose it is, and how many were issued since.
#[derive(Debug, Clone, Copy)]
struct Which {
    reader: usize,
    before: usize,
}

/// Draws events. What becomes of them is up to [`Told`].
#[derive(Debug)]
struct Events;

impl ReferenceStateMachine for Events {
    type State = ();
    type Transition = Event;

    fn init_state() -> BoxedStrategy<()> {
        Just(()).boxed()
    }

    fn transitions((): &()) -> BoxedStrategy<Event> {
        let node = 0..2_usize;
        // Mostly the last token of a reader, as readers do.
        let before = prop_oneof![6 => Just(0_usize), 3 => Just(1), 1 => 2..5_usize];
        let token = (0..8_usize, before).prop_map(|(reader, before)| Which { reader, before });
        let times = prop_oneof![1..2_000_u64, 10_000..20_000_u64, Just(LEASE), Just(2 * LEASE)];
        prop_oneof![
            4 => (node.clone(), 1..=10_usize).prop_map(|(node, count)| Event::TakeIn { node, count }),
            4 => (node.clone(), any::<bool>()).prop_map(|(node, many)| Event::Start { node, many }),
            10 => (node.clone(), token.clone(), any::<bool>())
                .prop_map(|(node, token, many)| Event::Next { node, token, many }),
            1 => (node.clone(), token).prop_map(|(node, token)| Event::End { node, token }),
            3 => times.prop_map(Event::Wait),
            1 => node.prop_map(Event::Restart),
            1 => Just(Event::Rotate),
        ]
        .boxed()
    }

    fn apply((): (), _: &Event) {}
}

/// Two nodes, and what they told.
struct Service<S> {
    told: Told,
    numbers: usize,
    store: S,
    machine: Machine,
    keys: Arc<StaticKeys>,
    nodes: Vec<PullStream<S>>,
    has_rotated: bool,
    /// Last, as what runs on it is dropped first.
    runtime: Runtime,
}

fn form(many: bool) -> (Reader, usize) {
    if many { (super::many(), 10) } else { (super::single(), 1) }
}

/// The slot that a token names.
fn thread(token: &str) -> u64 {
    let payload = token.split('.').nth(1).expect("three parts");
    let json = URL_SAFE_NO_PAD.decode(payload).expect("base64url");
    let claims: Json = serde_json::from_slice(&json).expect("claims");
    claims["thread"].as_u64().expect("a number")
}

/// An answer or a refusal: nothing fails here.
fn answer<T>(answer: Result<T, PullStreamError>) -> Result<T, Refusal> {
    match answer {
        Ok(answer) => Ok(answer),
        Err(PullStreamError::Refused(refusal)) => Err(refusal),
        Err(error) => panic!("{error:?}"),
    }
}

impl<S: Store + Clone> Service<S> {
    fn new(store: S) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let machine = runtime.block_on(async { Machine::new(1.0, Wall::Monotonic, 7) });
        let keys = TokenKeys::new(token_key("a"), None).expect("within the limits");
        let keys = Arc::new(StaticKeys::new(keys));
        let (told, nodes) = (Told::default(), Vec::new());
        let mut service =
            Self { told, numbers: 0, store, machine, keys, nodes, has_rotated: false, runtime };
        service.nodes = vec![service.node(), service.node()];
        service
    }

    fn node(&self) -> PullStream<S> {
        let settings = PullStreamSettings {
            lease: Duration::from_millis(LEASE),
            token_life: Duration::from_secs(300 * 86_400),
            hold: Duration::ZERO,
            ..PullStreamSettings::default()
        };
        PullStream::new(self.store.clone(), self.machine.clock(), self.keys.clone(), settings)
            .expect("legal settings")
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        // The simulated time is that of the runtime.
        self.told.now = self.runtime.block_on(async { self.machine.now().as_unix_millis() });
        let Self { runtime, nodes, told, .. } = self;
        match event {
            Event::TakeIn { node, count } => {
                let numbers = self.numbers..self.numbers + count;
                self.numbers += count;
                let taken = nodes[node].ingest(ispb(), batch(numbers.clone()));
                let ids = runtime.block_on(taken).expect("nothing fails here");
                ids.into_iter().zip(numbers).for_each(|(id, n)| told.take_in(id, message(n)));
                Ok(())
            }
            Event::Start { node, many } => {
                let (reader, most) = form(many);
                let started = answer(runtime.block_on(nodes[node].start(ispb(), &reader)));
                told.started(most, thread, started)
            }
            Event::Next { node, token: Which { reader, before }, many } => {
                let Some((own, number, token)) = told.token(reader, before) else { return Ok(()) };
                let (reader, most) = form(many);
                let next = answer(runtime.block_on(nodes[node].next(ispb(), &token, &reader)));
                told.went_on((own, number), most, next)
            }
            Event::End { node, token: Which { reader, before } } => {
                let Some((own, number, token)) = told.token(reader, before) else { return Ok(()) };
                let nobody = Client::default();
                let ended = answer(runtime.block_on(nodes[node].end(ispb(), &token, &nobody)));
                told.ended((own, number), ended)
            }
            Event::Wait(millis) => {
                runtime.block_on(true_sleep(Duration::from_millis(millis)));
                Ok(())
            }
            Event::Restart(node) => {
                self.nodes[node] = self.node();
                Ok(())
            }
            Event::Rotate => {
                // A token survives one rotation, not two.
                if !std::mem::replace(&mut self.has_rotated, true) {
                    self.keys.rotate(token_key("b")).expect("a new key");
                }
                Ok(())
            }
        }
    }

    /// Once all leases have ended, a reader is given all that was not acknowledged.
    fn settle(&mut self) -> Result<(), String> {
        let node = self.node();
        let read = self.runtime.block_on(async {
            true_sleep(LEASE_ENDS).await;
            drain(&node).await.into_keys().collect::<BTreeSet<_>>()
        });
        let open = self.told.open();
        if read == open { Ok(()) } else { Err(format!("{read:?} are read, {open:?} are open")) }
    }
}

const LEASE_ENDS: Duration = Duration::from_millis(2 * LEASE);

/// The service as it is.
struct Right;

impl StateMachineTest for Right {
    type SystemUnderTest = Service<InnerStore>;
    type Reference = Events;

    fn init_test((): &()) -> Self::SystemUnderTest {
        Service::new(inner_store(ManualClock::seeded(1)))
    }

    fn apply(mut service: Self::SystemUnderTest, (): &(), event: Event) -> Self::SystemUnderTest {
        if let Err(wrong) = service.step(event) {
            panic!("{wrong}");
        }
        service
    }

    fn teardown(mut service: Self::SystemUnderTest, (): ()) {
        if let Err(wrong) = service.settle() {
            panic!("{wrong}");
        }
    }
}

/// Sequences of events, each with the count of those that were tried: what comes after the one that
/// failed is dropped first.
type Drawn = ((), Vec<Event>, Option<Arc<AtomicUsize>>);

fn sequences(cases: u32) -> (TestRunner, BoxedStrategy<Drawn>) {
    let config =
        Config { cases, max_shrink_iters: 2_000, failure_persistence: None, ..Config::default() };
    (TestRunner::new(config), Events::sequential_strategy(1..100).boxed())
}

#[test]
fn the_service_does_what_the_model_says() {
    let (mut runner, strategy) = sequences(400);
    let run = runner.run(&strategy, |((), events, tried)| {
        Right::test_sequential(Config::default(), (), events, tried);
        Ok(())
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}

/// The control: each blunder is found, and what is left of the sequence is short.
#[test]
fn a_service_whose_record_is_written_wrong_is_found() {
    for blunder in [Blunder::ForgetsRequeued, Blunder::SkipsRows(5)] {
        let (mut runner, strategy) = sequences(200);
        let run = runner.run(&strategy, |((), events, tried)| {
            let store = Blundering::new(inner_store(ManualClock::seeded(1)), blunder);
            let mut service = Service::new(store);
            for event in events {
                if let Some(tried) = &tried {
                    tried.fetch_add(1, Ordering::SeqCst);
                }
                service.step(event).map_err(TestCaseError::fail)?;
            }
            service.settle().map_err(TestCaseError::fail)
        });
        let found = run.expect_err("the blunder must be found");
        let TestError::Fail(why, (_, events, _)) = found else { panic!("{found}") };
        println!("{blunder:?} is found by {events:?}: {why}");
        assert!((1..60).contains(&events.len()), "{blunder:?} needs {} events", events.len());
    }
}
