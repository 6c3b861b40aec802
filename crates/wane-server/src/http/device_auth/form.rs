//! Forms: what a device sends, decoded strictly.
//!
//! An empty parameter is one that was left out, an unknown one is passed over, and one that is given
//! twice is refused (RFC 6749, section 3.2). What stands in the query counts for nothing: it would
//! put secrets into logs.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use serde_json::{Map, Value as Json};
use wane::clock::SharedClock;

use super::refusal::Refusal;
use crate::http::{body, query};

/// The largest form: a token of 8,192 bytes with each byte escaped, and some air.
const LARGEST: usize = 32 << 10;

/// The most parameters that a form is looked through for.
const MOST: usize = 32;

const FORM: &str = "application/x-www-form-urlencoded";

/// The parameters of a request, without the empty ones. Some are secrets: it has no `Debug`.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form, and nothing else.
    pub(super) async fn read(
        headers: &HeaderMap,
        body: Body,
        clock: &SharedClock,
    ) -> Result<Self, Refusal> {
        let is_form = body::is_type(headers, FORM);
        if !is_form && headers.contains_key(CONTENT_TYPE) {
            return Err(not_a_form());
        }
        // Who says everything in HTTP Basic may send nothing more, which is of no type.
        let bytes = body::read(body, LARGEST, clock).await?;
        if is_form || bytes.is_empty() { Self::parse(&bytes) } else { Err(not_a_form()) }
    }

    /// Reads a form or a JSON object of texts, and what stands in the query: clients made for GitHub
    /// send one or the other.
    pub(super) async fn read_anywhere(
        parts: &Parts,
        body: Body,
        clock: &SharedClock,
    ) -> Result<Self, Refusal> {
        let in_query = parts.uri.query().unwrap_or_default();
        let bytes = body::read(body, LARGEST, clock).await?;
        if !body::is_type(&parts.headers, "application/json") {
            return Self::parse(&[in_query.as_bytes(), b"&", &bytes].concat());
        }
        let wrong = |_| Refusal::invalid_request("send a JSON object of texts");
        let object: Map<String, Json> = serde_json::from_slice(&bytes).map_err(wrong)?;
        // They send numbers and nulls along, of which none is ours.
        let text = |(name, value): (String, Json)| Some((name, value.as_str()?.to_owned()));
        let texts = object.into_iter().filter_map(text).filter(|(_, text)| !text.is_empty());
        let mut form = Self::parse(in_query.as_bytes())?;
        form.0.extend(texts);
        Ok(form)
    }

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Refusal::invalid_request("the form is not UTF-8"))?;
        let mut given: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            if given.len() == MOST {
                let description = format!("send up to {MOST} parameters");
                return Err(Refusal::invalid_request(description));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if given.iter().any(|(other, _)| *other == name) {
                return Err(Refusal::invalid_request("a parameter is given twice; give it once"));
            }
            given.push((name, value));
        }
        given.retain(|(_, value)| !value.is_empty());
        Ok(Self(given))
    }

    /// A parameter, unless it was left out.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| &**value)
    }

    /// A parameter that must be there.
    pub(super) fn required(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name).ok_or_else(|| Refusal::invalid_request(format!("{name} is missing")))
    }
}

fn not_a_form() -> Refusal {
    Refusal::invalid_request(format!("send a form, with Content-Type: {FORM}"))
}

/// A name or a value: a plus sign is a space, and every escape has two digits.
pub(super) fn decoded(raw: &str) -> Result<String, Refusal> {
    let wrong = || Refusal::invalid_request("the form is not well encoded, as UTF-8");
    query::decode("form", raw).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(form: &str) -> Result<Form, Refusal> {
        Form::parse(form.as_bytes())
    }

    #[test]
    fn an_empty_parameter_is_left_out_and_an_unknown_one_harmless() {
        let form = parsed("client_id=demo&scope=&else=1&scope2=a+b%2Bc&&flag").unwrap();
        assert_eq!(form.get("client_id"), Some("demo"));
        assert_eq!(form.get("scope"), None);
        assert_eq!(form.get("scope2"), Some("a b+c"));
        assert!(form.required("flag").is_err());
    }

    #[test]
    fn a_parameter_twice_is_refused_also_where_it_is_empty_or_escaped() {
        for twice in ["a=1&a=1", "a=&a=1", "a=1&%61=2", "x=1&a&a"] {
            assert_eq!(parsed(twice).err().unwrap().error(), "invalid_request", "{twice}");
        }
    }

    /// Comparing each name with all others would take long.
    #[test]
    fn a_form_of_many_names_is_refused() {
        let names: Vec<String> = (0..10_000).map(|number| format!("{number:x}")).collect();
        assert_eq!(parsed(&names.join("&")).err().unwrap().error(), "invalid_request");
        let names: Vec<String> = (0..32).map(|number| format!("{number}=1")).collect();
        assert!(parsed(&names.join("&")).is_ok());
    }

    #[test]
    fn what_is_badly_encoded_is_refused() {
        for wrong in ["a=%", "a=%2", "a=%zz", "a=%ff", "%c3=1"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert!(Form::parse(b"a=\xff").is_err());
    }
}
