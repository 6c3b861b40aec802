//! When snapshots are due: at a time of the day in UTC, and every so often from there.

use std::time::Duration;

use wane::store::Timestamp;

/// Instants that are `every` apart, one of which is at `at` after a midnight of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    at: u64,
    every: u64,
}

impl Schedule {
    /// In whole milliseconds; less than one is one.
    pub(super) fn new(at: Duration, every: Duration) -> Self {
        let millis = |duration: Duration| duration.as_millis() as u64;
        Self { at: millis(at), every: millis(every).max(1) }
    }

    /// The last instant that has come.
    pub(super) fn last(&self, now: Timestamp) -> Timestamp {
        let now = now.as_unix_millis();
        // Counted from an instant before all others.
        let first = self.at % self.every;
        let since = now.saturating_sub(first) / self.every * self.every;
        Timestamp::from_unix_millis(since + first)
    }

    /// How long it is to the next one.
    pub(super) fn left(&self, now: Timestamp) -> Duration {
        let next = self.last(now).as_unix_millis() + self.every;
        now.until(Timestamp::from_unix_millis(next))
    }
}

/// An instant as names of files have it: `20261116T020000Z`.
pub(super) fn written(instant: Timestamp) -> String {
    let seconds = instant.as_unix_millis() / 1_000;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The date that is so many days after the first of January 1970.
fn date(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    loop {
        let long = if is_leap(year) { 366 } else { 365 };
        if days < long {
            break;
        }
        days -= long;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for long in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < long {
            break;
        }
        days -= long;
        month += 1;
    }
    (year, month, days + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_millis(seconds * 1_000)
    }

    #[test]
    fn a_night_comes_once_a_day_at_its_time() {
        let night = Schedule::new(Duration::from_secs(2 * 3_600), DAY);
        let midnight = 20_773 * 86_400;
        let due = midnight + 2 * 3_600;
        for (now, last, left) in [
            (due - 1, due - 86_400, 1),
            (due, due, 86_400),
            (due + 1, due, 86_399),
            (midnight, due - 86_400, 7_200),
            (midnight + 86_399, due, 7_201),
        ] {
            assert_eq!(night.last(at(now)), at(last), "{now}");
            assert_eq!(night.left(at(now)), Duration::from_secs(left), "{now}");
        }
    }

    #[test]
    fn shorter_ones_count_from_the_same_minute() {
        let hourly = Schedule::new(Duration::from_secs(7_500), Duration::from_secs(3_600));
        assert_eq!(hourly.last(at(20_773 * 86_400 + 300)), at(20_773 * 86_400 + 300), "02:05");
        assert_eq!(hourly.last(at(20_773 * 86_400 + 299)), at(20_773 * 86_400 - 3_300));
        assert_eq!(Schedule::new(DAY, Duration::ZERO).last(at(5)), at(5));
    }

    #[test]
    fn instants_are_written_as_people_read_them() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_800, "20000301T000000Z"),
            (1_709_251_199, "20240229T235959Z"),
            (1_763_258_645, "20251116T020405Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(written(at(seconds)), text);
        }
    }
}
