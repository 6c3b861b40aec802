//! Contestants that are called by tasks on a runtime of two threads, and what their callers write.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use wane::store::{Key, Life, PageLimit, Partition, StoreError, Ttl, Value, Write};

use super::contest::{Calls, Contestant, FIRST_ABSENT, Operation, RANGE_ROWS, Trial};
use crate::BoxError;
use crate::measured::Measured;
use crate::workload::{Chance, VALUE, clustering, key, long_life, partition};

/// How many records a bulk load writes in one call.
const LOAD_BATCH: u64 = 10_000;

/// A task lets the others on after so many calls that did not wait: reads never do, and a task
/// that does not wait keeps its thread.
const CALLS_IN_A_ROW: u64 = 32;

/// A store whose calls do not block. Writes complete when they are on disk, and tell whether all
/// of them were applied.
pub(crate) trait TaskStore: Clone + Debug + Send + Sync + 'static {
    /// The name in tables.
    const NAME: &'static str;

    /// Writes a record where there is none.
    fn insert(
        &self,
        key: &Key,
        write: Write,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Writes a record where `expected` is.
    fn swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Writes records whatever is there.
    fn put_batch(
        &self,
        writes: Vec<(Key, Write)>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Reads a record; whether it is there.
    fn get(&self, key: &Key) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Reads rows in order from `start` on; how many.
    fn range(
        &self,
        partition: &Partition,
        start: &[u8],
        limit: PageLimit,
    ) -> impl Future<Output = Result<usize, StoreError>> + Send;
}

/// What callers write, and how much they read.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    /// The value of each record.
    pub(crate) value: Value,
    /// The shortest and the longest life of a record, each as likely.
    pub(crate) lives: (Ttl, Ttl),
    /// The rows of a range.
    pub(crate) rows: usize,
    /// Of the records that are there, one in so many is called for.
    pub(crate) every: u64,
}

impl Default for Load {
    fn default() -> Self {
        let value = Value::copy_from_slice(VALUE).expect("a short value is legal");
        Self { value, lives: (long_life(), long_life()), rows: RANGE_ROWS, every: 1 }
    }
}

impl Load {
    /// Records with a value of so many bytes.
    pub(crate) fn of_bytes(len: usize) -> Result<Self, StoreError> {
        Ok(Self { value: Value::new(vec![b'v'; len])?, ..Self::default() })
    }

    /// Records that live so long.
    pub(crate) fn living(shortest: Duration, longest: Duration) -> Result<Self, StoreError> {
        Ok(Self { lives: (shortest.try_into()?, longest.try_into()?), ..Self::default() })
    }

    fn write(&self, chance: &mut Chance) -> Result<Write, StoreError> {
        let (shortest, longest) = (self.lives.0.as_millis(), self.lives.1.as_millis());
        let life = Ttl::from_millis(shortest + chance.below(longest - shortest + 1))?;
        Ok(Write::new(self.value.clone(), Life::For(life)))
    }

    async fn call<S: TaskStore>(
        &self,
        store: &S,
        (operation, index): (Operation, u64),
        chance: &mut Chance,
    ) -> Result<bool, StoreError> {
        let index = if operation == Operation::Insert { index } else { index * self.every };
        let key = key(index);
        match operation {
            Operation::Insert => store.insert(&key, self.write(chance)?).await,
            Operation::Renew => store.swap(&key, &self.value, self.write(chance)?).await,
            Operation::Get => store.get(&key).await,
            Operation::Range => {
                let partition = Partition::new(partition(index).to_vec())?;
                let limit = PageLimit::new(self.rows)?;
                Ok(store.range(&partition, &clustering(index), limit).await? > 0)
            }
        }
    }
}

/// A write of the value that all records have by default.
pub(crate) fn plain(life: Life) -> Write {
    Write::new(Load::default().value, life)
}

/// A contestant whose callers can be told what to write.
pub(crate) trait TaskContestant: Contestant {
    /// Runs the trial with callers that write and read so much.
    fn run_with(&self, trial: Trial, load: &Load) -> Result<Ran, BoxError>;
}

