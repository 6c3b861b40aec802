//! The injected clock as the timer that hyper asks for (HTTP/2 keep-alive).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;
use wane::clock::SharedClock;

/// A [`Timer`] over a clock. Its instants are an anchor plus what elapsed on the clock since.
#[derive(Debug, Clone)]
pub(super) struct ClockTimer {
    clock: SharedClock,
    anchor: Instant,
    anchored: Duration,
}

impl ClockTimer {
    #[expect(clippy::disallowed_methods, reason = "any instant will do to count from")]
    pub(super) fn new(clock: SharedClock) -> Self {
        let anchored = clock.monotonic();
        Self { clock, anchor: Instant::now(), anchored }
    }
}

impl Timer for ClockTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(ClockSleep(Mutex::new(self.clock.sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }

    fn now(&self) -> Instant {
        self.anchor + self.clock.monotonic().saturating_sub(self.anchored)
    }
}

/// hyper wants its sleeps to be `Sync`, which a lock that is never contended provides.
struct ClockSleep(Mutex<wane::clock::Sleep>);

impl Future for ClockSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.get_mut().as_mut().poll(context)
    }
}

impl Sleep for ClockSleep {}
