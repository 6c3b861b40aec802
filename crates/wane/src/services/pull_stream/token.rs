//! Tokens: where a reader stands, signed, so that they are checked in microseconds without I/O.
//!
//! `base64url(header).base64url(payload).base64url(signature)`, HMAC-SHA512. The header is never
//! parsed: it must be, letter by letter, that of a live key, so that no token chooses how it is
//! checked. Only a payload whose signature holds is looked at. Tokens of the stream and of replays
//! differ in the header, so that none is good for the other.
//!
//! Invariant: a token follows from what it claims and its key, so that it can be issued again byte
//! by byte. Everything that is wrong with a signature is one verdict, [`Refusal::Tampered`].

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::keys::{TokenKey, TokenKeys};
use super::{Ispb, Refusal};
use crate::store::Timestamp;

/// The longest text that is looked at as a token.
pub(super) const MAX_TOKEN: usize = 1_024;

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The stream of an institution.
    Pull,
    /// A replay.
    Replay,
}

impl Kind {
    fn typ(self) -> &'static str {
        match self {
            Self::Pull => "PI-PULL-NEXT",
            Self::Replay => "PI-REPLAY",
        }
    }
}

/// What tokens of one kind say.
pub(super) trait Claimed: Serialize + DeserializeOwned {
    /// The kind.
    const KIND: Kind;

    /// Whose messages it is for.
    fn ispb(&self) -> Ispb;

    /// Unix seconds from which on it is good no more.
    fn exp(&self) -> u64;
}

/// What a token of the stream says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claims {
    pub(super) ispb: Ispb,
    /// The slot, 0 to 5.
    pub(super) thread: u8,
    /// Grows with each token of a slot.
    pub(super) cursor_seq: u64,
    /// The first message that the token acknowledges, as row and place; `-` where there is none.
    pub(super) cursor_offset: String,
    /// Region and range of the log.
    pub(super) shard: String,
    /// Grows whenever the slot changes hands.
    pub(super) epoch: u64,
    /// Unix seconds from which on the token is good no more.
    pub(super) exp: u64,
    /// Unix seconds.
    pub(super) issued_at: u64,
}

impl Claimed for Claims {
    const KIND: Kind = Kind::Pull;

    fn ispb(&self) -> Ispb {
        self.ispb
    }

    fn exp(&self) -> u64 {
        self.exp
    }
}

/// What a token is remembered by: the first half of its SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct TokenHash([u8; 16]);

impl TokenHash {
    pub(super) fn of(token: &str) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&Sha256::digest(token)[..16]);
        Self(half)
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        bool::from(self.0.ct_eq(&other.0))
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        URL_SAFE_NO_PAD.encode(hash.0)
    }
}

impl TryFrom<String> for TokenHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| "it is not base64url")?;
        bytes.try_into().map(Self).map_err(|_| "it does not have 16 bytes")
    }
}

/// The token of these claims, by this key.
pub(super) fn issue<C: Claimed>(key: &TokenKey, claims: &C) -> String {
    let mut token = String::with_capacity(MAX_TOKEN / 2);
    token.push_str(key.header(C::KIND));
    token.push('.');
    let payload = serde_json::to_vec(claims).expect("numbers and short texts are always JSON");
    URL_SAFE_NO_PAD.encode_string(payload, &mut token);
    let mac = key.mac(token.as_bytes());
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(mac, &mut token);
    token
}

/// What a token claims, if it is one of ours, for this institution, and not over.
pub(super) fn verify<C: Claimed>(
    keys: &TokenKeys,
    ispb: Ispb,
    now: Timestamp,
    token: &str,
) -> Result<C, Refusal> {
    let claims: C = signed_claims(keys, token).ok_or(Refusal::Tampered)?;
    if claims.ispb() != ispb {
        return Err(Refusal::Foreign);
    }
    if now.as_unix_millis() / 1_000 >= claims.exp() {
        return Err(Refusal::Expired);
    }
    Ok(claims)
}

