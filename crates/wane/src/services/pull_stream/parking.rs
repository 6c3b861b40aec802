//! Parking: readers that wait for a message, holding nothing meanwhile.
//!
//! A reader takes a place before it looks whether there is a message, so that none that comes after
//! the look is missed. Messages that come in on this node wake as many of those who wait for the
//! institution as there are batches of them. Who was woken and has not found that there is nothing
//! wakes the next one when it leaves, so that no news is lost with a reader that goes away, or that
//! takes less than there is. A call that leaves while another one waits for the same slot, which is
//! a retry of it, wakes all: the retry is given what the call was.
//! Those of other nodes are found by one task that looks whether the next row is there, many
//! institutions in one call, in turn, and at a bounded rate; it ends when nobody waits.
//!
//! Invariant: a place exists as long as somebody waits on it. There is a [`Lookout`] at most, and a
//! reader that parks while there is none starts one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::quality::FixedState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::Ispb;
use super::core::Core;
use super::record::MAX_READERS;
use crate::clock::Clock;
use crate::store::{Key, Store};

/// Institutions that are looked at in one call.
const LOOKED_AT: usize = 512;

/// Places that room is kept for when fewer wait.
const SPARE_PLACES: usize = 64;

#[derive(Debug)]
struct Spot {
    wake: Arc<Notify>,
    waiting: usize,
    /// How many wait for each slot.
    by_slot: [usize; MAX_READERS],
    /// The row that would be the next one; `None` where nobody has looked yet.
    next_row: Option<u64>,
}

/// The places of all institutions that somebody waits for.
#[derive(Debug)]
pub(super) struct Parking {
    spots: Mutex<HashMap<Ispb, Spot, FixedState>>,
    has_lookout: AtomicBool,
    /// Nobody waits any more: the node is about to stop.
    is_closed: AtomicBool,
}

impl Parking {
    pub(super) fn new(clock: &dyn Clock) -> Self {
        let hasher = FixedState::with_seed(clock.random_u64());
        let spots = Mutex::new(HashMap::with_hasher(hasher));
        Self { spots, has_lookout: AtomicBool::new(false), is_closed: AtomicBool::new(false) }
    }

    /// Takes a place. It is woken by whatever comes from now on.
    pub(super) fn take(self: &Arc<Self>, ispb: Ispb) -> Parked {
        let mut spots = self.spots.lock();
        let spot = spots.entry(ispb).or_insert_with(|| Spot {
            wake: Arc::default(),
            waiting: 0,
            by_slot: [0; MAX_READERS],
            next_row: None,
        });
        spot.waiting += 1;
        let wake = Arc::clone(&spot.wake);
        let mut woken = Box::pin(Arc::clone(&wake).notified_owned());
        woken.as_mut().enable();
        Parked { parking: Arc::clone(self), ispb, slot: None, wake, woken, has_news: false }
    }

    /// Wakes as many of those who wait for the institution, those first who came first. `next_row` is
    /// the row after those that are there, where that is known: earlier ones are not looked for.
    pub(super) fn wake(&self, ispb: Ispb, readers: usize, next_row: Option<u64>) {
        if let Some(spot) = self.spots.lock().get_mut(&ispb) {
            spot.next_row = spot.next_row.max(next_row);
            (0..readers.min(spot.waiting)).for_each(|_| spot.wake.notify_one());
        }
    }

    /// Wakes everyone, and lets nobody wait from now on.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        for spot in self.spots.lock().values() {
            spot.wake.notify_waiters();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// How many readers wait, or are about to.
    pub(super) fn waiting(&self) -> usize {
        self.spots.lock().values().map(|spot| spot.waiting).sum()
    }

    /// Institutions that are waited for, with the row that would come next: in order after `last`, and
    /// then from the first one on.
    fn next_rows(&self, last: Option<Ispb>) -> Vec<(Ispb, u64)> {
        let spots = self.spots.lock();
        let mut rows: Vec<_> =
            spots.iter().filter_map(|(ispb, spot)| Some((*ispb, spot.next_row?))).collect();
        drop(spots);
        rows.sort_unstable_by_key(|(ispb, _)| (Some(*ispb) <= last, *ispb));
        rows.truncate(LOOKED_AT);
        rows
    }

