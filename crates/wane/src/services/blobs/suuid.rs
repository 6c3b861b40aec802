//! Ids and secrets: 256 random bits each, written as 43 characters of base64url.
//!
//! Whoever knows the id of a BLOB can ask for it, and whoever knows its delete secret can remove
//! it: neither is shown whole by `Debug`, and of the secret only a hash is stored.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use super::BlobsError;
use crate::clock::Clock;

/// Characters of 256 bits.
const TEXT: usize = 43;

/// Characters that `Debug` shows.
const SHOWN: usize = 4;

fn encoded(bytes: &[u8; 32]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Only the one way of writing the bits: other spellings of them are refused.
fn decoded(text: &str) -> Option<[u8; 32]> {
    if text.len() != TEXT {
        return None;
    }
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

fn drawn(clock: &dyn Clock) -> [u8; 32] {
    let mut bytes = [0; 32];
    clock.fill_random(&mut bytes);
    bytes
}

fn invalid(field: &'static str) -> BlobsError {
    let reason = format!("give the {TEXT} characters of base64url that the upload answered");
    BlobsError::Invalid { field, reason }
}

/// The id of a BLOB: 256 random bits, which nobody guesses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suuid([u8; 32]);

impl Suuid {
    pub(super) fn draw(clock: &dyn Clock) -> Self {
        Self(drawn(clock))
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Suuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoded(&self.0))
    }
}

impl fmt::Debug for Suuid {
    /// Whoever knows the id can ask for the BLOB: logs do not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Suuid({}..)", &encoded(&self.0)[..SHOWN])
    }
}

impl FromStr for Suuid {
    type Err = BlobsError;

    fn from_str(text: &str) -> Result<Self, BlobsError> {
        decoded(text).map(Self).ok_or_else(|| invalid("blobSUUID"))
    }
}

/// What removes a BLOB without the owner's credential. The store knows its hash only.
#[derive(Clone)]
pub struct DeleteSecret([u8; 32]);

impl DeleteSecret {
    pub(super) fn draw(clock: &dyn Clock) -> Self {
        Self(drawn(clock))
    }

    /// The secret as it is handed out and presented.
    pub fn reveal(&self) -> String {
        encoded(&self.0)
    }

    pub(super) fn hash(&self) -> Sha256Sum {
        Sha256Sum(Sha256::digest(self.0).into())
    }

    /// Whether this is the secret with that hash, in a time that does not depend on either.
    pub(super) fn has_hash(&self, hash: &Sha256Sum) -> bool {
        self.hash().0.as_slice().ct_eq(hash.0.as_slice()).into()
    }
}

impl fmt::Debug for DeleteSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeleteSecret(..)")
    }
}

impl FromStr for DeleteSecret {
    type Err = BlobsError;

    fn from_str(text: &str) -> Result<Self, BlobsError> {
        decoded(text).map(Self).ok_or_else(|| invalid("deleteSecret"))
    }
}

/// The SHA-256 of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Sum(pub [u8; 32]);

impl Sha256Sum {
    /// The sum of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(super) fn finished(hash: Sha256) -> Self {
        Self(hash.finalize().into())
    }
}

impl fmt::Display for Sha256Sum {
    /// Lower-case hex, as `sha256sum` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256Sum({self})")
    }
}

impl TryFrom<String> for Sha256Sum {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        decoded(&text).map(Self).ok_or("a sum is 43 characters of base64url")
    }
}

impl From<Sha256Sum> for String {
    fn from(sum: Sha256Sum) -> Self {
        encoded(&sum.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn an_id_is_read_back_in_one_spelling_only() {
        let id = Suuid::draw(&*ManualClock::seeded(1));
        let text = id.to_string();
        assert_eq!(text.len(), TEXT);
        assert_eq!(text.parse::<Suuid>().unwrap(), id);
        // The last character has two bits that mean nothing, and they must not.
        let other_spelling = {
            const ALPHABET: &[u8] =
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let last = text.as_bytes()[TEXT - 1];
            let place = ALPHABET.iter().position(|letter| *letter == last).unwrap();
            format!("{}{}", &text[..TEXT - 1], char::from(ALPHABET[place ^ 1]))
        };
        for wrong in ["", "AAAA", &text[1..], &format!("{text}="), &other_spelling] {
            assert!(wrong.parse::<Suuid>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn debug_shows_neither_ids_nor_secrets() {
        let clock = ManualClock::seeded(1);
        let (id, secret) = (Suuid::draw(&*clock), DeleteSecret::draw(&*clock));
        assert!(!format!("{id:?}").contains(&id.to_string()[SHOWN..SHOWN + 6]));
        assert!(!format!("{secret:?}").contains(&secret.reveal()[..SHOWN]));
    }

    #[test]
    fn a_secret_is_known_by_its_hash() {
        let clock = ManualClock::seeded(1);
        let (one, two) = (DeleteSecret::draw(&*clock), DeleteSecret::draw(&*clock));
        assert!(one.has_hash(&one.hash()));
        assert!(!two.has_hash(&one.hash()));
        assert!(one.reveal().parse::<DeleteSecret>().unwrap().has_hash(&one.hash()));
    }

    #[test]
    fn a_sum_is_shown_as_sha256sum_prints_it() {
        let shown = Sha256Sum::of(b"").to_string();
        assert_eq!(shown, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
