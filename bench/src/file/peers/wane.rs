//! Wane's own file store, called by tasks on a runtime of two threads.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ::wane::clock::SystemClock;
use ::wane::store::{ClusteringRange, Life, PageLimit, Partition, Store, StoreError, Value, Write};
use tokio::runtime::{Builder, Runtime};
use wane_backends::file::FileStore;

use super::LOAD_BATCH;
use crate::BoxError;
use crate::file::contest::{Calls, Contestant, FIRST_ABSENT, Operation, RANGE_ROWS, Trial};
use crate::measured::Measured;
use crate::workload::{VALUE, clustering, key, long_life, partition};

/// A task lets the others on after so many calls that did not wait: reads never do, and a task
/// that does not wait keeps its thread.
const CALLS_IN_A_ROW: u64 = 32;

/// A file store and the runtime of its callers.
#[derive(Debug)]
pub(crate) struct WaneFile {
    store: FileStore,
    runtime: Runtime,
    next_absent: Arc<AtomicU64>,
}

impl WaneFile {
    /// Opens the store in the directory, or creates it.
    pub(crate) fn open(directory: &Path) -> Result<Self, BoxError> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_time().build()?;
        let store = {
            let _entered = runtime.enter();
            FileStore::open_or_create(directory, SystemClock::shared())?
        };
        Ok(Self { store, runtime, next_absent: Arc::new(AtomicU64::new(FIRST_ABSENT)) })
    }

    /// Writes records of this life in bulk; the life is asked for once for each batch.
    pub(crate) fn load_with(
        &self,
        records: Range<u64>,
        life: impl Fn() -> Life,
    ) -> Result<(), BoxError> {
        for first in records.clone().step_by(LOAD_BATCH as usize) {
            let life = life();
            let batch = first..(first + LOAD_BATCH).min(records.end);
            let writes = batch.map(|index| Ok((key(index), write(life)?)));
            let writes = writes.collect::<Result<Vec<_>, StoreError>>()?;
            for outcome in self.runtime.block_on(self.store.put_batch(writes))? {
                assert!(outcome.is_applied(), "an unfenced put is applied");
            }
        }
        Ok(())
    }

    /// Records in the file, removed or not yet.
    pub(crate) fn stored_records(&self) -> Result<u64, BoxError> {
        Ok(self.runtime.block_on(self.store.stored_records())?)
    }

    /// Inserts from here on, as the records before may be there from another run.
    pub(crate) fn skip_to(&self, index: u64) {
        self.next_absent.store(index, Ordering::Relaxed);
    }
}

fn write(life: Life) -> Result<Write, StoreError> {
    Ok(Write::new(Value::copy_from_slice(VALUE)?, life))
}

async fn call(store: &FileStore, operation: Operation, index: u64) -> Result<bool, StoreError> {
    let life = Life::For(long_life());
    let key = key(index);
    match operation {
        Operation::Insert => Ok(store.insert_if_not_exists(&key, write(life)?).await?.is_applied()),
        Operation::Renew => {
            Ok(store.compare_and_swap(&key, VALUE, write(life)?).await?.is_applied())
        }
        Operation::Get => Ok(std::hint::black_box(store.get(&key).await?).is_some()),
        Operation::Range => {
            let partition = Partition::new(partition(index).to_vec())?;
            let range = ClusteringRange::ALL.starting_at(clustering(index).to_vec());
            let page = store.read(&partition, &range, PageLimit::new(RANGE_ROWS)?).await?;
            Ok(!page.rows.is_empty())
        }
    }
}

impl Contestant for WaneFile {
    fn name(&self) -> &'static str {
        "wane"
    }

    fn load(&self, records: Range<u64>) -> Result<(), BoxError> {
        self.load_with(records, || Life::For(long_life()))
    }

    fn run(&self, trial: Trial) -> Result<Measured, BoxError> {
        // All tasks exist before the first call.
        let (go, started) = tokio::sync::watch::channel(false);
        let start = Arc::new(OnceLock::new());
        let caller = |caller: usize| {
            let (store, absent) = (self.store.clone(), Arc::clone(&self.next_absent));
            let (mut started, start) = (started.clone(), Arc::clone(&start));
            self.runtime.spawn(async move {
                let mut calls = Calls::new(caller, trial);
                let _ = started.wait_for(|started| *started).await;
                calls.begin(&start);
                while let Some(index) = calls.next(&absent) {
                    let applied = call(&store, trial.operation, index).await?;
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
        Calls::summary(calls)
    }
}