    /// The right to look out, unless somebody has it.
    fn lookout(self: &Arc<Self>) -> Option<Lookout> {
        let is_free = !self.has_lookout.swap(true, Ordering::SeqCst);
        is_free.then(|| Lookout { parking: Arc::clone(self), is_held: true })
    }
}

/// The right to look out for rows of other nodes. Dropped, somebody else may have it.
#[derive(Debug)]
pub(super) struct Lookout {
    parking: Arc<Parking>,
    is_held: bool,
}

impl Lookout {
    /// Gives the right up if nobody waits: the next reader starts another lookout.
    fn has_ended(&mut self) -> bool {
        let Self { parking, is_held } = self;
        if !parking.spots.lock().is_empty() {
            return false;
        }
        parking.has_lookout.store(false, Ordering::SeqCst);
        *is_held = false;
        if parking.spots.lock().is_empty() {
            return true;
        }
        // Whoever came just before took it that there is a lookout: unless another has begun, it
        // goes on.
        *is_held = !parking.has_lookout.swap(true, Ordering::SeqCst);
        !*is_held
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        if self.is_held {
            self.parking.has_lookout.store(false, Ordering::SeqCst);
        }
    }
}

/// A reader's place. Dropped, it is free.
#[derive(Debug)]
pub(super) struct Parked {
    parking: Arc<Parking>,
    ispb: Ispb,
    /// Whose messages it waits for, once that is known.
    slot: Option<usize>,
    wake: Arc<Notify>,
    /// Woken in the order in which readers came; it hears of what comes before it is waited for.
    woken: Pin<Box<OwnedNotified>>,
    /// Whether it was woken, and has not looked since.
    has_news: bool,
}

impl Parked {
    /// Completes when something has come since this was called last.
    pub(super) async fn woken(&mut self) {
        self.woken.as_mut().await;
        self.woken.set(Arc::clone(&self.wake).notified_owned());
        self.woken.as_mut().enable();
        self.has_news = true;
    }

    /// It looked, and took all that there was.
    pub(super) fn took_all(&mut self) {
        self.has_news = false;
    }

