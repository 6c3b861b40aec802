//! Endpoints: which URLs, keys and certificates are good, and that none of them leaks.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use wane::clock::SystemClock;

use super::stage::{case, demo, read_request};
use crate::client::{Client, ClientError, Endpoint, EndpointError, Secret, Trust};

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

/// A server with a certificate of an authority of its own: where it is, and the authority's file.
async fn tls_server(directory: &std::path::Path) -> (String, PathBuf) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_file = directory.join("ca.pem");
    std::fs::write(&ca_file, ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["127.0.0.1".into()]).unwrap();
    let own = own.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![own.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
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
    (url, ca_file)
}

#[tokio::test]
async fn only_servers_of_a_trusted_authority_are_told_anything() {
    let directory = tempfile::tempdir().unwrap();
    let (url, ca_file) = tls_server(directory.path()).await;
    for (trust, expected) in
        [(Trust::CaFile(ca_file), Ok(())), (Trust::PublicRoots, Err("unreachable"))]
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
