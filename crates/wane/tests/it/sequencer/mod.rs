//! The sequencer over the memory store: each rule by name, then crashes and rivals from seeds.

mod crashes;
mod journal;
mod log;
mod misuse;
mod recovery;
mod rivals;
mod storing;
mod transactions;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use wane::clock::{Clock, ManualClock};
use wane::services::ClusterAppId;
use wane::services::sequencer::{
    Event, Offset, SequenceId, Sequencer, SequencerSettings, Sequences, Start, WorkspaceId,
    WorkspaceKind,
};
use wane::store::{Key, Store};

use self::log::MemoryLog;
use crate::{InnerStore, inner_store, manual_clock};

const APP: ClusterAppId = ClusterAppId(7);
const PARTITION: u16 = 3;
const SHOP: WorkspaceKind = WorkspaceKind(1);
const ORDERS: SequenceId = SequenceId(1);
const BILLS: SequenceId = SequenceId(2);
/// The first number of [`BILLS`]; that of [`ORDERS`] is 1.
const FIRST_BILL: u64 = 100;

/// Settings that write at once.
fn settings(app: ClusterAppId) -> SequencerSettings {
    let shop = (SHOP, Sequences::from([(ORDERS, 1), (BILLS, FIRST_BILL)]));
    SequencerSettings { gather: Duration::ZERO, ..SequencerSettings::new(app, PARTITION, [shop]) }
}

/// What sequencers of a test share.
struct Ground<S> {
    clock: Arc<ManualClock>,
    store: S,
    log: Arc<MemoryLog>,
    settings: SequencerSettings,
}

fn ground() -> Ground<InnerStore> {
    ground_over(|store| store)
}

fn ground_over<S>(wrap: impl FnOnce(InnerStore) -> S) -> Ground<S> {
    let (clock, shared) = manual_clock();
    let store = wrap(inner_store(shared));
    Ground { clock, store, log: Arc::default(), settings: settings(APP) }
}

impl<S: Store + Clone> Ground<S> {
    /// A sequencer that recovers as soon as it is let to.
    fn sequencer(&self) -> Sequencer<S> {
        let (store, log) = (self.store.clone(), Arc::clone(&self.log));
        Sequencer::new(store, log, self.clock.clone(), self.settings.clone())
            .expect("good settings")
    }

    /// A sequencer that has recovered.
    async fn ready(&self) -> Sequencer<S> {
        let mut sequencer = self.sequencer();
        sequencer.ready().await.expect("the task runs");
        sequencer
    }

    /// Draws a number of each sequence, and writes the event.
    async fn write_event(
        &self,
        sequencer: &mut Sequencer<S>,
        workspace: u64,
        sequences: &[SequenceId],
    ) -> Vec<u64> {
        let event = draw(sequencer, workspace, sequences).await;
        let numbers = event.numbers.iter().map(|(_, number)| *number).collect();
        self.log.append(event).expect("nobody else writes");
        sequencer.flush().expect("the task runs");
        numbers
    }
}

/// Starts a transaction and draws a number of each sequence.
async fn draw<S: Store>(
    sequencer: &mut Sequencer<S>,
    workspace: u64,
    sequences: &[SequenceId],
) -> Event {
    let offset = started(sequencer, workspace);
    let mut numbers = Vec::new();
    for sequence in sequences {
        numbers.push((*sequence, sequencer.next(*sequence).await.expect("the store answers")));
    }
    Event { offset, workspace: WorkspaceId(workspace), numbers }
}

fn started<S: Store>(sequencer: &mut Sequencer<S>, workspace: u64) -> Offset {
    match sequencer.start(SHOP, WorkspaceId(workspace)).expect("the task runs") {
        Start::Started { offset } => offset,
        Start::Busy(busy) => panic!("the sequencer is busy: {busy:?}"),
    }
}

/// Lets tasks run until something is so.
async fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("this did not come about: {what}");
}

/// Lets tasks do what they can without time.
async fn let_run() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// The stored offset, by the bytes of its key.
async fn stored_offset(store: &impl Store, app: ClusterAppId) -> Option<u64> {
    stored(store, &offset_key(app)).await
}

fn offset_key(app: ClusterAppId) -> Key {
    let partition = [&[0, 0, 0, 2][..], &app.0.to_be_bytes(), &PARTITION.to_be_bytes()].concat();
    Key::new(&partition, &[0; 4]).expect("short enough")
}

/// A stored number, by the bytes of its key.
async fn stored_number(
    store: &impl Store,
    app: ClusterAppId,
    workspace: u64,
    sequence: SequenceId,
) -> Option<u64> {
    stored(store, &number_key(app, workspace, sequence)).await
}

fn number_key(app: ClusterAppId, workspace: u64, sequence: SequenceId) -> Key {
    let partition = [&[0, 0, 0, 3][..], &app.0.to_be_bytes(), &workspace.to_be_bytes()].concat();
    Key::new(&partition, &sequence.0.to_be_bytes()).expect("short enough")
}

async fn stored(store: &impl Store, key: &Key) -> Option<u64> {
    let record = store.get(key).await.expect("the store answers")?;
    assert_eq!(record.expires_at, None, "numbers are permanent");
    Some(u64::from_be_bytes((*record.value).try_into().expect("8 bytes")))
}

/// The invariant behind all others: every number of every event below the stored offset is stored.
async fn look_at_offset(log: &MemoryLog, store: &InnerStore, app: ClusterAppId) {
    let Some(offset) = stored_offset(store, app).await else { return };
    for ((workspace, sequence), last) in log.highest_below(offset) {
        let stored = stored_number(store, app, workspace.0, sequence).await;
        if stored < Some(last) {
            log.note(format!(
                "offset {offset} is stored, and {stored:?} of {last} in {workspace:?}"
            ));
        }
    }
}

/// Chance from a seed.
struct Dice(Arc<ManualClock>);

impl Dice {
    fn seeded(seed: u64) -> Self {
        Self(ManualClock::seeded(seed))
    }

    /// Below `sides`.
    fn roll(&self, sides: u64) -> u64 {
        self.0.random_u64() % sides
    }

    fn one_in(&self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}
