//! Mistakes that other implementations made on Cassandra, each as the rule it broke.

use std::collections::BTreeSet;
use std::time::Duration;

use scylla::client::session::Session;
use wane::clock::{Clock, ManualClock, SystemClock};
use wane::store::{
    ClusteringRange, Fence, Key, Keyspace, Life, Outcome, PageLimit, Partition, Remaining, Store,
    StoreError, Ttl, Value, Write, for_each_row,
};
use wane_backends::ServerClock;
use wane_backends::cassandra::{CassandraStore, Replication};

use crate::harness::cassandra::Place;

/// What a row holds at the server: value, expiry, fence and operation, then their native lives.
type Cells = (
    Option<Vec<u8>>,
    Option<i64>,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<i32>,
    Option<i32>,
    Option<i32>,
);

struct Fixture {
    place: Place,
    session: Session,
    store: CassandraStore,
}

impl Fixture {
    async fn new() -> Option<Self> {
        let place = Place::new(Replication::Cas1)?;
        let store = place.connect(SystemClock::shared()).await;
        let session = place.session().await;
        Some(Self { place, session, store })
    }

    async fn cells(&self, key: &Key) -> Option<Cells> {
        let keyspace = &self.place.settings.keyspace;
        let select = format!(
            "SELECT v, exp, fence, op, TTL(v), TTL(exp), TTL(op) FROM {keyspace}.records \
             WHERE p = ? AND c = ?"
        );
        let rows = self.session.query_unpaged(select, (key.partition(), key.clustering())).await;
        let rows = rows.expect("an answer").into_rows_result().expect("rows");
        rows.maybe_first_row::<Cells>().expect("cells of the right types")
    }

    async fn run(&self, statement: &str) {
        let statement = statement.replace("KS", &self.place.settings.keyspace);
        self.session.query_unpaged(statement, ()).await.expect("the statement runs");
    }

    async fn prepared(&self) -> BTreeSet<String> {
        let select = "SELECT query_string FROM system.prepared_statements";
        let rows = self.session.query_unpaged(select, ()).await.expect("an answer");
        let rows = rows.into_rows_result().expect("rows");
        let texts = rows.rows::<(String,)>().expect("texts").map(|row| row.expect("a text").0);
        texts.filter(|text| text.contains(&self.place.settings.keyspace)).collect()
    }
}

fn value(text: &str) -> Value {
    Value::copy_from_slice(text.as_bytes()).expect("a short value")
}

fn lasting(text: &str, millis: u64) -> Write {
    Write::new(value(text), Life::For(Ttl::from_millis(millis).expect("a legal life")))
}

fn permanent(text: &str) -> Write {
    Write::new(value(text), Life::Permanent)
}

#[track_caller]
fn assert_applied(outcome: Result<Outcome, StoreError>) {
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.is_applied(), "{outcome:?}");
}

/// A row marker lives as long as the INSERT said, whatever becomes of the cells. The control shows
/// one; our rows have none, so they leave whole.
#[tokio::test]
async fn no_row_marker_outlives_a_shorter_life() {
    let Some(fixture) = Fixture::new().await else { return };
    let Fixture { store, .. } = &fixture;
    let key = Key::new(b"p", b"ours").unwrap();
    assert_applied(store.insert_if_not_exists(&key, permanent("old")).await);
    assert_applied(store.compare_and_swap(&key, b"old", lasting("new", 1)).await);
    let cells = fixture.cells(&key).await.expect("a row");
    for life in [cells.4, cells.5, cells.6] {
        assert!(life.is_some_and(|life| (30..=61).contains(&life)), "{cells:?}");
    }
    fixture.run("INSERT INTO KS.records (p, c, v) VALUES (0x70, 0x01, 0x61)").await;
    fixture.run("UPDATE KS.records USING TTL 1 SET v = 0x62 WHERE p = 0x70 AND c = 0x01").await;
    fixture.run("UPDATE KS.records USING TTL 1 SET v = 0x62 WHERE p = 0x70 AND c = 0x02").await;
    SystemClock::shared().sleep(Duration::from_millis(2_100)).await;
    let ghost = fixture.cells(&Key::new(b"p", &[1]).unwrap()).await;
    assert!(ghost.is_some_and(|cells| cells.0.is_none()), "the control leaves no ghost");
    assert_eq!(fixture.cells(&Key::new(b"p", &[2]).unwrap()).await, None, "an update leaves one");
    let inserts = fixture.prepared().await.into_iter().filter(|text| text.starts_with("INSERT"));
    assert_eq!(inserts.count(), 0, "the store has a statement that leaves row markers");
    fixture.place.remove().await;
}

