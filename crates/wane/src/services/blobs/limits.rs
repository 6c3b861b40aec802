//! What may be uploaded: names, types and lives within limits, checked before anything is written.

use std::fmt;
use std::str::FromStr;

use super::chunks::MAX_SIZE;
use super::{BlobsError, Sha256Sum};
use crate::services::apps::Limits;
use crate::store::Ttl;

/// The longest name of a BLOB, in bytes of UTF-8.
pub const MAX_NAME: usize = 255;

/// The longest content type, in bytes.
pub const MAX_CONTENT_TYPE: usize = 255;

/// The longest note, in bytes.
pub const MAX_NOTE: usize = 4_096;

/// How long a BLOB lives: `90s`, `15m`, `6h` or `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobTtl(Ttl);

/// The units of a life and their seconds, the largest first.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

impl BlobTtl {
    /// So many whole seconds: 1 to 365 days of them.
    pub fn from_secs(secs: u64) -> Result<Self, BlobsError> {
        Ttl::from_secs(secs).map(Self).map_err(|_| invalid_ttl())
    }

    /// Whole seconds.
    pub fn as_secs(self) -> u64 {
        self.0.as_millis() / 1_000
    }

    pub(super) fn ttl(self) -> Ttl {
        self.0
    }
}

fn invalid_ttl() -> BlobsError {
    let reason = "give a number and s, m, h or d, like 90s, 15m, 6h or 1d; at most 365d".into();
    BlobsError::Invalid { field: "ttl", reason }
}

impl Default for BlobTtl {
    /// A day.
    fn default() -> Self {
        Self(Ttl::from_secs(86_400).unwrap_or(Ttl::MAX))
    }
}

impl FromStr for BlobTtl {
    type Err = BlobsError;

    fn from_str(text: &str) -> Result<Self, BlobsError> {
        let parts =
            UNITS.into_iter().find_map(|(unit, secs)| Some((text.strip_suffix(unit)?, secs)));
        let (number, secs) = parts.ok_or_else(invalid_ttl)?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid_ttl());
        }
        let number: u64 = number.parse().map_err(|_| invalid_ttl())?;
        Self::from_secs(number.checked_mul(secs).ok_or_else(invalid_ttl)?)
    }
}

impl fmt::Display for BlobTtl {
    /// In the largest unit that keeps it whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.as_secs();
        let whole = UNITS.into_iter().find(|(_, unit)| secs.is_multiple_of(*unit));
        let (letter, unit) = whole.unwrap_or(('s', 1));
        write!(f, "{}{letter}", secs / unit)
    }
}

/// What is uploaded, as far as that is known before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBlob {
    /// Its name: up to 255 bytes, no control characters; may be empty.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// What the uploader wants kept with it: up to 4 KiB of visible ASCII and spaces; may be empty.
    pub note: String,
    /// How long it lives, counted from the beginning of the upload.
    pub ttl: BlobTtl,
    /// How often it can be downloaded before it is removed; `None` for any number of times.
    pub downloads: Option<u32>,
    /// How many bytes will come. Another number fails the upload.
    pub length: Option<u64>,
    /// Their sum. Another one fails the upload.
    pub sha256: Option<Sha256Sum>,
}

impl Default for NewBlob {
    fn default() -> Self {
        Self {
            name: String::new(),
            content_type: "application/octet-stream".into(),
            note: String::new(),
            ttl: BlobTtl::default(),
            downloads: None,
            length: None,
            sha256: None,
        }
    }
}

/// What an application may upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobLimits {
    /// Bytes of one BLOB.
    pub max_size: u64,
    /// The longest life, in seconds.
    pub max_ttl_seconds: u64,
    /// BLOBs that the application may hold, uploads under way included.
    pub max_blobs: u64,
    /// Bytes that they may have together.
    pub max_total_bytes: u64,
}

impl BlobLimits {
    /// Says which field breaks a rule.
    pub(super) fn check(&self, blob: &NewBlob) -> Result<(), BlobsError> {
        checked_name(&blob.name)?;
        checked_content_type(&blob.content_type)?;
        checked_note(&blob.note)?;
        if blob.ttl.as_secs() > self.max_ttl_seconds {
            let reason = format!("the application's BLOBs live up to {} s", self.max_ttl_seconds);
            return Err(BlobsError::Invalid { field: "ttl", reason });
        }
        if blob.downloads == Some(0) {
            let reason = "give 1 or more, or leave it out".into();
            return Err(BlobsError::Invalid { field: "downloads", reason });
        }
        blob.length.map_or(Ok(()), |length| self.check_size(length))
    }

    pub(super) fn check_size(&self, size: u64) -> Result<(), BlobsError> {
        let limit = self.max_size.min(MAX_SIZE);
        if size > limit { Err(BlobsError::TooLarge { limit }) } else { Ok(()) }
    }
}

