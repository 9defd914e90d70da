//! TLS: a certificate and its key, replaceable while the server runs, and handshakes with a deadline.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{InconsistentKeys, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take. Until it is done a connection costs a place among the open ones.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;
/// How much more is read of a client that does not speak TLS.
const MOST_UNREAD: u64 = 64 << 10;
/// What a client hears that does not speak TLS.
const NOT_TLS: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 82\r\nconnection: close\r\n\r\n\
    {\"error\":{\"code\":\"bad_request\",\"message\":\"this server speaks TLS: use https://\"}}\n";

/// The certificate of a server, with its key. Clones share it.
#[derive(Clone)]
pub struct Certificate {
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

/// Why a certificate cannot be used. What is in the files is not part of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The text has no certificate.
    #[error("there is no certificate in it: `-----BEGIN CERTIFICATE-----` is missing, or what follows is damaged")]
    NoCertificate,
    /// The text has no key.
    #[error("there is no key in it that can be read without a password: PKCS #8, PKCS #1 or SEC 1 as PEM")]
    NoKey,
    /// The key is another one's.
    #[error("the key does not belong to the certificate")]
    OtherKey,
    /// TLS does not take them.
    #[error("the certificate or its key cannot be used")]
    Unusable(#[source] rustls::Error),
}

impl Certificate {
    /// A chain of certificates, the server's own first, and the key of that one, both as PEM.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        Ok(Self { config: Arc::new(RwLock::new(config(chain, key)?)) })
    }

    /// Puts another certificate in the place of this one: connections that are made from now on get it. On an error the one that
    /// there is stays.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        let config = config(chain, key)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The connection once both sides agree; `None` if the client does not speak TLS, which it was told.
    pub(crate) async fn handshake(&self, stream: TcpStream) -> io::Result<Option<TlsStream<TcpStream>>> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        let handshake = async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first != [HANDSHAKE] {
                let mut stream = stream;
                stream.write_all(NOT_TLS.as_bytes()).await?;
                stream.shutdown().await?;
                // Closing with something unread would take the answer back before the client has seen it.
                let mut rest = stream.take(MOST_UNREAD);
                let mut unread = [0; 4096];
                while rest.read(&mut unread).await? > 0 {}
                return Ok(None);
            }
            TlsAcceptor::from(config).accept(stream).await.map(Some)
        };
        timeout(HANDSHAKE_PATIENCE, handshake).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn config(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, CertificateError> {
    // The errors of the PEM reader quote the text, which may be of a key.
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|_| CertificateError::NoCertificate)?;
    if chain.is_empty() {
        return Err(CertificateError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::NoKey)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let made = builder.map_err(CertificateError::Unusable)?.with_no_client_auth().with_single_cert(chain, key);
    let mut config = made.map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertificateError::OtherKey,
        error => CertificateError::Unusable(error),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_without_tls_hears_is_whole() {
        let (head, body) = NOT_TLS.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).unwrap()["error"]["code"] == "bad_request");
    }

    #[test]
    fn errors_do_not_quote_the_files() {
        let secret = b"-----BEGIN PRIVATE KEY-----\nSECRET!!\n-----END PRIVATE KEY-----\n";
        let error = Certificate::from_pem(secret, secret).unwrap_err();
        assert!(matches!(error, CertificateError::NoCertificate));
        assert!(!format!("{error:?} {error}").contains("SECRET"));
    }
}
