//! Headers of requests: each of ours is given at most once, and read as text.

use axum::http::{HeaderMap, HeaderValue};

use super::problem::Problem;

/// The value of a header that may be given once. `name` is spelled as in the answer about it.
pub(super) fn once<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut given = headers.get_all(name).iter();
    let first = given.next();
    if given.next().is_some() {
        return Err(Problem::invalid(name, "give it once"));
    }
    Ok(first)
}

/// The same as text: visible ASCII and spaces.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let value = once(headers, name)?.map(HeaderValue::to_str).transpose();
    value.map_err(|_| Problem::invalid(name, "give it in ASCII"))
}

/// The same as a number: digits and nothing else.
pub(super) fn number<T: std::str::FromStr>(
    headers: &HeaderMap,
    name: &str,
) -> Result<Option<T>, Problem> {
    let Some(text) = text(headers, name)? else { return Ok(None) };
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.map(Some).ok_or_else(|| Problem::invalid(name, "give a whole number, in digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| ("ttl".parse().unwrap(), HeaderValue::from_static(value))).fold(
            HeaderMap::new(),
            |mut headers, (name, value): (axum::http::HeaderName, _)| {
                headers.append(name, value);
                headers
            },
        )
    }

    #[test]
    fn a_header_is_given_once_or_not_at_all() {
        assert_eq!(text(&headers(&[]), "TTL").unwrap(), None);
        assert_eq!(text(&headers(&["1d"]), "TTL").unwrap(), Some("1d"));
        assert!(text(&headers(&["1d", "1d"]), "TTL").is_err());
    }

    #[test]
    fn a_number_has_digits_only() {
        assert_eq!(number::<u32>(&headers(&["7"]), "TTL").unwrap(), Some(7));
        for wrong in ["+7", "-1", "", " 7 7", "4294967296", "0x7", "1e3"] {
            assert!(number::<u32>(&headers(&[wrong]), "TTL").is_err(), "{wrong}");
        }
    }
}
