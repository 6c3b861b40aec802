//! The backend goes in the middle of transfers, and comes back: nothing of the uploads that broke
//! can be read, nothing of them is left after their life, and a download ends with an error, never
//! with fewer bytes.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::time::timeout;
use wane::clock::{SharedClock, SystemClock};
use wane::services::ClusterAppId;
use wane::services::blobs::{AppBlobs, BlobLimits, Blobs, BlobsError, Upload};
use wane::store::{Key, Store, Timestamp};
use wane_backends::AnyStore;
use wane_backends::cassandra::{CassandraStore, Replication};

use super::noted::{Lie, Noted, Notes};
use super::stage::left;
use super::{CHUNK, LONG, WORKSPACE, chunk_number, content, download, is_state, living, upload};
use crate::harness::cassandra::Place;
use crate::harness::dynamodb::Server;
use crate::harness::listed::settings_of;
use crate::harness::redis::{fresh_settings, listed_url};
use crate::proxy::{Ending, Proxy, Rules};
use crate::remote_faults::cassandra::Cluster;

/// Within this a transfer hears that its backend is gone, and a backend finds its server again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The life of the uploads that break.
const LIFE: &str = "10s";

/// BLOBs on a backend that can go, and a way to it that cannot.
pub(super) struct Ground<S> {
    pub(super) backend: &'static str,
    pub(super) service: Blobs<Noted<S>>,
    pub(super) direct: S,
    pub(super) notes: Arc<Notes>,
    pub(super) clock: SharedClock,
}

impl<S: Store + Clone> Ground<S> {
    pub(super) fn new(backend: &'static str, through: S, direct: S) -> Self {
        let (clock, notes) = (SystemClock::shared(), Notes::new());
        let service = Blobs::new(Noted::new(through, &notes), Arc::clone(&clock));
        Self { backend, service, direct, notes, clock }
    }

    pub(super) fn blobs(&self) -> AppBlobs<Noted<S>> {
        self.service.of(ClusterAppId(1), BlobLimits::default())
    }

    /// An upload that has written so many chunks, which are there.
    async fn begun(&self, chunks: usize) -> Upload<Noted<S>> {
        let before = self.chunks().await.len();
        let mut upload = self.blobs().begin(WORKSPACE, living(LIFE)).await.expect("it begins");
        upload.write(&content(CHUNK * chunks, 1)).await.expect("it is taken");
        while self.chunks().await.len() < before + chunks {
            self.clock.sleep(Duration::from_millis(10)).await;
        }
        upload
    }

    /// The chunks that are there.
    async fn chunks(&self) -> Vec<Key> {
        let mut keys = self.notes.keys();
        keys.retain(|key| chunk_number(key).is_some());
        left(&self.direct, &keys).await.into_iter().map(|(key, _)| key).collect()
    }

    /// A BLOB goes in and out while a minority is gone. What was sent to it breaks, until that is
    /// noticed.
    async fn goes_on(&self) {
        let (blobs, bytes) = (self.blobs(), content(CHUNK * 3 + 5, 4));
        let through = async || {
            let id = upload(&blobs, living(LONG), &bytes, 65_537).await?.id;
            download(&blobs, id).await
        };
        let began = self.clock.monotonic();
        let mut broken = 0;
        loop {
            match through().await {
                Ok(back) => break assert!(back.expect("it is there") == bytes, "{}", self.backend),
                Err(BlobsError::Store(_)) => broken += 1,
                Err(error) => panic!("{}: {error:?}", self.backend),
            }
            let took = self.clock.monotonic() - began;
            assert!(took < PATIENCE, "{}: no BLOB for {took:?}", self.backend);
        }
        let took = self.clock.monotonic() - began;
        println!("{}: a BLOB through the others after {took:?}, {broken} broken", self.backend);
    }

