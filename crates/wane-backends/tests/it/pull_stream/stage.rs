//! A backend with pull streams on it, as two nodes serve them, and a case run on each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::sync::Mutex;
use wane::clock::{SharedClock, SystemClock};
use wane::services::pull_stream::{
    Batch, Chain, Client, Delivery, Form, Ispb, Message, PullStream, PullStreamError,
    PullStreamSettings, Pulled, Reader, Refusal, ResourceId, StaticKeys, TokenKey, TokenKeys,
    Verdict,
};
use wane::store::{Key, Keyspace, Store, StoreError, Value};
use wane_backends::AnyStore;

use super::doctored::{Doctored, Lie, Told};
use crate::harness::urls::{Address, shared_stores};

/// How long whoever gets no answer asks again. Machines may have other things to do.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// How long a reader has its slot in cases that are not about leases.
pub(super) const LONG_LEASE: Duration = Duration::from_secs(300);

/// Every case has an institution of its own.
static INSTITUTIONS: AtomicU32 = AtomicU32::new(1);

pub(super) type Stream = PullStream<Doctored<AnyStore>>;

/// A backend, reached by two nodes.
pub(super) struct Stage {
    pub(super) backend: &'static str,
    /// Servers take longer: less is asked of them.
    pub(super) is_slow: bool,
    pub(super) max_skew: Duration,
    pub(super) clock: SharedClock,
    stores: [Doctored<AnyStore>; 2],
    _directory: Option<TempDir>,
}

impl Stage {
    /// Two nodes over these stores, which lie so.
    pub(super) fn over(backend: &'static str, lie: Lie, stores: [AnyStore; 2]) -> Self {
        let told = Told::new(lie);
        Self {
            backend,
            is_slow: !["mem", "file", "redis"].contains(&backend),
            max_skew: Duration::ZERO,
            clock: SystemClock::shared(),
            stores: stores.map(|store| Doctored::new(store, &told)),
            _directory: None,
        }
    }

    pub(super) async fn memory(lie: Lie) -> Self {
        let store = open("mem:").await;
        Self::over("mem", lie, [store.clone(), store])
    }

    async fn file() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("file:{}", directory.path().join("store").display());
        let store = open(&url).await;
        let stage = Self::over("file", Lie::None, [store.clone(), store]);
        Self { _directory: Some(directory), ..stage }
    }

    /// Two nodes, each with connections of its own.
    async fn shared(address: Address) -> Self {
        let Address { backend, url, max_skew } = address;
        let one = Box::pin(open(&url)).await;
        let other = Box::pin(open(&url)).await;
        Self { max_skew, ..Self::over(backend, Lie::None, [one, other]) }
    }

    /// A node, over the store of that number.
    pub(super) fn node(
        &self,
        number: usize,
        keys: &Arc<StaticKeys>,
        settings: PullStreamSettings,
    ) -> Stream {
        let (store, clock) = (self.stores[number % 2].clone(), Arc::clone(&self.clock));
        PullStream::new(store, clock, keys.clone(), settings).expect("legal settings")
    }

    /// Two nodes on which no lease ends by itself, with one source of keys.
    pub(super) fn two(&self) -> [Stream; 2] {
        let keys = keys("a", None);
        [0, 1].map(|number| self.node(number, &keys, unhurried()))
    }

    /// What readers may still be told once all is over.
    pub(super) async fn answer<T>(
        &self,
        ask: impl AsyncFn() -> Result<T, PullStreamError>,
    ) -> Result<T, Refusal> {
        let began = self.clock.monotonic();
        while self.clock.monotonic() - began < PATIENCE {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(PullStreamError::Refused(refusal)) => return Err(refusal),
                Err(error) if is_fault(&error) => {
                    self.clock.sleep(Duration::from_millis(25)).await;
                }
                Err(error) => panic!("{}: {error}: {error:?}", self.backend),
            }
        }
        panic!("{}: no answer for {PATIENCE:?}", self.backend)
    }

    /// The answer, which is no refusal.
    pub(super) async fn insist<T>(&self, ask: impl AsyncFn() -> Result<T, PullStreamError>) -> T {
        let answer = self.answer(ask).await;
        answer.unwrap_or_else(|refusal| panic!("{}: refused: {refusal}", self.backend))
    }

    /// Takes in the messages 0 to below `count`, ten at a time, by both nodes in turn.
    pub(super) async fn take_in(&self, nodes: &[Stream], ispb: Ispb, count: usize) {
        for (turn, from) in (0..count).step_by(10).enumerate() {
            let numbers = from..count.min(from + 10);
            let node = &nodes[turn % nodes.len()];
            self.insist(async || node.ingest(ispb, batch(numbers.clone())).await).await;
        }
    }

    /// The record of an institution's stream as it stands.
    pub(super) async fn record(&self, ispb: Ispb) -> Value {
        let rest = [&[5][..], b"local", ispb.as_str().as_bytes()].concat();
        let partition = Keyspace::PullStreamState.partition(&rest).expect("within the limits");
        let key = Key::new(partition.as_bytes(), b"state").expect("within the limits");
        let get = async || Ok(self.stores[0].get(&key).await?);
        self.insist(get).await.expect("somebody has read").value
    }

    /// Both nodes find both chains whole; the tokens that were issued are in it once each, at least
    /// so many of them, and none was used before.
    pub(super) async fn audited(&self, nodes: &[Stream], ispb: Ispb, tokens: usize) {
        let began = self.clock.monotonic();
        let mut issued = self.issued(&nodes[0], ispb).await;
        while issued < tokens {
            let waited = self.clock.monotonic() - began;
            let backend = self.backend;
            assert!(waited < PATIENCE, "{backend}: {issued} of {tokens} tokens in the audit");
            self.clock.sleep(Duration::from_millis(250)).await;
            // What rides in the record is carried on by whoever comes next.
            let reader = many();
            if let Ok(pulled) = self.answer(async || nodes[0].start(ispb, &reader).await).await {
                let end = async || nodes[0].end(ispb, &pulled.next, &reader.client).await;
                let _ended = self.answer(end).await;
            }
            issued = self.issued(&nodes[0], ispb).await;
        }
        for node in nodes {
            for chain in [Chain::Transitions, Chain::Remarks] {
                self.insist(async || node.verify_audit(ispb, chain).await).await;
            }
        }
    }

    async fn issued(&self, node: &Stream, ispb: Ispb) -> usize {
        let (mut issued, mut from) = (BTreeSet::new(), Some(0));
        while let Some(row) = from {
            let page = self.insist(async || node.audit(ispb, Chain::Transitions, row).await).await;
            for entry in page.entries {
                if let Some(used) = entry.used_hash() {
                    assert!(issued.contains(&used), "{}: used first: {entry:?}", self.backend);
                }
                let is_again = entry.verdict == Verdict::Replayed;
                let is_new = entry.issued_hash().is_none_or(|hash| issued.insert(hash));
                assert!(is_new || is_again, "{}: issued twice: {entry:?}", self.backend);
            }
            from = page.next;
        }
        issued.len()
    }
}

