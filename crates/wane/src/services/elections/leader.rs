//! Leading: a handle that says for how long its owner may act, and keeps that going.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::renewal::{ReleaseError, keep};
use super::right::Right;
use super::{AppElections, Campaigned, ElectionsError, Lease, LeaseId, Renewed, Standing, Token};
use crate::clock::SharedClock;
use crate::store::{Store, StoreError};

/// The pause before a candidate asks a store again that failed.
const WAITED_OUT: Duration = Duration::from_millis(500);

/// Where a lease is kept: in a store of this process, or at a server far away.
pub trait Ballot: Debug + Send + Sync + 'static {
    /// Why a call failed.
    type Error: std::error::Error + Send + 'static;

    /// Moves the end of the lease.
    fn renew(&self, lease: &Lease) -> impl Future<Output = Result<Renewed, Self::Error>> + Send;

    /// Ends the lease, where it is still this one.
    fn resign(&self, lease: &Lease) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Why a leader is none any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// It was given up.
    Resigned,
    /// The lease had ended at the store; where the election stood then.
    Taken(Option<Standing>),
    /// No renewal succeeded in time.
    Expired {
        /// What the last one met.
        last_failure: Option<String>,
    },
}

/// The right to act as the leader, for as long as [`is_leader`](Leader::is_leader) says so.
///
/// A task renews the lease. Dropping the handle gives the right up at once and has the lease
/// released, within a quarter of its length, as long as the runtime goes on; where it does not, the
/// lease ends by itself. [`resign`](Leader::resign) waits for it.
#[derive(Debug)]
pub struct Leader {
    token: Token,
    right: Arc<Right>,
    /// Sent or dropped, it ends the task.
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<Result<(), ReleaseError>>>,
}

impl Leader {
    /// Keeps a lease that was won by a request sent at `sent` on the monotonic clock. Needs a tokio
    /// runtime.
    pub fn keep<B: Ballot>(ballot: B, lease: Lease, sent: Duration, clock: SharedClock) -> Self {
        let right = Arc::new(Right::until(sent + lease.right, clock));
        let (stop, stopped) = oneshot::channel();
        let token = lease.token;
        let task = tokio::spawn(keep(ballot, lease, sent, Arc::clone(&right), stopped));
        Self { token, right, stop: Some(stop), task: Some(task) }
    }

    /// The fencing token. Hand it to whatever the leader changes.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the owner may act now. Once `false`, it stays so.
    pub fn is_leader(&self) -> bool {
        self.right.holds()
    }

    /// When the right ends on the monotonic clock, unless it is renewed; zero once it has ended.
    pub fn deadline(&self) -> Duration {
        self.right.end()
    }

    /// What is left until then.
    pub fn remaining(&self) -> Duration {
        self.right.left()
    }

    /// Waits until the right has ended, and says why.
    pub async fn lost(&self) -> Loss {
        self.right.lost().await
    }

    /// Gives the right up, then releases the lease. The error says that the store did not confirm:
    /// the lease ends by itself.
    pub async fn resign(mut self) -> Result<(), ReleaseError> {
        self.give_up();
        let Some(task) = self.task.take() else { return Ok(()) };
        task.await.unwrap_or_else(|error| Err(ReleaseError::new(error.to_string())))
    }

    fn give_up(&mut self) {
        self.right.give_up(Loss::Resigned);
        // The task may have ended by itself, and then nobody listens.
        self.stop.take().map(|stop| stop.send(()));
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// A seat in an election of a store.
#[derive(Debug)]
struct Seat<S> {
    elections: AppElections<S>,
    name: String,
}

impl<S: Store> Ballot for Seat<S> {
    type Error = ElectionsError;

    async fn renew(&self, lease: &Lease) -> Result<Renewed, ElectionsError> {
        self.elections.renew(&self.name, lease.id, lease.token).await
    }

    async fn resign(&self, lease: &Lease) -> Result<(), ElectionsError> {
        self.elections.resign(&self.name, lease.id, lease.token).await.map(drop)
    }
}

impl<S: Store> AppElections<S> {
    /// Waits until `holder` has won the election, and keeps it.
    ///
    /// A store that does not answer, or does not know, is waited out. Dropping the future leaves
    /// the election, or a lease that ends by itself.
    pub async fn lead(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
    ) -> Result<Leader, ElectionsError> {
        // One lease for all campaigns: one that nobody confirmed is recognised by a later one.
        let id = LeaseId::draw(&*self.shared.clock);
        loop {
            match self.attend(name, holder, ttl, id).await {
                Err(
                    ElectionsError::Contended
                    | ElectionsError::Store(
                        StoreError::Unavailable { .. } | StoreError::Unknown { .. },
                    ),
                ) => self.shared.clock.sleep(WAITED_OUT).await,
                settled => return settled,
            }
        }
    }

    /// Campaigns whenever nobody holds the election.
    async fn attend(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
        id: LeaseId,
    ) -> Result<Leader, ElectionsError> {
        let mut watch = None;
        loop {
            let sent = self.shared.clock.monotonic();
            if let Campaigned::Won(lease) = self.campaign_as(name, holder, ttl, id).await? {
                let seat = Seat { elections: self.clone(), name: name.to_owned() };
                let clock = Arc::clone(&self.shared.clock);
                let leader = Leader::keep(seat, lease, sent, clock);
                // One that took longer to win than it lasts is given back.
                if leader.is_leader() {
                    return Ok(leader);
                }
            }
            if watch.is_none() {
                watch = Some(self.watch(name).await?);
            }
            if let Some(watch) = &mut watch {
                watch.vacant().await?;
            }
        }
    }
}