fn signed_claims<C: Claimed>(keys: &TokenKeys, token: &str) -> Option<C> {
    if token.len() > MAX_TOKEN {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (head, payload) = signed.split_once('.')?;
    let key = keys.live().find(|key| key.header(C::KIND) == head)?;
    let mut mac = [0; 64];
    let length = URL_SAFE_NO_PAD.decode_slice(signature, &mut mac).ok()?;
    if length != mac.len() || !bool::from(key.mac(signed.as_bytes()).ct_eq(&mac)) {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

/// The header of every token of a kind by the key with this id.
pub(super) fn header(kind: Kind, kid: &str) -> String {
    let typ = kind.typ();
    URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS512","typ":"{typ}","kid":"{kid}"}}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_millis(1_000_000_000_000);

    fn key(kid: &str) -> TokenKey {
        TokenKey::new(kid, kid.repeat(32).as_bytes()).unwrap()
    }

    fn keys() -> TokenKeys {
        TokenKeys::new(key("b"), Some(key("a"))).unwrap()
    }

    fn claims() -> Claims {
        Claims {
            ispb: "00000208".parse().unwrap(),
            thread: 5,
            cursor_seq: 7,
            cursor_offset: "12.3".into(),
            shard: "local:0".into(),
            epoch: 2,
            exp: NOW.as_unix_millis() / 1_000 + 300,
            issued_at: NOW.as_unix_millis() / 1_000,
        }
    }

    fn verdict(token: &str) -> Result<Claims, Refusal> {
        verify(&keys(), claims().ispb, NOW, token)
    }

    fn with(head: &str, payload: &str, key: &TokenKey) -> String {
        let (head, payload) = (URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(payload));
        let signed = format!("{head}.{payload}");
        let mac = URL_SAFE_NO_PAD.encode(key.mac(signed.as_bytes()));
        format!("{signed}.{mac}")
    }

    #[test]
    fn header_and_payload_are_as_designed() {
        let token = issue(&key("b"), &claims());
        let part = |place| {
            let part = token.split('.').nth(place).unwrap();
            String::from_utf8(URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!(part(0), r#"{"alg":"HS512","typ":"PI-PULL-NEXT","kid":"b"}"#);
        assert_eq!(
            part(1),
            r#"{"ispb":"00000208","thread":5,"cursor_seq":7,"cursor_offset":"12.3","shard":"local:0","epoch":2,"exp":1000000300,"issued_at":1000000000}"#
        );
        assert_eq!(token.split('.').nth(2).unwrap().len(), 86);
    }

    #[test]
    fn tokens_of_the_current_and_the_previous_key_are_good() {
        for kid in ["a", "b"] {
            let token = issue(&key(kid), &claims());
            assert_eq!(token, issue(&key(kid), &claims()), "issued again, the same");
            assert_eq!(verdict(&token), Ok(claims()));
        }
    }

    #[test]
    fn a_token_of_another_institution_is_foreign_and_an_old_one_expired() {
        let token = issue(&key("b"), &claims());
        let other = "99999999".parse().unwrap();
        assert_eq!(verify::<Claims>(&keys(), other, NOW, &token), Err(Refusal::Foreign));
        let at = |millis| Timestamp::from_unix_millis(NOW.as_unix_millis() + millis);
        assert!(verify::<Claims>(&keys(), claims().ispb, at(299_999), &token).is_ok());
        assert_eq!(
            verify::<Claims>(&keys(), claims().ispb, at(300_000), &token),
            Err(Refusal::Expired)
        );
    }

    /// Every byte of a token counts, and nothing can be added or taken.
    #[test]
    fn no_changed_token_is_good() {
        let good = issue(&key("b"), &claims());
        for place in 0..good.len() {
            for other in [b'A', b'B', b'.', b'=', b'-', b'+', b' '] {
                let mut bytes = good.clone().into_bytes();
                if bytes[place] == other {
                    continue;
                }
                bytes[place] = other;
                let changed = String::from_utf8(bytes).unwrap();
                assert_eq!(verdict(&changed), Err(Refusal::Tampered), "{changed}");
            }
            assert_eq!(verdict(&good[..place]), Err(Refusal::Tampered), "cut at {place}");
        }
        for added in ["=", "A", ".", ".A", "\n"] {
            assert_eq!(verdict(&format!("{good}{added}")), Err(Refusal::Tampered), "{added:?}");
        }
        assert_eq!(verdict(&"A".repeat(1_000_000)), Err(Refusal::Tampered));
    }

    #[test]
    fn no_token_chooses_how_it_is_checked() {
        let payload = serde_json::to_string(&claims()).unwrap();
        let header = |alg: &str, typ: &str, kid: &str| {
            format!(r#"{{"alg":"{alg}","typ":"{typ}","kid":"{kid}"}}"#)
        };
        let good = header("HS512", "PI-PULL-NEXT", "b");
        assert!(verdict(&with(&good, &payload, &key("b"))).is_ok(), "the control");
        for wrong in [
            header("none", "PI-PULL-NEXT", "b"),
            header("HS256", "PI-PULL-NEXT", "b"),
            header("hs512", "PI-PULL-NEXT", "b"),
            header("HS512", "JWT", "b"),
            header("HS512", "PI-PULL-NEXT", "c"),
            header("HS512", "PI-PULL-NEXT", ""),
            format!(" {good}"),
            r#"{"alg":"HS512","typ":"PI-PULL-NEXT"}"#.into(),
            String::new(),
        ] {
            assert_eq!(
                verdict(&with(&wrong, &payload, &key("b"))),
                Err(Refusal::Tampered),
                "{wrong}"
            );
        }
        assert_eq!(verdict(&with(&good, &payload, &key("a"))), Err(Refusal::Tampered), "other key");
        let unsigned = with(&header("none", "PI-PULL-NEXT", "b"), &payload, &key("b"));
        let unsigned = unsigned.rsplit_once('.').unwrap().0;
        assert_eq!(verdict(&format!("{unsigned}.")), Err(Refusal::Tampered));
    }

    /// Signed or not: what does not say what we say is not ours.
    #[test]
    fn payloads_of_another_shape_are_refused() {
        let head = r#"{"alg":"HS512","typ":"PI-PULL-NEXT","kid":"b"}"#;
        let payload = serde_json::to_string(&claims()).unwrap();
        for wrong in [
            payload.replace("1000000300", "\"1000000300\""),
            payload.replace("\"thread\":5", "\"thread\":-1"),
            payload.replace("\"thread\":5,", ""),
            payload.replace("00000208", "0000020"),
            payload.replace('}', ",\"more\":1}"),
            format!("{payload}{payload}"),
            "[]".into(),
        ] {
            assert_eq!(verdict(&with(head, &wrong, &key("b"))), Err(Refusal::Tampered), "{wrong}");
        }
    }

    /// The best of many tries, as the machine may be busy. Without optimization it is several times
    /// slower than what is shipped.
    #[test]
    fn a_token_is_checked_in_microseconds() {
        use crate::clock::SystemClock;
        let (clock, keys, ispb) = (SystemClock::shared(), keys(), claims().ispb);
        let token = issue(&key("a"), &claims());
        let batch = || {
            let began = clock.monotonic();
            (0..100).for_each(|_| drop(verify::<Claims>(&keys, ispb, NOW, &token).unwrap()));
            (clock.monotonic() - began) / 100
        };
        let best = (0..50).map(|_| batch()).min().unwrap();
        println!("{best:?} for one token");
        assert!(best < std::time::Duration::from_micros(100), "{best:?}");
    }
}
