//! Callers at work who keep account of what they were told, while servers die and come back.
//!
//! Each caller has keys of its own and writes values that never repeat, each over the one before.
//! So a key holds what was acknowledged last, or what a later write would have put there whose
//! answer was unclear; anything else is an acknowledged write that was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use wane::clock::SharedClock;
use wane::store::{Key, Life, Outcome, Store, StoreError, Value, Write};

/// How long callers may take to get something acknowledged.
const PATIENCE: Duration = Duration::from_secs(60);

/// The keys of one caller.
const KEYS: usize = 8;

/// Callers at work.
pub(crate) struct Load {
    callers: JoinSet<Account>,
    shared: Arc<Shared>,
    clock: SharedClock,
}

#[derive(Debug, Default)]
struct Shared {
    done: AtomicBool,
    stopped: AtomicBool,
    acknowledged: AtomicU64,
    unclear: AtomicU64,
}

impl Load {
    /// Sets `callers` to work.
    pub(crate) fn begin<S: Store>(store: &Arc<S>, clock: &SharedClock, callers: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let mut load =
            Self { callers: JoinSet::new(), shared: Arc::clone(&shared), clock: Arc::clone(clock) };
        for number in 0..callers {
            let account =
                Account { caller: number, keys: Default::default(), next: 0, wrong: None };
            let (store, clock) = (Arc::clone(store), Arc::clone(clock));
            load.callers.spawn(account.work(store, clock, Arc::clone(&shared)));
        }
        load
    }

    /// Waits until this many more writes were acknowledged, and returns how long that took. Ends
    /// early once a caller has found something wrong.
    pub(crate) async fn goes_on(&self, writes: u64) -> Duration {
        let began = self.clock.monotonic();
        let goal = self.shared.acknowledged.load(Ordering::SeqCst) + writes;
        let has_reached = || self.shared.acknowledged.load(Ordering::SeqCst) >= goal;
        self.reaches(has_reached, "callers come to nothing").await;
        self.clock.monotonic() - began
    }

    /// Waits until so many answers were unclear or missing, or a caller has found something wrong.
    pub(crate) async fn has_unclear(&self, answers: u64) {
        let has_reached = || self.unclear() >= answers;
        self.reaches(has_reached, "nobody notices that the server is gone").await;
    }

    async fn reaches(&self, has_reached: impl Fn() -> bool, otherwise: &str) {
        let reached = async {
            while !has_reached() && !self.has_stopped() {
                self.clock.sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(PATIENCE, reached).await.is_ok(), "{otherwise}");
    }

    /// How many answers were unclear or missing so far.
    pub(crate) fn unclear(&self) -> u64 {
        self.shared.unclear.load(Ordering::SeqCst)
    }

    /// Whether a caller has found something wrong and stopped.
    pub(crate) fn has_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::SeqCst)
    }

    /// Ends the work and compares every account with what `store` holds. Returns how many writes
    /// were acknowledged, or what is wrong.
    pub(crate) async fn settle<S: Store>(mut self, store: &S) -> Result<u64, String> {
        self.shared.done.store(true, Ordering::SeqCst);
        while let Some(account) = self.callers.join_next().await {
            account.expect("a caller ends by itself").check(store).await?;
        }
        Ok(self.shared.acknowledged.load(Ordering::SeqCst))
    }
}

/// What a caller was told about its keys.
#[derive(Debug)]
struct Account {
    caller: usize,
    keys: [Told; KEYS],
    next: u64,
    wrong: Option<String>,
}

#[derive(Debug, Default)]
struct Told {
    acknowledged: Option<String>,
    /// Unclear writes since then.
    possible: Vec<String>,
}

impl Told {
    fn allows(&self, found: Option<&str>) -> bool {
        self.acknowledged.as_deref() == found
            || self.possible.iter().any(|value| Some(value.as_str()) == found)
    }
}

impl Account {
    fn key(&self, index: usize) -> Key {
        let name = format!("load {} {index}", self.caller);
        Key::new(name.as_bytes(), b"").expect("a short partition")
    }

    async fn work<S: Store>(
        mut self,
        store: Arc<S>,
        clock: SharedClock,
        shared: Arc<Shared>,
    ) -> Self {
        while self.wrong.is_none() && !shared.done.load(Ordering::SeqCst) {
            let index = self.next as usize % KEYS;
            match self.write(&*store, index).await {
                Ok(true) => drop(shared.acknowledged.fetch_add(1, Ordering::SeqCst)),
                Ok(false) => {}
                Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) => {
                    shared.unclear.fetch_add(1, Ordering::SeqCst);
                    clock.sleep(Duration::from_millis(10)).await;
                }
                Err(error) => self.wrong = Some(format!("a sound store failed: {error}")),
            }
        }
        shared.stopped.fetch_or(self.wrong.is_some(), Ordering::SeqCst);
        self
    }

    /// Writes the next value over the one before. True where that was acknowledged.
    async fn write<S: Store>(&mut self, store: &S, index: usize) -> Result<bool, StoreError> {
        let key = self.key(index);
        let found = store.get(&key).await?;
        let found = found.map(|record| String::from_utf8_lossy(&record.value).into_owned());
        self.note_found(index, found.as_deref());
        self.next += 1;
        let value = format!("{} {}", self.caller, self.next);
        let write = Write::new(Value::new(value.clone())?, Life::Permanent);
        let answer = match &found {
            Some(found) => store.compare_and_swap(&key, found.as_bytes(), write).await,
            None => store.insert_if_not_exists(&key, write).await,
        };
        match &answer {
            Ok(Outcome::Applied { .. }) => {
                self.keys[index] = Told { acknowledged: Some(value), possible: Vec::new() };
            }
            Err(StoreError::Unknown { .. }) => self.keys[index].possible.push(value),
            // What was unclear may have arrived since the look.
            Ok(Outcome::Refused { .. }) | Err(_) => {}
        }
        Ok(answer?.is_applied())
    }

    fn note_found(&mut self, index: usize, found: Option<&str>) {
        let told = &self.keys[index];
        if !told.allows(found) && self.wrong.is_none() {
            self.wrong = Some(format!("{:?} holds {found:?} after {told:?}", self.key(index)));
        }
    }

    async fn check<S: Store>(mut self, store: &S) -> Result<(), String> {
        for index in 0..KEYS {
            let found = store.get(&self.key(index)).await.map_err(|error| error.to_string())?;
            let found = found.map(|record| String::from_utf8_lossy(&record.value).into_owned());
            self.note_found(index, found.as_deref());
        }
        self.wrong.map_or(Ok(()), Err)
    }
}