    /// It looked, and there was nothing for its slot: says which row would be the next one.
    pub(super) fn waits_for(&mut self, slot: u8, row: u64) {
        self.has_news = false;
        if let Some(spot) = self.parking.spots.lock().get_mut(&self.ispb) {
            let slot = usize::from(slot).min(MAX_READERS - 1);
            if self.slot.replace(slot).is_none() {
                spot.by_slot[slot] += 1;
            }
            spot.next_row = spot.next_row.max(Some(row));
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let mut spots = self.parking.spots.lock();
        if let Entry::Occupied(mut spot) = spots.entry(self.ispb) {
            if self.has_news {
                // Where that is its own place again, the place passes it on when it is dropped.
                spot.get().wake.notify_one();
            }
            if let Some(slot) = self.slot {
                spot.get_mut().by_slot[slot] -= 1;
                if spot.get().by_slot[slot] > 0 {
                    spot.get().wake.notify_waiters();
                }
            }
            spot.get_mut().waiting -= 1;
            if spot.get().waiting == 0 {
                spot.remove();
            }
        }
        if spots.capacity() > SPARE_PLACES && spots.len() < spots.capacity() / 8 {
            let room = SPARE_PLACES.max(spots.len() * 2);
            spots.shrink_to(room);
        }
    }
}

/// A lookout that has to be started: one task of a node is enough.
pub(super) fn missing_lookout<S: Store>(core: &Core<S>) -> Option<Lookout> {
    core.settings.look_every.and_then(|_| core.parking.lookout())
}

/// Looks for rows of other nodes as long as somebody waits.
pub(super) async fn look_out<S: Store>(core: Arc<Core<S>>, mut lookout: Lookout) {
    let Some(every) = core.settings.look_every else { return };
    let mut last = None;
    loop {
        core.clock.sleep(every).await;
        if lookout.has_ended() {
            return;
        }
        let looked = core.parking.next_rows(last);
        let Some((ispb, _)) = looked.last() else { continue };
        last = Some(*ispb);
        let keys = looked.iter().map(|(ispb, row)| core.place(*ispb).row_key(*row));
        // A look that fails is made again: readers also come back by themselves.
        let Ok(keys) = keys.collect::<Result<Vec<Key>, _>>() else { continue };
        let Ok(found) = core.store.get_batch(&keys).await else { continue };
        for ((ispb, row), record) in looked.into_iter().zip(found) {
            if record.is_some() {
                // Also retries of calls that wait elsewhere, whichever slot they are for.
                core.parking.wake(ispb, usize::MAX, Some(row + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::clock::ManualClock;

    fn parking() -> Arc<Parking> {
        Arc::new(Parking::new(&*ManualClock::seeded(1)))
    }

    fn waiting(parking: &Arc<Parking>, number: usize) -> Parked {
        waiting_for(parking, number, 0)
    }

    fn waiting_for(parking: &Arc<Parking>, number: usize, slot: u8) -> Parked {
        let mut place = parking.take(format!("{number:08}").parse().unwrap());
        place.waits_for(slot, 7);
        place
    }

    fn is_woken(place: &mut Parked) -> bool {
        place.woken().now_or_never().is_some()
    }

    #[test]
    fn news_wake_one_reader_for_each_batch_and_are_lost_with_none() {
        let parking = parking();
        let mut places: Vec<_> = (0..6).map(|slot| waiting_for(&parking, 0, slot)).collect();
        let ispb = places[0].ispb;
        parking.wake(ispb, 2, None);
        let woken: Vec<_> = places.iter_mut().map(is_woken).collect();
        assert_eq!(woken, [true, true, false, false, false, false], "those who came first");
        places[0].waits_for(0, 8);
        drop(places.remove(0));
        assert!(!places[1..].iter_mut().any(is_woken), "it had looked");
        drop(places.remove(0));
        assert!(is_woken(&mut places[0]), "it left before it looked");
        parking.wake(ispb, 1, None);
        drop(places.remove(1));
        assert!(is_woken(&mut places[1]), "it was gone before it noticed");
        places[1].took_all();
        places[0].took_all();
        drop(places.remove(1));
        assert!(!places.iter_mut().any(is_woken));
        parking.wake(ispb, 100, None);
        assert!(places.iter_mut().all(is_woken));
    }

    #[test]
    fn rows_that_are_there_are_not_looked_for_again() {
        let parking = parking();
        let mut place = waiting(&parking, 0);
        assert_eq!(parking.next_rows(None), [(place.ispb, 7)]);
        parking.wake(place.ispb, 1, Some(9));
        assert_eq!(parking.next_rows(None), [(place.ispb, 9)]);
        place.waits_for(0, 8);
        parking.wake(place.ispb, 1, None);
        assert_eq!(parking.next_rows(None), [(place.ispb, 9)], "it never goes back");
    }

    /// A task that is dropped midway, as with its runtime, or that panics, keeps nobody else from it.
    #[test]
    fn a_lookout_that_is_dropped_is_missing_again() {
        let parking = parking();
        let mut lookout = parking.lookout().unwrap();
        assert!(parking.lookout().is_none(), "one is enough");
        let place = waiting(&parking, 0);
        assert!(!lookout.has_ended());
        drop(lookout);
        lookout = parking.lookout().unwrap();
        drop(place);
        assert!(lookout.has_ended());
        let other = parking.lookout().unwrap();
        drop(lookout);
        assert!(parking.lookout().is_none(), "the other one has it");
        drop(other);
    }

    /// Readers that come and go meanwhile change nobody's turn.
    #[test]
    fn institutions_are_looked_at_in_turn() {
        let parking = parking();
        let places: Vec<_> = (0..1_200).map(|number| waiting(&parking, number * 2)).collect();
        let (mut seen, mut last) = (std::collections::BTreeSet::new(), None);
        for turn in 0..3 {
            let looked = parking.next_rows(last);
            assert_eq!(looked.len(), LOOKED_AT);
            last = looked.last().map(|(ispb, _)| *ispb);
            seen.extend(looked.into_iter().map(|(ispb, _)| ispb));
            let short: Vec<_> =
                (0..50).map(|n| waiting(&parking, turn * 400 + n * 2 + 1)).collect();
            drop(short);
        }
        assert_eq!(seen.len(), places.len(), "all of them within three looks");
    }
}
