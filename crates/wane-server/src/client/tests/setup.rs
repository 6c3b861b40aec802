//! Endpoints: which URLs, keys and certificates are good, and that none of them leaks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use wane::clock::SystemClock;

use super::stage::{case, demo, read_request};
use crate::client::{Client, ClientError, Endpoint, EndpointError, Identity, Secret, Trust};

fn made(url: &str, key: &str) -> Result<Client, EndpointError> {
    let endpoint = Endpoint { url: url.into(), key: Some(key.into()), trust: Trust::PublicRoots };
    Client::new(&endpoint, SystemClock::shared())
}

#[test]
fn urls_are_of_http() {
    for url in ["http://127.0.0.1:8628", "https://example.com", "http://[::1]:1/", "http://a/wane/"]
    {
        made(url, "a.b").unwrap();
    }
    for url in
        ["", "127.0.0.1:8628", "ftp://a", "http://", "http://u:hunter2@a", "http://a?hunter2"]
    {
        let error = made(url, "a.b").unwrap_err();
        assert!(matches!(error, EndpointError::Url { .. }), "{url}: {error}");
        assert!(!format!("{error:?}{error}").contains("hunter2"), "{error}");
    }
    assert_eq!(made("http://a/wane/", "a.b").unwrap().url(), "http://a/wane");
}

#[test]
fn keys_are_sent_whole_and_shown_by_id() {
    let key = Secret::from(" id.the-secret-itself\n");
    assert_eq!(key.reveal(), "id.the-secret-itself");
    assert_eq!(format!("{key:?}"), "Secret(id.***)");
    assert_eq!(key.masked("x the-secret-itself y"), "x *** y");
    assert_eq!(format!("{:?}", Secret::from("no-dot-at-all")), "Secret(.***)");
    assert_eq!(Secret::from("no-dot-at-all").masked("a no-dot-at-all"), "a ***");

    let error = made("http://a", "id.the-\nsecret").unwrap_err();
    assert!(matches!(error, EndpointError::Key), "{error}");
    assert!(!format!("{error:?}{error}").contains("secret"), "{error}");
}

#[test]
fn authorities_come_from_a_file_with_some() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for path in [empty, directory.path().join("absent.pem")] {
        let trust = Trust::CaFile(path);
        let endpoint = Endpoint { url: "https://a".into(), key: None, trust };
        let error = Client::new(&endpoint, SystemClock::shared()).unwrap_err();
        assert!(matches!(error, EndpointError::Ca { .. }), "{error}");
    }
}

/// An authority that certifies servers and clients.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(directory: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let file = directory.join("ca.pem");
        fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), file }
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// A client in files of its own.
    fn identity(&self, directory: &Path, name: &str) -> Identity {
        let (certificate, key) = self.issue(name);
        let of = |kind: &str| directory.join(format!("{name}.{kind}.pem"));
        let identity = Identity { certificate: of("cert"), private_key: of("key") };
        fs::write(&identity.certificate, certificate.pem()).unwrap();
        fs::write(&identity.private_key, key.serialize_pem()).unwrap();
        identity
    }
}

/// A server that is certified, and asks clients for a certificate where it is to: where it is.
async fn tls_server(authority: &Authority, asks: bool) -> String {
    let (own, key) = authority.issue("127.0.0.1");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match asks {
        false => config.with_no_client_auth(),
        true => {
            let mut roots = rustls::RootCertStore::empty();
            let pem = fs::read(&authority.file).unwrap();
            roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = config.with_single_cert(vec![own.der().clone()], key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let Ok(mut tls) = acceptor.accept(tcp).await else { continue };
            read_request(&mut tls).await;
            tls.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            tls.shutdown().await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn only_servers_of_a_trusted_authority_are_told_anything() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let url = tls_server(&authority, false).await;
    for (trust, expected) in
        [(Trust::CaFile(authority.file), Ok(())), (Trust::PublicRoots, Err("unreachable"))]
    {
        let endpoint = Endpoint { url: url.clone(), key: None, trust };
        let client = Client::new(&endpoint, SystemClock::shared()).unwrap();
        let deleted = client.app_ttl(&demo()).delete("k").await;
        assert_eq!(deleted.as_ref().copied().map_err(case), expected, "{deleted:?}");
        if let Err(ClientError::Unreachable { source, .. }) = deleted {
            assert!(source.to_string().contains("UnknownIssuer"), "{source}");
        }
    }
}

#[tokio::test]
async fn servers_that_ask_for_a_certificate_are_shown_it() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let authority = Authority::new(directory.path());
    let url = tls_server(&authority, true).await;
    let endpoint = Endpoint { url, key: None, trust: Trust::CaFile(authority.file.clone()) };
    let own = authority.identity(directory.path(), "own");
    let client = Client::presenting(&endpoint, &own, SystemClock::shared()).unwrap();
    client.livez().await.unwrap();

    let stranger = Authority::new(elsewhere.path()).identity(elsewhere.path(), "stranger");
    let stranger = Client::presenting(&endpoint, &stranger, SystemClock::shared()).unwrap();
    let nobody = Client::new(&endpoint, SystemClock::shared()).unwrap();
    for client in [stranger, nobody] {
        assert_eq!(case(&client.livez().await.unwrap_err()), "unreachable");
    }
}

#[test]
fn a_certificate_comes_with_its_own_key() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let own = authority.identity(directory.path(), "own");
    let other = authority.identity(directory.path(), "other");
    let absent = directory.path().join("absent.pem");
    let endpoint = |url: &str| Endpoint { url: url.into(), key: None, trust: Trust::PublicRoots };
    let presenting = |url: &str, certificate: &Path, private_key: &Path| {
        let (certificate, private_key) = (certificate.to_owned(), private_key.to_owned());
        let identity = Identity { certificate, private_key };
        Client::presenting(&endpoint(url), &identity, SystemClock::shared())
    };
    presenting("https://a", &own.certificate, &own.private_key).unwrap();
    for (certificate, key) in [
        (&absent, &own.private_key),
        (&own.private_key, &own.private_key),
        (&own.certificate, &absent),
        (&own.certificate, &own.certificate),
        (&own.certificate, &other.private_key),
    ] {
        let error = presenting("https://a", certificate, key).unwrap_err();
        assert!(matches!(error, EndpointError::Identity { .. }), "{error}");
        presenting("http://a", certificate, key).unwrap();
    }
}
