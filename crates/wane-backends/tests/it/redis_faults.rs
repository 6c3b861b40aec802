//! Bad days of a redis server: lost answers and requests, cuts, restarts, no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wane::clock::SystemClock;
use wane::store::{Fence, Key, Life, Outcome, Store, StoreError, Ttl, Value, Write};
use wane_backends::redis::RedisStore;

use crate::harness::redis::{fresh_settings, listed_url};
use crate::harness::redis_proxy::{Proxy, Way};
use crate::harness::redis_server::Server;

fn key(clustering: &str) -> Key {
    Key::new(b"p", clustering.as_bytes()).expect("legal")
}

fn permanent(value: impl AsRef<[u8]>) -> Write {
    Write::new(Value::copy_from_slice(value.as_ref()).expect("legal"), Life::Permanent)
}

fn hour(value: &str) -> Write {
    Write { life: Life::For(Ttl::from_secs(3_600).expect("legal")), ..permanent(value) }
}

/// A server, a store that reaches it through a proxy, and one that does not need to.
struct Stage {
    _server: Server,
    proxy: Proxy,
    store: RedisStore,
    direct: RedisStore,
}

impl Stage {
    /// None where the run lists no redis.
    async fn set() -> Option<Self> {
        listed_url()?;
        let server = Server::start(&[]);
        let proxy = Proxy::before(server.port()).await;
        let mut settings = fresh_settings(&proxy.url());
        let clock = SystemClock::shared();
        let store = RedisStore::connect(settings.clone(), clock.clone()).await.expect("an answer");
        settings.hosts = vec![format!("127.0.0.1:{}", server.port())];
        let direct = RedisStore::connect(settings, clock).await.expect("an answer");
        // Scripts are known from here on, so that a write is one request.
        for write in [permanent("a"), permanent("b")] {
            assert!(store.put(&key("warm"), write).await.expect("an answer").is_applied());
        }
        let inserted =
            store.insert_if_not_exists(&key("warm"), permanent("c")).await.expect("an answer");
        assert!(!inserted.is_applied());
        let swapped =
            store.compare_and_swap(&key("warm"), b"b", permanent("c")).await.expect("an answer");
        assert!(swapped.is_applied());
        let deleted =
            store.compare_and_delete(&key("warm"), b"c", Fence::NONE).await.expect("an answer");
        assert!(deleted.is_applied());
        Some(Self { _server: server, proxy, store, direct })
    }

    /// Runs a write whose answer, or whose request, is lost; `meanwhile` runs before the connection
    /// is cut.
    async fn losing<T>(
        &self,
        way: Way,
        write: impl AsyncFnOnce(&RedisStore) -> T,
        meanwhile: impl AsyncFnOnce(&RedisStore),
    ) -> T {
        let before = self.proxy.lost();
        self.proxy.set(way);
        let cut = async {
            self.proxy.lost_more_than(before).await;
            // What was lost may have been the sweeper's: the write gets time to be lost too.
            SystemClock::shared().sleep(Duration::from_millis(100)).await;
            meanwhile(&self.direct).await;
            self.proxy.cut();
        };
        tokio::join!(write(&self.store), cut).0
    }
}

/// Whoever is told applied must be right, and told the expiry that the answer would have had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_was_lost_is_found_applied() {
    let Some(stage) = Stage::set().await else { return };
    let nothing = async |_: &RedisStore| {};
    let row = key("row");

    let insert = async |store: &RedisStore| store.insert_if_not_exists(&row, hour("a")).await;
    let inserted = stage.losing(Way::NoAnswers, insert, nothing).await.unwrap();
    let stored = stage.direct.get(&row).await.unwrap().unwrap();
    assert_eq!(inserted, Outcome::Applied { expires_at: stored.expires_at });
    assert!(stored.expires_at.is_some());

    let keeping = Write { life: Life::Keep, ..permanent("b") };
    let swap = async |store: &RedisStore| store.compare_and_swap(&row, b"a", keeping).await;
    let swapped = stage.losing(Way::NoAnswers, swap, nothing).await.unwrap();
    assert_eq!(swapped, Outcome::Applied { expires_at: stored.expires_at });

    let delete = async |store: &RedisStore| store.compare_and_delete(&row, b"b", Fence::NONE).await;
    let deleted = stage.losing(Way::NoAnswers, delete, nothing).await.unwrap();
    assert_eq!(deleted, Outcome::Applied { expires_at: stored.expires_at }, "of what was deleted");
    assert_eq!(stage.direct.get(&row).await.unwrap(), None);

    let put = async |store: &RedisStore| store.put(&row, permanent("c")).await;
    let put = stage.losing(Way::NoAnswers, put, nothing).await.unwrap();
    assert_eq!(put, Outcome::Applied { expires_at: None });

    let rows = || (0..5).map(|row| (key(&row.to_string()), permanent("v"))).collect();
    let batch = async |store: &RedisStore| store.put_batch(rows()).await;
    let written = stage.losing(Way::NoAnswers, batch, nothing).await.unwrap();
    assert_eq!(written, vec![Outcome::Applied { expires_at: None }; 5]);
}

