//! Sums of bytes in headers: `Repr-Digest` and `Content-Digest` (RFC 9530).
//!
//! On the way in both mean the body, for an upload has neither ranges nor codings. A sum that is
//! given is checked; where only sums are given that cannot be, the upload is refused rather than
//! taken unchecked. On the way out the sum is the one that the BLOB was stored with.

use axum::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use sfv::{Dictionary, ListEntry, Parser};
use sha2::{Digest as _, Sha512};
use wane::services::blobs::Sha256Sum;

use crate::http::problem::Problem;

/// The sum of the whole BLOB.
pub(super) const REPR_DIGEST: &str = "Repr-Digest";

/// The sum of the body that is sent.
pub(super) const CONTENT_DIGEST: &str = "Content-Digest";

/// The sums that an upload announces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) sha256: Option<Sha256Sum>,
    pub(super) sha512: Option<[u8; 64]>,
}

impl Announced {
    /// Reads both headers.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut announced = Self::default();
        for name in [REPR_DIGEST, CONTENT_DIGEST] {
            announced.read(headers, name)?;
        }
        Ok(announced)
    }

    fn read(&mut self, headers: &HeaderMap, name: &str) -> Result<(), Problem> {
        let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        if lines.is_empty() {
            return Ok(());
        }
        let malformed = |_| Problem::invalid(name, "give it as sha-256=:BASE64:");
        let sums: Dictionary = Parser::new(&lines.join(&b","[..])).parse().map_err(malformed)?;
        let sha256 = sum(&sums, name, "sha-256")?;
        let sha512 = sum(&sums, name, "sha-512")?;
        // An empty dictionary is as good as none.
        if sha256.is_none() && sha512.is_none() && !sums.is_empty() {
            return Err(Problem::invalid(name, "give a sum of sha-256 or sha-512"));
        }
        agree(&mut self.sha256, sha256.map(Sha256Sum), name)?;
        agree(&mut self.sha512, sha512, name)
    }
}

/// The bytes of one sum.
fn sum<const N: usize>(
    sums: &Dictionary,
    name: &str,
    algorithm: &str,
) -> Result<Option<[u8; N]>, Problem> {
    let bytes = match sums.get(algorithm) {
        None => return Ok(None),
        Some(ListEntry::Item(item)) => {
            let bytes = item.bare_item.as_byte_sequence();
            bytes.and_then(|bytes| <[u8; N]>::try_from(bytes).ok())
        }
        Some(ListEntry::InnerList(_)) => None,
    };
    let wrong = || Problem::invalid(name, format!("{algorithm} has {N} bytes, as :BASE64:"));
    bytes.map(Some).ok_or_else(wrong)
}

/// Takes a sum over, unless another one was given for the same bytes.
fn agree<T: PartialEq>(known: &mut Option<T>, given: Option<T>, name: &str) -> Result<(), Problem> {
    if known.is_some() && given.is_some() && *known != given {
        return Err(Problem::invalid(name, "it differs from the other digest of the same body"));
    }
    *known = known.take().or(given);
    Ok(())
}

/// A SHA-512 that is taken while the bytes come, where one was announced.
#[derive(Debug)]
pub(super) struct Sha512Check {
    expected: [u8; 64],
    hash: Sha512,
}

impl Sha512Check {
    pub(super) fn new(expected: [u8; 64]) -> Self {
        Self { expected, hash: Sha512::new() }
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        self.hash.update(piece);
    }

    /// Says whether the bytes had the sum.
    pub(super) fn finish(self) -> Result<(), Problem> {
        if self.hash.finalize().as_slice() == self.expected {
            return Ok(());
        }
        Err(Problem::invalid(
            "sha-512",
            "the bytes have another sum than was announced; send the BLOB anew",
        ))
    }
}

/// A sum as both headers write it.
pub(super) fn written(sum: &Sha256Sum) -> String {
    format!("sha-256=:{}:", STANDARD.encode(sum.0))
}

/// Bytes as they stand in an `ETag`.
pub(super) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(&'static str, &str)]) -> Result<Announced, Problem> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: axum::http::HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        Announced::of(&headers)
    }

    #[test]
    fn a_sum_comes_back_as_it_was_written() {
        let sum = Sha256Sum::of(b"abc");
        let read = read(&[(REPR_DIGEST, &written(&sum))]).unwrap();
        assert_eq!(read, Announced { sha256: Some(sum), sha512: None });
    }

    #[test]
    fn sums_may_stand_in_either_header_and_beside_unknown_ones() {
        let (sum, other) = (written(&Sha256Sum::of(b"abc")), written(&Sha256Sum::of(b"x")));
        let long = format!("sha-512=:{}:", STANDARD.encode([7; 64]));
        let both = read(&[(REPR_DIGEST, &sum), (CONTENT_DIGEST, &long)]).unwrap();
        assert!(both.sha256.is_some() && both.sha512 == Some([7; 64]));
        let beside = read(&[(CONTENT_DIGEST, &format!("md5=:AAAA:, {sum}"))]).unwrap();
        assert!(beside.sha256.is_some());
        let twice = read(&[(REPR_DIGEST, "md5=:AAAA:"), (REPR_DIGEST, &sum)]).unwrap();
        assert!(twice.sha256.is_some());
        assert!(read(&[(REPR_DIGEST, &sum), (CONTENT_DIGEST, &sum)]).is_ok());
        assert!(read(&[(REPR_DIGEST, &sum), (CONTENT_DIGEST, &other)]).is_err());
    }

    #[test]
    fn what_cannot_be_checked_is_refused() {
        let short = format!("sha-256=:{}:", STANDARD.encode([1; 31]));
        for wrong in ["sha-256", "md5=:AAAA:", "sha-256=abc", "sha-256=:?:", &short, "=", "\""] {
            assert!(read(&[(REPR_DIGEST, wrong)]).is_err(), "{wrong}");
        }
        assert_eq!(read(&[]).unwrap(), Announced::default());
        assert_eq!(read(&[(REPR_DIGEST, "")]).unwrap(), Announced::default());
    }
}
