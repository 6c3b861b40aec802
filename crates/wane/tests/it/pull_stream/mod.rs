//! The pull stream over a store: the invariants of its design by their names, long polls, races over
//! two nodes, every call lost or failed, services that die midway, a model, simulated worlds, and
//! replays.
//!
//! Services run on the simulated time of tokio, which passes while everything waits. The store
//! below has a clock of its own, which retention is tried with.

mod archiving;
mod audit;
mod blundering;
mod costs;
mod damaged;
mod faults;
mod holding;
mod holds;
mod invariants;
mod keeping;
mod listed;
mod locked;
mod metered;
mod modelled;
mod quirks;
mod races;
mod regions;
mod replaying;
mod simulation;
mod tripped;
mod viewed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use wane::clock::ManualClock;
use wane::services::pull_stream::{
    Batch, Client, Delivery, Form, Ispb, Message, PullStream, PullStreamError, PullStreamSettings,
    Pulled, Reader, Refusal, ResourceId, StaticKeys, TokenKey, TokenKeys,
};
use wane::store::Store;

use crate::simulation::machine::{Machine, Wall, true_sleep};
use crate::{InnerStore, inner_store};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const TOKEN_LIFE: Duration = Duration::from_secs(300);

/// A store, a machine and keys that services share.
struct Setup {
    store: InnerStore,
    store_clock: Arc<ManualClock>,
    machine: Machine,
    keys: Arc<StaticKeys>,
}

fn setup() -> Setup {
    let store_clock = ManualClock::seeded(1);
    Setup {
        store: inner_store(store_clock.clone()),
        store_clock,
        machine: Machine::new(1.0, Wall::Monotonic, 7),
        keys: Arc::new(StaticKeys::new(
            TokenKeys::new(token_key("a"), None).expect("within the limits"),
        )),
    }
}

fn token_key(kid: &str) -> TokenKey {
    TokenKey::new(kid, kid.repeat(64).as_bytes()).expect("within the limits")
}

impl Setup {
    /// A node.
    fn node(&self) -> PullStream<InnerStore> {
        self.node_over(self.store.clone(), PullStreamSettings::default())
    }

    /// A node of a region.
    fn node_in(&self, region: &str) -> PullStream<InnerStore> {
        self.node_over(self.store.clone(), settings_in(region))
    }

    fn node_over<S: Store>(&self, store: S, settings: PullStreamSettings) -> PullStream<S> {
        PullStream::new(store, self.machine.clock(), self.keys.clone(), settings)
            .expect("within the limits")
    }
}

/// Settings of a node of a region.
fn settings_in(region: &str) -> PullStreamSettings {
    PullStreamSettings { region: region.into(), ..PullStreamSettings::default() }
}

fn ispb() -> Ispb {
    "00000208".parse().expect("within the limits")
}

fn reader(form: Form) -> Reader {
    Reader { form, client: Client::new("tests").expect("within the limits") }
}

/// Ten at a time.
fn many() -> Reader {
    reader(Form::MULTIPART)
}

/// One at a time.
fn single() -> Reader {
    reader(Form::SINGLE)
}

/// Message number so and so, with a line break in it as signatures have.
fn message(number: usize) -> Vec<u8> {
    let filling = "signature\r\n".repeat(number % 7);
    format!("<Envelope><AppHdr>{number}</AppHdr>{filling}</Envelope>").into_bytes()
}

fn batch(numbers: impl IntoIterator<Item = usize>) -> Batch {
    let messages =
        numbers.into_iter().map(|number| Message::new(message(number)).expect("within the limits"));
    Batch::new(messages.collect()).expect("within the limits")
}

/// Takes in the messages 0 to below `count`, ten at a time: what each is called.
async fn ingest<S: Store>(node: &PullStream<S>, count: usize) -> Vec<ResourceId> {
    let mut ids = Vec::new();
    for from in (0..count).step_by(10) {
        ids.extend(
            node.ingest(ispb(), batch(from..count.min(from + 10)))
                .await
                .expect("nothing fails here"),
        );
    }
    ids
}

/// The ids that were delivered; none where nothing was.
fn ids(pulled: &Pulled) -> Vec<ResourceId> {
    let messages = pulled.batch.as_ref().map_or(&[][..], Delivery::messages);
    messages.iter().map(|message| message.id).collect()
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, PullStreamError>) -> Refusal {
    match answer {
        Err(PullStreamError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// Reads everything that is there with one reader, and acknowledges it.
async fn drain<S: Store>(node: &PullStream<S>) -> BTreeMap<ResourceId, Vec<u8>> {
    let mut read = BTreeMap::new();
    let mut pulled = node.start(ispb(), &many()).await.expect("nothing fails here");
    while let Some(batch) = &pulled.batch {
        for message in batch.messages() {
            let before = read.insert(message.id, message.bytes.to_vec());
            assert_eq!(before, None, "delivered twice on one lease");
        }
        pulled = node.next(ispb(), &pulled.next, &many()).await.expect("nothing fails here");
    }
    node.end(ispb(), &pulled.next, &Client::default()).await.expect("nothing fails here");
    read
}

/// What the audit knows a token by.
fn token_hash(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(&Sha256::digest(token)[..16])
}