/// Another writer came between: nobody can tell any more who was first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_trace_was_overwritten_is_unknown() {
    let Some(stage) = Stage::set().await else { return };
    let row = key("row");
    let insert = async |store: &RedisStore| store.insert_if_not_exists(&row, hour("a")).await;
    let other = async |direct: &RedisStore| {
        assert!(direct.put(&row, permanent("other")).await.unwrap().is_applied());
    };
    let told = stage.losing(Way::NoAnswers, insert, other).await;
    assert!(matches!(told, Err(StoreError::Unknown { .. })), "{told:?}");

    let delete =
        async |store: &RedisStore| store.compare_and_delete(&row, b"other", Fence::NONE).await;
    let again = async |direct: &RedisStore| {
        assert!(direct.insert_if_not_exists(&row, permanent("x")).await.unwrap().is_applied());
    };
    let told = stage.losing(Way::NoAnswers, delete, again).await;
    assert!(matches!(told, Err(StoreError::Unknown { .. })), "{told:?}");
}

/// A refusal that nobody heard is no refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_was_lost_is_unknown() {
    let Some(stage) = Stage::set().await else { return };
    let row = key("row");
    assert!(stage.direct.put(&row, permanent("there")).await.unwrap().is_applied());
    let insert = async |store: &RedisStore| store.insert_if_not_exists(&row, hour("a")).await;
    let told = stage.losing(Way::NoAnswers, insert, async |_: &RedisStore| {}).await;
    assert!(matches!(told, Err(StoreError::Unknown { .. })), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_lost_is_never_told_applied() {
    let Some(stage) = Stage::set().await else { return };
    let row = key("row");
    let insert = async |store: &RedisStore| store.insert_if_not_exists(&row, hour("a")).await;
    let told = stage.losing(Way::NoRequests, insert, async |_: &RedisStore| {}).await;
    assert!(matches!(told, Err(StoreError::Unknown { .. })), "{told:?}");
    assert_eq!(stage.direct.get(&row).await.unwrap(), None);
    assert!(stage.store.insert_if_not_exists(&row, hour("b")).await.unwrap().is_applied());
}

/// A half-open connection: it stands, and nothing comes back. The next call takes a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_leads_nowhere_is_given_up_in_time() {
    let Some(stage) = Stage::set().await else { return };
    let clock = SystemClock::shared();
    stage.proxy.set(Way::NoAnswers);
    let before = clock.monotonic();
    let read = stage.store.get(&key("row")).await;
    assert!(matches!(read, Err(StoreError::Unavailable { .. })), "{read:?}");
    let write = stage.store.put(&key("row"), permanent("v")).await;
    assert!(matches!(write, Err(StoreError::Unavailable { .. })), "no connection: {write:?}");
    let took = clock.monotonic() - before;
    assert!(took < Duration::from_secs(5), "{took:?}");
    stage.proxy.set(Way::Open);
    assert!(stage.store.put(&key("row"), permanent("v")).await.unwrap().is_applied());
}

/// The server closes connections while nobody asks: the next write does not pay for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_closed_while_idle_costs_no_write() {
    let Some(stage) = Stage::set().await else { return };
    let clock = SystemClock::shared();
    for number in 0..20_u32 {
        stage.proxy.cut();
        clock.sleep(Duration::from_millis(20)).await;
        let row = key(&number.to_string());
        assert!(stage.store.put(&row, permanent("v")).await.unwrap().is_applied());
    }
}

/// Writers that are killed off all the time: what was told applied is there, and nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_lose_and_double_nothing() {
    let Some(stage) = Stage::set().await else { return };
    let counter = key("counter");
    assert!(stage.direct.put(&counter, permanent("0")).await.unwrap().is_applied());
    let done = AtomicBool::new(false);
    let killing = async {
        let clock = SystemClock::shared();
        while !done.load(Ordering::SeqCst) {
            stage.proxy.cut();
            clock.sleep(Duration::from_millis(7)).await;
        }
    };
    let counting = async {
        let (mut applied, mut unknown) = (0_u64, 0_u64);
        while applied < 2_000 {
            let Ok(Some(record)) = stage.store.get(&counter).await else { continue };
            let now: u64 = std::str::from_utf8(&record.value).unwrap().parse().unwrap();
            let next = permanent((now + 1).to_string());
            match stage.store.compare_and_swap(&counter, &record.value, next).await {
                Ok(outcome) => applied += u64::from(outcome.is_applied()),
                Err(StoreError::Unknown { .. }) => unknown += 1,
                Err(StoreError::Unavailable { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        done.store(true, Ordering::SeqCst);
        (applied, unknown)
    };
    let ((applied, unknown), ()) = tokio::join!(counting, killing);
    let stored = stage.direct.get(&counter).await.unwrap().unwrap().value;
    let stored: u64 = std::str::from_utf8(&stored).unwrap().parse().unwrap();
    println!("{applied} applied, {unknown} unknown, the counter is {stored}");
    assert!((applied..=applied + unknown).contains(&stored), "{applied} + {unknown}: {stored}");
}

/// Writes while the server is killed and started again. Returns how many writes were acknowledged,
/// and how many of those are gone.
async fn acknowledged_and_lost(options: &[&str]) -> (usize, usize) {
    let mut server = Server::start(options);
    let clock = SystemClock::shared();
    let settings = fresh_settings(&server.url());
    let store = RedisStore::connect(settings, clock.clone()).await.expect("an answer");
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|writer| tokio::spawn(insert_until(Arc::clone(&done), store.clone(), writer)))
        .collect();
    for _ in 0..3 {
        clock.sleep(Duration::from_millis(300)).await;
        server.restart();
    }
    clock.sleep(Duration::from_millis(300)).await;
    done.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.expect("it ends"));
    }
    let records = store.get_batch(&acknowledged).await.expect("an answer");
    (acknowledged.len(), records.iter().filter(|record| record.is_none()).count())
}