impl From<&Limits> for BlobLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            max_size: limits.max_blob_bytes(),
            max_ttl_seconds: limits.max_blob_ttl_seconds(),
            max_blobs: limits.max_blobs(),
            max_total_bytes: limits.max_blob_total_bytes(),
        }
    }
}

impl Default for BlobLimits {
    fn default() -> Self {
        Self::from(&Limits::default())
    }
}

fn checked_name(name: &str) -> Result<(), BlobsError> {
    if name.len() <= MAX_NAME && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let reason = format!("give up to {MAX_NAME} bytes of UTF-8 without control characters");
    Err(BlobsError::Invalid { field: "name", reason })
}

/// `type/subtype`, both tokens of RFC 9110, and parameters of visible ASCII and spaces.
fn checked_content_type(text: &str) -> Result<(), BlobsError> {
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    let is_type = essence
        .split_once('/')
        .is_some_and(|(kind, subtype)| [kind, subtype].into_iter().all(is_token));
    if is_type && is_printable(text) && text.len() <= MAX_CONTENT_TYPE {
        return Ok(());
    }
    let reason =
        format!("give a media type like image/png, up to {MAX_CONTENT_TYPE} bytes of ASCII");
    Err(BlobsError::Invalid { field: "contentType", reason })
}

fn checked_note(note: &str) -> Result<(), BlobsError> {
    if note.len() <= MAX_NOTE && is_printable(note) {
        return Ok(());
    }
    let reason = format!("give up to {MAX_NOTE} bytes of visible ASCII and spaces");
    Err(BlobsError::Invalid { field: "note", reason })
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fn is_token(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_read_and_written_in_one_form() {
        for (text, secs, shown) in [
            ("1d", 86_400, "1d"),
            ("90s", 90, "90s"),
            ("15m", 900, "15m"),
            ("6h", 21_600, "6h"),
            ("24h", 86_400, "1d"),
            ("365d", 31_536_000, "365d"),
        ] {
            let ttl: BlobTtl = text.parse().unwrap();
            assert_eq!((ttl.as_secs(), ttl.to_string().as_str()), (secs, shown), "{text}");
        }
        assert_eq!(BlobTtl::default().to_string(), "1d");
    }

    #[test]
    fn other_lives_are_refused() {
        let wrong = ["", "d", "1", "0s", "-1d", "+1d", "1.5h", "1w", " 1d", "1d ", "366d", "1D"];
        for text in wrong.into_iter().chain(["99999999999999999999d", "18446744073709551615d"]) {
            let error = text.parse::<BlobTtl>().unwrap_err();
            assert!(error.to_string().contains("1d"), "{text}: {error}");
        }
    }

    #[test]
    fn names_and_types_that_break_a_rule_are_refused() {
        let limits = BlobLimits::default();
        let named = |name: &str| NewBlob { name: name.into(), ..NewBlob::default() };
        let typed = |text: &str| NewBlob { content_type: text.into(), ..NewBlob::default() };
        for name in ["", "a", "\u{e9}t\u{e9} \"x\".txt", &"n".repeat(255)] {
            assert!(limits.check(&named(name)).is_ok(), "{name}");
        }
        for name in ["a\nb", "\0", "\u{7f}", "\u{85}", &"n".repeat(256)] {
            assert!(limits.check(&named(name)).is_err(), "{name}");
        }
        for text in ["text/plain", "text/html; charset=utf-8", "application/vnd.a+b"] {
            assert!(limits.check(&typed(text)).is_ok(), "{text}");
        }
        let long = format!("a/{}", "b".repeat(254));
        for text in ["", "text", "text/", "/plain", "te xt/plain", "a/b\r\nX: y", "a/\u{e9}", &long]
        {
            assert!(limits.check(&typed(text)).is_err(), "{text}");
        }
        let noted = |note: &str| NewBlob { note: note.into(), ..NewBlob::default() };
        assert!(limits.check(&noted(&"n o".repeat(1_365))).is_ok());
        for note in ["a\nb", "\u{e9}", &"n".repeat(4_097)] {
            assert!(limits.check(&noted(note)).is_err(), "{note}");
        }
    }

    #[test]
    fn the_limits_of_the_application_hold() {
        let limits = BlobLimits { max_size: 10, max_ttl_seconds: 60, ..BlobLimits::default() };
        let ttl = |text: &str| text.parse::<BlobTtl>().unwrap();
        let blob = NewBlob { ttl: ttl("60s"), length: Some(10), ..NewBlob::default() };
        assert!(limits.check(&blob).is_ok());
        assert!(limits.check(&NewBlob { ttl: ttl("61s"), ..blob.clone() }).is_err());
        assert!(limits.check(&NewBlob { downloads: Some(0), ..blob.clone() }).is_err());
        let long = limits.check(&NewBlob { length: Some(11), ..blob });
        assert!(matches!(long, Err(BlobsError::TooLarge { limit: 10 })));
    }
}
