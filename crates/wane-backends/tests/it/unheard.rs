//! Writes that nobody waits for any more, still on their way to the writer of a file: quotas count them, and
//! watches notice them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tempfile::TempDir;
use wane::clock::{Clock, ManualClock, SharedClock, SystemClock};
use wane::services::ClusterAppId;
use wane::services::app_ttl::{AppTtl, AppTtlError, AppTtlStorage, Quota};
use wane::store::{
    ClusteringRange, Event, EventKind, Key, Life, Notice, Partition, Store, Ttl, Value, Watch,
    WatchedStore, Write,
};
use wane_backends::file::{DiskStep, FaultyDisk, FileStore};

use crate::late_groups::begin;

const HOUR: Duration = Duration::from_secs(3_600);

/// A file whose writer stops at its syncs when told to, and the storage of an application on it.
struct Stage {
    _home: TempDir,
    disk: FaultyDisk,
    store: WatchedStore<FileStore>,
    storage: AppTtlStorage<WatchedStore<FileStore>>,
}

impl Stage {
    fn new(clock: &SharedClock, keys: u64) -> Self {
        let (home, disk) = (tempfile::tempdir().unwrap(), FaultyDisk::seeded(1));
        drop(FileStore::create(home.path(), Arc::clone(clock)).unwrap());
        let file = FileStore::open_on(&disk, home.path(), Arc::clone(clock)).unwrap();
        let store = WatchedStore::new(file, Arc::clone(clock));
        let quota = Quota { keys: Some(keys), bytes: None };
        let service = AppTtl::new(store.clone(), Arc::clone(clock));
        Self { _home: home, disk, store, storage: service.of(ClusterAppId(1), quota) }
    }

    /// Has the writer stop in the middle of somebody else's write.
    fn hold(&self) {
        self.disk.hold(DiskStep::FrameSynced);
    }

    fn await_held(&self) {
        tokio::task::block_in_place(|| self.disk.await_held());
    }

    fn release(&self) {
        self.disk.release(DiskStep::FrameSynced);
    }

    async fn live(&self) -> u64 {
        let page = self.storage.scan("", None, wane::store::PageLimit::MAX).await.unwrap();
        page.entries.len() as u64
    }
}

