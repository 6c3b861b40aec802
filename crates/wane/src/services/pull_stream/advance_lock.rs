//! Locks around the rounds of an institution: nodes that wait for each other instead of overtaking
//! each other.
//!
//! A lock decides nothing. The swap of the record does, with and without it: a round that is not
//! given the lock in time goes on, and one that believes to have it while another does too has its
//! swap refused. What a lock can change is how often nodes plan in vain, and how long a call takes.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use super::Ispb;

/// How long a round waits for its lock.
pub(super) const LOCK_WAIT: Duration = Duration::from_millis(100);

/// What a lock answers, later: `None` where it is not to be had.
pub type LockFuture<'a> = Pin<Box<dyn Future<Output = Option<AdvanceGuard>> + Send + 'a>>;

/// A lock that is held until this is dropped, or until it ends by itself.
pub struct AdvanceGuard(#[expect(dead_code, reason = "dropped with it")] Box<dyn Any + Send>);

impl AdvanceGuard {
    /// Holds what gives the lock back when it is dropped.
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for AdvanceGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdvanceGuard(..)")
    }
}

/// A lock for each institution, which nodes share.
///
/// - **Bounded.** It is waited for a tenth of a second at most, then the future is dropped, which
///   gives back whatever it has.
/// - **Of no consequence.** Nobody relies on it.
pub trait AdvanceLock: fmt::Debug + Send + Sync + 'static {
    /// Waits for the lock of an institution, or says that it is not to be had.
    fn acquire(&self, ispb: Ispb) -> LockFuture<'_>;
}
