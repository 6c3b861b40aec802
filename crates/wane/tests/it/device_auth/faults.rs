//! One decision and one token, over a network that loses answers and requests and delivers late.
//!
//! Each world has a seed of its own: three people decide at once, the device polls, and whoever
//! gets an error tries again. What they were told is compared with each other, and with what
//! stands in the store once the network has settled.

use wane::conformance::ModelStore;
use wane::services::device_auth::{Asking, Decided, Polled};
use wane::store::{Faults, FaultyStore};

use super::probed::Probe;
use super::*;
use crate::simulation::machine::{Machine, Wall, begin, true_sleep};

const FAULTS: Faults = Faults {
    lost_answer: 0.12,
    lost_request: 0.08,
    late: 0.12,
    error: 0.02,
    delay: 0.5,
    longest_delay: Duration::from_millis(400),
};

type Network = FaultyStore<Probed<ModelStore>>;

struct World {
    app: AppDeviceAuth<Network>,
    network: Network,
    client: Client,
}

/// What the people and the device of a world were told.
struct Told {
    decided: [Option<Decided>; 3],
    tokens: Vec<Issued>,
    is_denied: bool,
}

const NAMES: [&str; 2] = ["alice", "bob"];

impl World {
    async fn new(seed: u64, probe: Probe) -> Self {
        begin().await;
        let machine = Machine::new(1.0, Wall::Monotonic, seed);
        let store = Probed::new(ModelStore::new(machine.clock()));
        store.set(probe);
        let network = FaultyStore::new(store, Faults::NONE, seed, machine.clock());
        let app = service_on(&network, machine.clock(), unpaced()).of(APP);
        let client = register(&app, television("tv")).await;
        network.set_faults(FAULTS);
        Self { app, network, client }
    }

    async fn settle(&self) {
        self.network.set_faults(Faults::NONE);
        self.network.settle().await;
    }

    async fn start(&self) -> Started {
        loop {
            if let Ok(started) = self.app.start(&self.client, None, &Asking::default()).await {
                return started;
            }
        }
    }

    /// Decides until there is an answer; `None` where the first one was lost, so that the decision
    /// that stands may be this one.
    async fn decide(&self, started: &Started, subject: Option<&str>) -> Option<Decided> {
        let (typed, mut is_clear) = (started.user_code.reveal(), true);
        loop {
            let decided = match subject {
                Some(subject) => self.app.approve(&typed, &approval(subject), person(1)).await,
                None => self.app.deny(&typed, person(1)).await,
            };
            match decided {
                Ok(Decided::AlreadyDecided) if !is_clear => return None,
                Ok(decided) => return Some(decided),
                Err(_) => is_clear = false,
            }
        }
    }

    async fn device(&self, started: &Started) -> (Vec<Issued>, bool) {
        let (code, mut tokens) = (started.device_code.reveal(), Vec::new());
        for _ in 0..60 {
            match self.app.poll(&self.client, &code).await {
                Ok(Polled::Issued(issued)) => tokens.push(issued),
                Ok(Polled::Denied) => return (tokens, true),
                Ok(Polled::Invalid) => return (tokens, false),
                Ok(Polled::Pending | Polled::SlowDown { .. } | Polled::Expired) | Err(_) => {}
            }
            true_sleep(Duration::from_millis(1_500)).await;
        }
        (tokens, false)
    }
}

async fn live(world: &World) -> Result<Told, String> {
    let started = world.start().await;
    let (alice, bob, nobody, (tokens, is_denied)) = tokio::join!(
        world.decide(&started, Some(NAMES[0])),
        world.decide(&started, Some(NAMES[1])),
        world.decide(&started, None),
        world.device(&started),
    );
    world.settle().await;
    Ok(Told { decided: [alice, bob, nobody], tokens, is_denied })
}

/// Says what contradicts what.
async fn judge(world: &World, told: &Told) -> Result<(), String> {
    let done = |decided: &Option<Decided>| matches!(decided, Some(Decided::Done(_)));
    let winners = told.decided.iter().filter(|decided| done(decided)).count();
    if winners > 1 {
        return Err(format!("{winners} decisions stand: {:?}", told.decided));
    }
    let Some(first) = told.tokens.first() else {
        let unheard = told.decided[..2].iter().any(done);
        return if unheard { Err("approved, and no token".into()) } else { Ok(()) };
    };
    if told.is_denied || done(&told.decided[2]) {
        return Err("denied, and a token".into());
    }
    if told.tokens.iter().any(|other| other.token != first.token) {
        return Err("two tokens".into());
    }
    let active = world.app.introspect(first.token.reveal()).await.map_err(|e| e.to_string())?;
    let Some(active) = active else { return Err("a token that is not good".into()) };
    match told.decided.iter().position(done) {
        Some(winner) if NAMES[winner] != active.subject => {
            Err(format!("{} approved, {} is linked", NAMES[winner], active.subject))
        }
        Some(_) | None => Ok(()),
    }
}

/// Revokes under faults, until that is told to be done; then nothing may bring it back.
async fn revoke(world: &World, issued: &Issued) -> Result<(), String> {
    world.network.set_faults(FAULTS);
    while world.app.revoke(issued.device).await.is_err() {}
    world.settle().await;
    match world.app.introspect(issued.token.reveal()).await {
        Ok(None) => Ok(()),
        other => Err(format!("revoked, and {other:?}")),
    }
}

async fn one_world(seed: u64, probe: Probe) -> Result<bool, String> {
    let world = World::new(seed, probe).await;
    let told = live(&world).await?;
    judge(&world, &told).await?;
    if let Some(issued) = told.tokens.first() {
        revoke(&world, issued).await?;
    }
    Ok(!told.tokens.is_empty())
}

fn seeds(usual: u64) -> u64 {
    let given = std::env::var("WANE_TEST_SEEDS").ok();
    given.map_or(usual, |given| given.parse().expect("WANE_TEST_SEEDS is a number"))
}

#[tokio::test(start_paused = true)]
async fn whatever_the_network_does_one_decision_stands_and_one_token_is_told() {
    let (mut linked, seeds) = (0, seeds(300));
    for seed in 0..seeds {
        let seen = one_world(seed, Probe::Nothing).await;
        linked += u64::from(seen.unwrap_or_else(|broken| panic!("seed {seed}: {broken}")));
    }
    assert!(linked >= seeds / 4 && linked < seeds, "both ends are seen: {linked} of {seeds}");
}

/// The control: a store whose swaps are two steps fails some of the worlds.
#[tokio::test(start_paused = true)]
async fn a_store_that_swaps_without_care_fails_the_worlds() {
    let mut caught = 0;
    for seed in 0..100 {
        caught += u32::from(
            one_world(seed, Probe::CarelessSwap(Duration::from_millis(200))).await.is_err(),
        );
    }
    assert!(caught > 0, "not one of a hundred was noticed");
}