/// Inserts one row after the other, and returns those that were acknowledged.
async fn insert_until(done: Arc<AtomicBool>, store: RedisStore, writer: u8) -> Vec<Key> {
    let mut acknowledged = Vec::new();
    for number in 0_u32.. {
        if done.load(Ordering::SeqCst) {
            break;
        }
        let key = Key::new(&[writer], &number.to_be_bytes()).expect("legal");
        let write = if number.is_multiple_of(2) { permanent("v") } else { hour("v") };
        match store.insert_if_not_exists(&key, write).await {
            Ok(outcome) => {
                assert!(outcome.is_applied());
                acknowledged.push(key);
            }
            Err(StoreError::Unknown { .. } | StoreError::Unavailable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    acknowledged
}

/// kill -9 of the server under load, and a restart over its append-only file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_records_survive_a_killed_server() {
    if listed_url().is_none() {
        return;
    }
    let (acknowledged, lost) = acknowledged_and_lost(&[]).await;
    assert!(acknowledged > 300, "hardly anything was written: {acknowledged}");
    assert_eq!(lost, 0, "of {acknowledged}");
}

/// The control: a server that keeps nothing is found out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_without_its_file_loses_records() {
    if listed_url().is_none() {
        return;
    }
    let (acknowledged, lost) = acknowledged_and_lost(&["--appendonly", "no"]).await;
    assert!(lost > 0, "of {acknowledged}");
}

/// While no server is there nothing can have been sent, and that is what callers are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_is_unavailable_and_its_return_is_noticed() {
    if listed_url().is_none() {
        return;
    }
    let mut server = Server::start(&[]);
    let clock = SystemClock::shared();
    let store = RedisStore::connect(fresh_settings(&server.url()), clock.clone()).await.unwrap();
    assert!(store.put(&key("row"), permanent("v")).await.unwrap().is_applied());
    server.kill();
    clock.sleep(Duration::from_millis(100)).await;
    let before = clock.monotonic();
    let row = key("row");
    let calls = (0..64).map(|_| store.put(&row, permanent("w")));
    for told in futures_util::future::join_all(calls).await {
        let error = told.unwrap_err();
        let address = format!("127.0.0.1:{}", server.port());
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains(&address), "{error}");
    }
    assert!(clock.monotonic() - before < Duration::from_secs(3));
    server.restart();
    let record = store.get(&key("row")).await.unwrap().unwrap();
    assert_eq!(&*record.value, b"v");
    assert!(store.put(&key("row"), permanent("w")).await.unwrap().is_applied());
}

/// A full server refuses writes whole; what is there can be read, deleted, and expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_writes_and_nothing_else() {
    if listed_url().is_none() {
        return;
    }
    let server = Server::start(&["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"]);
    let clock = SystemClock::shared();
    let store = RedisStore::connect(fresh_settings(&server.url()), clock.clone()).await.unwrap();
    let large = [7; 100_000];
    let mut stored = 0_u32;
    let full = loop {
        let key = Key::new(b"p", &stored.to_be_bytes()).unwrap();
        match store.insert_if_not_exists(&key, hour_of(&large)).await {
            Ok(outcome) => assert!(outcome.is_applied()),
            Err(error) => break error,
        }
        stored += 1;
    };
    assert!(matches!(full, StoreError::Unavailable { .. }), "{full}");
    assert!(full.to_string().contains("OOM"), "{full}");
    let refused = Key::new(b"p", &stored.to_be_bytes()).unwrap();
    assert_eq!(store.get(&refused).await.unwrap(), None);
    let first = Key::new(b"p", &0_u32.to_be_bytes()).unwrap();
    assert!(store.get(&first).await.unwrap().is_some());
    for number in 0..3_u32.min(stored) {
        let key = Key::new(b"p", &number.to_be_bytes()).unwrap();
        assert!(store.compare_and_delete(&key, &large, Fence::NONE).await.unwrap().is_applied());
    }
    assert!(store.insert_if_not_exists(&refused, permanent("fits")).await.unwrap().is_applied());
}

fn hour_of(value: &[u8]) -> Write {
    Write { life: Life::For(Ttl::from_secs(3_600).expect("legal")), ..permanent(value) }
}
