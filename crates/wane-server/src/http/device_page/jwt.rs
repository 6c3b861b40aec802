//! A JWT as it came: three parts, of which nothing is read before its signature is known to be good,
//! but which key the sender says it is by.
//!
//! Whoever checks one knows which algorithms are taken. A header is obeyed in nothing, and one that
//! asks to be obeyed is not [`Header::is_plain`].

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};

use crate::http::body::begins_object;

/// The longest subject, in bytes.
const LONGEST_SUBJECT: usize = 255;

/// Three parts that nobody vouches for yet.
pub(super) struct Jwt<'a> {
    /// Header and claims, as the signature is over them.
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
    header: &'a str,
    claims: &'a str,
}

impl<'a> Jwt<'a> {
    /// None where it is not three parts, or the last is no base64url.
    pub(super) fn split(text: &'a str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        Some(Self { signed, signature: decoded(signature)?, header, claims })
    }

    /// What it says of itself.
    pub(super) fn header(&self) -> Option<Header> {
        parsed(self.header)
    }

    /// What it claims. Worth nothing before the signature was checked.
    pub(super) fn claims<T: DeserializeOwned>(&self) -> Option<T> {
        parsed(self.claims)
    }
}

fn parsed<T: DeserializeOwned>(part: &str) -> Option<T> {
    json_object(&decoded(part)?)
}

/// A JSON object, and not an array of its members.
pub(super) fn json_object<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    begins_object(bytes).then(|| serde_json::from_slice(bytes).ok())?
}

/// The bytes of base64url as JOSE writes it.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// What a JWT says of itself.
#[derive(Deserialize)]
pub(super) struct Header {
    pub(super) alg: String,
    /// The name of the key.
    #[serde(default)]
    pub(super) kid: Option<String>,
    #[serde(default)]
    typ: Option<String>,
    #[serde(default, deserialize_with = "is_there")]
    cty: bool,
    #[serde(default, deserialize_with = "is_there")]
    crit: bool,
    #[serde(default, deserialize_with = "is_there")]
    b64: bool,
}

/// Whatever it says.
fn is_there<'de, D: Deserializer<'de>>(member: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(member).map(|_| true)
}

impl Header {
    /// Whether it is that of a JWT, and names nothing that must be understood.
    pub(super) fn is_plain(&self) -> bool {
        let is_jwt = |typ: &str| {
            typ.eq_ignore_ascii_case("JWT") || typ.eq_ignore_ascii_case("application/jwt")
        };
        self.typ.as_deref().is_none_or(is_jwt) && !self.cty && !self.crit && !self.b64
    }
}

/// Whom a JWT is for.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn names(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    /// Whether it is for this one, and perhaps for others.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names().iter().any(|own| own == name)
    }

    /// Whether it is for this one alone.
    pub(super) fn is_only(&self, name: &str) -> bool {
        self.has(name) && self.names().iter().all(|own| own == name)
    }
}

/// Whether somebody may be called that.
pub(super) fn is_subject(subject: &str) -> bool {
    (1..=LONGEST_SUBJECT).contains(&subject.len()) && !subject.chars().any(char::is_control)
}