    /// Transfers that are under way when `go` makes the backend go, until `come` brings it back.
    pub(super) async fn survives(&self, go: impl AsyncFnOnce(), come: impl AsyncFnOnce()) {
        let (backend, blobs, bytes) = (self.backend, self.blobs(), content(CHUNK * 12 + 5, 2));
        let kept = upload(&blobs, living(LONG), &bytes, 65_537).await.expect("it is taken").id;
        let of_kept = self.notes.keys();
        let opened = blobs.open(WORKSPACE, kept).await.expect("it answers").expect("it is there");
        let mut reading = opened.read_all();
        let mut read = reading.next().await.expect("it is read").expect("not all").to_vec();
        let (mut streaming, finishing) = (self.begun(3).await, self.begun(2).await);
        let expires_at = finishing.expires_at();

        go().await;
        let began = self.clock.monotonic();
        let streams = async {
            while streaming.size() < (CHUNK * 50) as u64 {
                streaming.write(&content(65_537, 3)).await?;
            }
            streaming.finish().await.map(drop)
        };
        let finishes = async { finishing.finish().await.map(drop) };
        let reads = async {
            while let Some(piece) = reading.next().await? {
                read.extend_from_slice(&piece);
            }
            Ok(())
        };
        let all = async { tokio::join!(streams, finishes, reads) };
        let ends = timeout(PATIENCE, all).await;
        let (streamed, finished, ended) =
            ends.unwrap_or_else(|_| panic!("{backend}: transfers hang for {PATIENCE:?}"));
        println!("{backend}: transfers heard of it after {:?}", self.clock.monotonic() - began);
        for (what, told) in [("streaming", streamed), ("finishing", finished), ("reading", ended)] {
            let is_told = matches!(told, Err(BlobsError::Store(_) | BlobsError::Expired));
            assert!(is_told, "{backend}: {what} ends with {told:?}");
        }
        assert!(read.len() < bytes.len() && bytes.starts_with(&read), "{backend}: other bytes");
        assert!(matches!(reading.next().await, Err(BlobsError::Ended)), "{backend}");

        come().await;
        self.works_again().await;
        let whole = download(&blobs, kept).await.expect("it is read");
        assert!(whole.expect("it is there") == bytes, "{backend}: what was there is there");
        self.assert_nothing_of_the_broken(&of_kept, expires_at).await;
    }

    /// Waits until calls are answered again, on every connection, and removals have ended.
    async fn works_again(&self) {
        let (blobs, nobody) = (self.blobs(), "A".repeat(43).parse().expect("an id"));
        let waited = async {
            let mut in_a_row = 0;
            while in_a_row < 8 {
                let is_answered = blobs.info(WORKSPACE, nobody).await.is_ok();
                in_a_row = if is_answered { in_a_row + 1 } else { 0 };
                self.clock.sleep(Duration::from_millis(10)).await;
            }
            self.service.settle().await;
        };
        let waited = timeout(PATIENCE, waited).await;
        assert!(waited.is_ok(), "{}: it does not come back", self.backend);
    }

    /// No state says that a broken upload is a BLOB, and after its life nothing of it is there.
    async fn assert_nothing_of_the_broken(&self, others: &[Key], expires_at: Timestamp) {
        let mut keys = self.notes.keys();
        keys.retain(|key| !others.contains(key));
        assert!(keys.iter().any(|key| chunk_number(key).is_some()), "nothing was written");
        for (key, record) in left(&self.direct, &keys).await {
            let says = String::from_utf8_lossy(&record.value).into_owned();
            let is_readable = is_state(&key) && !says.contains("\"status\":\"removed\"");
            assert!(!is_readable, "{}: a broken upload is a BLOB: {says}", self.backend);
            let ends = record.expires_at.expect("every part has an expiry");
            assert!(ends <= expires_at, "{}: a part outlives its upload", self.backend);
        }
        let rest = self.clock.now().until(expires_at);
        self.clock.sleep(rest + wane_backends::MAX_SKEW_DYNAMODB).await;
        let left = left(&self.direct, &keys).await;
        assert!(left.is_empty(), "{}: {} rows are left", self.backend, left.len());
    }
}

/// How a server is gone.
#[derive(Debug, Clone, Copy)]
enum Gone {
    /// Its process has ended: connections break, and new ones are refused.
    Dead,
    /// It is there and says nothing.
    Silent,
}

