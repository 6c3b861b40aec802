//! What only its holder may know: the service's key, device codes, client secrets, link tokens.
//!
//! None of them is in the store as it is handed out, except a payload that an application gave to
//! hand on, and that one only until it was. Each is 256 random bits or derived from some, so a fast
//! hash is enough; user codes are short, so theirs is keyed. None of them is shown by `Debug`.
//!
//! Invariant: a link token is derived from the key *and* the device code, so that neither a copy of
//! the store nor the key alone is enough to make one.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::DeviceAuthError;
use super::place::GrantId;
use crate::clock::Clock;
use crate::services::drawn::found_or_drawn;
use crate::store::{Key, Keyspace, Life, Store, Value, Write};

/// The longest text that a secret or a token is looked for in.
const LONGEST: usize = 8_192;

/// A SHA-256.
pub(super) type Hash = [u8; 32];

/// What link tokens are derived with, and user codes hashed: 256 bits that all nodes share.
///
/// With another key every live code and every link token stops working.
#[derive(Clone)]
pub struct DeviceKey(Hash);

impl DeviceKey {
    /// A key that is kept elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key that the store keeps, drawn by whoever asks first.
    pub async fn in_store<S: Store>(store: &S, clock: &dyn Clock) -> Result<Self, DeviceAuthError> {
        let key = Key::new(Keyspace::Settings.partition(b"keys")?.as_bytes(), b"device_auth")?;
        let draw = || Ok(Write::new(Value::copy_from_slice(&drawn(clock))?, Life::Permanent));
        let found = found_or_drawn(store, &key, draw).await?;
        Self::read(&found.ok_or(DeviceAuthError::Contended)?)
    }

    fn read(value: &[u8]) -> Result<Self, DeviceAuthError> {
        let reason = || DeviceAuthError::Broken { reason: "the key does not have 32 bytes".into() };
        value.try_into().map(Self).map_err(|_| reason())
    }

    /// The keyed hash of a user code.
    pub(super) fn of_user_code(&self, letters: &str) -> Hash {
        hmac(&self.0, &[b"user code\0", letters.as_bytes()])
    }

    pub(super) fn link_token(&self, grant: GrantId, code: &DeviceCode) -> LinkToken {
        let derived = hmac(&self.0, &[b"link token\0", grant.as_bytes(), &code.0]);
        LinkToken(encoded(&derived))
    }

    /// The key of the page: another one, so that what the page signs is nothing here.
    pub fn for_pages(&self) -> PageKey {
        PageKey(hmac(&self.0, &[b"pages\0"]))
    }
}

/// What the page signs its cookies and forms with. All nodes have the same.
#[derive(Clone)]
pub struct PageKey(Hash);

impl PageKey {
    /// The mac of these parts, in this order and parted just there, for one purpose.
    pub fn mac(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        let lengths: Vec<[u8; 8]> = parts.iter().map(|p| (p.len() as u64).to_be_bytes()).collect();
        let mut all: Vec<&[u8]> = vec![purpose.as_bytes(), b"\0"];
        for (length, part) in lengths.iter().zip(parts) {
            all.extend([&length[..], part]);
        }
        hmac(&self.0, &all)
    }

    /// Whether this is that mac, in a time that does not depend on either.
    pub fn is_mac(&self, presented: &[u8], purpose: &str, parts: &[&[u8]]) -> bool {
        self.mac(purpose, parts).ct_eq(presented).into()
    }
}

impl fmt::Debug for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PageKey(..)")
    }
}

impl fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceKey(..)")
    }
}

/// What a device polls with: 256 random bits in base64url, which needs no escaping in a form.
#[derive(Clone)]
pub struct DeviceCode(Hash);

impl DeviceCode {
    pub(super) fn draw(clock: &dyn Clock) -> Self {
        Self(drawn(clock))
    }

    /// The code as it was handed out; `None` for anything that no code looks like.
    pub(super) fn parse(text: &str) -> Option<Self> {
        decoded(text).map(Self)
    }

    /// The code as it is handed out and presented.
    pub fn reveal(&self) -> String {
        encoded(&self.0)
    }

    pub(super) fn grant(&self) -> GrantId {
        GrantId::of_hash(hash(&[b"device code\0", &self.0]))
    }
}

impl fmt::Debug for DeviceCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceCode(..)")
    }
}

/// What a confidential client authenticates with.
#[derive(Clone)]
pub struct ClientSecret(String);

impl ClientSecret {
    pub(super) fn draw(clock: &dyn Clock) -> Self {
        Self(encoded(&drawn(clock)))
    }

    /// The secret as it is handed out, once, and presented.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret(..)")
    }
}

/// The hash of a client secret.
pub(super) fn secret_hash(presented: &str) -> String {
    encoded(&hash(&[b"client secret\0", presented.as_bytes()]))
}

/// Whether this is the secret with that hash, in a time that does not depend on either.
pub(super) fn is_secret(presented: &str, expected: &str) -> bool {
    presented.len() <= LONGEST
        && bool::from(secret_hash(presented).as_bytes().ct_eq(expected.as_bytes()))
}

/// What a linked device has: the service's own bearer token, or what the application gave.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkToken(String);

