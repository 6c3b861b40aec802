//! How a caller waits for the writer's answer: asleep, unless waking it would take too long.
//!
//! Waking a thread takes some thirty microseconds, which is a third of a sync on a fast disk. So where
//! syncs are fast, a caller who is alone stays awake for the time of one or two, and lets other tasks
//! on between any two looks. Where several wait, their thread has better things to do; and on a single
//! core the writer needs what a look would take.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;
use wane::clock::SharedClock;

use super::queue::Answers;

/// A sync that takes less is fast.
const FAST_SYNC: Duration = Duration::from_micros(200);

/// How long a caller stays awake.
const LONGEST: Duration = Duration::from_micros(300);

/// The callers that wait for answers.
#[derive(Debug)]
pub(super) struct Waiting {
    callers: AtomicUsize,
    syncs_are_fast: AtomicBool,
    has_cores: bool,
}

/// One caller that waits, until it is dropped.
#[derive(Debug)]
struct Caller<'a>(&'a Waiting);

impl Default for Waiting {
    fn default() -> Self {
        let has_cores = available_parallelism().is_ok_and(|cores| cores.get() > 1);
        Self { callers: AtomicUsize::new(0), syncs_are_fast: AtomicBool::new(false), has_cores }
    }
}

impl Waiting {
    /// Notes what a sync takes.
    pub(super) fn synced(&self, sync: Duration) {
        self.syncs_are_fast.store(sync < FAST_SYNC, Ordering::Relaxed);
    }

    /// Waits for the answers. `None` means that there will be none.
    pub(super) async fn answered(
        &self,
        mut answers: Receiver<Answers>,
        clock: &SharedClock,
    ) -> Option<Answers> {
        let caller = self.enter();
        let began = clock.monotonic();
        while caller.stays_awake() && clock.monotonic().saturating_sub(began) < LONGEST {
            tokio::task::yield_now().await;
            match answers.try_recv() {
                Ok(answers) => return Some(answers),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Closed) => return None,
            }
        }
        answers.await.ok()
    }

    fn enter(&self) -> Caller<'_> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        Caller(self)
    }
}

impl Caller<'_> {
    /// Whether it should look again instead of being woken.
    fn stays_awake(&self) -> bool {
        let Waiting { callers, syncs_are_fast, has_cores } = self.0;
        *has_cores && syncs_are_fast.load(Ordering::Relaxed) && callers.load(Ordering::Relaxed) == 1
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use wane::clock::SystemClock;

    use super::*;

    fn waiting(has_cores: bool, sync: Duration) -> Waiting {
        let waiting = Waiting { has_cores, ..Waiting::default() };
        waiting.synced(sync);
        waiting
    }

    #[test]
    fn only_who_is_alone_on_a_fast_disk_with_a_core_to_spare_stays_awake() {
        let fast = FAST_SYNC / 2;
        assert!(waiting(true, fast).enter().stays_awake());
        assert!(!waiting(true, FAST_SYNC).enter().stays_awake());
        assert!(!waiting(false, fast).enter().stays_awake());
        let waiting = waiting(true, fast);
        let first = waiting.enter();
        let second = waiting.enter();
        assert!(!first.stays_awake() && !second.stays_awake());
        drop(first);
        assert!(second.stays_awake());
    }

    #[test]
    fn before_the_first_sync_nobody_stays_awake() {
        assert!(!Waiting { has_cores: true, ..Waiting::default() }.enter().stays_awake());
    }

    #[tokio::test]
    async fn a_caller_gets_its_answers_soon_late_or_never() {
        let clock = SystemClock::shared();
        for late in [Duration::ZERO, 20 * LONGEST] {
            let waiting = waiting(true, FAST_SYNC / 2);
            let (reply, answers) = oneshot::channel();
            let writer = clock.clone();
            tokio::spawn(async move {
                writer.sleep(late).await;
                reply.send(Ok(Vec::new()))
            });
            let answered = waiting.answered(answers, &clock).await;
            assert!(answered.is_some_and(|answers| answers.is_ok()), "after {late:?}");
            let (reply, answers) = oneshot::channel();
            let writer = clock.clone();
            tokio::spawn(async move {
                writer.sleep(late).await;
                drop(reply);
            });
            assert!(waiting.answered(answers, &clock).await.is_none(), "after {late:?}");
        }
    }

    /// A caller that went away while it waited leaves the next one alone.
    #[tokio::test]
    async fn a_caller_that_goes_away_is_counted_no_longer() {
        let clock = SystemClock::shared();
        let waiting = waiting(true, FAST_SYNC / 2);
        let (_reply, answers) = oneshot::channel();
        let answered = waiting.answered(answers, &clock);
        assert!(tokio::time::timeout(LONGEST / 3, answered).await.is_err());
        assert_eq!(waiting.callers.load(Ordering::Relaxed), 0);
    }
}
