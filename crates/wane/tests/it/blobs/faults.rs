//! Whole or not at all (B1), over a network that loses answers and requests and delivers late.
//!
//! Each world has a seed of its own. What an upload said is compared with what stands in the store
//! once the network has settled: every BLOB in it comes back byte for byte, one that was promised
//! is there, and one that was removed stays away, whatever arrives late.

use std::time::Duration;

use wane::clock::Clock as _;
use wane::conformance::ModelStore;
use wane::services::blobs::{AppBlobs, BlobLimits, Blobs, BlobsError, Keeping, NewBlob, Suuid};
use wane::store::{Faults, FaultyStore};

use super::tapped::{Tap, Tapped};
use super::{APP, CHUNK, WORKSPACE, content, download, id_of, is_state, live_rows, says, upload};
use crate::simulation::machine::{Machine, Wall, begin, true_sleep};

const FAULTS: Faults = Faults {
    lost_answer: 0.12,
    lost_request: 0.08,
    late: 0.12,
    error: 0.02,
    delay: 0.3,
    longest_delay: Duration::from_millis(400),
};

type Network = FaultyStore<Tapped<ModelStore>>;

/// What became of a world.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Promised,
    Refused,
}

struct World {
    service: Blobs<Network>,
    blobs: AppBlobs<Network>,
    network: Network,
    machine: Machine,
    bytes: Vec<u8>,
}

impl World {
    async fn new(seed: u64) -> Self {
        begin().await;
        let machine = Machine::new(1.0, Wall::Monotonic, seed);
        let store = Tapped::new(ModelStore::new(machine.clock()));
        let network = FaultyStore::new(store, Faults::NONE, seed, machine.clock());
        let service = Blobs::new(network.clone(), machine.clock());
        let blobs = service.of(APP, BlobLimits::default());
        let bytes = content(CHUNK * 3 + 11, seed);
        // Counted before the faults begin: the many reads of a count would mostly fail.
        blobs.usage().await.expect("nothing fails yet");
        network.set_faults(FAULTS);
        Self { service, blobs, network, machine, bytes }
    }

    /// Ends the faults and lets everything arrive.
    async fn settle(&self) {
        self.network.set_faults(Faults::NONE);
        self.network.settle().await;
        self.service.settle().await;
        self.network.settle().await;
    }

    /// Looks at every BLOB of the store.
    async fn look(&self, promised: Option<Suuid>) -> Result<(), String> {
        let rows = live_rows(&self.network.inner().inner).await;
        let complete = rows.iter().filter(|row| is_state(row) && says(row, "\"complete\""));
        for id in complete.map(id_of).chain(promised) {
            match download(&self.blobs, id).await {
                Ok(Some(back)) if back == self.bytes => {}
                Ok(Some(back)) => return Err(format!("{} other bytes came back", back.len())),
                Ok(None) => return Err("what was promised is not there".into()),
                Err(error) => return Err(format!("half a BLOB: {error}")),
            }
        }
        Ok(())
    }

    /// Removes what was promised, while the network may still deliver, and looks again.
    async fn remove(&self, id: Suuid) -> Result<(), String> {
        self.network.set_faults(FAULTS);
        let mut removed = self.blobs.delete(WORKSPACE, id).await;
        while removed.is_err() {
            removed = self.blobs.delete(WORKSPACE, id).await;
        }
        self.settle().await;
        match self.blobs.info(WORKSPACE, id).await {
            Ok(None) => {}
            Ok(Some(_)) => return Err("what was removed came back".into()),
            Err(error) => return Err(format!("{error}")),
        }
        self.look(None).await
    }

    /// Nothing at all is left once the life is over.
    async fn outlive(&self) -> Result<(), String> {
        true_sleep(Duration::from_secs(86_401)).await;
        let left = live_rows(&self.network.inner().inner).await.len();
        let now = self.machine.now();
        if left == 0 { Ok(()) } else { Err(format!("{left} rows are left at {now:?}")) }
    }
}

