//! Certificates: read from PEM files, replaced while the listener runs.
//!
//! Once a second the files' times and sizes are compared with those last seen. Changed files are
//! read again and, if they fit together, serve the handshakes from then on; if not, the old ones
//! stay and the log says why. Connections keep what they were opened with.
//!
//! Clients may show a certificate if `client_ca` is given. One that does not chain to it fails the
//! handshake; showing none is allowed, and then a request carries no [`ClientCertificate`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use wane::clock::SharedClock;

use super::ListenError;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The PEM files of a TLS listener.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The server's certificate, followed by those that lead to its root.
    pub certificate: PathBuf,
    /// The key of the certificate, without a passphrase.
    pub key: PathBuf,
    /// The roots that clients' certificates are checked against. Without it none are asked for.
    pub client_ca: Option<PathBuf>,
}

/// The certificate that a client has proved to own, in DER. An extension of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate(pub Arc<[u8]>);

/// The certificates in force. A cheap handle: clones see the same certificates.
#[derive(Debug, Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: TlsFiles,
    current: ArcSwap<ServerConfig>,
    seen: Mutex<Looks>,
}

/// What the files looked like: time and size of each, none for one that cannot be read.
type Looks = [Option<(SystemTime, u64)>; 3];

impl Certificates {
    pub(super) async fn load(files: TlsFiles) -> Result<Self, ListenError> {
        // Taken before reading: a file that changes meanwhile looks different next time.
        let seen = Mutex::new(files.look().await);
        let current = ArcSwap::from_pointee(files.read().await?);
        Ok(Self { shared: Arc::new(Shared { files, current, seen }) })
    }

    /// Reads the files now. If they do not fit, the certificates in force stay.
    pub async fn reload(&self) -> Result<(), ListenError> {
        let looks = self.shared.files.look().await;
        *self.shared.seen.lock() = looks;
        let config = self.shared.files.read().await?;
        self.shared.current.store(Arc::new(config));
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.shared.current.load_full())
    }

    /// Follows the files for ever.
    pub(super) async fn follow(&self, clock: &SharedClock) {
        loop {
            clock.sleep(LOOK_EVERY).await;
            let looks = self.shared.files.look().await;
            if looks == *self.shared.seen.lock() {
                continue;
            }
            match self.reload().await {
                Ok(()) => tracing::info!("the TLS certificates have changed and are in use"),
                Err(error) => tracing::warn!(
                    %error,
                    "the TLS files have changed but cannot be used; the old certificates stay"
                ),
            }
        }
    }
}

impl TlsFiles {
    async fn look(&self) -> Looks {
        let mut looks = Looks::default();
        let paths = [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()];
        for (look, path) in looks.iter_mut().zip(paths) {
            let Some(path) = path else { continue };
            let found = tokio::fs::metadata(path).await.ok();
            *look = found.and_then(|file| Some((file.modified().ok()?, file.len())));
        }
        looks
    }

    async fn read(&self) -> Result<ServerConfig, ListenError> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates("certificate", &self.certificate).await?;
        let key = self.read_key().await?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for the default versions");
        let builder = match &self.client_ca {
            Some(path) => {
                let roots = certificates("client CA", path).await?;
                builder.with_client_cert_verifier(verifier(roots, path, provider)?)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|source| {
            let (certificate, key) = (self.certificate.clone(), self.key.clone());
            ListenError::KeyMismatch { certificate, key, source }
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    async fn read_key(&self) -> Result<PrivateKeyDer<'static>, ListenError> {
        let pem = contents("key", &self.key).await?;
        PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
            let reason = format!(
                "holds no private key in PEM ({error}); a key with a passphrase must be stored \
                 without it: openssl pkey -in KEY -out NEW"
            );
            ListenError::Unfit { what: "key", path: self.key.clone(), reason }
        })
    }
}

async fn contents(what: &'static str, path: &Path) -> Result<Vec<u8>, ListenError> {
    tokio::fs::read(path).await.map_err(|source| ListenError::Unreadable {
        what,
        path: path.to_owned(),
        source,
    })
}

async fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ListenError> {
    let pem = contents(what, path).await?;
    let unfit = |reason| ListenError::Unfit { what, path: path.to_owned(), reason };
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unfit(format!("is not well-formed PEM: {error}")))?;
    if found.is_empty() {
        return Err(unfit("holds no certificate; PEM with BEGIN CERTIFICATE is expected".into()));
    }
    Ok(found)
}

fn verifier(
    certificates: Vec<CertificateDer<'static>>,
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, ListenError> {
    let unfit = |reason: String| ListenError::Unfit {
        what: "client CA",
        path: path.to_owned(),
        reason: format!("cannot be used to check clients: {reason}"),
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| unfit(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| unfit(error.to_string()))
}
