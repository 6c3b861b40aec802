//! Institutions: whose messages a request may read.
//!
//! Where clients show certificates, the certificate says it: its one common name is the ISPB, and no
//! credential does instead. Elsewhere, as on loopback, a credential of scope `pull` names it.
//! Numbers of institutions are public: another's stream is forbidden, not absent, and the institution
//! finds in its audit who tried.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use wane::services::apps::{Credential, Scope};
use wane::services::pull_stream::{Client, Ispb};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::name::DirectoryString;

use super::header;
use super::problem::{Code, Problem};
use crate::listen::ClientCertificate;
use crate::wiring::Services;

/// The header in which a reader says who it is, for the audit.
pub(super) const CLIENT_ID: &str = "PI-Client-Id";

/// commonName of X.520.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Where `/api/v1/in/{ispb}/..` and `/api/v1/out/{ispb}/..` have the institution.
const AT: usize = 3;

/// The institution in the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct InPath(pub(super) Ispb);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        in_path(parts).map(Self)
    }
}

fn in_path(parts: &Parts) -> Result<Ispb, Problem> {
    let path = parts.uri.path();
    let segment = path.trim_start_matches('/').split('/').nth(AT).unwrap_or_default();
    Ok(segment.parse::<Ispb>()?)
}

/// A reader that may read the stream in the path.
#[derive(Debug, Clone)]
pub(super) struct Institution {
    pub(super) ispb: Ispb,
    pub(super) client: Client,
}

impl<S: Sync> FromRequestParts<S> for Institution {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Only the gate puts one there.
        let nobody = || Problem::new(Code::Unauthorized, "there is no caller");
        parts.extensions.get::<Self>().cloned().ok_or_else(nobody)
    }
}

/// Who asks, as far as that is proved.
#[derive(Debug)]
pub(super) struct Identity {
    ispb: Option<Ispb>,
    name: String,
}

impl Identity {
    /// By the certificate that was shown.
    pub(super) fn of_certificate(shown: Option<&ClientCertificate>) -> Result<Self, Problem> {
        let Some(shown) = shown else {
            let detail = "show a client certificate whose common name is the ISPB";
            return Err(Problem::new(Code::Unauthorized, detail));
        };
        let name = common_name(&shown.0).unwrap_or_default();
        Ok(Self { ispb: name.parse().ok(), name: format!("certificate {name}") })
    }

    /// By a credential.
    pub(super) fn of_credential(credential: &Credential) -> Result<Self, Problem> {
        let may = credential.app().is_none() && credential.scopes().contains(&Scope::Pull);
        if !may {
            let detail = "this needs a credential with scope pull";
            return Err(Problem::new(Code::Forbidden, detail));
        }
        let ispb = credential.ispb().and_then(|ispb| ispb.parse().ok());
        Ok(Self { ispb, name: format!("key {}", credential.id()) })
    }

    /// The reader, if the stream in the path is its own.
    pub(super) async fn reader(
        self,
        parts: &Parts,
        services: &Services,
    ) -> Result<Institution, Problem> {
        let ispb = in_path(parts)?;
        if self.ispb != Some(ispb) {
            self.turned_away(ispb, services).await;
            let detail = "the certificate or credential is that of another institution";
            return Err(Problem::new(Code::Forbidden, detail));
        }
        let client = match header::text(&parts.headers, CLIENT_ID)? {
            Some(given) => Client::new(given)?,
            None => self.client(),
        };
        Ok(Institution { ispb, client })
    }

    async fn turned_away(&self, ispb: Ispb, services: &Services) {
        if let Err(error) = services.pull_stream.turned_away(ispb, &self.client()).await {
            tracing::warn!(%ispb, %error, "the audit does not have who was turned away");
        }
    }

    /// The name, as far as the audit takes it.
    fn client(&self) -> Client {
        let plain: String = self.name.chars().filter(|c| matches!(c, ' '..='~')).take(64).collect();
        Client::new(&plain).unwrap_or_default()
    }
}

/// The common name of a certificate; `None` where it has none, or several.
fn common_name(der: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(der).ok()?;
    let subject = certificate.tbs_certificate().subject();
    let mut names = subject.iter().filter(|attribute| attribute.oid == COMMON_NAME);
    let (Some(name), None) = (names.next(), names.next()) else { return None };
    let name = DirectoryString::try_from(&name.value).ok()?;
    Some(name.value().into_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[&str]) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "11111111");
        for name in names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientCertificate(signed.der().as_ref().into())
    }

    #[test]
    fn the_common_name_is_the_institution() {
        let identity = Identity::of_certificate(Some(&certificate(&["00000208"]))).unwrap();
        assert_eq!(identity.ispb, Some("00000208".parse().unwrap()));
        for names in [&[][..], &["Bank 00000208"], &["0000020"]] {
            let identity = Identity::of_certificate(Some(&certificate(names))).unwrap();
            assert_eq!(identity.ispb, None, "{names:?}");
        }
        assert!(Identity::of_certificate(None).is_err());
        let garbage = ClientCertificate(b"not a certificate"[..].into());
        assert_eq!(Identity::of_certificate(Some(&garbage)).unwrap().ispb, None);
    }
}
