//! Callers: each changes keys of its own in every way the contract knows, and all race for a few.
//!
//! Short lives, renewals, deletes and batches of records that expire at once keep the expiry index
//! and the sweep busy, so that a crash meets them at work.

use std::collections::HashMap;
use std::sync::Arc;

use wane::clock::SharedClock;
use wane::store::{Fence, Life, Outcome, Store, StoreError, Ttl, Write};

use super::Chance;
use super::ledger::{Answer, Held, Ledger, Line, Operation, Verb, store_key, value};

/// The counters that all callers increase by swap.
pub(crate) const COUNTERS: [&str; 2] = ["shared/counter-0", "shared/counter-1"];

/// The lease that all callers try to take by insert.
pub(crate) const LEASE: &str = "shared/lease";

/// How long the lease lasts.
pub(crate) const LEASE_MILLIS: u64 = 15;

/// The partition of records that come and expire in batches.
pub(crate) const CROWD: &str = "crowd";

/// Who calls, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) callers: usize,
    pub(crate) keys_each: usize,
    /// Operations of each caller.
    pub(crate) rounds: u64,
    pub(crate) seed: u64,
}

impl Workload {
    /// Lets all callers work until they are done or the store fails.
    pub(crate) async fn run<S: Store>(
        self,
        store: &Arc<S>,
        clock: &SharedClock,
        ledger: &Arc<Ledger>,
    ) {
        let callers: Vec<_> = (0..self.callers)
            .map(|number| {
                let caller = Caller {
                    number,
                    keys: (0..self.keys_each).map(|k| format!("caller-{number}/{k}")).collect(),
                    known: HashMap::new(),
                    last_number: 0,
                    chance: Chance::seeded(
                        self.seed.wrapping_mul(1_000).wrapping_add(number as u64),
                    ),
                    store: Arc::clone(store),
                    clock: Arc::clone(clock),
                    ledger: Arc::clone(ledger),
                };
                tokio::spawn(caller.work(self.rounds))
            })
            .collect();
        for caller in callers {
            caller.await.expect("a caller ends by itself");
        }
    }
}

/// The store answered that it cannot go on.
#[derive(Debug)]
struct Stopped;

#[derive(Debug)]
struct Caller<S> {
    number: usize,
    keys: Vec<String>,
    known: HashMap<String, Held>,
    last_number: u64,
    chance: Chance,
    store: Arc<S>,
    clock: SharedClock,
    ledger: Arc<Ledger>,
}

impl<S: Store> Caller<S> {
    async fn work(mut self, rounds: u64) {
        for _ in 0..rounds {
            let step = match self.chance.below(32) {
                0..=3 => self.increase_a_counter().await,
                4..=5 => self.take_the_lease().await,
                6 if self.number == 0 => self.send_a_crowd().await,
                _ => self.change_a_key().await,
            };
            if step.is_err() {
                return;
            }
        }
    }

    async fn change_a_key(&mut self) -> Result<(), Stopped> {
        let index = self.chance.below(self.keys.len() as u64) as usize;
        let key = self.keys[index].clone();
        let operation = self.draw(index, self.known.get(&key).copied());
        let current = match self.perform(&key, operation).await? {
            Answer::Applied { .. } if operation.verb == Verb::Delete => None,
            Answer::Applied { expires_at } => {
                let stamp = self.known.get(&key).map_or(0, |held| held.fence);
                let fence = if operation.verb == Verb::Swap { stamp } else { 0 };
                let fence = fence.max(operation.fence);
                Some(Held { number: operation.number, expires_at, fence })
            }
            Answer::Saw(current) => current,
            Answer::Unknown | Answer::Unavailable => return Err(Stopped),
        };
        match current {
            Some(held) => self.known.insert(key, held),
            None => self.known.remove(&key),
        };
        Ok(())
    }

