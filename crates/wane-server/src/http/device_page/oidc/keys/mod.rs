//! The public keys of an issuer, and which signatures they explain.
//!
//! A key is good for the algorithms of its kind and its size alone, so that what a token says of its
//! algorithm chooses among readings that are all safe. There are none with a shared secret: whoever
//! knows that could sign for everybody. The arithmetic is `ring`'s.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::http::device_page::jwt::{Header, Jwt, decoded, json_object};

/// So many keys of an issuer are kept. They have two or three.
const MOST: usize = 16;

/// So many are tried on one signature, where it does not say which it is by.
const TRIED: usize = 4;

/// The largest modulus and exponent of an RSA key, in bytes. No signature is good by a larger one.
const LARGEST: [usize; 2] = [1_024, 5];

/// How a signature is made.
#[derive(Clone, Copy)]
enum Algorithm {
    Rsa(&'static RsaParameters),
    /// On a curve, by a key of this kind.
    Curve(Curve, &'static dyn VerificationAlgorithm),
}

/// RFC 9864 gives `EdDSA` with this curve a name of its own. They are one.
fn canonical(alg: &str) -> &str {
    if alg == "Ed25519" { "EdDSA" } else { alg }
}

impl Algorithm {
    fn named(alg: &str) -> Option<Self> {
        Some(match canonical(alg) {
            "RS256" => Self::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            "RS384" => Self::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            "RS512" => Self::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            "PS256" => Self::Rsa(&RSA_PSS_2048_8192_SHA256),
            "PS384" => Self::Rsa(&RSA_PSS_2048_8192_SHA384),
            "PS512" => Self::Rsa(&RSA_PSS_2048_8192_SHA512),
            "ES256" => Self::Curve(Curve::P256, &ECDSA_P256_SHA256_FIXED),
            "ES384" => Self::Curve(Curve::P384, &ECDSA_P384_SHA384_FIXED),
            "EdDSA" => Self::Curve(Curve::Ed25519, &ED25519),
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    Ed25519,
}

impl Curve {
    /// The bytes of a coordinate.
    fn size(self) -> usize {
        if self == Self::P384 { 48 } else { 32 }
    }
}

/// What a signature is checked with.
#[derive(Debug)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Point(Curve, Vec<u8>),
}

impl Public {
    /// Whether it made the signature; none where no key of its kind makes such signatures.
    fn explains(&self, algorithm: Algorithm, jwt: &Jwt<'_>) -> Option<bool> {
        let (message, signature) = (jwt.signed.as_bytes(), &*jwt.signature);
        let checked = match (self, algorithm) {
            (Self::Rsa { n, e }, Algorithm::Rsa(parameters)) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Self::Point(own, point), Algorithm::Curve(curve, algorithm)) if *own == curve => {
                UnparsedPublicKey::new(algorithm, point).verify(message, signature)
            }
            (Self::Rsa { .. } | Self::Point(..), Algorithm::Rsa(_) | Algorithm::Curve(..)) => {
                return None;
            }
        };
        Some(checked.is_ok())
    }
}

#[derive(Debug)]
struct Key {
    kid: Option<String>,
    /// The only algorithm that it is for.
    alg: Option<String>,
    public: Public,
}

impl Key {
    /// None where it is no key that we can check a signature with.
    fn of(jwk: Jwk) -> Option<Self> {
        let is_for_signatures = jwk.r#use.is_none_or(|its| its == "sig")
            && jwk.key_ops.is_none_or(|its| its.iter().any(|one| one == "verify"));
        if !is_for_signatures {
            return None;
        }
        let coordinate = |text: &Json, curve: Curve| {
            decoded(text.as_str()?).filter(|bytes| bytes.len() == curve.size())
        };
        let public = match (&*jwk.kty, jwk.crv.as_str()) {
            ("RSA", _) => {
                let [n, e] = [&jwk.n, &jwk.e].map(|text| number(text.as_str()?));
                let (n, e) = (n?, e?);
                if n.len() > LARGEST[0] || e.len() > LARGEST[1] {
                    return None;
                }
                Public::Rsa { n, e }
            }
            ("EC", Some(name @ ("P-256" | "P-384"))) => {
                let curve = if name == "P-256" { Curve::P256 } else { Curve::P384 };
                let (x, y) = (coordinate(&jwk.x, curve)?, coordinate(&jwk.y, curve)?);
                // As SEC 1 writes a point that is not compressed.
                Public::Point(curve, [vec![4], x, y].concat())
            }
            ("OKP", Some("Ed25519")) => {
                Public::Point(Curve::Ed25519, coordinate(&jwk.x, Curve::Ed25519)?)
            }
            _ => return None,
        };
        Some(Self { kid: jwk.kid, alg: jwk.alg, public })
    }

    fn may_have_signed(&self, header: &Header) -> bool {
        let is_named = header.kid.is_none() || header.kid == self.kid;
        is_named && self.alg.as_ref().is_none_or(|alg| canonical(alg) == canonical(&header.alg))
    }
}

/// A number without zeros in front, as `ring` wants it.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = decoded(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Some(bytes[zeros..].to_vec())
}

/// A key as an issuer publishes it (RFC 7517). What the members of a kind are, another kind may mean
/// otherwise.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    #[serde(default)]
    crv: Json,
    #[serde(default)]
    n: Json,
    #[serde(default)]
    e: Json,
    #[serde(default)]
    x: Json,
    #[serde(default)]
    y: Json,
}

/// What became of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    Good,
    /// By no key that is known.
    Unexplained,
    /// Of a kind that no key would make good.
    NotTaken,
}

/// The keys of an issuer.
#[derive(Debug)]
pub(super) struct Keys(Vec<Key>);

impl Keys {
    /// The keys of a set that are of use here. RFC 7517: others are passed over, and so is what a key
    /// says that is not known. None where it is no set.
    pub(super) fn parse(set: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct KeySet {
            keys: Vec<Json>,
        }
        let KeySet { keys } = json_object(set)?;
        let objects = keys.into_iter().filter(Json::is_object);
        let readable = objects.filter_map(|key| serde_json::from_value(key).ok());
        Some(Self(readable.filter_map(Key::of).take(MOST).collect()))
    }

    /// Whether one of them signed this.
    pub(super) fn judge(&self, header: &Header, jwt: &Jwt<'_>) -> Judged {
        let Some(algorithm) = Algorithm::named(&header.alg) else { return Judged::NotTaken };
        let candidates = self.0.iter().filter(|key| key.may_have_signed(header));
        let mut tried =
            candidates.filter_map(|key| key.public.explains(algorithm, jwt)).take(TRIED);
        match tried.any(|is_its| is_its) {
            true => Judged::Good,
            false => Judged::Unexplained,
        }
    }
}

#[cfg(test)]
mod tests;
