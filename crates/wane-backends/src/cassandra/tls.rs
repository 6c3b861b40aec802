//! TLS to the nodes, by rustls: authorities from a file, and no certificate of our own.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::OpenError;

/// Trusts the authorities in `ca`. Nodes are known by address, so certificates must name it.
pub(super) fn trusting(ca: &Path) -> Result<Arc<ClientConfig>, OpenError> {
    let failed = |source| OpenError::Io { path: ca.to_path_buf(), source };
    let mut authorities = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(ca).map_err(|error| failed(error.into()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.into()))?;
        authorities.add(certificate).map_err(|error| failed(error.into()))?;
    }
    if authorities.is_empty() {
        return Err(failed("there is no certificate in it".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|error| failed(error.into()))?;
    Ok(Arc::new(config.with_root_certificates(authorities).with_no_client_auth()))
}