impl LinkToken {
    /// An application's own payload: 1 to 8,192 bytes of printable ASCII, as access tokens are.
    pub fn payload(text: &str) -> Result<Self, DeviceAuthError> {
        let is_legal = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if is_legal && (1..=LONGEST).contains(&text.len()) {
            return Ok(Self(text.to_owned()));
        }
        let reason = format!("give 1 to {LONGEST} printable ASCII characters");
        Err(DeviceAuthError::Invalid { field: "linkToken", reason })
    }

    /// The token as it is handed out and presented.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Where the token is looked for.
    pub(super) fn hash(&self) -> Hash {
        hash(&[b"link token\0", self.0.as_bytes()])
    }

    /// A token that was presented; `None` for what the service never gave.
    pub(super) fn presented(text: &str) -> Option<Self> {
        decoded(text).map(|_| Self(text.to_owned()))
    }
}

impl fmt::Debug for LinkToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkToken(..)")
    }
}

pub(super) fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// 32 bytes from their one spelling.
pub(super) fn decoded(text: &str) -> Option<Hash> {
    if text.len() != 43 {
        return None;
    }
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

pub(super) fn hash(parts: &[&[u8]]) -> Hash {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

pub(super) fn drawn(clock: &dyn Clock) -> Hash {
    let mut bytes = [0; 32];
    clock.fill_random(&mut bytes);
    bytes
}

/// HMAC-SHA256 (RFC 2104) with a key that is shorter than a block.
pub(super) fn hmac(key: &[u8], parts: &[&[u8]]) -> Hash {
    const BLOCK: usize = 64;
    debug_assert!(key.len() <= BLOCK, "longer keys are hashed first");
    let padded = |pad: u8| {
        let mut block = [pad; BLOCK];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let mut inner = Sha256::new();
    inner.update(padded(0x36));
    parts.iter().for_each(|part| inner.update(part));
    hash(&[&padded(0x5C), &inner.finalize()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Cases 1, 2 and 3 of RFC 4231.
    #[test]
    fn the_mac_is_that_of_the_rfc() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (
                &[0x0B; 20],
                b"Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xAA; 20],
                &[0xDD; 50],
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            ),
        ];
        for (key, data, expected) in cases {
            assert_eq!(hex(&hmac(key, &[data])), expected);
            let (one, two) = data.split_at(3);
            assert_eq!(hex(&hmac(key, &[one, two])), expected, "in parts");
        }
    }

    #[test]
    fn a_device_code_has_one_spelling_and_no_punctuation_that_forms_escape() {
        let clock = ManualClock::seeded(1);
        for _ in 0..200 {
            let text = DeviceCode::draw(&*clock).reveal();
            assert!(
                text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)),
                "{text}"
            );
            assert_eq!(DeviceCode::parse(&text).unwrap().reveal(), text);
            for wrong in [format!("{text}="), format!(" {text}"), text[1..].to_owned()] {
                assert!(DeviceCode::parse(&wrong).is_none(), "{wrong}");
            }
        }
    }

    /// Neither a copy of the store, which knows the grant, nor the key alone makes a token.
    #[test]
    fn a_link_token_needs_the_key_and_the_device_code() {
        let clock = ManualClock::seeded(1);
        let (one, two) = (DeviceCode::draw(&*clock), DeviceCode::draw(&*clock));
        let (key, other) = (DeviceKey::from_bytes([1; 32]), DeviceKey::from_bytes([2; 32]));
        let token = key.link_token(one.grant(), &one);
        assert_eq!(token, key.link_token(one.grant(), &one));
        assert_ne!(token, other.link_token(one.grant(), &one));
        assert_ne!(token, key.link_token(one.grant(), &two));
        assert_ne!(token, key.link_token(two.grant(), &one));
    }

    /// A cookie is not a form, and `ab`, `c` is not `a`, `bc`.
    #[test]
    fn a_mac_of_the_page_is_for_one_purpose_and_for_parts_as_they_were_parted() {
        let key = DeviceKey::from_bytes([1; 32]).for_pages();
        let mac = key.mac("cookie", &[b"ab", b"c"]);
        assert!(key.is_mac(&mac, "cookie", &[b"ab", b"c"]));
        assert!(!key.is_mac(&mac, "form", &[b"ab", b"c"]));
        assert!(!key.is_mac(&mac, "cookie", &[b"a", b"bc"]));
        assert!(!key.is_mac(&mac, "cookie", &[b"abc"]));
        assert!(!key.is_mac(&mac[..31], "cookie", &[b"ab", b"c"]));
        let other = DeviceKey::from_bytes([2; 32]).for_pages();
        assert!(!other.is_mac(&mac, "cookie", &[b"ab", b"c"]));
    }

    #[test]
    fn a_secret_is_known_by_its_hash() {
        let clock = ManualClock::seeded(1);
        let (one, two) = (ClientSecret::draw(&*clock), ClientSecret::draw(&*clock));
        assert!(is_secret(one.reveal(), &secret_hash(one.reveal())));
        assert!(!is_secret(two.reveal(), &secret_hash(one.reveal())));
        assert!(!is_secret("", &secret_hash(one.reveal())));
    }
}
