//! A machine that campaigns, acts while it believes to lead, and sometimes does not know better.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use wane::clock::Clock;
use wane::services::elections::{
    Ballot, Campaigned, ElectionsError, Guard, Leader, Lease, Renewed, Token,
};
use wane::store::{Faults, Fence, Life, Store, StoreError, Value, WatchedStore, Write};

use super::world::{News, NodeElections, NodeStore, resource};
use super::{Keeping, Kind, NAME};
use crate::simulation::Dice;
use crate::simulation::machine::{Machine, true_sleep};

/// A machine that campaigns.
pub(super) struct Node {
    pub(super) machine: Machine,
    pub(super) elections: NodeElections,
    pub(super) store: WatchedStore<NodeStore>,
    pub(super) line: Line,
    pub(super) kind: Kind,
    pub(super) ttl: Duration,
    pub(super) skew: Duration,
    pub(super) dice: Mutex<Dice>,
    pub(super) post: Mutex<Option<Arc<Holding>>>,
    /// Whether it waits by the watch of the service, and not by itself.
    pub(super) leads_by_service: bool,
    pub(super) is_edgy: bool,
    pub(super) wins: Arc<AtomicU64>,
    pub(super) news: Arc<News>,
}

/// A call, ready to be carried out.
pub(super) type Request<T> = Pin<Box<dyn Future<Output = Result<T, ElectionsError>> + Send>>;

/// The way from a machine to whoever keeps the elections.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) machine: Machine,
    pub(super) faults: Faults,
    pub(super) dice: Arc<Mutex<Dice>>,
}

impl Line {
    /// Has `request` carried out at the other end, which goes on when the caller gives up.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        request: Request<T>,
    ) -> Result<T, ElectionsError> {
        let (there, back, loss) = {
            let mut dice = self.dice.lock();
            let mut way = || match dice.hits(self.faults.delay) {
                true => self.faults.longest_delay.mul_f64(dice.between(0.0, 1.0)),
                false => dice.millis(0, 3),
            };
            let (there, back) = (way(), way());
            (there, back, [self.faults.lost_request, self.faults.lost_answer].map(|p| dice.hits(p)))
        };
        let [lost, unheard] = loss;
        let gone = || StoreError::Unknown { backend: "line", source: "lost".into() };
        // Once sent it is out of the sender's hands, who may have given up when it arrives.
        let sent = tokio::spawn(async move {
            true_sleep(there).await;
            if lost { Err(gone().into()) } else { request.await }
        });
        let answer = sent.await.expect("no panic");
        self.machine.sleep(back).await;
        if unheard { Err(gone().into()) } else { answer }
    }
}

/// A lease that a machine believes in.
#[derive(Debug)]
pub(super) enum Holding {
    Kept(Leader),
    Naive { leads: Arc<AtomicBool>, token: Token },
}

impl Holding {
    pub(super) fn is_leader(&self) -> bool {
        match self {
            Self::Kept(leader) => leader.is_leader(),
            Self::Naive { leads, .. } => leads.load(Ordering::Relaxed),
        }
    }

    pub(super) fn token(&self) -> Token {
        match self {
            Self::Kept(leader) => leader.token(),
            Self::Naive { token, .. } => *token,
        }
    }

