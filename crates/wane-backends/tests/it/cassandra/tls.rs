//! TLS: ended by the tap, as the node behind it has none.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;
use wane::clock::SystemClock;
use wane::store::{Key, Store};
use wane_backends::OpenError;
use wane_backends::cassandra::{CassandraSettings, CassandraStore, Replication};

use super::lost_answers::{through, write};
use super::tap::Tap;
use crate::harness::cassandra::Place;

/// An authority, a certificate of its for the node's address, and a file with the authority's own.
fn authority(address: &str) -> (TlsAcceptor, TempDir) {
    let mut params = CertificateParams::new(Vec::new()).expect("a certificate");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a certificate"))
        .expect("a certificate");
    let key = KeyPair::generate().expect("a certificate");
    let params = CertificateParams::new(vec![address.to_owned()]).expect("a certificate");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let folder = TempDir::new().expect("a certificate");
    std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a certificate");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("a certificate")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a certificate");
    (TlsAcceptor::from(Arc::new(config)), folder)
}

#[tokio::test]
async fn tls_is_spoken_and_a_foreign_authority_is_refused() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let node = place.settings.hosts[0].clone();
    let (tls, folder) = authority(node.split(':').next().unwrap());
    let tap = Tap::before(&node, Some(tls)).await;
    let ca = |folder: &TempDir| Some(folder.path().join("ca.pem"));
    let settings = CassandraSettings { ca: ca(&folder), ..through(&tap, &place) };
    let store = CassandraStore::connect(settings.clone(), SystemClock::shared()).await;
    let store = store.unwrap_or_else(|error| panic!("{error}"));
    let key = Key::new(b"p", b"c").unwrap();
    assert!(store.put(&key, write("v")).await.unwrap().is_applied());
    assert_eq!(&store.get(&key).await.unwrap().expect("a record").value[..], b"v");

    let (_, foreign) = authority("127.0.0.1");
    let distrusting = CassandraSettings { ca: ca(&foreign), ..settings.clone() };
    let error = CassandraStore::connect(distrusting, SystemClock::shared()).await.unwrap_err();
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("ca"), "{error}");
    let plain = CassandraSettings { ca: None, ..settings };
    let error = CassandraStore::connect(plain, SystemClock::shared()).await.unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("TLS"), "{error}");
    place.remove().await;
}
