//! Lives as people write and read them: `15m` in, `14m 59s` out.

use std::time::Duration;

use wane::store::Ttl;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A life of whole seconds, or of another unit that is named: `900`, `500ms`, `15m`, `2h`, `30d`.
pub(super) fn parse(text: &str) -> Result<Ttl, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = if unit.is_empty() { "s" } else { unit };
    let found = UNITS.iter().find(|(name, _)| *name == unit);
    let (Some((_, millis)), false) = (found, number.is_empty()) else {
        return Err("give whole seconds, or a number with ms, s, m, h or d: 900, 15m".into());
    };
    // More digits than fit are too long in any unit.
    let number: u64 = number.parse().unwrap_or(u64::MAX);
    Ttl::from_millis(number.saturating_mul(*millis)).map_err(|_| "a life is 1ms to 365d".to_owned())
}

/// What is left of a life, in its two largest units, rounded down.
pub(super) fn shown(left: Duration) -> String {
    let seconds = left.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds == 0 => format!("{}ms", left.as_millis()),
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => format!("{minutes}m {rest}s"),
        (0, _, _) => format!("{hours}h {minutes}m"),
        (_, _, _) => format!("{days}d {hours}h"),
    }
}
