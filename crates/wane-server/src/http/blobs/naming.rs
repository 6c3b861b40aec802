//! Names of BLOBs in headers: percent-encoded in `Blob-Name`, and as a browser saves them in
//! `Content-Disposition` (RFC 6266 with the form of RFC 5987 for what is not plain ASCII).

use axum::http::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

use crate::http::header;
use crate::http::path::check_escapes;
use crate::http::problem::Problem;

/// The header with the name.
pub(super) const BLOB_NAME: &str = "Blob-Name";

/// What is left as it is, beside letters and digits, in both headers.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The name that the head of an upload gives. UTF-8 may also come as it is.
pub(super) fn given(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = header::once(headers, BLOB_NAME)? else { return Ok(None) };
    check_escapes(BLOB_NAME, &String::from_utf8_lossy(value.as_bytes()))?;
    let name = percent_decode(value.as_bytes()).decode_utf8();
    let name = name.map_err(|_| Problem::invalid(BLOB_NAME, "it is not UTF-8"))?;
    Ok(Some(name.into_owned()))
}

/// The name as `Blob-Name` has it.
pub(super) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, PLAIN).to_string()
}

/// `Content-Disposition` of a BLOB with this name: to be saved, never to be shown in place.
pub(super) fn disposition(name: &str) -> String {
    if name.is_empty() {
        return "attachment".into();
    }
    // The folder itself or the one above: a client that saves under such a name fails, or worse.
    if name == "." || name == ".." {
        return format!("attachment; filename=\"{}\"", "_".repeat(name.len()));
    }
    let is_plain = |c: char| c == ' ' || (c.is_ascii_graphic() && !"\"\\/%".contains(c));
    let fallback: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if fallback == name {
        return format!("attachment; filename=\"{fallback}\"");
    }
    format!("attachment; filename=\"{fallback}\"; filename*=UTF-8''{}", encoded(name))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::campaigns::{assert_caught, assert_holds};

    fn read(value: &[u8]) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(BLOB_NAME, HeaderValue::from_bytes(value).ok()?);
        given(&headers).ok()?
    }

    #[test]
    fn names_are_decoded_once_and_raw_text_is_taken_as_it_is() {
        assert_eq!(read(b"a%20b%2525.txt").as_deref(), Some("a b%25.txt"));
        assert_eq!(read(b"plain name.txt").as_deref(), Some("plain name.txt"));
        assert_eq!(read("\u{e9}t\u{e9}".as_bytes()).as_deref(), Some("\u{e9}t\u{e9}"));
        for wrong in [&b"100%"[..], b"%zz", b"%FF", b"\xFF"] {
            assert_eq!(read(wrong), None);
        }
    }

    #[test]
    fn a_plain_name_is_quoted_and_any_other_is_encoded_too() {
        assert_eq!(disposition(""), "attachment");
        assert_eq!(disposition("a b.txt"), "attachment; filename=\"a b.txt\"");
        assert_eq!(
            disposition("\u{20ac} \"x\"/..\\y%41.txt"),
            "attachment; filename=\"_ _x__.._y_41.txt\"; \
             filename*=UTF-8''%E2%82%AC%20%22x%22%2F..%5Cy%2541.txt"
        );
    }

    #[test]
    fn a_name_of_a_folder_is_not_given_to_save_under() {
        assert_eq!(disposition("."), "attachment; filename=\"_\"");
        assert_eq!(disposition(".."), "attachment; filename=\"__\"");
        assert_eq!(disposition("..."), "attachment; filename=\"...\"");
    }

    const SEEDS: [&str; 4] = ["a.txt", "\u{e9}t\u{e9} \"x\".pdf", "100%25", "..\\..//x;y'z"];

    /// What is encoded comes back the same, and no name leaves the quotes.
    fn check(encode: fn(&str) -> String, bytes: &[u8]) {
        let Ok(name) = std::str::from_utf8(bytes) else { return };
        if name.is_empty() || name.chars().any(char::is_control) {
            return;
        }
        assert_eq!(read(encode(name).as_bytes()).as_deref(), Some(name), "does not come back");
        let shown = disposition(name);
        let quoted = shown.split('"').collect::<Vec<_>>();
        assert_eq!(quoted.len(), 3, "leaves its quotes: {shown}");
        assert!(shown.is_ascii() && !quoted[1].contains('/'), "{shown}");
    }

    #[test]
    fn every_name_comes_back_as_it_was() {
        assert_holds(&SEEDS, |bytes| check(encoded, bytes));
    }

    /// The control: an encoder that leaves percent signs alone.
    #[test]
    fn an_encoder_that_forgets_percent_signs_is_caught() {
        const FORGETFUL: &AsciiSet = &PLAIN.remove(b'%');
        fn forgetful(name: &str) -> String {
            utf8_percent_encode(name, FORGETFUL).to_string()
        }
        assert_caught(&SEEDS, |bytes| check(forgetful, bytes), "does not come back");
    }
}
