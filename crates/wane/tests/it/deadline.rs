//! DeadlineStore: what is told when the store below does not answer in time, and that nothing is
//! told otherwise.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use wane::clock::{Clock, ManualClock, SharedClock, Sleep};
use wane::store::{
    Answer, ClusteringRange, DeadlineStore, Fence, ObservedStore, Operation, PageLimit, Partition,
    Store, StoreError, Timestamp,
};

use crate::gated::{Gate, GatedStore};
use crate::{InnerStore, inner_store, key, lasting, manual_clock, permanent};

const DEADLINE: Duration = Duration::from_millis(1_500);
const INSTANT: Duration = Duration::from_millis(1);

/// A store that answers in time, the gate below it, and its clock.
struct Setup {
    store: DeadlineStore<GatedStore<InnerStore>>,
    below: GatedStore<InnerStore>,
    clock: Arc<ManualClock>,
}

fn setup() -> Setup {
    let (manual, clock) = manual_clock();
    let below = GatedStore::new(inner_store(Arc::clone(&clock)));
    let store = DeadlineStore::new(below.clone(), "gated", DEADLINE, clock);
    Setup { store, below, clock: manual }
}

type Answered<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// A call whose answer matters only as far as there is one.
fn call<'a, T>(request: impl Future<Output = Result<T, StoreError>> + Send + 'a) -> Answered<'a> {
    Box::pin(async { request.await.map(drop) })
}

async fn read_all<S: Store>(store: &S) -> Result<(), StoreError> {
    let partition = Partition::new("tests").expect("short enough");
    store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.map(drop)
}

fn reads<S: Store>(store: &S) -> Vec<Answered<'_>> {
    vec![
        call(async { store.get(&key("a")).await }),
        call(async { store.get_batch(&[key("a")]).await }),
        call(read_all(store)),
        call(store.scan(None, PageLimit::MAX)),
        call(async { store.query_ttl(&key("a")).await }),
    ]
}

fn writes<S: Store>(store: &S) -> Vec<Answered<'_>> {
    vec![
        call(async { store.put(&key("put"), permanent("v")).await }),
        call(store.put_batch(vec![(key("batch"), permanent("v"))])),
        call(async { store.insert_if_not_exists(&key("insert"), permanent("v")).await }),
        call(async { store.compare_and_swap(&key("swap"), b"v", permanent("w")).await }),
        call(async { store.compare_and_delete(&key("delete"), b"v", Fence::NONE).await }),
    ]
}

