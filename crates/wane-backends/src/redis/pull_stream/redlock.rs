//! [`Redlock`]: a lock that a majority of independent masters has to agree on.
//!
//! Each master is asked to keep a random value under `cursor:advance:{ispb}`, if there is none, for
//! two seconds. Whoever has a majority in time holds the lock for what is left of them, less what
//! clocks may drift; everybody else gives back what it has and tries again after a random pause. A
//! value is removed by whoever drew it, and by nobody else.
//!
//! It is a lock for convenience: masters that are flushed give it to two, and the swap of the record
//! refuses one of them.
//!
//! Invariants:
//! - A value that may be on a master is taken off it when the lock is given back, after the master
//!   has answered: each master has a task of its own for that, which ends by itself.
//! - A master that does not answer is left alone for a second. Without a majority the lock is not to
//!   be had, and nobody waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Value as Reply, cmd};
use tokio::sync::{Semaphore, mpsc, watch};
use wane::clock::SharedClock;
use wane::services::pull_stream::{AdvanceGuard, AdvanceLock, Ispb, LockFuture};

use crate::OpenError;
use crate::redis::link::Link;

const RELEASE: &str = include_str!("../lua/release.lua");

/// How many masters there are.
const MASTERS: usize = 3;

/// A majority of them.
const QUORUM: usize = MASTERS / 2 + 1;

/// How long a value is kept.
const LIFE: Duration = Duration::from_secs(2);

/// How much of that the clocks of the masters may be off: a hundredth, and what they round.
const DRIFT: Duration = Duration::from_millis(22);

/// How long masters are waited for in one try.
const ANSWERS: Duration = Duration::from_millis(40);

/// The longest pause before the next try.
const PAUSE: Duration = Duration::from_millis(8);

/// How long a master is left alone that did not answer.
const LEFT_ALONE: Duration = Duration::from_secs(1);

/// Tries that one master may have open at a time.
const OPEN: usize = 256;

/// A lock over three masters.
#[derive(Debug)]
pub struct Redlock {
    masters: [Arc<Master>; MASTERS],
    clock: SharedClock,
    held: AtomicU64,
    away: AtomicU64,
    tries: AtomicU64,
}

/// How often the lock was asked for, by what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockCounts {
    /// It was held.
    pub held: u64,
    /// Too few masters answered.
    pub away: u64,
    /// Tries, of which one call may need several.
    pub tries: u64,
}

#[derive(Debug)]
struct Master {
    link: Link,
    turns: Arc<Semaphore>,
    /// Until when it is left alone, of the monotonic clock.
    alone_until: Mutex<Duration>,
}

/// What a master said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vote {
    Yes,
    No,
    /// Nothing, or nothing that counts.
    None,
}

