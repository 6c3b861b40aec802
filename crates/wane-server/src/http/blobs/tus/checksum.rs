//! `Upload-Checksum`: the sum of one request's bytes, which are kept only where it is right.

use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

use crate::http::header;
use crate::http::problem::{Code, Problem};

/// The algorithms, as tus names them. The first one is what every server must know.
pub(super) const ALGORITHMS: &str = "sha1,sha256,sha512";

const UPLOAD_CHECKSUM: &str = "Upload-Checksum";

/// The status that tus has for bytes with another sum.
pub(in crate::http) const MISMATCH: u16 = 460;

/// A sum that is taken while the bytes come.
#[derive(Debug)]
pub(super) struct Checksum {
    expected: Vec<u8>,
    hash: Hash,
}

#[derive(Debug)]
enum Hash {
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Checksum {
    /// The sum that the head of a request announces.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let Some(text) = header::text(headers, UPLOAD_CHECKSUM)? else { return Ok(None) };
        let (algorithm, encoded) = text.split_once(' ').unwrap_or((text, ""));
        let (hash, length) = match algorithm {
            "sha1" => (Hash::Sha1(Sha1::new()), 20),
            "sha256" => (Hash::Sha256(Sha256::new()), 32),
            "sha512" => (Hash::Sha512(Sha512::new()), 64),
            _ => return Err(invalid(&format!("use one of {ALGORITHMS}, and base64"))),
        };
        let expected = STANDARD.decode(encoded).ok().filter(|sum| sum.len() == length);
        let expected = expected.ok_or_else(|| {
            invalid(&format!("{algorithm} has {length} bytes; give them in base64"))
        })?;
        Ok(Some(Self { expected, hash }))
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        match &mut self.hash {
            Hash::Sha1(hash) => hash.update(piece),
            Hash::Sha256(hash) => hash.update(piece),
            Hash::Sha512(hash) => hash.update(piece),
        }
    }

    /// Says whether the bytes had the sum.
    pub(super) fn finish(self) -> Result<(), Problem> {
        let found = match self.hash {
            Hash::Sha1(hash) => hash.finalize().to_vec(),
            Hash::Sha256(hash) => hash.finalize().to_vec(),
            Hash::Sha512(hash) => hash.finalize().to_vec(),
        };
        if found == self.expected {
            return Ok(());
        }
        let detail = "the bytes have another sum than was announced; send them anew";
        let problem = Problem::new(Code::InvalidRequest, detail);
        Err(StatusCode::from_u16(MISMATCH)
            .map_or(problem.clone(), |status| problem.answered(status)))
    }
}

fn invalid(reason: &str) -> Problem {
    Problem::invalid(UPLOAD_CHECKSUM, reason)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn announced(value: &str) -> Result<Option<Checksum>, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(UPLOAD_CHECKSUM, HeaderValue::from_str(value).unwrap());
        Checksum::of(&headers)
    }

    fn outcome(value: &str, bytes: &[u8]) -> Result<(), u16> {
        let mut checksum = announced(value).unwrap().unwrap();
        bytes.chunks(2).for_each(|piece| checksum.update(piece));
        checksum.finish().map_err(|problem| problem.status().as_u16())
    }

    #[test]
    fn bytes_are_held_to_their_sum() {
        let sums = [
            format!("sha1 {}", STANDARD.encode(Sha1::digest(b"abcde"))),
            format!("sha256 {}", STANDARD.encode(Sha256::digest(b"abcde"))),
            format!("sha512 {}", STANDARD.encode(Sha512::digest(b"abcde"))),
        ];
        for sum in sums {
            assert_eq!(outcome(&sum, b"abcde"), Ok(()), "{sum}");
            assert_eq!(outcome(&sum, b"abcdX"), Err(460), "{sum}");
            assert_eq!(outcome(&sum, b""), Err(460), "{sum}");
        }
    }

    #[test]
    fn what_cannot_be_checked_is_refused() {
        for wrong in ["md5 1B2M2Y8AsgTpgAmY7PhCfg==", "sha1", "sha1 ?", "sha1 YQ==", "SHA1 x", ""] {
            assert!(announced(wrong).is_err(), "{wrong}");
        }
        assert!(Checksum::of(&HeaderMap::new()).unwrap().is_none());
    }
}
