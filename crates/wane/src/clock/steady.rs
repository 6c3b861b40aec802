//! Wall time that never steps: a line over elapsed time, bent gently towards the machine's clock.
//!
//! The line starts where the machine's clock stood and advances with elapsed time. Once a second
//! whoever asks for the time compares it with the machine's clock and, where the two differ,
//! starts a new segment of the line that is up to 2 % steeper or flatter for the next second.
//! A clock set by an hour is thus followed over two days, and no life is cut short by the step.
//!
//! Readers share the segment through a sequence lock and write nothing, so that the time costs
//! the same on every core. Elapsed time is read inside the lock's window: a reader that kept an
//! old segment past a change tries again, so no two readers can be told times out of order.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// How often the line is compared with the machine's clock, in nanoseconds.
const COMPARE_EVERY: u64 = 1_000_000_000;

/// The steepest correction, in nanoseconds per [`COMPARE_EVERY`]: 2 %.
const MAX_SLEW: i64 = COMPARE_EVERY as i64 / 50;

/// A line of wall time over elapsed time, both in nanoseconds.
#[derive(Debug)]
pub(super) struct SteadyTime {
    /// Odd while a writer is at work.
    sequence: AtomicU64,
    segment: SharedSegment,
}

#[derive(Debug)]
struct SharedSegment {
    elapsed: AtomicU64,
    wall: AtomicU64,
    slew: AtomicI64,
}

/// The line from `elapsed` on: it passes through `wall` and gains `slew` over the first second.
#[derive(Debug, Clone, Copy)]
struct Segment {
    elapsed: u64,
    wall: u64,
    slew: i64,
}

impl Segment {
    fn at(&self, elapsed: u64) -> u64 {
        let run = elapsed.saturating_sub(self.elapsed);
        // Only the first second is bent: a process that seldom asks must not overshoot.
        let bent = run.min(COMPARE_EVERY) as i64;
        // At most a second times 2 % of one, in nanoseconds each: far from an overflow.
        let gained = bent * self.slew / COMPARE_EVERY as i64;
        self.wall.saturating_add(run).saturating_add_signed(gained)
    }

    fn is_due(&self, elapsed: u64) -> bool {
        elapsed.saturating_sub(self.elapsed) >= COMPARE_EVERY
    }
}

impl SteadyTime {
    /// A line that stands at `wall` when `elapsed` has elapsed.
    pub(super) fn anchored(elapsed: u64, wall: u64) -> Self {
        let segment = SharedSegment {
            elapsed: AtomicU64::new(elapsed),
            wall: AtomicU64::new(wall),
            slew: AtomicI64::new(0),
        };
        Self { sequence: AtomicU64::new(0), segment }
    }