/// What came out of a trial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ran {
    /// The rate, and how long calls took.
    pub(crate) measured: Measured,
    /// The longest that any caller was without an answer.
    pub(crate) longest_wait: Duration,
}

/// A store and the runtime of its callers.
#[derive(Debug)]
pub(crate) struct Tasks<S> {
    pub(super) store: S,
    pub(super) runtime: Runtime,
    next_absent: Arc<AtomicU64>,
}

impl<S: TaskStore> Tasks<S> {
    /// Opens the store within a runtime for its callers.
    pub(super) fn start(open: impl FnOnce() -> Result<S, BoxError>) -> Result<Self, BoxError> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_time().build()?;
        let store = {
            let _entered = runtime.enter();
            open()?
        };
        Ok(Self { store, runtime, next_absent: Arc::new(AtomicU64::new(FIRST_ABSENT)) })
    }

    /// Writes records in bulk; what to write is asked for once for each batch.
    pub(crate) fn load_with(
        &self,
        records: Range<u64>,
        write: impl Fn() -> Write,
    ) -> Result<(), BoxError> {
        for first in records.clone().step_by(LOAD_BATCH as usize) {
            let write = write();
            let batch = first..(first + LOAD_BATCH).min(records.end);
            let writes = batch.map(|index| (key(index), write.clone())).collect();
            let applied = self.runtime.block_on(self.store.put_batch(writes))?;
            assert!(applied, "an unfenced put is applied");
        }
        Ok(())
    }

    /// Inserts from here on, as the records before may be there from another run.
    pub(crate) fn skip_to(&self, index: u64) {
        self.next_absent.store(index, Ordering::Relaxed);
    }
}

impl<S: TaskStore> TaskContestant for Tasks<S> {
    fn run_with(&self, trial: Trial, load: &Load) -> Result<Ran, BoxError> {
        // All tasks exist before the first call.
        let (go, started) = tokio::sync::watch::channel(false);
        let start = Arc::new(OnceLock::new());
        let caller = |caller: usize| {
            let (store, absent) = (self.store.clone(), Arc::clone(&self.next_absent));
            let (mut started, start) = (started.clone(), Arc::clone(&start));
            let load = load.clone();
            self.runtime.spawn(async move {
                let mut calls = Calls::new(caller, trial);
                // Another sequence than that of the records that are called for.
                let mut chance = Chance::seeded(!(caller as u64));
                let _ = started.wait_for(|started| *started).await;
                calls.begin(&start);
                while let Some(index) = calls.next(&absent) {
                    let call = (trial.operation, index);
                    let applied = load.call(&store, call, &mut chance).await?;
                    calls.done(applied);
                    if calls.count().is_multiple_of(CALLS_IN_A_ROW) {
                        tokio::task::yield_now().await;
                    }
                }
                Ok::<_, StoreError>(calls)
            })
        };
        let tasks: Vec<_> = (0..trial.callers).map(caller).collect();
        go.send(true)?;
        let calls = self.runtime.block_on(async {
            let mut calls = Vec::with_capacity(tasks.len());
            for task in tasks {
                calls.push(task.await??);
            }
            Ok::<_, BoxError>(calls)
        })?;
        let longest_wait = Calls::longest_wait(&calls);
        Ok(Ran { measured: Calls::summary(calls)?, longest_wait })
    }
}

impl<S: TaskStore> Contestant for Tasks<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn load(&self, records: Range<u64>) -> Result<(), BoxError> {
        self.load_with(records, || plain(Life::For(long_life())))
    }

    fn run(&self, trial: Trial) -> Result<Measured, BoxError> {
        Ok(self.run_with(trial, &Load::default())?.measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_lie_between_the_shortest_and_the_longest() {
        let load = Load::living(Duration::from_millis(5), Duration::from_millis(7)).unwrap();
        let mut chance = Chance::seeded(1);
        let mut drawn = [0; 3];
        for _ in 0..100 {
            let Life::For(life) = load.write(&mut chance).unwrap().life else {
                panic!("records of a load expire");
            };
            drawn[life.as_millis() as usize - 5] += 1;
        }
        assert!(drawn.iter().all(|times| *times > 10), "{drawn:?}");
    }
}