fn poll<T>(request: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) -> Poll<T> {
    request.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// The error of a call that is held up: not a moment before the deadline, and then at once.
fn late_error(setup: &Setup, mut request: Answered<'_>) -> StoreError {
    assert!(poll(&mut request).is_pending(), "the gate is shut");
    setup.clock.advance(DEADLINE - INSTANT);
    assert!(poll(&mut request).is_pending(), "the deadline has not passed");
    setup.clock.advance(INSTANT);
    match poll(&mut request) {
        Poll::Ready(answer) => answer.expect_err("the gate is shut"),
        Poll::Pending => panic!("it waits beyond the deadline"),
    }
}

#[test]
fn a_late_read_is_unavailable() {
    let setup = setup();
    setup.below.set(Gate::HoldReads);
    for request in reads(&setup.store) {
        let error = late_error(&setup, request);
        assert!(matches!(error, StoreError::Unavailable { backend: "gated", .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "gated is unavailable: no answer within the deadline of 1.5s"
        );
    }
}

#[test]
fn a_late_write_is_unknown() {
    let setup = setup();
    for held in [Gate::HoldBefore, Gate::HoldAfter] {
        setup.below.set(held);
        for request in writes(&setup.store) {
            let error = late_error(&setup, request);
            assert!(matches!(error, StoreError::Unknown { backend: "gated", .. }), "{error:?}");
            assert_eq!(
                error.to_string(),
                "gated did not confirm the write: no answer within the deadline of 1.5s"
            );
        }
    }
}

/// Why a late write cannot be called unavailable: both are told alike.
#[tokio::test]
async fn a_late_write_was_applied_or_not() {
    for (held, stands) in [(Gate::HoldBefore, false), (Gate::HoldAfter, true)] {
        let setup = setup();
        setup.below.set(held);
        let name = key("a");
        late_error(&setup, call(setup.store.put(&name, permanent("v"))));
        setup.below.set(Gate::Open);
        assert_eq!(setup.store.get(&name).await.unwrap().is_some(), stands, "{held:?}");
    }
}

/// However late it is looked at, and by whatever the caller was held up itself.
#[test]
fn an_answer_that_is_there_is_taken() {
    let setup = setup();
    for waited in [DEADLINE - INSTANT, DEADLINE, 10 * DEADLINE] {
        let held = [Gate::HoldReads, Gate::HoldAfter].map(|held| (held, requests(held, &setup)));
        for (held, requests) in held {
            for mut request in requests {
                setup.below.set(held);
                assert!(poll(&mut request).is_pending(), "the gate is shut");
                setup.clock.advance(waited);
                setup.below.set(Gate::Open);
                let answer = poll(&mut request);
                assert!(matches!(answer, Poll::Ready(Ok(()))), "after {waited:?}: {answer:?}");
            }
        }
    }
}

fn requests(held: Gate, setup: &Setup) -> Vec<Answered<'_>> {
    if held == Gate::HoldReads { reads(&setup.store) } else { writes(&setup.store) }
}

#[tokio::test]
async fn errors_from_below_are_not_renamed() {
    let setup = setup();
    setup.below.set(Gate::LoseRequest);
    let error = setup.store.put(&key("a"), permanent("v")).await.unwrap_err();
    assert_eq!(error.to_string(), "gated did not confirm the write: lost");
}

/// The caller sleeps and is woken by the clock alone, not by being looked at.
#[tokio::test]
async fn the_deadline_wakes_its_caller() {
    let setup = setup();
    setup.below.set(Gate::HoldAfter);
    let store = setup.store.clone();
    let write = tokio::spawn(async move { store.put(&key("a"), permanent("v")).await });
    tokio::task::yield_now().await;
    setup.clock.advance(DEADLINE);
    let answer = tokio::time::timeout(Duration::from_secs(20), write).await;
    let answer = answer.expect("it is woken").expect("it does not panic");
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
}

/// Each call has the whole time, whatever others took before it.
#[test]
fn the_time_runs_anew_for_each_call() {
    let setup = setup();
    setup.below.set(Gate::HoldReads);
    let mut early = call(async { setup.store.get(&key("a")).await });
    assert!(poll(&mut early).is_pending());
    setup.clock.advance(DEADLINE - INSTANT);
    let mut later = call(async { setup.store.get(&key("a")).await });
    assert!(poll(&mut later).is_pending());
    setup.clock.advance(INSTANT);
    assert!(poll(&mut early).is_ready());
    assert!(poll(&mut later).is_pending(), "it began later");
}

/// The meter below counts the call once, as one that nobody heard the answer of.
#[test]
fn a_late_call_counts_as_cancelled_below() {
    let (manual, clock) = manual_clock();
    let below = GatedStore::new(inner_store(Arc::clone(&clock)));
    below.set(Gate::HoldReads);
    let observed = ObservedStore::new(below, "gated", Arc::clone(&clock));
    let store = DeadlineStore::new(observed.clone(), "gated", DEADLINE, clock);
    let mut request = call(async { store.get(&key("a")).await });
    assert!(poll(&mut request).is_pending());
    manual.advance(DEADLINE);
    assert!(poll(&mut request).is_ready());
    let metrics = observed.metrics();
    let gets = metrics.of(Operation::Get);
    assert_eq!((gets.count(Answer::Cancelled), gets.in_flight), (1, 0));
}

/// Counts what is asked of a clock.
#[derive(Debug)]
struct CountedClock {
    inner: SharedClock,
    asked: AtomicUsize,
}

impl CountedClock {
    fn counted(&self) -> &dyn Clock {
        self.asked.fetch_add(1, Ordering::Relaxed);
        &*self.inner
    }
}

impl Clock for CountedClock {
    fn now(&self) -> Timestamp {
        self.counted().now()
    }

    fn monotonic(&self) -> Duration {
        self.counted().monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.counted().sleep(duration)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.counted().fill_random(bytes);
    }

    fn never_before(&self, floor: Timestamp) {
        self.counted().never_before(floor);
    }
}

/// A timer is a box, and reading the clock takes as long as a get from memory.
#[tokio::test]
async fn an_answer_at_once_costs_no_timer() {
    let (_, clock) = manual_clock();
    let below = GatedStore::new(inner_store(Arc::clone(&clock)));
    let counted = Arc::new(CountedClock { inner: clock, asked: AtomicUsize::new(0) });
    let store = DeadlineStore::new(below.clone(), "gated", DEADLINE, counted.clone());
    for request in reads(&store).into_iter().chain(writes(&store)) {
        request.await.unwrap();
    }
    assert_eq!(counted.asked.load(Ordering::Relaxed), 0);
    below.set(Gate::HoldReads);
    let mut waiting = call(async { store.get(&key("a")).await });
    assert!(poll(&mut waiting).is_pending() && poll(&mut waiting).is_pending());
    assert_eq!(counted.asked.load(Ordering::Relaxed), 1, "the control: one timer a call");
}

/// The wrapper adds a few words to a future, and not a second copy of the one below.
#[test]
fn futures_hold_the_one_below_once() {
    let setup = setup();
    let name = key("a");
    let below = size_of_val(&setup.below.insert_if_not_exists(&name, lasting("v", 1)));
    let wrapped = size_of_val(&setup.store.insert_if_not_exists(&name, lasting("v", 1)));
    assert!(wrapped < below + below / 2, "{wrapped} bytes around {below}");
}
