//! The access log: one line for each request, of the form that all lines have.
//!
//! Written by hand into the buffer of `line_sink`: with the general formatter it was the most
//! expensive part of a get. What the filter says of `wane::access` holds all the same.

use std::io::Write as _;
use std::sync::OnceLock;

use wane::store::Timestamp;

use super::line_sink::LineSink;
use crate::settings::LogFormat;

/// Where lines go, once logging was started.
static LOG: OnceLock<AccessLog> = OnceLock::new();

#[derive(Debug)]
struct AccessLog {
    sink: LineSink,
    form: Form,
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Colored,
    Json,
}

/// A request that was answered. Every text in it is plain: letters, digits, and marks that need no
/// escape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) at: Timestamp,
    pub(crate) id: &'a str,
    pub(crate) method: &'static str,
    pub(crate) route: &'a str,
    pub(crate) status: u16,
    pub(crate) micros: u64,
}

/// Sends lines from now on into `sink`.
pub(super) fn start(sink: LineSink, format: LogFormat, is_colored: bool) {
    let form = match format {
        LogFormat::Text if is_colored => Form::Colored,
        LogFormat::Text => Form::Text,
        LogFormat::Json => Form::Json,
    };
    // A second start, in tests, keeps the first.
    drop(LOG.set(AccessLog { sink, form }));
}

impl Access<'_> {
    /// Logs the request, where the filter wants it.
    pub(crate) fn log(&self) {
        if !tracing::enabled!(target: "wane::access", tracing::Level::INFO) {
            return;
        }
        if let Some(log) = LOG.get() {
            // The sink takes every line, or counts it as dropped.
            let _taken = (&log.sink).write(&self.line(log.form));
        }
    }

    fn line(&self, form: Form) -> Vec<u8> {
        let mut line = Vec::with_capacity(256);
        let (opening, names, closing): (_, [&str; 5], _) = match form {
            Form::Text => ("  INFO wane::access: ", TEXT_FIELDS, "\n"),
            Form::Colored => (COLORED_OPENING, TEXT_FIELDS, "\n"),
            Form::Json => (
                "\",\"level\":\"INFO\",\"fields\":{",
                [
                    "\"id\":\"",
                    "\",\"method\":\"",
                    "\",\"route\":\"",
                    "\",\"status\":",
                    ",\"micros\":",
                ],
                "},\"target\":\"wane::access\"}\n",
            ),
        };
        line.extend_from_slice(match form {
            Form::Text => b"",
            Form::Colored => b"\x1b[2m",
            Form::Json => b"{\"timestamp\":\"",
        });
        line.extend_from_slice(&rfc3339(self.at));
        line.extend_from_slice(opening.as_bytes());
        for (name, text) in names.into_iter().zip([self.id, self.method, self.route]) {
            line.extend_from_slice(name.as_bytes());
            line.extend_from_slice(text.as_bytes());
        }
        for (name, number) in names[3..].iter().zip([u64::from(self.status), self.micros]) {
            line.extend_from_slice(name.as_bytes());
            // Writing to a vector does not fail.
            let _written = write!(line, "{number}");
        }
        line.extend_from_slice(closing.as_bytes());
        line
    }
}

const TEXT_FIELDS: [&str; 5] = ["id=\"", "\" method=\"", "\" route=\"", "\" status=", " micros="];

const COLORED_OPENING: &str =
    "\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mwane::access\x1b[0m\x1b[2m:\x1b[0m ";

/// The instant as `2026-11-15T17:03:09.042Z`.
fn rfc3339(at: Timestamp) -> [u8; 24] {
    let millis = at.as_unix_millis();
    let (seconds, days) = (millis / 1_000 % 86_400, millis / 86_400_000);
    let (year, month, day) = date(days);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    digits(&mut text[0..4], year);
    digits(&mut text[5..7], month);
    digits(&mut text[8..10], day);
    digits(&mut text[11..13], seconds / 3_600);
    digits(&mut text[14..16], seconds / 60 % 60);
    digits(&mut text[17..19], seconds % 60);
    digits(&mut text[20..23], millis % 1_000);
    text
}

fn digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Year, month and day of the day this many after 1970-01-01.
///
/// Counted from a first of March, so that the leap day is the last of its year, in cycles of 400
/// years, which all have the same number of days.
fn date(days: u64) -> (u64, u64, u64) {
    const CYCLE: u64 = 146_097;
    let days = days + 719_468;
    let (cycle, day_of_cycle) = (days / CYCLE, days % CYCLE);
    let leap_days = day_of_cycle / 1_460 - day_of_cycle / 36_524 + day_of_cycle / 146_096;
    let year_of_cycle = (day_of_cycle - leap_days) / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    // Five months from March on have 153 days, and so have the next five.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year_of_cycle + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access<'static> {
        Access {
            at: Timestamp::from_unix_millis(1_794_762_189_042),
            id: "00ff",
            method: "GET",
            route: "/api/v2/apps/{owner}/{app}/ttl/{key}",
            status: 200,
            micros: 17,
        }
    }

    #[test]
    fn instants_are_written_as_rfc_3339_has_them() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_794_762_189_042, "2026-11-15T17:03:09.042Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            let written = rfc3339(Timestamp::from_unix_millis(millis));
            assert_eq!(str::from_utf8(&written).unwrap(), text);
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..200_000 {
            let (year, month, day) = date(days);
            let (was_year, was_month, was_day) = before;
            let is_next = (year, month, day) == (was_year, was_month, was_day + 1)
                || (day == 1 && (year, month) == (was_year, was_month + 1))
                || (year, month, day) == (was_year + 1, 1, 1) && (was_month, was_day) == (12, 31);
            assert!(is_next && (1..=31).contains(&day), "{before:?} {:?}", (year, month, day));
            before = (year, month, day);
        }
    }

    #[test]
    fn a_line_for_people_names_its_fields() {
        let line = String::from_utf8(access().line(Form::Text)).unwrap();
        let told = "2026-11-15T17:03:09.042Z  INFO wane::access: id=\"00ff\" method=\"GET\" \
                    route=\"/api/v2/apps/{owner}/{app}/ttl/{key}\" status=200 micros=17\n";
        assert_eq!(line, told);
        let colored = String::from_utf8(access().line(Form::Colored)).unwrap();
        assert!(colored.ends_with(told.split_once("id=").unwrap().1), "{colored}");
    }

    #[test]
    fn a_line_for_programs_is_one_object() {
        let line = String::from_utf8(access().line(Form::Json)).unwrap();
        let object: serde_json::Value = serde_json::from_str(line.trim_end()).unwrap();
        assert_eq!(object["timestamp"], "2026-11-15T17:03:09.042Z");
        assert_eq!((&object["level"], &object["target"]), (&"INFO".into(), &"wane::access".into()));
        assert_eq!(object["fields"]["status"], 200);
        assert_eq!(object["fields"]["micros"], 17);
        assert_eq!(object["fields"]["route"], access().route);
    }
}
