//! TLS: served, timed, and its certificates replaced under way.

use std::fs;

use axum::http::Version;
use http_body_util::BodyExt;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wane_server::listen::ListenError;

use super::http2::{polite, to};
use super::*;

/// An authority, and files that it fills.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, folder: TempDir::new().unwrap() }
    }

    fn issue(&self) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn files(&self) -> TlsFiles {
        let path = |name| self.folder.path().join(name);
        TlsFiles { certificate: path("cert.pem"), key: path("key.pem"), client_ca: None }
    }

    /// Writes a fresh certificate of the server's and its key, and returns the certificate.
    fn renew(&self) -> CertificateDer<'static> {
        let (certificate, key) = self.issue();
        fs::write(self.files().certificate, certificate.pem()).unwrap();
        fs::write(self.files().key, key.serialize_pem()).unwrap();
        certificate.der().clone()
    }

    /// A client's settings: whom it trusts, what it offers, and what it shows.
    fn client(&self, protocols: &[&str], shows: Option<(rcgen::Certificate, KeyPair)>) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shows {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Tls(TlsConnector::from(Arc::new(config)))
    }
}

struct Tls(TlsConnector);

impl Tls {
    async fn over(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        timeout(SOON, self.0.connect(name, stream)).await.expect("a handshake in time")
    }

    async fn connect(&self, server: &Server) -> Client<TlsStream<TcpStream>> {
        Client::new(self.over(server.connect().await.stream).await.unwrap())
    }
}

fn shown(client: &Client<TlsStream<TcpStream>>) -> CertificateDer<'static> {
    client.stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

