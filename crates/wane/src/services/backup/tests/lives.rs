//! Time and fences across a restoration, and several states of one record.

use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::services::backup::restoring::GROUP_RECORDS;
use crate::store::Remaining;

/// A lease that was to end at noon ends at noon, wherever its record is by then.
#[tokio::test]
async fn lives_go_on_towards_the_same_instant() {
    let fixture = Fixture::new(1);
    fixture.put("kept", Life::Permanent, 0).await;
    fixture.put("long", lasting(10_000), 0).await;
    fixture.put("short", lasting(3_000), 0).await;
    let bytes = fixture.bytes().await;

    fixture.clock.advance(Duration::from_millis(3_000));

    let (store, restored) = fixture.restore(&bytes).await;
    let restored = restored.unwrap();
    assert_eq!((restored.records, restored.permanent, restored.expired), (2, 1, 1));
    assert_eq!(store.query_ttl(&key("kept")).await.unwrap(), Remaining::Permanent);
    assert_eq!(store.get(&key("short")).await.unwrap(), None);
    let left = store.query_ttl(&key("long")).await.unwrap();
    assert_eq!(left, Remaining::For(Duration::from_millis(7_000)));
    fixture.clock.advance(Duration::from_millis(6_999));
    assert!(store.get(&key("long")).await.unwrap().is_some());
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(store.get(&key("long")).await.unwrap(), None);
}

/// A holder that lost its lease before the backup must not get a write through after it.
#[tokio::test]
async fn fences_refuse_after_a_restoration_what_they_refused_before() {
    let fixture = Fixture::new(1);
    fixture.put("guarded", Life::Permanent, 8).await;
    let bytes = fixture.bytes().await;
    let (store, restored) = fixture.restore(&bytes).await;
    restored.unwrap();
    let late = |fence| Write::new(value(b"late"), Life::Permanent).fenced(Fence(fence));
    assert!(!store.put(&key("guarded"), late(7)).await.unwrap().is_applied());
    assert!(store.put(&key("guarded"), late(8)).await.unwrap().is_applied());
}

/// Another machine's clock may be a little behind; what had expired there stays expired.
#[tokio::test]
async fn a_clock_a_little_behind_is_lifted_and_one_far_behind_refused() {
    let fixture = Fixture::new(1);
    fixture.put("row", Life::For(Ttl::MAX), 0).await;
    let made = fixture.clock.now().as_unix_millis();

    let ahead = Timestamp::from_unix_millis(made + 300_000);
    let expiry = ahead.after(Ttl::MAX);
    let bytes = Forged::new(ahead).record("row", b"v", Some(expiry), 0).end();
    let (store, restored) = fixture.restore(&bytes).await;
    assert_eq!(restored.unwrap().records, 1);
    assert_eq!(fixture.clock.now(), ahead);
    assert_eq!(store.get(&key("row")).await.unwrap().unwrap().expires_at, Some(expiry));

    let far = Timestamp::from_unix_millis(made + 600_001);
    let (store, refused) = fixture.restore(&Forged::new(far).record("a", b"", None, 0).end()).await;
    assert!(matches!(refused, Err(BackupError::ClockBehind { created_at, now })
        if created_at == far && now == ahead));
    assert_eq!(fixture.clock.now(), ahead, "a refused backup does not move the clock");
    assert!(contents(&store).await.is_empty());
}

/// Granted by a clock ahead of ours, during the backup: the store would refuse it as it is.
#[tokio::test]
async fn an_expiry_just_beyond_365_days_becomes_365_days() {
    let fixture = Fixture::new(1);
    let now = fixture.clock.now();
    let late = Timestamp::from_unix_millis(now.after(Ttl::MAX).as_unix_millis() + 900);
    let (store, restored) =
        fixture.restore(&Forged::new(now).record("row", b"v", Some(late), 0).end()).await;
    assert_eq!(restored.unwrap().records, 1);
    let record = store.get(&key("row")).await.unwrap().unwrap();
    assert_eq!(record.expires_at, Some(now.after(Ttl::MAX)));
}

/// What a scan of a shared store may show of a record that changes meanwhile: its states, in order.
struct States {
    forged: Forged,
    apart: bool,
}

impl States {
    fn of(fixture: &Fixture, apart: bool) -> Self {
        Self { forged: Forged::new(fixture.clock.now()), apart }
    }

    /// Adds a state of `row`, in a later group than the one before if they are to be apart.
    fn then(mut self, text: &[u8], expires_at: Option<Timestamp>, fence: u64) -> Self {
        self.forged = self.forged.record("row", text, expires_at, fence);
        for filler in 0..if self.apart { GROUP_RECORDS } else { 0 } {
            self.forged = self.forged.record(&format!("filler {filler}"), b"", None, 0);
        }
        self
    }

    async fn restored(self, fixture: &Fixture) -> Option<Record> {
        let (store, restored) = fixture.restore(&self.forged.end()).await;
        restored.unwrap();
        store.get(&key("row")).await.unwrap()
    }
}

#[tokio::test]
async fn of_several_states_of_a_record_the_last_one_stands() {
    for apart in [false, true] {
        let fixture = Fixture::new(1);
        let now = fixture.clock.now();
        let past = Some(Timestamp::from_unix_millis(now.as_unix_millis() - 1));

        let changed = States::of(&fixture, apart).then(b"one", None, 0).then(b"two", None, 3);
        let record = changed.restored(&fixture).await.unwrap();
        assert_eq!((&*record.value, record.fence), (&b"two"[..], Fence(3)), "apart: {apart}");

        let expired = States::of(&fixture, apart).then(b"one", None, 9).then(b"two", past, 9);
        assert_eq!(expired.restored(&fixture).await, None, "apart: {apart}");

        let revived = States::of(&fixture, apart).then(b"one", past, 0).then(b"two", None, 0);
        assert!(revived.restored(&fixture).await.is_some(), "apart: {apart}");

        let anew = States::of(&fixture, apart).then(b"one", None, 9).then(b"two", None, 2);
        let record = anew.restored(&fixture).await.unwrap();
        assert_eq!((&*record.value, record.fence), (&b"two"[..], Fence(2)), "apart: {apart}");
    }
}
