//! The real clock: the one place of the benchmarks that reads it or waits on it.
//!
//! What is measured runs in real time, so nothing is injected here.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The present moment.
#[expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Blocks the thread for `duration`.
#[expect(clippy::disallowed_methods, reason = "benchmarks wait for real expiries")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Blocks the thread until `deadline`, if that is still ahead.
pub(crate) fn pause_until(deadline: Instant) {
    pause(deadline.saturating_duration_since(now()));
}

/// Runs `work` and says how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = work();
    (result, start.elapsed())
}

/// Milliseconds with their fraction.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Tells whoever waits what is being done, and how long after the first such line.
pub(crate) fn stage(text: &str) {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let seconds = FIRST.get_or_init(now).elapsed().as_secs_f64();
    eprintln!("{seconds:7.1} s  {text}");
}
