//! Forms and queries as browsers write them: names and values, of which the page takes what it
//! knows. A link may have picked up other parameters on its way, so those are passed over.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use wane::clock::SharedClock;

use crate::http::body;

/// The largest form.
const LARGEST: usize = 16 << 10;

/// What a form or a query says.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

untold!(Fields);

impl Fields {
    /// The parameters of a request.
    pub(super) fn of_query(uri: &Uri) -> Self {
        Self::parse(uri.query().unwrap_or_default())
    }

    /// The fields of a form, or the status of the answer to what is none.
    pub(super) async fn of_form(
        headers: &HeaderMap,
        body: Body,
        clock: &SharedClock,
    ) -> Result<Self, StatusCode> {
        if !body::is_type(headers, "application/x-www-form-urlencoded") {
            return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        let bytes = body::read(body, LARGEST, clock).await.map_err(|problem| problem.status())?;
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(pairs.map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    /// Whether one of these fields is there more than once.
    pub(super) fn repeats(&self, names: &[&str]) -> bool {
        let count = |name: &str| self.0.iter().filter(|(own, _)| own == name).count();
        names.iter().any(|name| count(name) > 1)
    }

    /// The value of a field that is there once. Of two, neither counts: they would have two readings.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(own, _)| own == name);
        let first = found.next()?;
        found.next().is_none().then_some(&*first.1)
    }
}

/// A plus sign is a space. What is no text cannot be right, and is shown as what it is not.
fn decoded(raw: &str) -> String {
    let spaced = raw.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_once_and_count_once() {
        let fields = Fields::parse("user_code=bcdf+ghjk%2525&x=%FF&&twice=1&twice=1&empty");
        assert_eq!(fields.get("user_code"), Some("bcdf ghjk%25"));
        assert_eq!(fields.get("x"), Some("\u{FFFD}"));
        assert_eq!((fields.get("twice"), fields.get("absent")), (None, None));
        assert_eq!(fields.get("empty"), Some(""));
        assert!(fields.repeats(&["x", "twice"]) && !fields.repeats(&["x", "empty", "absent"]));
    }

    #[test]
    fn what_is_broken_is_text_and_not_a_panic() {
        for text in ["%", "%%%", "=", "&=&", "%zz=%", "a=%E2%82"] {
            Fields::parse(text);
        }
    }
}
