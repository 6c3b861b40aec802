//! Connections: TCP, with TLS where the URL says so, each made within a limited time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use wane::clock::SharedClock;

use super::{EndpointError, Identity, Trust};

/// How long a connection may take to come about.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<Arc<ClientConfig>>,
    clock: SharedClock,
}

impl Connector {
    pub(crate) fn new(tls: Option<Arc<ClientConfig>>, clock: SharedClock) -> Self {
        Self { tls, clock }
    }

    async fn connect(self, uri: Uri) -> io::Result<Wire> {
        let clock = Arc::clone(&self.clock);
        tokio::select! {
            biased;
            wire = self.reach(&uri) => wire,
            () = clock.sleep(PATIENCE) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no connection within {} s", PATIENCE.as_secs()),
            )),
        }
    }

    async fn reach(self, uri: &Uri) -> io::Result<Wire> {
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let usual = if self.tls.is_some() { 443 } else { 80 };
        let tcp = TcpStream::connect((host, uri.port_u16().unwrap_or(usual))).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = self.tls else { return Ok(Wire::over(tcp)) };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Wire::over(TlsConnector::from(tls).connect(name, tcp).await?))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Wire;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Wire>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// One connection, encrypted or not.
pub(crate) struct Wire(TokioIo<Box<dyn Duplex>>);

impl Wire {
    fn over(stream: impl Duplex + 'static) -> Self {
        Self(TokioIo::new(Box::new(stream)))
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// How servers prove who they are, to a client that shows nothing of itself.
pub(crate) fn trusting(trust: &Trust) -> Result<Arc<ClientConfig>, EndpointError> {
    secured(trust, None)
}

/// How servers prove who they are, and how the client does where it is asked.
pub(super) fn secured(
    trust: &Trust,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, EndpointError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default protocol versions")
        .with_root_certificates(roots(trust)?);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = (certificates(identity)?, private_key(identity)?);
            config.with_client_auth_cert(chain, key).map_err(|error| EndpointError::Identity {
                path: identity.certificate.clone(),
                reason: error.to_string(),
            })?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn roots(trust: &Trust) -> Result<RootCertStore, EndpointError> {
    let path = match trust {
        Trust::PublicRoots => {
            return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
        }
        Trust::CaFile(path) => path,
    };
    let wrong = |reason| EndpointError::Ca { path: path.clone(), reason };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path);
    for certificate in certificates.map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is no certificate in it".into()));
    }
    Ok(roots)
}

fn certificates(identity: &Identity) -> Result<Vec<CertificateDer<'static>>, EndpointError> {
    let path = &identity.certificate;
    let wrong = |reason| EndpointError::Identity { path: path.clone(), reason };
    let chain = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let chain: Result<Vec<_>, _> = chain.collect();
    let chain = chain.map_err(|error| wrong(error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong("there is no certificate in it".into()));
    }
    Ok(chain)
}

fn private_key(identity: &Identity) -> Result<PrivateKeyDer<'static>, EndpointError> {
    let path = &identity.private_key;
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| EndpointError::Identity { path: path.clone(), reason: error.to_string() })
}
