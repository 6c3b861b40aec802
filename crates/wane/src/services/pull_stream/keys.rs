//! Keys that tokens are signed with: the current one, and the previous one for tokens in flight.
//!
//! Where keys come from is a [`KeySource`]: [`StaticKeys`] holds them in memory and is rotated by
//! whoever reads them from a file, the environment or a key service.
//!
//! Invariant: at any time there are at most two live keys with different ids; a rotation makes the
//! current one the previous one, so that every token of one rotation ago is still good. No secret
//! is shown by `Debug`.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sha2::{Digest, Sha512};

use super::PullStreamError;
use super::token::{self, Kind};

/// The shortest secret, in bytes.
const MIN_SECRET: usize = 32;

/// The longest key id.
const MAX_KID: usize = 32;

/// Bytes of a block of SHA-512.
const BLOCK: usize = 128;

/// An HMAC-SHA512.
pub(super) type Mac = [u8; 64];

/// A key with its id: HMAC-SHA512 with the pads taken in once.
#[derive(Clone)]
pub struct TokenKey {
    kid: String,
    /// What every token by it begins with: those of the stream, those of replays.
    headers: [String; 2],
    inner: Sha512,
    outer: Sha512,
}

impl TokenKey {
    /// A key of at least 32 secret bytes, by an id of 1 to 32 letters, digits, `-` and `_`.
    pub fn new(kid: &str, secret: &[u8]) -> Result<Self, PullStreamError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=MAX_KID).contains(&kid.len()) || !kid.bytes().all(is_plain) {
            let reason = format!("give 1 to {MAX_KID} letters, digits, - and _");
            return Err(PullStreamError::Invalid { field: "kid", reason });
        }
        if secret.len() < MIN_SECRET {
            let reason = format!("it has {} bytes, give {MIN_SECRET} or more", secret.len());
            return Err(PullStreamError::Invalid { field: "key", reason });
        }
        Ok(Self::padded(kid, secret))
    }

    fn padded(kid: &str, secret: &[u8]) -> Self {
        let mut key = [0; BLOCK];
        if secret.len() > BLOCK {
            key[..64].copy_from_slice(&Sha512::digest(secret));
        } else {
            key[..secret.len()].copy_from_slice(secret);
        }
        let taken_in = |pad: u8| Sha512::new().chain_update(key.map(|byte| byte ^ pad));
        let headers = [Kind::Pull, Kind::Replay].map(|kind| token::header(kind, kid));
        Self { kid: kid.to_owned(), headers, inner: taken_in(0x36), outer: taken_in(0x5C) }
    }

    /// The id, which tokens name.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub(super) fn header(&self, kind: Kind) -> &str {
        let [pull, replay] = &self.headers;
        match kind {
            Kind::Pull => pull,
            Kind::Replay => replay,
        }
    }

    pub(super) fn mac(&self, signed: &[u8]) -> Mac {
        let inner = self.inner.clone().chain_update(signed).finalize();
        self.outer.clone().chain_update(inner).finalize().into()
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey({}, ..)", self.kid)
    }
}

/// The live keys.
#[derive(Debug, Clone)]
pub struct TokenKeys {
    current: TokenKey,
    previous: Option<TokenKey>,
}

impl TokenKeys {
    /// Signs with `current`; tokens of `previous` are still good. Their ids must differ.
    pub fn new(current: TokenKey, previous: Option<TokenKey>) -> Result<Self, PullStreamError> {
        if previous.as_ref().is_some_and(|previous| previous.kid == current.kid) {
            let reason = "two live keys have one id; give each its own".into();
            return Err(PullStreamError::Invalid { field: "kid", reason });
        }
        Ok(Self { current, previous })
    }

    /// The key that tokens are signed with.
    pub fn current(&self) -> &TokenKey {
        &self.current
    }

    /// The live key with this id.
    pub(super) fn by_kid(&self, kid: &str) -> Option<&TokenKey> {
        self.live().find(|key| key.kid == kid)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &TokenKey> {
        std::iter::once(&self.current).chain(&self.previous)
    }
}

/// Where the live keys come from.
///
/// - **Cheap.** It is asked for every token and answers from memory: whoever reads keys from
///   elsewhere does so beforehand.
/// - **Alike everywhere.** All nodes have the same two keys, except for the moments of a rotation.
///   A key must be current nowhere before it is known everywhere: hand it out as `previous` first
///   where nodes are rotated one after the other. A node that lacks a key cannot repeat what was
///   signed with it, and asks the reader to try again.
pub trait KeySource: fmt::Debug + Send + Sync + 'static {
    /// The keys that are live now.
    fn keys(&self) -> Arc<TokenKeys>;
}

/// Keys that are kept in memory and replaced as a whole.
#[derive(Debug)]
pub struct StaticKeys(ArcSwap<TokenKeys>);

impl StaticKeys {
    /// These keys, until they are rotated.
    pub fn new(keys: TokenKeys) -> Self {
        Self(ArcSwap::from_pointee(keys))
    }

    /// Signs with `next` from now on. The key that was current stays good until the next rotation.
    pub fn rotate(&self, next: TokenKey) -> Result<(), PullStreamError> {
        let current = self.0.load().current.clone();
        self.0.store(Arc::new(TokenKeys::new(next, Some(current))?));
        Ok(())
    }

    /// Replaces both keys, as a source that was read again says.
    pub fn replace(&self, keys: TokenKeys) {
        self.0.store(Arc::new(keys));
    }
}

impl KeySource for StaticKeys {
    fn keys(&self) -> Arc<TokenKeys> {
        self.0.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Cases 1, 2 and 6 of RFC 4231; the last has a key that is longer than a block.
    #[test]
    fn the_mac_is_that_of_the_rfc() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (
                &[0x0B; 20],
                b"Hi There",
                "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde\
                 daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
            (
                &[0xAA; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352\
                 6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
            ),
        ];
        for (key, data, expected) in cases {
            assert_eq!(hex(&TokenKey::padded("k", key).mac(data)), expected);
        }
    }

    #[test]
    fn a_rotation_keeps_the_last_key_and_drops_the_one_before() {
        let key = |kid: &str| TokenKey::new(kid, kid.repeat(32).as_bytes()).unwrap();
        let keys = StaticKeys::new(TokenKeys::new(key("a"), None).unwrap());
        keys.rotate(key("b")).unwrap();
        assert_eq!(keys.keys().current().kid(), "b");
        assert!(keys.keys().by_kid("a").is_some());
        keys.rotate(key("c")).unwrap();
        assert!(keys.keys().by_kid("a").is_none());
        assert!(keys.keys().by_kid("b").is_some());
        assert!(keys.rotate(key("c")).is_err(), "one id for two keys");
        assert_eq!(keys.keys().current().kid(), "c");
    }

    #[test]
    fn short_secrets_and_odd_ids_are_refused_and_secrets_are_not_shown() {
        assert!(TokenKey::new("k", &[1; 31]).is_err());
        for kid in ["", "a b", "a\"", &"k".repeat(33)] {
            assert!(TokenKey::new(kid, &[1; 32]).is_err(), "{kid}");
        }
        let shown =
            format!("{:?}", TokenKey::new("k", b"canary canary canary canary canary").unwrap());
        assert!(!shown.contains("canary"), "{shown}");
    }
}