impl Gone {
    async fn go(self, proxy: &Proxy) {
        match self {
            Self::Dead => {
                proxy.set(Rules { refuse: true, ..Rules::PASS }).await;
                proxy.cut(Ending::Reset);
            }
            Self::Silent => proxy.set(Rules::SILENCE).await,
        }
    }

    async fn come(self, proxy: &Proxy) {
        proxy.set(Rules::PASS).await;
        // Whoever was not heard is never heard again.
        proxy.cut(Ending::Reset);
    }
}

/// A server, and the URL of a store of its own on it by the address at which it is reached.
struct Way {
    backend: &'static str,
    server: SocketAddr,
    url: Box<dyn Fn(SocketAddr) -> String>,
}

/// One to each listed server that is one process.
fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    let mut add = |backend, server: &str, url| {
        ways.push(Way { backend, server: server.parse().expect("an address"), url });
    };
    if let Some(url) = listed_url() {
        let prefix = fresh_settings(&url).prefix;
        let through = move |at| format!("redis://{at}?prefix={prefix}");
        add("redis", url.trim_start_matches("redis://"), Box::new(through));
    }
    if let Some(Place { settings }) = Place::new(Replication::Cas1) {
        let keyspace = settings.keyspace;
        add("cas1", &settings.hosts[0], Box::new(move |at| format!("cas1://{at}/{keyspace}")));
    }
    if let Some(mut server) = Server::listed() {
        server.timeout = Duration::from_millis(500);
        let at = server.endpoint.trim_start_matches("http://").to_owned();
        add("dynamodb", &at, Box::new(move |at| server.url(&format!("http://{at}"))));
    }
    ways
}

async fn open(url: &str) -> AnyStore {
    let opened = wane_backends::open(url, SystemClock::shared()).await;
    opened.unwrap_or_else(|error| panic!("the store does not open: {error}"))
}

async fn survives_its_server(way: Way, gone: Gone, lie: Lie) {
    let Way { backend, server, url } = way;
    let proxy = Proxy::before(server, 1).await;
    let direct = open(&url(server)).await;
    let ground = Ground::new(backend, open(&url(proxy.address())).await, direct);
    ground.notes.tell(lie);
    println!("{backend}: {gone:?}");
    let (go, come) = (async || gone.go(&proxy).await, async || gone.come(&proxy).await);
    Box::pin(ground.survives(go, come)).await;
    assert!(proxy.counts().requests > 20, "{backend} goes round the proxy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_breaks_transfers_and_leaves_nothing_of_them() {
    let dead = ways().into_iter().map(|way| survives_its_server(way, Gone::Dead, Lie::None));
    let silent = ways().into_iter().map(|way| survives_its_server(way, Gone::Silent, Lie::None));
    let all: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> =
        dead.map(|one| Box::pin(one) as _).chain(silent.map(|one| Box::pin(one) as _)).collect();
    join_all(all).await;
}

/// The control: a store that acknowledges what it could not write is caught on every server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hides_that_its_server_is_gone_is_caught() {
    for way in ways() {
        let backend = way.backend;
        let run = survives_its_server(way, Gone::Dead, Lie::HideErrors);
        let red = AssertUnwindSafe(Box::pin(run)).catch_unwind().await;
        assert!(red.is_err(), "{backend}: nobody noticed");
    }
}

/// With one of three nodes stopped transfers go on; with two they break, and leave nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_its_majority_breaks_transfers_and_leaves_nothing_of_them() {
    if settings_of("cas3").is_none() {
        return;
    }
    let cluster = tokio::task::block_in_place(Cluster::start);
    let store = CassandraStore::connect(cluster.settings(), SystemClock::shared()).await;
    let store = store.expect("the cluster answers");
    let ground = Ground::new("cas3", store.clone(), store);
    cluster.signal("-STOP", 1);
    ground.goes_on().await;
    let stop = async || cluster.signal("-STOP", 2);
    let wake = async || [1, 2].into_iter().for_each(|node| cluster.signal("-CONT", node));
    Box::pin(ground.survives(stop, wake)).await;
}
