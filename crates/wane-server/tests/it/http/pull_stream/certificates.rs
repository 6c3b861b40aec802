//! Certificates of readers: the institution in them is the one whose stream they read.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    IsCa, KeyPair,
};
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tempfile::TempDir;

use super::wire::{Call, Pulled, Reply};
use super::{ISPB, OTHER, SHORT_HOLD, inbox, start};
use crate::server::{PATIENCE, Server};

/// A certificate and its key.
type Shown = (Certificate, KeyPair);

/// Signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate with these common names, and for these hosts.
    fn issue(&self, common_names: &[&str], hosts: &[&str]) -> Shown {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Banco do Teste");
        for name in common_names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }
}

/// A server that knows readers by certificates.
struct Site {
    server: Server,
    authority: Authority,
    producer: String,
    bearer: String,
    _folder: TempDir,
}

impl Site {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(flags: &[&str]) -> Self {
        let more = flags;
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let (certificate, key) = authority.issue(&["server"], &["localhost"]);
        let path = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let cert = path("cert.pem", &certificate.pem());
        let key = path("key.pem", &key.serialize_pem());
        let ca = path("ca.pem", &authority.0.pem());
        let flags = ["--storage=mem", "--tls-cert", &cert, "--tls-key", &key];
        let flags = [&flags[..], &["--tls-client-ca", &ca], &SHORT_HOLD, more].concat();
        let server = Server::with(&flags);
        let mut site = Self {
            server,
            authority,
            producer: String::new(),
            bearer: String::new(),
            _folder: folder,
        };
        site.producer = site.credential(r#"{"scopes":["produce"]}"#);
        site.bearer = site.credential(&format!(r#"{{"scopes":["pull"],"ispb":"{ISPB}"}}"#));
        site
    }

    fn credential(&self, body: &str) -> String {
        let call = Call::new("POST", "/api/v1/admin/credentials").key(&self.server.admin_key);
        let call = call.header("content-type: application/json").body(body.as_bytes());
        let made = self.ask(self.server.admin, &call, None).expect("an answer");
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["key"].as_str().unwrap().to_owned()
    }

    /// The answer to whoever shows this certificate; none where there was no connection to be had.
    fn ask(&self, to: SocketAddr, call: &Call, shows: Option<&Shown>) -> Option<Reply> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.0.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shows {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        call.over(StreamOwned::new(session, stream))
    }

    #[track_caller]
    fn pull(&self, method: &str, path: &str, shows: Option<&Shown>) -> Reply {
        let call = Call::new(method, path);
        self.ask(self.server.http, &call, shows).expect("an answer")
    }

    fn push(&self, message: &[u8]) {
        let call = Call::new("POST", &inbox(ISPB)).key(&self.producer);
        let call = call.header("content-type: application/xml").body(message);
        let sent = self.ask(self.server.http, &call, None).expect("an answer");
        assert_eq!(sent.status, 201, "producers have credentials: {}", sent.text());
    }

    fn standing(&self) -> String {
        let path = format!("/api/v1/admin/streams/{ISPB}");
        let call = Call::new("GET", &path).key(&self.server.admin_key);
        let mut told = self.ask(self.server.admin, &call, None).expect("an answer").json();
        // These change by themselves: messages wait, and the end of the log is noted a while later.
        for name in ["lagMillis", "tailRow"] {
            assert!(told.as_object_mut().unwrap().remove(name).is_some(), "{name}");
        }
        told.to_string()
    }
}

#[test]
fn a_certificate_opens_the_stream_of_the_institution_it_names() {
    let site = Site::new();
    let own = site.authority.issue(&[ISPB], &[]);
    site.push(b"<a>\r\n</a>");
    let first = Pulled::of(site.pull("GET", &start(ISPB), Some(&own)));
    assert_eq!(first.messages[0].bytes, b"<a>\r\n</a>");
    let second = Pulled::of(site.pull("GET", &first.next, Some(&own)));
    assert!(second.messages.is_empty());
    let renewed = site.authority.issue(&[ISPB], &[]);
    let ended = site.pull("DELETE", &second.next, Some(&renewed));
    assert_eq!(ended.status, 200, "another certificate of the institution will do");
}

#[test]
fn a_certificate_of_another_institution_is_forbidden() {
    let site = Site::new();
    let own = site.authority.issue(&[ISPB], &[]);
    let pulled = Pulled::of(site.pull("GET", &start(ISPB), Some(&own)));
    site.push(b"<a/>");
    let before = site.standing();
    let longer = format!("{ISPB}0");
    let spaced = format!("{ISPB} ");
    #[rustfmt::skip]
    let names: [(&str, &[&str]); 8] = [
        ("foreign", &[OTHER]),
        ("no common name", &[]),
        ("an empty one", &[""]),
        ("a host", &["reader.example"]),
        ("longer", &[&longer]),
        ("shorter", &[&ISPB[1..]]),
        ("spaced", &[&spaced]),
        ("any", &["*"]),
    ];
    for (name, common_names) in names {
        let shown = site.authority.issue(common_names, &[]);
        for (method, path) in
            [("GET", &start(ISPB)), ("GET", &pulled.next), ("DELETE", &pulled.next)]
        {
            let refused = site.pull(method, path, Some(&shown));
            assert_eq!(refused.problem(), (403, "forbidden".into()), "{name}: {method}");
        }
    }
    assert_eq!(site.standing(), before);
    let messages = Pulled::of(site.pull("GET", &pulled.next, Some(&own))).messages;
    assert_eq!(messages.len(), 1, "its own reader goes on");
}

/// Where readers are known by certificates, a secret that may have leaked opens nothing.
#[test]
fn without_a_certificate_a_bearer_does_not_do() {
    let site = Site::new();
    let before = site.standing();
    for call in [
        Call::new("GET", &start(ISPB)),
        Call::new("GET", &start(ISPB)).key(&site.bearer),
        Call::new("GET", &start(ISPB)).key(&site.server.admin_key),
    ] {
        let refused = site.ask(site.server.http, &call, None).expect("an answer");
        assert_eq!(refused.problem(), (401, "unauthorized".into()));
    }
    let foreign = site.authority.issue(&[OTHER], &[]);
    let call = Call::new("GET", &start(ISPB)).key(&site.bearer);
    let refused = site.ask(site.server.http, &call, Some(&foreign)).expect("an answer");
    assert_eq!(refused.problem(), (403, "forbidden".into()), "nor beside a foreign one");
    assert_eq!(site.standing(), before);
}

/// Readers of the real interface know no 401.
#[test]
fn with_the_profile_icom_who_shows_no_certificate_or_a_wrong_one_is_forbidden() {
    let site = Site::with(&["--stream-profile=icom"]);
    let own = site.authority.issue(&[ISPB], &[]);
    let foreign = site.authority.issue(&[OTHER], &[]);
    site.push(b"<a/>");
    let pulled = Pulled::of(site.pull("GET", &start(ISPB), Some(&own)));
    let before = site.standing();
    for shown in [None, Some(&foreign)] {
        for (method, path) in
            [("GET", &start(ISPB)), ("GET", &pulled.next), ("DELETE", &pulled.next)]
        {
            let refused = site.pull(method, path, shown);
            assert_eq!(refused.status, 403, "{method}: {}", refused.head);
            assert_eq!(refused.header("content-type"), Some("application/problem+xml"));
            assert_eq!(refused.header("www-authenticate"), None);
            assert!(refused.text().contains("<code>forbidden</code>"), "{}", refused.text());
        }
    }
    assert_eq!(site.standing(), before);
    assert_eq!(site.pull("GET", &pulled.next, Some(&own)).status, 204, "its own reader goes on");
}

#[test]
fn a_certificate_of_another_authority_is_turned_away_in_the_handshake() {
    let site = Site::new();
    let before = site.standing();
    let strangers = Authority::new();
    let forged = strangers.issue(&[ISPB], &[]);
    let call = Call::new("GET", &start(ISPB));
    assert!(site.ask(site.server.http, &call, Some(&forged)).is_none(), "it was answered");
    let mut expired = CertificateParams::new(Vec::new()).unwrap();
    expired.distinguished_name.push(DnType::CommonName, ISPB);
    expired.not_after = rcgen::date_time_ymd(2001, 1, 1);
    expired.not_before = rcgen::date_time_ymd(2000, 1, 1);
    let key = KeyPair::generate().unwrap();
    let expired = (expired.signed_by(&key, &site.authority.0).unwrap(), key);
    assert!(site.ask(site.server.http, &call, Some(&expired)).is_none(), "it was answered");
    assert_eq!(site.standing(), before);
    let own = site.authority.issue(&[ISPB], &[]);
    assert_eq!(site.pull("GET", &start(ISPB), Some(&own)).status, 204, "the control");
}

/// Names that stand elsewhere than in the subject say nothing.
#[test]
fn an_alternative_name_is_no_institution() {
    let site = Site::new();
    let shown = site.authority.issue(&[OTHER], &[ISPB]);
    let refused = site.pull("GET", &start(ISPB), Some(&shown));
    assert_eq!(refused.problem(), (403, "forbidden".into()));
}