#[tokio::test]
async fn lives_need_no_statements_of_their_own() {
    let Some(fixture) = Fixture::new().await else { return };
    let Fixture { store, .. } = &fixture;
    let before = fixture.prepared().await;
    assert!(before.len() > 10, "{before:?}");
    for life in 1..=40 {
        let key = Key::new(b"p", &[life]).unwrap();
        let millis = u64::from(life) * 86_399_999;
        assert_applied(store.insert_if_not_exists(&key, lasting("a", millis)).await);
        assert_applied(store.compare_and_swap(&key, b"a", lasting("b", millis + 1)).await);
        assert_applied(store.put(&key, lasting("c", millis + 1_000)).await);
    }
    assert_eq!(fixture.prepared().await, before);
    fixture.place.remove().await;
}

#[tokio::test]
async fn permanent_over_a_life_and_back_changes_every_cell() {
    let Some(fixture) = Fixture::new().await else { return };
    let (store, key) = (&fixture.store, Key::new(b"p", b"").unwrap());
    for round in 0..2 {
        assert_applied(store.put(&key, lasting("short", 1_000).fenced(Fence(5))).await);
        let cells = fixture.cells(&key).await.expect("a row");
        assert!([cells.4, cells.5, cells.6].iter().all(Option::is_some), "{round}: {cells:?}");
        assert_applied(store.compare_and_swap(&key, b"short", permanent("long")).await);
        let cells = fixture.cells(&key).await.expect("a row");
        assert_eq!((cells.4, cells.5, cells.6), (None, None, None), "{round}");
        assert_eq!(cells.1, Some(i64::MAX));
        assert_eq!(cells.2.as_deref(), Some(&5_u64.to_be_bytes()[..]), "the stamp stays");
    }
    fixture.place.remove().await;
}

/// What tells a late asker that the delete was applied.
#[tokio::test]
async fn a_delete_leaves_its_operation_for_a_minute() {
    let Some(fixture) = Fixture::new().await else { return };
    let (store, key) = (&fixture.store, Key::new(b"p", b"c").unwrap());
    assert_applied(store.put(&key, permanent("v").fenced(Fence(7))).await);
    let written = fixture.cells(&key).await.expect("a row").3;
    assert_applied(store.compare_and_delete(&key, b"v", Fence::NONE).await);
    let (v, exp, fence, op, _, _, life) = fixture.cells(&key).await.expect("what it leaves");
    assert_eq!((v, exp, fence), (None, None, None));
    assert!(op.is_some() && op != written, "{op:?}");
    assert!(life.is_some_and(|life| (30..=60).contains(&life)), "{life:?}");
    assert_eq!(store.get(&key).await.unwrap(), None);
    assert_applied(store.insert_if_not_exists(&key, permanent("w").fenced(Fence(1))).await);
    fixture.place.remove().await;
}

/// Every unfenced row would otherwise carry a tombstone, and each counts against a limit.
#[tokio::test]
async fn a_row_without_a_fence_has_no_tombstone_for_it() {
    let Some(fixture) = Fixture::new().await else { return };
    let (store, key) = (&fixture.store, Key::new(b"p", b"c").unwrap());
    assert_applied(store.insert_if_not_exists(&key, permanent("a")).await);
    assert_applied(store.compare_and_swap(&key, b"a", lasting("b", 60_000)).await);
    assert_applied(store.put(&key, permanent("c")).await);
    let keyspace = &fixture.place.settings.keyspace;
    let select = format!("SELECT WRITETIME(fence), WRITETIME(v) FROM {keyspace}.records");
    let rows = fixture.session.query_unpaged(select, ()).await.unwrap().into_rows_result().unwrap();
    let (fence, v) = rows.single_row::<(Option<i64>, Option<i64>)>().unwrap();
    assert!(fence.is_none() && v.is_some());
    fixture.place.remove().await;
}