    /// The time by the line, compared with the machine's `wall` clock when that is due. The clock
    /// is told what had elapsed when it is read.
    pub(super) fn now(&self, elapsed: impl Fn() -> u64, wall: impl Fn(u64) -> u64) -> u64 {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let segment = self.segment.load();
            let elapsed_now = elapsed();
            fence(Ordering::Acquire);
            if before % 2 == 1 || self.sequence.load(Ordering::Relaxed) != before {
                std::hint::spin_loop();
                continue;
            }
            if segment.is_due(elapsed_now) && self.try_compare(before, &elapsed, &wall) {
                continue;
            }
            return segment.at(elapsed_now);
        }
    }

    /// Lifts the line to `floor` where it is below.
    pub(super) fn never_before(&self, floor: u64, elapsed: impl Fn() -> u64) {
        loop {
            let before = self.sequence.load(Ordering::Relaxed);
            let lift = |segment: Segment, elapsed| Segment {
                elapsed,
                wall: segment.at(elapsed).max(floor),
                slew: 0,
            };
            if before.is_multiple_of(2) && self.try_replace(before, &elapsed, lift) {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Starts a new segment towards `wall`, unless another reader was faster.
    fn try_compare(
        &self,
        before: u64,
        elapsed: impl Fn() -> u64,
        wall: impl Fn(u64) -> u64,
    ) -> bool {
        self.try_replace(before, elapsed, |segment, elapsed| {
            let line = segment.at(elapsed);
            let gap = i128::from(wall(elapsed)) - i128::from(line);
            let slew = gap.clamp(i128::from(-MAX_SLEW), i128::from(MAX_SLEW)) as i64;
            Segment { elapsed, wall: line, slew }
        })
    }

    /// Replaces the segment if nobody has since `before`.
    fn try_replace(
        &self,
        before: u64,
        elapsed: impl Fn() -> u64,
        next: impl FnOnce(Segment, u64) -> Segment,
    ) -> bool {
        let locked = self.sequence.compare_exchange(
            before,
            before + 1,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if locked.is_err() {
            return false;
        }
        // A reader that sees any store below must also see the odd sequence.
        fence(Ordering::Release);
        // Elapsed time is read once the sequence is odd, so the new segment begins no earlier
        // than any time already told by the old one.
        self.segment.store(next(self.segment.load(), elapsed()));
        self.sequence.store(before + 2, Ordering::Release);
        true
    }
}

impl SharedSegment {
    fn load(&self) -> Segment {
        Segment {
            elapsed: self.elapsed.load(Ordering::Relaxed),
            wall: self.wall.load(Ordering::Relaxed),
            slew: self.slew.load(Ordering::Relaxed),
        }
    }

    fn store(&self, segment: Segment) {
        self.elapsed.store(segment.elapsed, Ordering::Relaxed);
        self.wall.store(segment.wall, Ordering::Relaxed);
        self.slew.store(segment.slew, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SECOND: u64 = COMPARE_EVERY;
    const HOUR: u64 = 3_600 * SECOND;

    /// Asks for the time every 100 ms while the machine's clock runs `ahead` of elapsed time.
    fn run(time: &SteadyTime, from: u64, seconds: u64, ahead: i64) -> Vec<u64> {
        (0..seconds * 10)
            .map(|tick| {
                let elapsed = from + tick * SECOND / 10;
                time.now(|| elapsed, |elapsed| (HOUR + elapsed).saturating_add_signed(ahead))
            })
            .collect()
    }

    #[test]
    fn follows_elapsed_time_exactly_while_the_clocks_agree() {
        let time = SteadyTime::anchored(0, HOUR);
        for (tick, told) in run(&time, 0, 100, 0).into_iter().enumerate() {
            assert_eq!(told, HOUR + tick as u64 * SECOND / 10);
        }
    }

    #[test]
    fn never_steps_back_and_loses_two_percent_at_most() {
        let time = SteadyTime::anchored(0, 2 * HOUR);
        let told = run(&time, 0, 600, 0); // The machine's clock was set back by an hour.
        for pair in told.windows(2) {
            let gained = pair[1] - pair[0];
            let bounds = SECOND / 10 * 98 / 100..=SECOND / 10;
            assert!(bounds.contains(&gained), "gained {gained}");
        }
    }

    #[test]
    fn reaches_the_machines_clock_and_stays() {
        let time = SteadyTime::anchored(0, HOUR);
        run(&time, 0, 60, SECOND as i64); // One second ahead: 50 seconds at 2 %.
        let told = run(&time, 60 * SECOND, 1, SECOND as i64);
        assert_eq!(told[0], HOUR + 61 * SECOND);
    }

    #[test]
    fn a_seldom_asked_clock_does_not_overshoot() {
        let time = SteadyTime::anchored(0, 2 * HOUR);
        time.now(|| SECOND, |_| HOUR + SECOND); // Starts a flat segment.
        let told = time.now(|| SECOND + HOUR, |_| 2 * HOUR + SECOND);
        assert_eq!(told, 3 * HOUR + SECOND - MAX_SLEW as u64);
    }

    #[test]
    fn a_floor_lifts_but_never_lowers() {
        let time = SteadyTime::anchored(0, HOUR);
        let elapsed = Cell::new(0);
        time.never_before(3 * HOUR, || elapsed.get());
        assert_eq!(time.now(|| elapsed.get(), |_| HOUR), 3 * HOUR);
        time.never_before(HOUR, || elapsed.get());
        assert_eq!(time.now(|| elapsed.get(), |_| HOUR), 3 * HOUR);
    }
}
