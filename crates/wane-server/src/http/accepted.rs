//! What a client accepts: ranges and codings with their weights (RFC 9110, 12.4 and 12.5).

use axum::http::{HeaderMap, HeaderName};

use super::problem::Problem;

/// The most entries that are looked at.
const MOST: usize = 100;

/// A weight in thousandths; 0 means "not this".
pub(super) type Weight = u16;

/// A header such as `Accept`, in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Accepted(Vec<(String, Weight)>);

impl Accepted {
    /// What the header says, however often it is given; `None` where it is not there or empty.
    pub(super) fn of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Problem> {
        let mut entries = Vec::new();
        for value in headers.get_all(name) {
            let value = value.to_str();
            let value = value.map_err(|_| Problem::invalid(name.as_str(), "give it in ASCII"))?;
            for entry in value.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
                entries.push(parsed(entry, name)?);
            }
        }
        if entries.len() > MOST {
            let reason = format!("it has more than {MOST} entries");
            return Err(Problem::invalid(name.as_str(), reason));
        }
        Ok(Some(entries).filter(|entries| !entries.is_empty()).map(Self))
    }

    /// The weight of the first of these names that is there: give the most exact one first.
    pub(super) fn weight(&self, names: &[&str]) -> Option<Weight> {
        let named = |name: &&str| self.0.iter().find(|(entry, _)| entry == name);
        names.iter().find_map(named).map(|(_, weight)| *weight)
    }
}

/// An entry without its parameters, in lower case, and its weight.
fn parsed(entry: &str, name: &HeaderName) -> Result<(String, Weight), Problem> {
    let mut parts = entry.split(';').map(str::trim);
    let what = parts.next().unwrap_or_default().to_ascii_lowercase();
    let mut weight = 1_000;
    for parameter in parts {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if key.trim().eq_ignore_ascii_case("q") {
            let thousandths = thousandths(value.trim());
            weight = thousandths.ok_or_else(|| {
                Problem::invalid(name.as_str(), "give q as 0 to 1 with up to three decimals")
            })?;
        }
    }
    Ok((what, weight))
}

fn thousandths(text: &str) -> Option<Weight> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1") || decimals.len() > 3 {
        return None;
    }
    if !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let weight = format!("{whole}{decimals:0<3}").parse().ok()?;
    (weight <= 1_000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::ACCEPT;

    use super::*;

    fn accepted(values: &[&'static str]) -> Result<Option<Accepted>, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT, HeaderValue::from_static(value));
        }
        Accepted::of(&headers, &ACCEPT)
    }

    #[test]
    fn entries_of_all_lines_have_their_weights() {
        let found = accepted(&["Text/HTML;level=1;q=0.5, */*;q=0.1", "a/b; q=0, c/d"]);
        let found = found.unwrap().unwrap();
        let weights = ["text/html", "*/*", "a/b", "c/d"].map(|name| found.weight(&[name]));
        assert_eq!(weights, [Some(500), Some(100), Some(0), Some(1_000)]);
        assert_eq!(found.weight(&["x/y", "x/*", "*/*"]), Some(100), "the most exact one first");
        assert_eq!(found.weight(&["x/y"]), None);
        assert_eq!(accepted(&[]).unwrap(), None);
        assert_eq!(accepted(&["", " , "]).unwrap(), None);
    }

    #[test]
    fn weights_that_are_none_are_refused() {
        for wrong in ["*/*;q=2", "*/*;q=1.001", "*/*;q=0.1234", "*/*;q=", "*/*;q=.5", "*/*;q=-1"] {
            assert!(accepted(&[wrong]).is_err(), "{wrong}");
        }
    }
}
