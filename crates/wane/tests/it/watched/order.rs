//! Order: replaying the events of a key gives the history that the store itself went through.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wane::clock::{Clock, ManualClock};
use wane::store::{
    ClusteringRange, Event, EventKind, Fence, Key, Notice, Store, Timestamp, Value, WatchLimits,
    WatchedStore,
};

use super::partition;
use crate::{InnerStore, inner_store, key, lasting, permanent};

const KEYS: u64 = 4;
const WRITERS: u64 = 8;
const WRITES: u64 = 400;

type Replayed = BTreeMap<Key, (Value, Option<Timestamp>)>;

/// Takes an event over, or says why it cannot follow those before it.
fn replay(state: &mut Replayed, event: Event) -> Result<(), String> {
    let current = state.get(&event.key).map(|(value, _)| value);
    let follows = match event.kind {
        EventKind::Inserted => current.is_none(),
        EventKind::Swapped => current.is_some(),
        EventKind::Put => true,
        EventKind::Deleted | EventKind::Expired => current == Some(&event.value),
    };
    if !follows {
        return Err(format!("{event:?} cannot follow {current:?}"));
    }
    match event.kind {
        EventKind::Inserted | EventKind::Swapped | EventKind::Put => {
            state.insert(event.key, (event.value, event.expires_at));
        }
        EventKind::Deleted | EventKind::Expired => {
            state.remove(&event.key);
        }
    }
    Ok(())
}

/// Writes of every kind to few keys, each with a value of its own, while time passes.
async fn write_at_random(store: WatchedStore<InnerStore>, clock: Arc<ManualClock>, writer: u64) {
    for number in 0..WRITES {
        let chance = clock.random_u64();
        let name = key(&(chance % KEYS).to_string());
        let text = format!("{writer}-{number}");
        let write =
            if chance & 64 == 0 { permanent(&text) } else { lasting(&text, 1 + chance % 20) };
        let current = store.get(&name).await.expect("it works").map(|record| record.value);
        let outcome = match (chance >> 8) % 4 {
            0 => store.insert_if_not_exists(&name, write).await,
            1 => store.compare_and_swap(&name, &current.unwrap_or_default(), write).await,
            2 => store.compare_and_delete(&name, &current.unwrap_or_default(), Fence::NONE).await,
            _ => store.put(&name, write).await,
        };
        let _ = outcome.expect("it works");
        if chance & 128 == 0 {
            clock.advance(Duration::from_millis(1));
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_in_the_order_in_which_the_store_applied_them() {
    for seed in 0..5 {
        let clock = ManualClock::seeded(seed);
        let limits =
            WatchLimits { unread_notices: 1 << 20, unread_bytes: 1 << 30, ..Default::default() };
        let below = inner_store(clock.clone());
        let store = WatchedStore::with_limits(below.clone(), clock.clone(), limits);
        let mut watch = store.watch(&partition(), ClusteringRange::ALL).await.unwrap();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write_at_random(store.clone(), clock.clone(), writer)))
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        clock.advance(Duration::from_millis(100));
        while store.followed() > 0 {
            tokio::task::yield_now().await;
        }
        drop(store);

        let mut state = Replayed::new();
        let mut last = 0;
        let mut kinds = [0_u32; 5];
        while let Some(notice) = watch.next().await {
            let Notice::Event(event) = notice else { panic!("{notice:?}") };
            assert!(event.id > last);
            last = event.id;
            kinds[event.kind as usize] += 1;
            replay(&mut state, event).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        for name in (0..KEYS).map(|number| key(&number.to_string())) {
            let stored = below.get(&name).await.unwrap();
            let stored = stored.map(|record| (record.value, record.expires_at));
            assert_eq!(state.get(&name), stored.as_ref(), "seed {seed}");
        }
        assert!(kinds.iter().all(|count| *count > 50), "too few of a kind: {kinds:?}");
    }
}

/// The control of the replay: two events in the wrong order are noticed.
#[test]
fn the_replay_notices_events_out_of_order() {
    let event = |kind, text: &str| Event {
        id: 1,
        kind,
        key: key("a"),
        value: crate::value(text),
        expires_at: None,
    };
    let fails = |events: &[Event]| {
        let mut state = Replayed::new();
        events.iter().cloned().try_for_each(|event| replay(&mut state, event)).is_err()
    };
    let [insert, delete, expire] =
        [EventKind::Inserted, EventKind::Deleted, EventKind::Expired].map(|kind| event(kind, "v"));
    assert!(!fails(&[insert.clone(), delete.clone(), insert.clone(), expire.clone()]));
    assert!(fails(&[delete.clone(), insert.clone()]));
    assert!(fails(&[insert.clone(), insert.clone()]));
    assert!(fails(&[insert.clone(), event(EventKind::Swapped, "w"), expire]));
    assert!(fails(&[event(EventKind::Swapped, "w")]));
}
