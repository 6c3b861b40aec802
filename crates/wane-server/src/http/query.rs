//! Queries: names and values, decoded strictly. What is not known is refused, not passed over.

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use wane::store::PageLimit;

use super::path::check_escapes;
use super::problem::Problem;

/// The parameters of a request.
#[derive(Debug)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// The parameters, each of these names at most once and no others.
    pub(super) fn of(uri: &Uri, names: &[&str]) -> Result<Self, Problem> {
        let mut found: Vec<(String, String)> = Vec::new();
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode("query", name)?;
            if !names.contains(&&*name) {
                let known = if names.is_empty() { "none".into() } else { names.join(", ") };
                let reason = format!("there is no such parameter; there are: {known}");
                return Err(Problem::invalid(&name, reason));
            }
            if found.iter().any(|(other, _)| *other == name) {
                return Err(Problem::invalid(&name, "give it once"));
            }
            let value = decode(&name, value)?;
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// The value of a parameter, if it is there.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }

    /// How much goes on a page: `limit`, or 100.
    pub(super) fn page_limit(&self) -> Result<PageLimit, Problem> {
        const MOST: usize = 1_000;
        let Some(given) = self.get("limit") else { return Ok(PageLimit::new(100)?) };
        let limit = given.parse().ok().filter(|limit| (1..=MOST).contains(limit));
        let limit = limit.ok_or_else(|| {
            Problem::invalid("limit", format!("give a whole number, 1 to {MOST}"))
        })?;
        Ok(PageLimit::new(limit)?)
    }
}

/// Decodes as forms do: a plus sign is a space.
pub(super) fn decode(name: &str, raw: &str) -> Result<String, Problem> {
    check_escapes(name, raw)?;
    let spaced = raw.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(Into::into).map_err(|_| Problem::invalid(name, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Parameters, Problem> {
        Parameters::of(&format!("/x?{query}").parse().unwrap(), &["prefix", "limit"])
    }

    #[test]
    fn values_are_decoded_once() {
        let found = parse("prefix=a%2525+b%2B&limit=1").unwrap();
        assert_eq!((found.get("prefix"), found.get("limit")), (Some("a%25 b+"), Some("1")));
        assert_eq!(parse("prefix").unwrap().get("prefix"), Some(""));
        assert_eq!(parse("").unwrap().get("prefix"), None);
    }

    #[test]
    fn what_is_unknown_twice_or_broken_is_refused() {
        for query in ["prefx=a", "limit=1&limit=2", "prefix=%FF", "prefix=%2", "%FF=1"] {
            assert!(parse(query).is_err(), "{query}");
        }
    }
}
