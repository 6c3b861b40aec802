//! KMS behind a network that can be cut, and nodes whose keys it keeps closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_kms::Client;
use aws_sdk_kms::config::{BehaviorVersion, Region};
use parking_lot::Mutex;
use wane::clock::{Clock, SharedClock, Sleep, SystemClock};
use wane::services::pull_stream::{
    Batch, Form, Ispb, Message, PullStream, PullStreamSettings, Pulled, Reader, WrappedKeys,
    WrappedKeysError,
};
use wane::store::{MemoryStore, Timestamp, Ttl};
use wane_backends::kms::KmsKey;

use crate::harness::moto::Moto;
use crate::proxy::{Ending, Proxy, Rules};

/// How long a key signs, and how long it is known before.
pub(super) const NINETY_DAYS: Duration = Duration::from_secs(90 * 24 * 60 * 60);
pub(super) const AN_HOUR: Duration = Duration::from_secs(60 * 60);

pub(super) type Keys = Arc<WrappedKeys<MemoryStore>>;

/// The time of this machine, and the days that a test has leapt over: streams and servers need time
/// that passes.
#[derive(Debug)]
pub(super) struct Leaping {
    real: SharedClock,
    leapt: Mutex<Duration>,
}

impl Default for Leaping {
    fn default() -> Self {
        Self { real: SystemClock::shared(), leapt: Mutex::default() }
    }
}

impl Leaping {
    pub(super) fn advance(&self, by: Duration) {
        *self.leapt.lock() += by;
    }
}

impl Clock for Leaping {
    fn now(&self) -> Timestamp {
        let leapt = self.leapt.lock().as_millis() as u64;
        Timestamp::from_unix_millis(self.real.now().as_unix_millis() + leapt)
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() + *self.leapt.lock()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.real.sleep(duration)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.real.fill_random(bytes);
    }

    fn never_before(&self, floor: Timestamp) {
        self.real.never_before(floor);
    }
}

/// A running KMS with one key, and a store.
pub(super) struct Stage {
    pub(super) kms: Client,
    pub(super) key: String,
    pub(super) clock: Arc<Leaping>,
    pub(super) store: MemoryStore,
    server: SocketAddr,
    _moto: Moto,
}

fn config(address: SocketAddr) -> SdkConfig {
    let credentials = Credentials::new("tests", "canary", None, None, "tests");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(format!("http://{address}"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .region(Region::new("eu-west-1"))
        .build()
}

impl Stage {
    pub(super) async fn new() -> Option<Self> {
        let moto = Moto::start()?;
        let server = moto.address();
        let kms = Client::new(&config(server));
        let key = new_key(&kms).await;
        let clock = Arc::new(Leaping::default());
        let store = MemoryStore::new(clock.clone()).expect("a store in memory");
        Some(Self { kms, key, clock, store, server, _moto: moto })
    }

    /// A way to KMS of its own.
    pub(super) async fn way(&self) -> Proxy {
        Proxy::before(self.server, 1).await
    }

    /// The key of KMS with this name, by that way.
    pub(super) fn wrap(&self, way: &Proxy, id: &str) -> Arc<KmsKey> {
        Arc::new(KmsKey::with(&config(way.address()), id))
    }

    /// The keys of a node, which asks KMS by that way.
    pub(super) async fn keys(&self, way: &Proxy) -> Result<Keys, WrappedKeysError> {
        let wrap = self.wrap(way, &self.key);
        WrappedKeys::open(self.store.clone(), self.clock.clone(), wrap).await
    }

    /// A node with these keys.
    pub(super) fn node(&self, keys: &Keys) -> PullStream<MemoryStore> {
        // Beyond all that a test leaps over.
        let settings = PullStreamSettings { retention: Ttl::MAX, ..PullStreamSettings::default() };
        let (store, clock) = (self.store.clone(), self.clock.clone());
        PullStream::new(store, clock, keys.clone(), settings).expect("legal settings")
    }
}

pub(super) async fn new_key(kms: &Client) -> String {
    let made = kms.create_key().send().await.expect("KMS makes a key");
    made.key_metadata.expect("and tells of it").key_id
}

/// KMS is not to be reached this way from now on.
pub(super) async fn cut(way: &Proxy) {
    way.set(Rules { refuse: true, ..Rules::PASS }).await;
    way.cut(Ending::Reset);
}

/// And now it is.
pub(super) async fn mend(way: &Proxy) {
    way.set(Rules::PASS).await;
}

pub(super) fn ispb() -> Ispb {
    "00000208".parse().expect("eight digits")
}

pub(super) fn reader() -> Reader {
    Reader { form: Form::SINGLE, ..Reader::default() }
}

pub(super) async fn take_in(node: &PullStream<MemoryStore>, count: usize) {
    for number in 0..count {
        let message = Message::new(format!("<Envelope>{number}</Envelope>")).expect("it is short");
        let batch = Batch::new(vec![message]).expect("one message");
        node.ingest(ispb(), batch).await.expect("nothing fails here");
    }
}

/// What begins every token that was signed by the same key.
pub(super) fn signed_by(pulled: &Pulled) -> String {
    let (header, _) = pulled.next.split_once('.').expect("a token has a header");
    header.to_owned()
}

/// The ids of the messages that were delivered.
pub(super) fn ids(pulled: &Pulled) -> Vec<String> {
    let batch = pulled.batch.as_ref().expect("messages are there");
    batch.messages().iter().map(|message| message.id.to_string()).collect()
}
