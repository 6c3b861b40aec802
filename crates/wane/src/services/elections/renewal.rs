//! The renewing task: keeps a lease until it is lost or given up, then releases it.
//!
//! A renewal follows the last one that succeeded by a quarter of the lease, or by a third of the
//! right where that is shorter, and has half of what is left of the right to be answered; after a
//! failure the next follows sooner. The right is counted from the sending of the last one that
//! succeeded, and its end is waited for beside every call: one that hangs moves nothing.
//!
//! Invariant: the right has ended before the release is sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::leader::{Ballot, Loss};
use super::right::Right;
use super::{Lease, Renewed};

/// A renewal is sent each of this many parts of a lease.
const RENEWALS: u32 = 4;

/// A renewal is sent at least each of this many parts of a right.
const RENEWALS_OF_RIGHT: u32 = 3;

/// The pause after a failed one, in parts of a lease.
const RETRIES: u32 = 16;

/// Keeps `lease` until `stop` is sent or dropped, or the right has ended. Returns whether the lease
/// was released at the end.
pub(super) async fn keep<B: Ballot>(
    ballot: B,
    lease: Lease,
    sent: Duration,
    right: Arc<Right>,
    mut stop: oneshot::Receiver<()>,
) -> Result<(), ReleaseError> {
    tokio::select! {
        biased;
        _ = &mut stop => right.give_up(Loss::Resigned),
        _ = right.lost() => {}
        () = renew(&ballot, &lease, sent, &right) => {}
    }
    release(&ballot, &lease, &right).await
}

/// Renews until the lease is in other hands; the last success was sent at `sent`. Whoever calls this
/// ends it when the right does.
async fn renew<B: Ballot>(ballot: &B, lease: &Lease, mut sent: Duration, right: &Right) {
    let clock = &right.clock;
    let rhythm = (lease.ttl / RENEWALS).min(lease.right / RENEWALS_OF_RIGHT);
    loop {
        clock.sleep((sent + rhythm).saturating_sub(clock.monotonic())).await;
        while let Err(failure) = attempt(ballot, lease, &mut sent, right).await {
            right.note(failure);
            clock.sleep(lease.ttl / RETRIES).await;
        }
        if !right.holds() {
            return;
        }
    }
}

/// Sends one renewal. An error is worth another one.
async fn attempt<B: Ballot>(
    ballot: &B,
    lease: &Lease,
    sent: &mut Duration,
    right: &Right,
) -> Result<(), String> {
    let asked = right.clock.monotonic();
    let answer = tokio::select! {
        biased;
        answer = ballot.renew(lease) => answer.map_err(|error| error.to_string())?,
        () = right.clock.sleep(right.left() / 2) => return Err("no answer in time".to_owned()),
    };
    match answer {
        // Where the end has come meanwhile, it stays.
        Renewed::Renewed(renewed) if right.extend(asked + renewed.right) => *sent = asked,
        Renewed::Renewed(_) => {}
        Renewed::Lost(standing) => right.give_up(Loss::Taken(standing)),
    }
    Ok(())
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
