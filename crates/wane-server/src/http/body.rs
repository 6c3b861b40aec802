//! Bodies: JSON within bounds of size and time, and errors that name the field.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde::de::DeserializeOwned;
use serde_json::Number;
use wane::clock::SharedClock;

use super::problem::{Code, Problem};

/// The largest body of one operation: two values of 64 KiB with every byte escaped, and some air.
pub(super) const ONE_OPERATION: usize = 1 << 20;

/// The largest body of a batch.
pub(super) const BATCH: usize = 8 << 20;

/// How long a body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(20);

/// Reads a JSON body; `None` where the request has none.
pub(super) async fn json<T: DeserializeOwned>(
    request: Request,
    limit: usize,
    clock: &SharedClock,
) -> Result<Option<T>, Problem> {
    let (parts, body) = request.into_parts();
    let bytes = read(body, limit, clock).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    check_type(&parts.headers)?;
    parse(&bytes).map(Some)
}

/// Reads a JSON body that must be there.
pub(super) async fn required<T: DeserializeOwned>(
    request: Request,
    limit: usize,
    clock: &SharedClock,
) -> Result<T, Problem> {
    let body = json(request, limit, clock).await?;
    body.ok_or_else(|| Problem::invalid("body", "it is empty; send a JSON object"))
}

/// Reads a body within bounds of size and time.
pub(super) async fn read(body: Body, limit: usize, clock: &SharedClock) -> Result<Bytes, Problem> {
    let too_large = || Problem::new(Code::TooLarge, format!("the body may have {limit} bytes"));
    // What is announced to be too large is not waited for.
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let collected = tokio::select! {
        // What came with its head is there, and needs no timer.
        biased;
        collected = Limited::new(body, limit).collect() => collected,
        () = async { clock.sleep(ARRIVAL).await } => {
            let reason = format!("it did not arrive within {} s", ARRIVAL.as_secs());
            return Err(Problem::invalid("body", reason));
        }
    };
    collected.map(|body| body.to_bytes()).map_err(|error| {
        if error.is::<LengthLimitError>() {
            return too_large();
        }
        Problem::invalid("body", "it broke off or is not well formed")
    })
}

/// Whether the body is said to be of this type, whatever its parameters.
pub(super) fn is_type(headers: &HeaderMap, expected: &str) -> bool {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.map(|value| value.split(';').next().unwrap_or_default().trim());
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case(expected))
}

fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(CONTENT_ENCODING) {
        let detail = "send the body as it is, without Content-Encoding";
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    if !headers.contains_key(CONTENT_TYPE) || is_type(headers, "application/json") {
        return Ok(());
    }
    let detail = "send JSON, with Content-Type: application/json";
    Err(Problem::new(Code::UnsupportedMediaType, detail))
}

/// Whether JSON is an object: a list would be taken for an object's values in the order of its fields.
pub(super) fn begins_object(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'{')
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if !begins_object(bytes) {
        return Err(Problem::invalid("body", "send a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| misread(&error, "body"))?;
    deserializer.end().map_err(|error| Problem::invalid("body", error))?;
    Ok(parsed)
}

/// What is wrong with JSON, by the name of the field, or of the whole where the fault is in none.
pub(super) fn misread(
    error: &serde_path_to_error::Error<serde_json::Error>,
    whole: &str,
) -> Problem {
    let path = error.path().to_string();
    let field = if matches!(&*path, "." | "?") { whole } else { &path };
    Problem::invalid(field, without_value(&error.inner().to_string()))
}

/// The message without the value that it is about, which may be a secret.
fn without_value(message: &str) -> String {
    let repeats = ["invalid type: ", "invalid value: ", "unknown variant "];
    let is_about_value = repeats.iter().any(|beginning| message.starts_with(beginning));
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if is_about_value => format!("expected {expected}"),
        Some(_) | None => message.to_owned(),
    }
}

/// The bytes of a value that is given as text or in Base64, but not as both.
pub(super) fn bytes_of(
    name: &str,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Option<Vec<u8>>, Problem> {
    match (text, base64) {
        (Some(_), Some(_)) => {
            let field = format!("{name}, {name}Base64");
            Err(Problem::invalid(&field, "give one of them"))
        }
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => STANDARD.decode(base64).map(Some).map_err(|error| {
            Problem::invalid(&format!("{name}Base64"), format!("not Base64: {error}"))
        }),
        (None, None) => Ok(None),
    }
}

/// A whole number, also where it is written with a point: JSON knows no difference.
pub(super) fn whole_number(number: &Number) -> Option<u64> {
    /// Up to here every whole number has a floating-point number of its own.
    const EXACT: f64 = (1_u64 << 53) as f64;
    let pointed = || number.as_f64().filter(|n| n.fract() == 0.0 && (0.0..=EXACT).contains(n));
    number.as_u64().or_else(|| pointed().map(|number| number as u64))
}

/// A value as JSON carries it: text where it is UTF-8, Base64 where it is not.
pub(super) fn text_or_base64(value: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(value) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        let whole = |text: &str| whole_number(&serde_json::from_str(text).unwrap());
        assert_eq!(
            [whole("60"), whole("60.0"), whole("6e1"), whole("0.0")].map(Option::unwrap),
            [60, 60, 60, 0]
        );
        for text in ["60.5", "-1", "-1.0", "1e300", "9007199254740994.0"] {
            assert_eq!(whole(text), None, "{text}");
        }
        assert_eq!(whole("18446744073709551615"), Some(u64::MAX));
    }
}