/// What comes of a request that begins before `meanwhile`, whether it waits for that or not.
async fn begun_before<T>(
    mut request: Pin<&mut impl Future<Output = T>>,
    meanwhile: impl Future<Output = ()>,
) -> T {
    let early = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    meanwhile.await;
    match early {
        Poll::Ready(answer) => answer,
        Poll::Pending => request.await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_nobody_waits_for_counts_against_the_quota() {
    let stage = Stage::new(&SystemClock::shared(), 2);
    assert_eq!(stage.storage.usage().await.unwrap().keys, 0);
    stage.hold();
    let mut first = pin!(stage.storage.insert_if_not_exists("first", "v", HOUR));
    begin(first.as_mut());
    stage.await_held();
    {
        let unheard = pin!(stage.storage.insert_if_not_exists("unheard", "v", HOUR));
        begin(unheard);
    }
    let mut third = pin!(stage.storage.insert_if_not_exists("third", "v", HOUR));
    begin(third.as_mut());
    stage.release();
    assert!(first.await.unwrap().is_applied());
    let third = third.await;
    assert!(matches!(third, Err(AppTtlError::OverQuota { .. })), "{third:?}");
    assert_eq!((stage.live().await, stage.storage.usage().await.unwrap().keys), (2, 2));
    // What was in doubt is in the books as what it is.
    assert!(stage.storage.delete("unheard").await.unwrap());
    assert!(stage.storage.delete("first").await.unwrap());
    assert_eq!(stage.storage.usage().await.unwrap().keys, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expiry_gives_no_room_while_its_entry_is_renewed() {
    let clock = ManualClock::seeded(1);
    let stage = Stage::new(&(Arc::clone(&clock) as SharedClock), 1);
    let brief = Duration::from_secs(1);
    assert!(stage.storage.insert_if_not_exists("kept", "v", brief).await.unwrap().is_applied());
    stage.hold();
    let mut renewed = pin!(stage.storage.touch("kept", HOUR));
    begin(renewed.as_mut());
    stage.await_held();
    clock.advance(2 * brief);
    let mut other = pin!(stage.storage.insert_if_not_exists("other", "v", HOUR));
    let other = begun_before(other.as_mut(), async {
        stage.release();
        assert!(renewed.await.unwrap().is_applied());
    });
    let other = other.await;
    assert!(matches!(other, Err(AppTtlError::OverQuota { .. })), "{other:?}");
    assert_eq!(stage.live().await, 1);
}

/// Waits for the expiry of the key, past gaps and other events.
async fn expiry(watch: &mut Watch, clock: &dyn Clock) -> Event {
    let expired = async {
        loop {
            match watch.next().await {
                Some(Notice::Event(event)) if event.kind == EventKind::Expired => return event,
                Some(_) => {}
                None => panic!("the watch has ended"),
            }
        }
    };
    tokio::select! {
        event = expired => event,
        () = clock.sleep(Duration::from_secs(10)) => panic!("no expiry was told"),
    }
}

/// The write comes to be after its caller went away; before or after the watch began.
async fn is_noticed(watch_first: bool) {
    let clock = SystemClock::shared();
    let stage = Stage::new(&clock, 10);
    let life = Duration::from_secs(1);
    let partition = {
        let probe = stage.storage.insert_if_not_exists("probe", "v", HOUR).await.unwrap();
        assert!(probe.is_applied());
        let page = stage.store.scan(None, wane::store::PageLimit::MAX).await.unwrap();
        Partition::new(page.rows[0].key.partition().to_vec()).unwrap()
    };
    let range = || ClusteringRange::ALL;
    let early = match watch_first {
        true => Some(stage.store.watch(&partition, range()).await.unwrap()),
        false => None,
    };
    stage.hold();
    let mut first = pin!(stage.storage.insert_if_not_exists("first", "v", HOUR));
    begin(first.as_mut());
    stage.await_held();
    {
        let unheard = pin!(stage.storage.insert_if_not_exists("unheard", "v", life));
        begin(unheard);
    }
    let releasing = {
        let (disk, clock) = (stage.disk.clone(), Arc::clone(&clock));
        tokio::spawn(async move {
            clock.sleep(Duration::from_millis(100)).await;
            disk.release(DiskStep::FrameSynced);
        })
    };
    let mut watch = match early {
        Some(watch) => watch,
        None => {
            // It waits for writes under way, of which the first is one.
            let watching = stage.store.watch(&partition, range());
            let (watch, first) = tokio::join!(watching, first.as_mut());
            assert!(first.unwrap().is_applied());
            watch.unwrap()
        }
    };
    if watch_first {
        assert!(first.await.unwrap().is_applied());
    }
    releasing.await.unwrap();
    let event = expiry(&mut watch, &*clock).await;
    assert_eq!(event.key.clustering(), b"unheard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_write_that_nobody_waits_for_is_noticed() {
    is_noticed(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_nobody_waited_for_before_the_watch_is_noticed() {
    is_noticed(false).await;
}

fn partition_of(key: &Key) -> Partition {
    Partition::new(key.partition().to_vec()).unwrap()
}

fn written(value: &str) -> Write {
    Write::new(Value::new(value.to_owned()).unwrap(), Life::For(Ttl::from_secs(1).unwrap()))
}

/// Whoever read the key at the first gap was too early for both writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_behind_one_that_nobody_waits_for_is_told_after_another_gap() {
    let stage = Stage::new(&SystemClock::shared(), 10);
    let (key, other) = (Key::new(b"watched", b"k").unwrap(), Key::new(b"other", b"k").unwrap());
    let mut watch = stage.store.watch(&partition_of(&key), ClusteringRange::ALL).await.unwrap();
    stage.hold();
    let mut first = pin!(stage.store.put(&other, written("first")));
    begin(first.as_mut());
    stage.await_held();
    let mut behind = pin!(stage.store.put(&key, written("heard")));
    {
        let mut unheard = pin!(stage.store.insert_if_not_exists(&key, written("unheard")));
        begin(unheard.as_mut());
        begin(behind.as_mut());
    }
    assert!(matches!(watch.next().await, Some(Notice::Gap { .. })));
    stage.release();
    assert!(behind.await.unwrap().is_applied());
    let (gap, event) = (watch.next().await, watch.next().await);
    assert!(matches!(gap, Some(Notice::Gap { .. })), "{gap:?}");
    let Some(Notice::Event(event)) = event else { panic!("{event:?}") };
    assert_eq!((event.kind, event.value.as_ref()), (EventKind::Put, b"heard".as_ref()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_nobody_waited_for_is_noticed_where_nobody_watched() {
    let clock = SystemClock::shared();
    let stage = Stage::new(&clock, 10);
    let [watched, unwatched, other] = [&b"watched"[..], b"unwatched", b"other"]
        .map(|partition| Key::new(partition, b"k").unwrap());
    let _watch = stage.store.watch(&partition_of(&watched), ClusteringRange::ALL).await.unwrap();
    stage.hold();
    let mut first = pin!(stage.store.put(&other, written("first")));
    begin(first.as_mut());
    stage.await_held();
    {
        let batch = vec![(watched, written("a")), (unwatched.clone(), written("b"))];
        begin(pin!(stage.store.put_batch(batch)));
    }
    let partition = partition_of(&unwatched);
    let mut watching = pin!(stage.store.watch(&partition, ClusteringRange::ALL));
    let watch = begun_before(watching.as_mut(), async {
        stage.release();
        assert!(first.await.unwrap().is_applied());
    });
    let event = expiry(&mut watch.await.unwrap(), &*clock).await;
    assert_eq!(event.key, unwatched);
}
