//! Groups that are decided while the tree is brought up to date: at one instant all the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use wane::clock::{Clock, ManualClock, SharedClock};
use wane::store::{Key, Life, Outcome, Store, Ttl, Value, Write};
use wane_backends::file::{DiskStep, FaultyDisk, FileStore};

const LEASE_MILLIS: u64 = 10;

fn key(name: &str) -> Key {
    Key::new(b"late", name.as_bytes()).unwrap()
}

fn write(len: usize, life: Life) -> Write {
    Write::new(Value::new(vec![7; len]).unwrap(), life)
}

/// Whatever of a request needs no answer is done.
pub(crate) fn begin<T>(request: std::pin::Pin<&mut impl Future<Output = T>>) {
    assert!(request.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// A lease ends, and its generation reaches the tree without it, after a group was announced and before
/// the change that wants the same lease is decided. By the group's time it had not ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_while_a_group_is_decided_is_not_taken_before_its_end() {
    let home = tempfile::tempdir().unwrap();
    let clock = ManualClock::seeded(1);
    drop(FileStore::create(home.path(), Arc::clone(&clock) as SharedClock).unwrap());
    let disk = FaultyDisk::seeded(1);
    let store = FileStore::open_on(&disk, home.path(), Arc::clone(&clock) as SharedClock).unwrap();
    let lease = write(1, Life::For(Ttl::from_millis(LEASE_MILLIS).unwrap()));
    let first = store.insert_if_not_exists(&key("lease"), lease.clone()).await.unwrap();
    assert!(first.is_applied());
    let ends = clock.now().as_unix_millis() + LEASE_MILLIS;

    // While the writer waits for a sync, two come, who make the next group: one with large values, in
    // the middle of which it stops, and one who wants the lease.
    disk.hold(DiskStep::FrameSynced);
    disk.hold(DiskStep::ValuesWritten);
    let (other, name) = (key("other"), key("lease"));
    let mut before = pin!(store.put(&other, write(1, Life::Permanent)));
    begin(before.as_mut());
    tokio::task::block_in_place(|| disk.await_held());
    let large = (0..6).map(|number| (key(&number.to_string()), write(250_000, Life::Permanent)));
    let mut large = pin!(store.put_batch(large.collect()));
    begin(large.as_mut());
    let mut second = pin!(store.insert_if_not_exists(&name, lease));
    begin(second.as_mut());
    disk.release(DiskStep::FrameSynced);
    assert!(before.await.unwrap().is_applied());
    tokio::task::block_in_place(|| disk.await_held());

    clock.advance(Duration::from_millis(LEASE_MILLIS));
    store.flush().await.unwrap();
    assert_eq!(store.get(&other).await.unwrap().map(|record| record.value.len()), Some(1));
    disk.release(DiskStep::ValuesWritten);
    large.await.unwrap();

    let Outcome::Applied { expires_at: Some(expiry) } = second.await.unwrap() else {
        panic!("the lease has ended");
    };
    let began = expiry.as_unix_millis() - LEASE_MILLIS;
    assert!(began >= ends, "it begins at {began}, and the one before it ends at {ends}");
}