impl Redlock {
    /// A lock over the servers that these URLs name, of which no two may be one. They need not be
    /// there yet.
    pub fn new(urls: [&str; MASTERS], clock: SharedClock) -> Result<Self, OpenError> {
        let master = |url: &str| -> Result<Arc<Master>, OpenError> {
            let (turns, alone_until) = (Arc::new(Semaphore::new(OPEN)), Mutex::default());
            Ok(Arc::new(Master { link: super::server(url)?, turns, alone_until }))
        };
        let [one, two, three] = urls;
        let masters = [master(one)?, master(two)?, master(three)?];
        let [one, two, three] = [0, 1, 2].map(|number| masters[number].link.address());
        if one == two || one == three || two == three {
            let reason = "two of the masters are one; a majority is to be of three".to_owned();
            return Err(OpenError::BadUrl { backend: "redis", reason });
        }
        let (held, away, tries) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { masters, clock, held, away, tries })
    }

    /// What came of asking so far.
    #[must_use]
    pub fn counts(&self) -> LockCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LockCounts { held: read(&self.held), away: read(&self.away), tries: read(&self.tries) }
    }

    async fn locked(&self, ispb: Ispb) -> Option<AdvanceGuard> {
        let key = format!("cursor:advance:{ispb}");
        loop {
            match self.tried(&key).await {
                Tried::Held(guard) => {
                    self.held.fetch_add(1, Ordering::Relaxed);
                    return Some(guard);
                }
                Tried::Away => {
                    self.away.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
                Tried::Taken => {
                    let part = self.clock.random_u64() % 1_000;
                    self.clock.sleep(PAUSE.mul_f64(part as f64 / 1_000.0)).await;
                }
            }
        }
    }

    /// Asks all masters once.
    async fn tried(&self, key: &str) -> Tried {
        self.tries.fetch_add(1, Ordering::Relaxed);
        let began = self.clock.monotonic();
        let value = format!("{:016x}{:016x}", self.clock.random_u64(), self.clock.random_u64());
        // Dropped, it has every master give back what it has.
        let (holding, held) = watch::channel(());
        let (vote, mut votes) = mpsc::channel(MASTERS);
        for master in &self.masters {
            let asked = Asked {
                master: Arc::clone(master),
                clock: SharedClock::clone(&self.clock),
                key: key.to_owned(),
                value: value.clone(),
            };
            asked.begin(vote.clone(), held.clone());
        }
        drop((vote, held));
        let (mut yes, mut no) = (0, 0);
        let counted = async {
            while yes < QUORUM
                && let Some(vote) = votes.recv().await
            {
                yes += usize::from(vote == Vote::Yes);
                no += usize::from(vote == Vote::No);
            }
        };
        tokio::select! {
            biased;
            () = counted => {}
            () = self.clock.sleep(ANSWERS) => {}
        }
        let taken = self.clock.monotonic() - began;
        if yes >= QUORUM && taken + DRIFT < LIFE {
            return Tried::Held(AdvanceGuard::new(holding));
        }
        if yes + no < QUORUM { Tried::Away } else { Tried::Taken }
    }
}

enum Tried {
    Held(AdvanceGuard),
    /// Somebody else has it, or nobody has a majority.
    Taken,
    Away,
}

impl AdvanceLock for Redlock {
    fn acquire(&self, ispb: Ispb) -> LockFuture<'_> {
        Box::pin(self.locked(ispb))
    }
}

/// One master, asked for one try.
struct Asked {
    master: Arc<Master>,
    clock: SharedClock,
    key: String,
    value: String,
}

impl Asked {
    /// Asks beside the caller, who may not wait so long, and gives back when nobody holds any more.
    fn begin(self, vote: mpsc::Sender<Vote>, mut held: watch::Receiver<()>) {
        let is_alone = self.clock.monotonic() < *self.master.alone_until.lock();
        let turn = Arc::clone(&self.master.turns).try_acquire_owned();
        let (false, Ok(turn)) = (is_alone, turn) else { return };
        tokio::spawn(async move {
            let answer = self.ask().await;
            // Whoever has stopped counting does not hear it.
            let _ = vote.send(answer).await;
            drop(vote);
            if answer != Vote::No {
                // Nothing is ever sent: it ends with its sender.
                drop(held.changed().await);
                self.give_back().await;
            }
            drop(turn);
        });
    }

    async fn ask(&self) -> Vote {
        let mut set = cmd("SET");
        set.arg(&self.key).arg(&self.value).arg("NX").arg("PX").arg(LIFE.as_millis() as u64);
        match self.master.link.request(&set).await {
            Ok(Reply::Okay) => Vote::Yes,
            Ok(_) => Vote::No,
            Err(_) => {
                *self.master.alone_until.lock() = self.clock.monotonic() + LEFT_ALONE;
                Vote::None
            }
        }
    }

    async fn give_back(&self) {
        let mut release = cmd("EVAL");
        release.arg(RELEASE).arg(1).arg(&self.key).arg(&self.value);
        if self.master.link.request(&release).await.is_err() {
            // It ends by itself.
            *self.master.alone_until.lock() = self.clock.monotonic() + LEFT_ALONE;
        }
    }
}