/// Whether it is asked again: the store or its network failed, and nobody is to blame.
pub(super) fn is_fault(error: &PullStreamError) -> bool {
    matches!(
        error,
        PullStreamError::Contended
            | PullStreamError::Busy
            | PullStreamError::Store(StoreError::Unknown { .. } | StoreError::Unavailable { .. })
    )
}

pub(super) fn unhurried() -> PullStreamSettings {
    PullStreamSettings {
        lease: LONG_LEASE,
        token_life: LONG_LEASE * 2,
        hold: Duration::from_secs(1),
        ..PullStreamSettings::default()
    }
}

/// An institution that nobody has heard of.
pub(super) fn fresh_ispb() -> Ispb {
    let number = INSTITUTIONS.fetch_add(1, Ordering::Relaxed);
    format!("{number:08}").parse().expect("eight digits")
}

pub(super) fn token_key(kid: &str) -> TokenKey {
    TokenKey::new(kid, kid.repeat(64).as_bytes()).expect("within the limits")
}

/// A source of keys of its own.
pub(super) fn keys(current: &str, previous: Option<&str>) -> Arc<StaticKeys> {
    Arc::new(StaticKeys::new(live_keys(current, previous)))
}

pub(super) fn live_keys(current: &str, previous: Option<&str>) -> TokenKeys {
    TokenKeys::new(token_key(current), previous.map(token_key)).expect("two ids")
}

fn reader(form: Form) -> Reader {
    Reader { form, client: Client::new("tests").expect("within the limits") }
}

/// Ten at a time.
pub(super) fn many() -> Reader {
    reader(Form::MULTIPART)
}

/// One at a time.
pub(super) fn single() -> Reader {
    reader(Form::SINGLE)
}

/// Message number so and so, with line breaks in it as signatures have.
pub(super) fn message(number: usize) -> Vec<u8> {
    let filling = "signature\r\n".repeat(number % 7);
    format!("<Envelope><AppHdr>{number}</AppHdr>{filling}</Envelope>").into_bytes()
}

pub(super) fn batch(numbers: impl IntoIterator<Item = usize>) -> Batch {
    let messages =
        numbers.into_iter().map(|number| Message::new(message(number)).expect("within the limits"));
    Batch::new(messages.collect()).expect("within the limits")
}

/// The ids that were delivered; none where nothing was.
pub(super) fn ids(pulled: &Pulled) -> Vec<ResourceId> {
    let messages = pulled.batch.as_ref().map_or(&[][..], Delivery::messages);
    messages.iter().map(|message| message.id).collect()
}

pub(super) async fn open(url: &str) -> AnyStore {
    let opened = wane_backends::open(url, SystemClock::shared()).await;
    opened.unwrap_or_else(|error| panic!("the store does not open: {error}"))
}

/// The stores on servers, one of each for all cases: a keyspace takes a while to be made.
fn addresses() -> Vec<Address> {
    static ADDRESSES: std::sync::OnceLock<Vec<Address>> = std::sync::OnceLock::new();
    ADDRESSES.get_or_init(shared_stores).clone()
}

/// Every backend of the run. Opened one after the other: those who open a store next to each other
/// would both make it.
pub(super) async fn stages() -> Vec<Stage> {
    static OPENING: Mutex<()> = Mutex::const_new(());
    let _alone = OPENING.lock().await;
    let mut stages = vec![Stage::memory(Lie::None).await, Stage::file().await];
    for address in addresses() {
        stages.push(Stage::shared(address).await);
    }
    stages
}

/// Runs a case on every backend, side by side, and tells how long it took on each.
pub(super) async fn on_every_backend(case: impl AsyncFn(&Stage)) {
    let stages = stages().await;
    let timed = stages.iter().map(async |it| {
        let began = it.clock.monotonic();
        case(it).await;
        println!("{}: {:?}", it.backend, it.clock.monotonic() - began);
    });
    join_all(timed).await;
}