async fn upload_in_one_go(world: &World) -> Result<Suuid, BlobsError> {
    let blob = NewBlob { length: Some(world.bytes.len() as u64), ..NewBlob::default() };
    upload(&world.blobs, blob, &world.bytes, 65_537).await.map(|uploaded| uploaded.id)
}

/// Appends until all is there, asking after each failure where the upload stands.
async fn upload_in_appends(world: &World) -> Result<Suuid, BlobsError> {
    let blob = NewBlob { length: Some(world.bytes.len() as u64), ..NewBlob::default() };
    let id = world.blobs.create(WORKSPACE, blob).await?.id;
    for _ in 0..200 {
        let Ok(Some(progress)) = world.blobs.resume(WORKSPACE, id).await else { continue };
        if progress.is_complete {
            return Ok(id);
        }
        // A failure is looked at by asking again.
        drop(append_some(world, id, progress.offset).await);
    }
    Err(BlobsError::Contended)
}

async fn append_some(world: &World, id: Suuid, offset: u64) -> Result<(), BlobsError> {
    let append = world.blobs.append(WORKSPACE, id, offset, Keeping::AsItComes).await?;
    let Some(mut append) = append else { return Ok(()) };
    let rest = &world.bytes[offset as usize..];
    append.write(&rest[..rest.len().min(70_001)]).await?;
    append.keep().await.map(drop)
}

async fn one_world(
    seed: u64,
    tap: Tap,
    send: impl AsyncFn(&World) -> Result<Suuid, BlobsError>,
) -> Result<Seen, String> {
    let world = World::new(seed).await;
    world.network.inner().turn(tap);
    let sent = send(&world).await;
    // In every other world it is removed while much of it may yet arrive.
    if seed.is_multiple_of(2) || sent.is_err() {
        world.settle().await;
        world.look(sent.as_ref().ok().copied()).await?;
    }
    let seen = match sent {
        Ok(id) => {
            world.remove(id).await?;
            Seen::Promised
        }
        Err(_) => Seen::Refused,
    };
    world.outlive().await?;
    Ok(seen)
}

/// How many worlds a run looks at: `WANE_TEST_SEEDS`, or so many.
fn seeds(usual: u64) -> u64 {
    let given = std::env::var("WANE_TEST_SEEDS").ok();
    given.map_or(usual, |given| given.parse().expect("WANE_TEST_SEEDS is a number"))
}

#[tokio::test(start_paused = true)]
async fn uploads_are_whole_or_absent_whatever_the_network_does() {
    let mut seen = [0, 0];
    for seed in 0..seeds(120) {
        let outcome = one_world(seed, Tap::Nothing, upload_in_one_go).await;
        let outcome = outcome.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        seen[usize::from(outcome == Seen::Promised)] += 1;
    }
    assert!(seen.iter().all(|count| *count >= 10), "both ends are seen: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn resumed_uploads_are_whole_or_absent_whatever_the_network_does() {
    let (mut promised, seeds) = (0, seeds(60));
    for seed in 0..seeds {
        let outcome = one_world(seed, Tap::Nothing, upload_in_appends).await;
        let outcome = outcome.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        promised += u64::from(outcome == Seen::Promised);
    }
    assert!(promised >= seeds / 2, "{promised} of {seeds} came through");
}

/// The control: a store that loses a chunk that it acknowledged, or mixes two up, fails the worlds.
#[tokio::test(start_paused = true)]
async fn a_store_that_lies_fails_the_worlds() {
    for tap in [Tap::Drop(1), Tap::Shuffle(0, 2), Tap::Shorten(3)] {
        let mut caught = 0;
        for seed in 0..20 {
            caught += u32::from(one_world(seed, tap, upload_in_one_go).await.is_err());
        }
        assert!(caught > 0, "{tap:?} was not noticed");
    }
}
