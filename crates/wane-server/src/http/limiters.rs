//! Limits of each application: requests a second, requests under way, and watches.
//!
//! A limiter is made when an application first calls and again when its limits change. The rate
//! allows a burst of one second's worth. A request is under way until its answer was taken; a watch,
//! whose answer has no end, has a limit of its own.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wane::services::ClusterAppId;
use wane::services::apps::App;

use super::problem::Problem;

/// Watches that one application may have at once.
const WATCHES: usize = 256;

/// What a request is counted among while it is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// Requests, which are over soon.
    Requests,
    /// Transfers of BLOBs, which last as long as the other end is slow. They have as many places of
    /// their own: slow ones leave those of requests alone.
    Transfers,
}

/// The limiters of all applications.
#[derive(Debug, Default)]
pub(crate) struct Limiters {
    by_app: Mutex<HashMap<ClusterAppId, Arc<Limiter>>>,
}

#[derive(Debug)]
struct Limiter {
    requests_per_second: u32,
    in_flight: u32,
    rate: DefaultDirectRateLimiter,
    under_way: Arc<Semaphore>,
    transfers: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

/// A request that was let in, until its answer was taken.
#[derive(Debug)]
pub(super) struct Admitted {
    _under_way: OwnedSemaphorePermit,
}

/// A watch that was let in, until it ends.
#[derive(Debug)]
pub(super) struct Watching {
    _one: OwnedSemaphorePermit,
}

impl Limiters {
    /// Lets a request in, or says when to try again.
    pub(super) fn admit(&self, app: &App, counted: Counted) -> Result<Admitted, Problem> {
        let limiter = self.limiter(app);
        if let Err(until) = limiter.rate.check() {
            let wait = until.wait_time_from(DefaultClock::default().now());
            let detail =
                format!("the app may make {} requests a second", limiter.requests_per_second);
            return Err(Problem::limited(detail, wait.as_secs() + 1));
        }
        let (places, what) = match counted {
            Counted::Requests => (&limiter.under_way, "requests"),
            Counted::Transfers => (&limiter.transfers, "transfers"),
        };
        let under_way = Arc::clone(places).try_acquire_owned().map_err(|_| {
            let detail = format!("the app has {} {what} under way", limiter.in_flight);
            Problem::limited(detail, 1)
        })?;
        Ok(Admitted { _under_way: under_way })
    }

    /// Lets one more watch in, or says to try again.
    pub(super) fn admit_watch(&self, app: &App) -> Result<Watching, Problem> {
        let watches = Arc::clone(&self.limiter(app).watches);
        let one = watches.try_acquire_owned().map_err(|_| {
            Problem::limited(format!("the app has {WATCHES} watches; end one first"), 1)
        })?;
        Ok(Watching { _one: one })
    }

    fn limiter(&self, app: &App) -> Arc<Limiter> {
        let mut by_app = self.by_app.lock();
        let known = by_app.get(&app.id).map(Arc::clone);
        if let Some(limiter) = known.as_ref().filter(|limiter| limiter.fits(app)) {
            return Arc::clone(limiter);
        }
        // Watches outlive a change of limits, and so does their count.
        let watches = known.map(|limiter| Arc::clone(&limiter.watches));
        let watches = watches.unwrap_or_else(|| Arc::new(Semaphore::new(WATCHES)));
        let limiter = Arc::new(Limiter::of(app, watches));
        by_app.insert(app.id, Arc::clone(&limiter));
        limiter
    }
}

impl Limiter {
    fn of(app: &App, watches: Arc<Semaphore>) -> Self {
        let (requests_per_second, in_flight) =
            (app.limits.requests_per_second(), app.limits.in_flight());
        let rate = NonZeroU32::new(requests_per_second).unwrap_or(NonZeroU32::MIN);
        Self {
            requests_per_second,
            in_flight,
            rate: RateLimiter::direct(Quota::per_second(rate)),
            under_way: Arc::new(Semaphore::new(in_flight as usize)),
            transfers: Arc::new(Semaphore::new(in_flight as usize)),
            watches,
        }
    }

    fn fits(&self, app: &App) -> bool {
        self.requests_per_second == app.limits.requests_per_second()
            && self.in_flight == app.limits.in_flight()
    }
}
