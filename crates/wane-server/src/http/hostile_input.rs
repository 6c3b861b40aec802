//! Paths and queries under fuzzed input: never a panic, and one reading of each.
//!
//! - Escapes are accepted exactly where every percent sign is followed by two hex digits.
//! - A segment, a name and a value are decoded once, as a second decoder has it.
//! - What is escaped byte by byte comes back as it was.
//! - A query is refused exactly where a name is unknown or comes twice, an escape is broken, or the
//!   bytes are not UTF-8.
//!
//! The controls are decoders with the usual mistakes, each of which must be caught.

use super::path::{check_escapes, segments};
use super::query::Parameters;
use crate::campaigns::{assert_caught, assert_holds};
use axum::http::Uri;

const NAMES: [&str; 3] = ["prefix", "limit", "a b"];

/// What the routes decode with, to be replaced by broken ones.
#[derive(Debug, Clone, Copy)]
struct Decoders {
    has_good_escapes: fn(&str) -> bool,
    segments: fn(&str) -> Vec<Vec<u8>>,
    parameters: fn(&str) -> Option<[Option<String>; 3]>,
}

const REAL: Decoders = Decoders {
    has_good_escapes: |raw| check_escapes("key", raw).is_ok(),
    segments: |path| segments(path).map(Vec::from_iter).collect(),
    parameters: |query| {
        let uri: Uri = format!("/x?{query}").parse().ok()?;
        let found = Parameters::of(&uri, &NAMES).ok()?;
        Some(NAMES.map(|name| found.get(name).map(str::to_owned)))
    },
};

fn check(decoders: Decoders, bytes: &[u8]) {
    let text: String = bytes.iter().map(|byte| char::from(legible(*byte))).collect();
    let decoded = decode(text.as_bytes());
    assert_eq!((decoders.has_good_escapes)(&text), decoded.is_some(), "escapes of {text:?}");
    if decoded.is_some() {
        let expected: Vec<_> = text.split('/').filter_map(|raw| decode(raw.as_bytes())).collect();
        assert_eq!((decoders.segments)(&format!("/{text}")), expected, "segments of {text:?}");
    }
    assert_eq!((decoders.parameters)(&text), parameters(&text), "parameters of {text:?}");

    let escaped: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
    let segment = (decoders.segments)(&format!("/{escaped}"));
    assert_eq!(segment, [bytes], "a segment of {escaped} does not come back");
    let value = std::str::from_utf8(bytes).ok().map(|value| [Some(value.to_owned()), None, None]);
    let found = (decoders.parameters)(&format!("prefix={escaped}"));
    assert_eq!(found, value, "a value of {escaped} does not come back");
}

/// One of the few bytes that matter in a target, or any that may stand in one.
fn legible(byte: u8) -> u8 {
    const TELLING: [u8; 24] = *b"%%%%%%22FFff05Cc//&&==++";
    match byte {
        0x80.. => TELLING[usize::from(byte) % TELLING.len()],
        b'!'..=b'~' if !b"\"#<>\\^`{|}".contains(&byte) => byte,
        _ => b'a',
    }
}

/// The bytes that `raw` stands for, unless a percent sign stands alone.
fn decode(raw: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut decoded = Vec::new();
    let mut rest = raw;
    loop {
        rest = match rest {
            [] => return Some(decoded),
            [b'%', high, low, after @ ..] => {
                decoded.push((digit(*high)? * 16 + digit(*low)?) as u8);
                after
            }
            [b'%', ..] => return None,
            [byte, after @ ..] => {
                decoded.push(*byte);
                after
            }
        };
    }
}

/// The values of [`NAMES`], unless the query is to be refused.
fn parameters(query: &str) -> Option<[Option<String>; 3]> {
    let decode = |raw: &str| String::from_utf8(decode(raw.replace('+', "%20").as_bytes())?).ok();
    let mut found = [const { None }; 3];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let equals = pair.find('=').unwrap_or(pair.len());
        let name = decode(&pair[..equals])?;
        let value = decode(pair.get(equals + 1..).unwrap_or_default())?;
        let place = NAMES.iter().position(|known| *known == name)?;
        if found[place].replace(value).is_some() {
            return None;
        }
    }
    Some(found)
}

const SEEDS: [&str; 4] =
    ["prefix=a%2Fb&limit=1", "a+b=%C3%A9", "%61%20b=1&a+b=2", "x/%2F/%252F/%00"];

#[test]
fn any_path_and_query_has_one_reading() {
    assert_holds(&SEEDS, |bytes| check(REAL, bytes));
}

#[test]
fn mistakes_of_decoding_are_caught() {
    fn lenient(raw: &str) -> bool {
        !raw.ends_with('%') && check_escapes("key", raw.trim_end_matches("%2")).is_ok()
    }
    fn twice(path: &str) -> Vec<Vec<u8>> {
        let again = |segment: Vec<u8>| decode(&segment).unwrap_or(segment);
        segments(path).map(Vec::from_iter).map(again).collect()
    }
    /// Splits at slashes that were written as part of a segment.
    fn decoded_first(path: &str) -> Vec<Vec<u8>> {
        let decoded = decode(&path.as_bytes()[1..]).unwrap_or_default();
        decoded.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect()
    }
    fn plus_is_plus(query: &str) -> Option<[Option<String>; 3]> {
        (REAL.parameters)(&query.replace('+', "%2B"))
    }
    fn last_one_wins(query: &str) -> Option<[Option<String>; 3]> {
        let last = query.rsplit('&').next().unwrap_or_default();
        (REAL.parameters)(query).or_else(|| (REAL.parameters)(last))
    }
    assert_caught(
        &SEEDS,
        |it| check(Decoders { has_good_escapes: lenient, ..REAL }, it),
        "escapes of",
    );
    assert_caught(&SEEDS, |it| check(Decoders { segments: twice, ..REAL }, it), "segment");
    assert_caught(&SEEDS, |it| check(Decoders { segments: decoded_first, ..REAL }, it), "segment");
    assert_caught(
        &SEEDS,
        |it| check(Decoders { parameters: plus_is_plus, ..REAL }, it),
        "parameters of",
    );
    assert_caught(
        &SEEDS,
        |it| check(Decoders { parameters: last_one_wins, ..REAL }, it),
        "parameters of",
    );
}