    pub(super) async fn lost(&self, machine: &Machine) {
        match self {
            Self::Kept(leader) => drop(leader.lost().await),
            Self::Naive { .. } => {
                while self.is_leader() {
                    machine.sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}

/// Asks for one machine, as its leader's task does.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) elections: NodeElections,
    pub(super) line: Line,
    pub(super) keeping: Keeping,
    /// What the rules of the elections count with.
    pub(super) skew: Duration,
}

impl Seat {
    fn believed(&self, lease: &Lease) -> Lease {
        let more = match self.keeping {
            Keeping::Right | Keeping::WaitingForHungCalls => Duration::ZERO,
            Keeping::WithoutMargin => lease.ttl - lease.right,
            Keeping::WithoutDrift => lease.ttl / 8,
            Keeping::WithoutSkew => self.skew * 2,
            Keeping::WithHalfSkew => self.skew,
        };
        Lease { right: lease.right + more, ..lease.clone() }
    }
}

impl Ballot for Seat {
    type Error = ElectionsError;

    async fn renew(&self, lease: &Lease) -> Result<Renewed, ElectionsError> {
        let (elections, id, token) = (self.elections.clone(), lease.id, lease.token);
        let request = Box::pin(async move { elections.renew(NAME, id, token).await });
        Ok(match self.line.call(request).await? {
            Renewed::Renewed(lease) => Renewed::Renewed(self.believed(&lease)),
            lost @ Renewed::Lost(_) => lost,
        })
    }

    async fn resign(&self, lease: &Lease) -> Result<(), ElectionsError> {
        let (elections, id, token) = (self.elections.clone(), lease.id, lease.token);
        let request = Box::pin(async move { elections.resign(NAME, id, token).await });
        self.line.call(request).await.map(drop)
    }
}

impl Node {
    pub(super) async fn live(self: Arc<Self>) {
        loop {
            let holding = Arc::new(self.win().await);
            self.wins.fetch_add(1, Ordering::Relaxed);
            *self.post.lock() = Some(Arc::clone(&holding));
            self.news.begun.notify_one();
            self.act(&holding).await;
            if let Holding::Naive { leads, .. } = &*holding {
                leads.store(false, Ordering::Relaxed);
            }
            // Dropped, it resigns.
            *self.post.lock() = None;
        }
    }

    async fn win(&self) -> Holding {
        if self.leads_by_service && self.kind.keeping == Keeping::Right {
            let leader = self.elections.lead(NAME, "same name", self.ttl).await;
            return Holding::Kept(leader.expect("only what passes fails here"));
        }
        loop {
            let sent = self.machine.monotonic();
            let (elections, ttl) = (self.elections.clone(), self.ttl);
            let request = Box::pin(async move { elections.campaign(NAME, "same name", ttl).await });
            let pause = match self.line.call(request).await {
                Ok(Campaigned::Won(lease)) => return self.keep(lease, sent),
                Ok(Campaigned::Held(standing)) => standing.remaining.min(self.ttl / 4),
                Err(_) => self.ttl / 8,
            };
            let jitter = if self.is_edgy { 2 } else { 100 };
            let jitter = self.dice.lock().millis(1, jitter);
            self.machine.sleep(pause + jitter).await;
        }
    }

    fn keep(&self, lease: Lease, sent: Duration) -> Holding {
        let keeping = self.kind.keeping;
        let (elections, line) = (self.elections.clone(), self.line.clone());
        let seat = Seat { elections, line, keeping, skew: self.skew };
        if keeping == Keeping::WaitingForHungCalls {
            let (leads, token) = (Arc::new(AtomicBool::new(true)), lease.token);
            tokio::spawn(keep_naively(seat, lease, sent, Arc::clone(&leads)));
            return Holding::Naive { leads, token };
        }
        let lease = seat.believed(&lease);
        Holding::Kept(Leader::keep(seat, lease, sent, self.machine.clock()))
    }

    /// Writes now and then, until the lease is lost or it is enough.
    async fn act(&self, holding: &Holding) {
        loop {
            let pause = self.dice.lock().millis(20, 400);
            tokio::select! {
                biased;
                () = holding.lost(&self.machine) => {}
                () = self.machine.sleep(pause) => {}
            }
            let (wakes_late, is_enough) = {
                let mut dice = self.dice.lock();
                (dice.hits(0.2), dice.hits(0.03))
            };
            // One that was paused right after it had looked goes on all the same.
            if holding.is_leader() || wakes_late {
                self.write(holding.token()).await;
            }
            if is_enough || !holding.is_leader() {
                return;
            }
        }
    }

    /// Writes the token to the record that the leader looks after.
    async fn write(&self, token: Token) {
        let (elections, store) = (self.elections.clone(), self.store.clone());
        let (kind, machine, news) = (self.kind, self.machine.clone(), Arc::clone(&self.news));
        let stall = self.dice.lock().millis(0, 300);
        let request = Box::pin(async move {
            let attempt = news.attempts.fetch_add(1, Ordering::Relaxed);
            if token.get() < news.newest_token.load(Ordering::Relaxed) {
                news.doomed.lock().insert(attempt);
            }
            let guard = Guard { election: NAME.into(), token };
            let fence = match kind.checked {
                true => elections.fence(&guard).await?,
                false => Fence(token.get()),
            };
            machine.sleep(stall).await;
            let value = format!(r#"{{"token":{token},"attempt":{attempt}}}"#);
            let fence = if kind.fenced { fence } else { Fence::NONE };
            let write = Write::new(Value::new(value)?, Life::Permanent).fenced(fence);
            Ok(store.put(&resource(), write).await?)
        });
        // Refused, lost or unknown: the watch over the record tells what became of it.
        drop(self.line.call(request).await);
    }
}

/// A holder that looks at the clock only when its call has come back.
pub(super) async fn keep_naively(
    seat: Seat,
    lease: Lease,
    mut sent: Duration,
    leads: Arc<AtomicBool>,
) {
    let machine = seat.line.machine.clone();
    while leads.load(Ordering::Relaxed) {
        machine.sleep(lease.ttl / 4).await;
        let asked = machine.monotonic();
        match seat.renew(&lease).await {
            Ok(Renewed::Renewed(_)) => sent = asked,
            Ok(Renewed::Lost(_)) => leads.store(false, Ordering::Relaxed),
            Err(_) if machine.monotonic() < sent + lease.right => {}
            Err(_) => leads.store(false, Ordering::Relaxed),
        }
    }
}
