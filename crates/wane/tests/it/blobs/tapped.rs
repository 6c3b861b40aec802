//! A store that a test taps: it counts calls, takes its time, hangs at a given call, or lies about
//! chunks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use wane::store::{
    ClusteringRange, Fence, Key, Life, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Timestamp, Write,
};

use super::is_chunk;
use crate::simulation::machine::true_sleep;

/// What is wrong with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tap {
    Nothing,
    /// Every call takes so long.
    Slow(Duration),
    /// Call number so and so hangs, and every later one, until the tap is closed; before it takes
    /// effect or after.
    Hang {
        from: usize,
        after: bool,
    },
    /// The write of this chunk is acknowledged and forgotten.
    Drop(u32),
    /// The writes of these chunks go to each other's place.
    Shuffle(u32, u32),
    /// This chunk is stored without its last byte.
    Shorten(u32),
    /// This chunk is stored with a byte more.
    Lengthen(u32),
    /// Every write and every read fails.
    Down,
    /// The next insert is on its way until it is delivered, and nobody hears of it.
    LateInsert,
}

#[derive(Debug, Clone)]
pub(super) struct Tapped<S> {
    pub(super) inner: S,
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    tap: Mutex<Tap>,
    calls: AtomicUsize,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    late: Mutex<Option<(Key, Write)>>,
    /// Grows when the tap is changed.
    turned: tokio::sync::watch::Sender<usize>,
}

impl<S: Store> Tapped<S> {
    pub(super) fn new(inner: S) -> Self {
        let parts = Parts {
            tap: Mutex::new(Tap::Nothing),
            calls: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
            late: Mutex::default(),
            turned: tokio::sync::watch::Sender::new(0),
        };
        Self { inner, parts: Arc::new(parts) }
    }

    /// Sets what is wrong from here on, and counts anew.
    pub(super) fn turn(&self, tap: Tap) {
        *self.parts.tap.lock() = tap;
        self.parts.calls.store(0, Ordering::SeqCst);
        self.parts.most_in_flight.store(0, Ordering::SeqCst);
        self.parts.turned.send_modify(|turned| *turned += 1);
    }

    /// Lets calls from here on pass; those that hang go on hanging until the tap is turned.
    pub(super) fn hold_only_those(&self) {
        *self.parts.tap.lock() = Tap::Nothing;
    }

    /// Lets the late insert arrive; what became of it.
    pub(super) async fn deliver(&self) -> Outcome {
        let (key, write) = self.parts.late.lock().take().expect("one is on its way");
        self.inner.insert_if_not_exists(&key, write).await.expect("it is answered")
    }

    pub(super) fn calls(&self) -> usize {
        self.parts.calls.load(Ordering::SeqCst)
    }

    pub(super) fn most_in_flight(&self) -> usize {
        self.parts.most_in_flight.load(Ordering::SeqCst)
    }

    fn tap(&self) -> Tap {
        *self.parts.tap.lock()
    }

    async fn call<T: Send>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let mut turned = self.parts.turned.subscribe();
        let number = self.parts.calls.fetch_add(1, Ordering::SeqCst);
        let now = self.parts.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.parts.most_in_flight.fetch_max(now, Ordering::SeqCst);
        let _counted = Counted(&self.parts.in_flight);
        match self.tap() {
            Tap::Slow(time) => {
                true_sleep(time).await;
                request.await
            }
            Tap::Hang { from, after: false } if number >= from => {
                turned.changed().await.expect("the sender is in this store");
                request.await
            }
            Tap::Hang { from, after: true } if number >= from => {
                let answer = request.await;
                turned.changed().await.expect("the sender is in this store");
                answer
            }
            Tap::Down => Err(StoreError::Unavailable { backend: "tapped", source: "down".into() }),
            Tap::Nothing
            | Tap::Hang { .. }
            | Tap::Drop(_)
            | Tap::Shuffle(..)
            | Tap::Shorten(_)
            | Tap::Lengthen(_)
            | Tap::LateInsert => request.await,
        }
    }

    /// What is written where, when this is asked for; `None` where nothing is.
    fn lie(&self, key: &Key, write: Write) -> Option<(Key, Write)> {
        let number = key.clustering().try_into().map(u32::from_be_bytes).ok();
        // What is written over a chunk that goes is empty.
        let is_written = is_chunk(key.partition()) && !write.value.is_empty();
        let Some(number) = number.filter(|_| is_written) else {
            return Some((key.clone(), write));
        };
        let with = |bytes: Vec<u8>| {
            let value = wane::store::Value::new(bytes).expect("short enough");
            Some((key.clone(), Write { value, ..write.clone() }))
        };
        match self.tap() {
            Tap::Drop(dropped) if number == dropped => None,
            Tap::Shuffle(one, two) if number == one => Some((chunk(key, two), write)),
            Tap::Shuffle(one, two) if number == two => Some((chunk(key, one), write)),
            Tap::Shorten(short) if number == short => {
                with(write.value[..write.value.len() - 1].to_vec())
            }
            Tap::Lengthen(long) if number == long => with([&*write.value, b"x"].concat()),
            Tap::Nothing
            | Tap::Slow(_)
            | Tap::Hang { .. }
            | Tap::Drop(_)
            | Tap::Shuffle(..)
            | Tap::Shorten(_)
            | Tap::Lengthen(_)
            | Tap::Down
            | Tap::LateInsert => Some((key.clone(), write)),
        }
    }
}

fn expiry(life: Life) -> Option<Timestamp> {
    match life {
        Life::Until(instant) => Some(instant),
        Life::Permanent | Life::For(_) | Life::Keep => None,
    }
}

/// Another chunk of the same bucket.
fn chunk(key: &Key, number: u32) -> Key {
    Key::new(key.partition(), &number.to_be_bytes()).expect("short enough")
}

/// A call under way.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets everything run that can, on a paused runtime.
pub(super) async fn until_idle() {
    true_sleep(Duration::from_millis(1)).await;
}

/// Polls `work` until nothing moves any more; what it returned, if it did.
pub(super) async fn as_far_as_it_goes<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = until_idle() => None,
    }
}

impl<S: Store> Store for Tapped<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.call(self.inner.get(key)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.call(self.inner.get_batch(keys)).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.call(self.inner.read(partition, range, limit)).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.call(self.inner.scan(after, limit)).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.call(self.inner.put(key, write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let lies: Vec<_> =
            writes.into_iter().map(|(key, write)| (write.life, self.lie(&key, write))).collect();
        self.call(async {
            let told = lies.iter().filter_map(|(_, told)| told.clone()).collect();
            let mut outcomes = self.inner.put_batch(told).await?.into_iter();
            let outcome = |(life, told): &(Life, Option<_>)| match told {
                Some(_) => outcomes.next().expect("one for each row"),
                None => Outcome::Applied { expires_at: expiry(*life) },
            };
            Ok(lies.iter().map(outcome).collect())
        })
        .await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        if self.tap() == Tap::LateInsert {
            self.turn(Tap::Nothing);
            *self.parts.late.lock() = Some((key.clone(), write));
            return Err(StoreError::Unknown { backend: "tapped", source: "late".into() });
        }
        self.call(self.inner.insert_if_not_exists(key, write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.call(self.inner.compare_and_swap(key, expected, write)).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.call(self.inner.compare_and_delete(key, expected, fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.call(self.inner.query_ttl(key)).await
    }
}