#[tokio::test]
async fn ranges_and_scans_go_on_after_the_first_answer() {
    let Some(fixture) = Fixture::new().await else { return };
    let store = &fixture.store;
    let log = Keyspace::PullStreamLog.partition(b"x").unwrap();
    let records = Partition::new(&b"records"[..]).unwrap();
    for partition in [&log, &records] {
        let row = |at: u32| Key::new(partition.as_bytes(), &at.to_be_bytes()).unwrap();
        let rows = (0..1_300).map(|at| (row(at), permanent("v"))).collect();
        for outcome in store.put_batch(rows).await.unwrap() {
            assert_applied(Ok(outcome));
        }
        let mut next = 0_u32;
        let read = for_each_row(store, partition, ClusteringRange::ALL, |row| {
            assert_eq!(row.key.clustering(), next.to_be_bytes());
            next += 1;
            Ok::<_, StoreError>(std::ops::ControlFlow::Continue(()))
        });
        read.await.unwrap();
        assert_eq!(next, 1_300);
    }
    let (mut seen, mut after) = (BTreeSet::new(), None);
    loop {
        let page = store.scan(after, PageLimit::new(1_000).unwrap()).await.unwrap();
        seen.extend(page.rows.into_iter().map(|row| row.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 2_600, "a scan covers both tables");
    fixture.place.remove().await;
}

/// The log of the pull stream has a table of its own, and the same rules.
#[tokio::test]
async fn the_stream_log_is_apart_and_takes_empty_clusterings() {
    let Some(fixture) = Fixture::new().await else { return };
    let store = &fixture.store;
    let partition = Keyspace::PullStreamLog.partition(b"").unwrap();
    let key = Key::new(partition.as_bytes(), b"").unwrap();
    assert_applied(store.insert_if_not_exists(&key, lasting("a", 60_000)).await);
    assert_applied(store.compare_and_swap(&key, b"a", permanent("b")).await);
    assert_applied(store.put(&key, permanent("c")).await);
    let batch = [(key.clone(), permanent("d"))].to_vec();
    assert_eq!(store.put_batch(batch).await.unwrap().len(), 1);
    assert_eq!(store.query_ttl(&key).await.unwrap(), Remaining::Permanent);
    let found = store.get_batch(&[key.clone(), key.clone()]).await.unwrap();
    assert_eq!(found.iter().flatten().count(), 2);
    let page = store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    assert_eq!(fixture.cells(&key).await, None, "it is not in the table of records");
    assert_applied(store.compare_and_delete(&key, b"d", Fence::NONE).await);
    assert_eq!(store.get(&key).await.unwrap(), None);
    fixture.place.remove().await;
}

/// Numbers of seconds end in 2038; ours are milliseconds in 64 bits.
#[tokio::test]
async fn expiry_past_2038_is_exact() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let clock = ManualClock::seeded(1);
    let store = place.connect(clock.clone()).await;
    let key = Key::new(b"p", b"c").unwrap();
    clock.advance(Duration::from_secs(40 * 365 * 86_400));
    let expiry = clock.now().after(Ttl::MAX);
    assert_applied(store.put(&key, lasting("v", Ttl::MAX.as_millis())).await);
    let record = store.get(&key).await.unwrap().expect("a record");
    assert_eq!(record.expires_at, Some(expiry));
    clock.advance(Ttl::MAX.as_duration() - Duration::from_millis(1));
    assert_eq!(store.query_ttl(&key).await.unwrap(), Remaining::For(Duration::from_millis(1)));
    clock.advance(Duration::from_millis(1));
    assert_eq!(store.get(&key).await.unwrap(), None);
    place.remove().await;
}

/// Somebody else wrote there: nothing is guessed, and nothing is overwritten by a condition.
#[tokio::test]
async fn a_row_that_is_not_ours_is_corrupt_and_left_alone() {
    let Some(fixture) = Fixture::new().await else { return };
    let (store, key) = (&fixture.store, Key::new(b"p", b"c").unwrap());
    fixture.run("UPDATE KS.records SET v = 0x61 WHERE p = 0x70 AND c = 0x63").await;
    let corrupt = |error: &StoreError| matches!(error, StoreError::Corrupt { .. });
    assert!(store.get(&key).await.is_err_and(|error| corrupt(&error)));
    let range = &ClusteringRange::ALL;
    let page = store.read(&Partition::new(&b"p"[..]).unwrap(), range, PageLimit::MAX).await;
    assert!(page.is_err_and(|error| corrupt(&error)));
    let insert = store.insert_if_not_exists(&key, permanent("x")).await;
    assert!(insert.is_err_and(|error| corrupt(&error)));
    assert_eq!(fixture.cells(&key).await.and_then(|cells| cells.0), Some(b"a".to_vec()));
    fixture.place.remove().await;
}

#[tokio::test]
async fn the_server_tells_its_time() {
    let Some(fixture) = Fixture::new().await else { return };
    let clock = SystemClock::shared();
    let before = clock.now();
    let told = fixture.store.server_time().await.unwrap();
    let after = clock.now();
    let slack = Duration::from_millis(50);
    assert!(told.not_before.until(before) <= slack && after.until(told.not_after) <= slack);
    fixture.place.remove().await;
}

/// A scan fetches ahead. What it fetched may be renewed before it is shown, and lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_renewed_between_two_pages_of_a_scan_is_seen() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let clock = ManualClock::seeded(1);
    let store = place.connect(clock.clone()).await;
    let write = |seconds| {
        let life = Life::For(Ttl::from_secs(seconds).expect("legal"));
        Write::new(Value::copy_from_slice(b"v").expect("legal"), life)
    };
    let keys = ["a", "b", "c"].map(|row| Key::new(b"scan", row.as_bytes()).expect("legal"));
    for key in &keys {
        assert!(store.put(key, write(10)).await.expect("an answer").is_applied());
    }
    let one = PageLimit::new(1).expect("legal");
    let mut page = store.scan(None, one).await.expect("a page");
    let mut seen: Vec<Key> = page.rows.into_iter().map(|row| row.key).collect();
    for key in &keys {
        assert!(store.put(key, write(60)).await.expect("an answer").is_applied());
    }
    clock.advance(Duration::from_secs(30));
    while let Some(cursor) = page.next {
        page = store.scan(Some(cursor), one).await.expect("a page");
        seen.extend(page.rows.into_iter().map(|row| row.key));
    }
    assert_eq!(seen, keys, "each of them lived throughout");
    place.remove().await;
}