async fn start(limits: ListenLimits) -> (Authority, Server) {
    let authority = Authority::new();
    authority.renew();
    let server = Server::start_with(limits, Some(authority.files())).await;
    (authority, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_chooses_the_protocol_by_alpn() {
    let (authority, server) = start(limits()).await;
    let both = authority.client(&["h2", "http/1.1"], None).connect(&server).await;
    assert_eq!(both.stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let answer = polite(both.stream).await.send_request(to("/")).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "root");

    for offered in [["http/1.1"].as_slice(), &[]] {
        let mut old = authority.client(offered, None).connect(&server).await;
        old.send(ROOT).await;
        assert_eq!(old.answer().await, (200, "root".into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_silent_in_or_after_the_handshake_is_closed_in_time() {
    let (authority, server) = start(limits()).await;
    let tls = authority.client(&[], None);
    let took = stopwatch();
    let mut silent = server.connect().await;
    let mut begun = server.connect().await;
    begun.send(&[22, 3, 1, 1, 0]).await;
    let mut after = tls.connect(&server).await;
    let mut other = tls.connect(&server).await;
    other.send(ROOT).await;
    assert_eq!(other.answer().await.0, 200);
    assert!(took() < LIMIT, "delayed for {:?}", took());

    silent.closed().await;
    begun.closed().await;
    after.closed().await;
    assert_at_limit(took(), LIMIT);
}

/// The control: handshake and request each begin late, but in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handshake_takes_nothing_from_the_time_of_the_request() {
    let (authority, server) = start(limits_of(LENIENT)).await;
    let stream = server.connect().await.stream;
    pause(LENIENT * 6 / 10).await;
    let mut client = Client::new(authority.client(&[], None).over(stream).await.unwrap());
    pause(LENIENT * 6 / 10).await;
    client.send(ROOT).await;
    assert_eq!(client.answer().await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_its_answer_is_cut() {
    let (authority, server) = start(limits()).await;
    let mut client = authority.client(&[], None).connect(&server).await;
    let took = stopwatch();
    client.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n").await;
    server.until_open(0).await;
    assert_at_limit(took(), LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_to_a_tls_port_is_closed() {
    let (_authority, server) = start(limits()).await;
    let mut plain = server.connect().await;
    plain.send(ROOT).await;
    assert!(plain.closed().await < LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_files_serve_new_connections_and_old_ones_live_on() {
    let authority = Authority::new();
    let before = authority.renew();
    let idle = ListenLimits { idle: SOON, ..limits() };
    let server = Server::start_with(idle, Some(authority.files())).await;
    let tls = authority.client(&[], None);
    let mut old = tls.connect(&server).await;
    assert_eq!(shown(&old), before);
    old.send(ROOT).await;
    assert_eq!(old.answer().await.0, 200);

    let after = authority.renew();
    let took = stopwatch();
    while shown(&tls.connect(&server).await) != after {
        assert!(took() < SOON, "the new certificate is never shown");
        pause(SHORT).await;
    }
    old.send(ROOT).await;
    assert_eq!(old.answer().await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_do_not_fit_leave_the_old_certificate_in_force() {
    let authority = Authority::new();
    let before = authority.renew();
    let server = Server::start_with(limits(), Some(authority.files())).await;
    let certificates = server.certificates.as_ref().unwrap();
    let tls = authority.client(&[], None);

    fs::write(authority.files().key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let error = certificates.reload().await.unwrap_err();
    assert!(matches!(error, ListenError::KeyMismatch { .. }), "{error:?}");
    fs::write(authority.files().certificate, "nothing of use").unwrap();
    let error = certificates.reload().await.unwrap_err().to_string();
    assert!(error.contains("cert.pem") && error.contains("BEGIN CERTIFICATE"), "{error}");
    fs::remove_file(authority.files().key).unwrap();
    // Longer than it takes to notice that the files have changed.
    pause(Duration::from_millis(1_500)).await;
    assert_eq!(shown(&tls.connect(&server).await), before);

    let after = authority.renew();
    certificates.reload().await.unwrap();
    assert_eq!(shown(&tls.connect(&server).await), after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_used_is_named_with_what_to_do() {
    let authority = Authority::new();
    authority.renew();
    let files = authority.files();
    let sealed =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let cut = "-----BEGIN CERTIFICATE-----\nAAAA\n";
    let folder = authority.folder.path();
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text).unwrap();
        folder.join(name)
    };
    let absent = folder.join("absent.pem");
    let cases = [
        (TlsFiles { certificate: absent.clone(), ..files.clone() }, "absent.pem", "check the path"),
        (TlsFiles { key: absent, ..files.clone() }, "absent.pem", "check the path"),
        (
            TlsFiles { key: write("sealed.pem", sealed), ..files.clone() },
            "sealed.pem",
            "passphrase",
        ),
        (TlsFiles { certificate: write("cut.pem", cut), ..files.clone() }, "cut.pem", "PEM"),
        (TlsFiles { client_ca: Some(write("ca.pem", "")), ..files.clone() }, "ca.pem", "client CA"),
        (TlsFiles { client_ca: Some(files.key.clone()), ..files }, "key.pem", "client CA"),
    ];
    for (files, name, advice) in cases {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = Listener::bind(any, Some(files), limits(), SystemClock::shared()).await;
        let error = bound.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(advice), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_a_client_shows_is_checked_and_passed_on() {
    let (authority, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    authority.renew();
    let client_ca = clients.folder.path().join("ca.pem");
    fs::write(&client_ca, clients.issuer.pem()).unwrap();
    let files = TlsFiles { client_ca: Some(client_ca), ..authority.files() };
    let server = Server::start_with(limits(), Some(files)).await;
    const ASK: &[u8] = b"GET /certificate HTTP/1.1\r\nHost: x\r\n\r\n";

    let (certificate, key) = clients.issue();
    let expected = certificate.der().to_vec();
    let known = authority.client(&["h2"], Some((certificate, key))).connect(&server).await;
    let answer = polite(known.stream).await.send_request(to("/certificate")).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), expected);

    let mut nobody = authority.client(&[], None).connect(&server).await;
    nobody.send(ASK).await;
    assert_eq!(nobody.answer().await, (200, "none".into()));

    let mut stranger = authority.client(&[], Some(strangers.issue())).connect(&server).await;
    let _ = stranger.stream.write_all(ASK).await;
    assert_eq!(stranger.statuses().await, [] as [u16; 0], "closed without an answer");
}

/// Connections rest below TLS too: bytes that TLS holds are not lost, and it is ended as it should be.
#[tokio::test(flavor = "multi_thread")]
async fn connections_rest_under_tls_too() {
    let authority = Authority::new();
    authority.renew();
    let server = Server::start_with(limits(), Some(authority.files())).await;
    let mut client = authority.client(&[], None).connect(&server).await;
    let slow = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n";
    client.send(&[slow, ROOT].concat()).await;
    assert_eq!(client.answer().await, (200, "slow".into()));
    assert_eq!(client.answer().await, (200, "root".into()));
    pause(LIMIT / 2).await;
    client.send(ROOT).await;
    assert_eq!(client.answer().await, (200, "root".into()));
    let mut rest = Vec::new();
    // Without the alert that ends TLS this would be an error.
    timeout(SOON, client.stream.read_to_end(&mut rest)).await.unwrap().unwrap();
}
