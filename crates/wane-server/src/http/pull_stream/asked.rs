//! What operators name in a request: an institution, moments, a row. Each is read in one way, whether it
//! stands in a query or in a body.

use std::ops::Range;

use serde_json::Number;
use wane::services::pull_stream::Ispb;
use wane::store::Timestamp;

use crate::http::body::whole_number;
use crate::http::problem::Problem;
use crate::http::query::Parameters;

/// The last moment and the last row, as the description has them.
const LAST: u64 = i64::MAX as u64;

/// The institution that a query names as `ispb`.
pub(super) fn institution(given: &Parameters) -> Result<Ispb, Problem> {
    let ispb = given.get("ispb");
    let ispb = ispb.ok_or_else(|| Problem::invalid("ispb", "say which institution: 8 digits"))?;
    Ok(ispb.parse::<Ispb>()?)
}

/// The moment that a query names, if it names one.
pub(super) fn moment_in(given: &Parameters, name: &str) -> Result<Option<Timestamp>, Problem> {
    let millis = number_in(given, name, NO_MOMENT)?;
    Ok(millis.map(Timestamp::from_unix_millis))
}

/// The row that a query names, if it names one.
pub(super) fn row_in(given: &Parameters, name: &str) -> Result<Option<u64>, Problem> {
    number_in(given, name, "give the number of a row, in digits")
}

/// Between which moments, by the `from` and the `to` of a body.
pub(super) fn times(from: &Number, to: &Number) -> Result<Range<Timestamp>, Problem> {
    let moment = |name: &str, number: &Number| {
        let millis = whole_number(number).filter(|millis| *millis <= LAST);
        let millis = millis.ok_or_else(|| Problem::invalid(name, NO_MOMENT))?;
        Ok::<_, Problem>(Timestamp::from_unix_millis(millis))
    };
    Ok(moment("from", from)?..moment("to", to)?)
}

const NO_MOMENT: &str = "give a whole number of Unix milliseconds";

fn number_in(given: &Parameters, name: &str, reason: &str) -> Result<Option<u64>, Problem> {
    let Some(text) = given.get(name) else { return Ok(None) };
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_plain && *number <= LAST);
    number.map(Some).ok_or_else(|| Problem::invalid(name, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(query: &str) -> Parameters {
        Parameters::of(&format!("/x?{query}").parse().unwrap(), &["ispb", "from"]).unwrap()
    }

    #[test]
    fn an_institution_is_named_by_its_digits() {
        assert_eq!(institution(&given("ispb=00000208")).unwrap().as_str(), "00000208");
        for wrong in ["", "ispb", "ispb=", "ispb=208", "ispb=0000020x", "ispb=000002080"] {
            let told = format!("{:?}", institution(&given(wrong)).unwrap_err());
            assert!(told.contains("ispb"), "{wrong}: {told}");
        }
    }

    /// A query and a body take the same moments, and refuse the same.
    #[test]
    fn a_moment_is_a_whole_number_up_to_what_the_description_has() {
        for (text, is_legal) in [
            ("0", true),
            ("1794000000000", true),
            ("9223372036854775807", true),
            ("9223372036854775808", false),
            ("18446744073709551615", false),
            ("-1", false),
            ("1.5", false),
        ] {
            let in_query = moment_in(&given(&format!("from={text}")), "from");
            let number: Number = serde_json::from_str(text).unwrap();
            let in_body = times(&number, &number);
            assert_eq!((in_query.is_ok(), in_body.is_ok()), (is_legal, is_legal), "{text}");
        }
        for wrong in ["from=", "from=%2B1", "from=x", "from=1794000000000ms"] {
            assert!(moment_in(&given(wrong), "from").is_err(), "{wrong}");
            assert!(row_in(&given(wrong), "from").is_err(), "{wrong}");
        }
        assert_eq!(moment_in(&given(""), "from").unwrap(), None);
    }
}
