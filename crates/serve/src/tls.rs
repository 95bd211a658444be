//! TLS of the listener.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

/// Name of HTTP/2 among the protocols that a client offers.
const HTTP_2: &[u8] = b"h2";

/// Certificate and private key of a server, TLS 1.2 and 1.3.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads a chain of certificates, that of the server first, and its private key, both in PEM.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, holds no certificate or key, or the key does not fit.
    pub fn read(certificates: &Path, key: &Path) -> Result<Self, String> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect)
            .map_err(|error| format!("cannot read {}: {error}", certificates.display()))?;
        if chain.is_empty() {
            return Err(format!("{} has no certificate in PEM", certificates.display()));
        }
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| format!("cannot read {}: {error}", key.display()))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(|error| {
                format!("{} and {}: {error}", certificates.display(), key.display())
            })?;
        let protocols: &[&[u8]] =
            if cfg!(feature = "grpc") { &[HTTP_2, b"http/1.1"] } else { &[b"http/1.1"] };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Opens the TLS session of a connection.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }

    /// Returns true if client and server agreed on HTTP/2.
    #[cfg(feature = "grpc")]
    pub(super) fn agreed_on_http2(stream: &TlsStream<TcpStream>) -> bool {
        stream.get_ref().1.alpn_protocol() == Some(HTTP_2)
    }
}

#[cfg(test)]
mod tests;
