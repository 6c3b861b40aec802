//! `Upload-Metadata`: what a client says of its upload, as pairs of a name and base64.
//!
//! The name of the file and its media type become those of the BLOB. The rest means nothing here;
//! the whole is kept as it came and given back.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wane::services::blobs::NewBlob;

use crate::http::header;
use crate::http::problem::Problem;

pub(super) const UPLOAD_METADATA: &str = "Upload-Metadata";

/// Names under which clients give the name of a file, and its media type.
const NAMES: [&str; 2] = ["filename", "name"];
const TYPES: [&str; 3] = ["filetype", "type", "contentType"];

/// Adds to a BLOB what the header says of it.
pub(super) fn describe(blob: &mut NewBlob, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(text) = header::text(headers, UPLOAD_METADATA)? else { return Ok(()) };
    let pairs = read(text)?;
    let find =
        |keys: &[&str]| keys.iter().find_map(|key| pairs.iter().find(|(name, _)| name == key));
    if let Some((_, name)) = find(&NAMES) {
        let name = std::str::from_utf8(name);
        name.map_err(|_| invalid("the name is not UTF-8"))?.clone_into(&mut blob.name);
    }
    // A browser that does not know the type of a file gives an empty one.
    if let Some((_, kind)) = find(&TYPES).filter(|(_, kind)| !kind.is_empty()) {
        let kind = std::str::from_utf8(kind);
        kind.map_err(|_| invalid("the type is not ASCII"))?.clone_into(&mut blob.content_type);
    }
    text.clone_into(&mut blob.note);
    Ok(())
}

/// The pairs of the header; no name is empty or given twice.
fn read(text: &str) -> Result<Vec<(&str, Vec<u8>)>, Problem> {
    let mut pairs: Vec<(&str, Vec<u8>)> = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
        let (name, encoded) = pair.split_once(' ').unwrap_or((pair, ""));
        if name.is_empty() {
            return Err(invalid("a name is empty; give pairs of a name and base64"));
        }
        if pairs.iter().any(|(known, _)| *known == name) {
            return Err(invalid("a name is given twice"));
        }
        let bytes = STANDARD.decode(encoded.trim());
        pairs.push((name, bytes.map_err(|_| invalid("a value is not base64"))?));
    }
    Ok(pairs)
}

fn invalid(reason: &str) -> Problem {
    Problem::invalid(UPLOAD_METADATA, reason)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn described(metadata: &str) -> Result<NewBlob, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(UPLOAD_METADATA, HeaderValue::from_str(metadata).unwrap());
        let mut blob = NewBlob::default();
        describe(&mut blob, &headers)?;
        Ok(blob)
    }

    #[test]
    fn name_and_type_are_used_and_the_whole_is_kept() {
        let text = "filename w6kudHh0,filetype dGV4dC9wbGFpbg==, is_confidential,x cQ==";
        let blob = described(text).unwrap();
        let found = (&*blob.name, &*blob.content_type, &*blob.note);
        assert_eq!(found, ("\u{e9}.txt", "text/plain", text));
        let plain = described("filetype ,name YQ==").unwrap();
        assert_eq!((&*plain.name, &*plain.content_type), ("a", "application/octet-stream"));
        assert_eq!(described("").unwrap(), NewBlob::default());
    }

    #[test]
    fn what_is_no_list_of_pairs_is_refused() {
        for wrong in ["a ?", "a YQ==,a YQ==", "a YQ==,", ",", "filename /w==", "a YQ== YQ=="] {
            assert!(described(wrong).is_err(), "{wrong}");
        }
    }
}
