//! The renewing task: keeps a lease until it is lost or given up, then releases it.
//!
//! A renewal is sent each quarter of the lease and has as long to be answered; after a failure the
//! next follows sooner. The right is counted from the sending of the last one that succeeded, and
//! its end is waited for beside every call: one that hangs moves nothing.
//!
//! Invariant: the right has ended before the release is sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::leader::{Ballot, Loss};
use super::right::Right;
use super::{Lease, Renewed};

/// A renewal is sent each of this many parts of a lease, and may take as long.
const RENEWALS: u32 = 4;

/// The pause after a failed one, in parts of a lease.
const RETRIES: u32 = 16;

/// Keeps `lease` until `stop` is sent or dropped, or the right has ended. Returns whether the lease
/// was released at the end.
pub(super) async fn keep<B: Ballot>(
    ballot: B,
    lease: Lease,
    right: Arc<Right>,
    mut stop: oneshot::Receiver<()>,
) -> Result<(), ReleaseError> {
    tokio::select! {
        biased;
        _ = &mut stop => right.give_up(Loss::Resigned),
        _ = right.lost() => {}
        () = renew(&ballot, &lease, &right) => {}
    }
    release(&ballot, &lease, &right).await
}

/// Renews until the lease is in other hands. Whoever calls this ends it when the right does.
async fn renew<B: Ballot>(ballot: &B, lease: &Lease, right: &Right) {
    let clock = &right.clock;
    let mut pause = lease.ttl / RENEWALS;
    loop {
        clock.sleep(pause).await;
        let sent = clock.monotonic();
        let answer = tokio::select! {
            biased;
            answer = ballot.renew(lease) => answer.map_err(|error| error.to_string()),
            () = clock.sleep(lease.ttl / RENEWALS) => Err("no answer in time".to_owned()),
        };
        pause = lease.ttl / RETRIES;
        match answer {
            Ok(Renewed::Renewed(renewed)) if right.extend(sent + renewed.right) => {
                pause = lease.ttl / RENEWALS;
            }
            // Too late: the end has come, and it stays.
            Ok(Renewed::Renewed(_)) => return,
            Ok(Renewed::Lost(standing)) => return right.give_up(Loss::Taken(standing)),
            Err(failure) => right.note(failure),
        }
    }
}

/// Why a lease was not released. It ends by itself.
#[derive(Debug, thiserror::Error)]
#[error("the lease was not released and ends by itself: {reason}")]
pub struct ReleaseError {
    reason: String,
}

impl ReleaseError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

async fn release<B: Ballot>(ballot: &B, lease: &Lease, right: &Right) -> Result<(), ReleaseError> {
    debug_assert!(!right.holds(), "the right ends before the release is sent");
    let bound: Duration = lease.ttl / RENEWALS;
    tokio::select! {
        biased;
        answer = ballot.resign(lease) => answer.map_err(|error| ReleaseError::new(error.to_string())),
        () = right.clock.sleep(bound) => Err(ReleaseError::new("no answer in time")),
    }
}