    /// An operation on the key at `index`, which the caller believes to hold `known`.
    fn draw(&mut self, index: usize, known: Option<Held>) -> Operation {
        let fenced = index.is_multiple_of(2);
        let stamp = known.map_or(0, |held| held.fence);
        let fence = if fenced { stamp + self.chance.below(3) } else { 0 };
        let write = Operation {
            verb: Verb::Insert,
            expected: 0,
            number: self.next_number(),
            life: self.draw_life(),
            fence,
        };
        let Some(held) = known else {
            return match self.chance.below(8) {
                0 => Operation { verb: Verb::Get, ..write },
                1 if !fenced => Operation { verb: Verb::Put, ..write },
                _ => write,
            };
        };
        let swap = Operation { verb: Verb::Swap, expected: held.number, ..write };
        match self.chance.below(16) {
            0 => Operation { verb: Verb::Get, ..write },
            1 => write,
            2 => Operation { expected: 1, ..swap },
            3 if stamp > 1 => Operation { fence: stamp - 1, ..swap },
            4..=5 if !fenced => Operation { verb: Verb::Put, ..write },
            6..=8 => Operation { verb: Verb::Delete, ..swap },
            9 => Operation { life: Life::Keep, ..swap },
            _ => swap,
        }
    }

    fn draw_life(&self) -> Life {
        let millis = match self.chance.below(4) {
            0 => return Life::Permanent,
            1 => 1 + self.chance.below(40),
            2 => 100 + self.chance.below(1_000),
            _ => 3_600_000,
        };
        Life::For(Ttl::from_millis(millis).expect("a legal life"))
    }

    /// A number higher than any before, in this process and in those before it.
    fn next_number(&mut self) -> u64 {
        self.last_number = (self.last_number + 1).max(self.clock.now().as_unix_millis() << 10);
        self.last_number
    }

    async fn increase_a_counter(&mut self) -> Result<(), Stopped> {
        let key = COUNTERS[self.chance.below(COUNTERS.len() as u64) as usize];
        let current = match Answer::of_get(key, &self.store.get(&store_key(key)).await) {
            Answer::Saw(current) => current,
            Answer::Applied { .. } | Answer::Unknown | Answer::Unavailable => return Err(Stopped),
        };
        let expected = current.map_or(0, |held| held.number);
        let verb = if current.is_some() { Verb::Swap } else { Verb::Insert };
        let life = Life::Permanent;
        let operation = Operation { verb, expected, number: expected + 1, life, fence: 0 };
        self.perform(key, operation).await.map(drop)
    }

    async fn take_the_lease(&mut self) -> Result<(), Stopped> {
        let life = Life::For(Ttl::from_millis(LEASE_MILLIS).expect("a legal life"));
        let number = self.next_number();
        let insert = Operation { verb: Verb::Insert, expected: 0, number, life, fence: 0 };
        self.perform(LEASE, insert).await.map(drop)
    }

    /// Records by the hundred that expire together.
    async fn send_a_crowd(&mut self) -> Result<(), Stopped> {
        let number = self.next_number();
        let life = Life::For(Ttl::from_millis(1 + number % 20).expect("a legal life"));
        let row = |index| {
            let key = format!("{CROWD}/{}-{index}", number % 4);
            (store_key(&key), Write::new(value(&key, number), life))
        };
        match self.store.put_batch((0..100).map(row).collect()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Stopped),
        }
    }

    /// Does it, with a note before and after.
    async fn perform(&self, key: &str, operation: Operation) -> Result<Answer, Stopped> {
        let caller = self.number;
        let at = self.clock.now().as_unix_millis();
        self.ledger.note(&Line::Began { caller, key: key.to_owned(), at, operation });
        let answer = if operation.verb == Verb::Get {
            Answer::of_get(key, &self.store.get(&store_key(key)).await)
        } else {
            Answer::of_write(key, &self.write(key, operation).await)
        };
        let at = self.clock.now().as_unix_millis();
        self.ledger.note(&Line::Ended { caller, key: key.to_owned(), at, answer });
        match answer {
            Answer::Unknown | Answer::Unavailable => Err(Stopped),
            Answer::Applied { .. } | Answer::Saw(_) => Ok(answer),
        }
    }

    async fn write(&self, key: &str, operation: Operation) -> Result<Outcome, StoreError> {
        let Operation { verb, expected, number, life, fence } = operation;
        let at = store_key(key);
        let write = Write::new(value(key, number), life).fenced(Fence(fence));
        let expected = value(key, expected);
        match verb {
            Verb::Insert => self.store.insert_if_not_exists(&at, write).await,
            Verb::Put => self.store.put(&at, write).await,
            Verb::Swap => self.store.compare_and_swap(&at, &expected, write).await,
            Verb::Delete => self.store.compare_and_delete(&at, &expected, Fence(fence)).await,
            Verb::Get => panic!("a get is not a write"),
        }
    }
}
