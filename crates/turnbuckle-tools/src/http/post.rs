//! Posts JSON to one address and reads the answer, within limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::address::PublicOnly;

/// The most bytes of an answer that are read.
pub(crate) const LONGEST_ANSWER: usize = 4 * 1024 * 1024;
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection that nobody uses is kept open for the next post.
const KEPT_OPEN: Duration = Duration::from_secs(90);

/// Why there is no answer. What is shown names the host and never the rest of the address, which may hold a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    /// Not an address that can be posted to.
    #[error("is not an address of the form https://host/path")]
    Address,
    /// The client cannot be made.
    #[error("cannot be posted to: {0}")]
    Client(String),
    /// No connection, or it broke.
    #[error("{host} did not answer: {why}")]
    NoAnswer {
        /// The host that was posted to.
        host: String,
        /// The causes, joined.
        why: String,
    },
    /// No answer in time.
    #[error("{host} did not answer within {limit:?}")]
    Late {
        /// The host that was posted to.
        host: String,
        /// What it had.
        limit: Duration,
    },
    /// The answer is too long.
    #[error("{host} answered with more than {LONGEST_ANSWER} bytes")]
    TooLong {
        /// The host that was posted to.
        host: String,
    },
}

/// An answer, whatever its status.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// One address, with its open connections. Clones share them.
#[derive(Clone)]
pub(crate) struct Poster {
    client: Client,
    url: Url,
}

impl Poster {
    /// Redirects are not followed: what is posted is for this host alone. No proxy is used: the address that is checked would
    /// be the proxy's.
    pub(crate) fn new(address: &str) -> Result<Self, PostError> {
        let url = Url::parse(address.trim()).map_err(|_| PostError::Address)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(PostError::Address);
        }
        let failed = |error: &dyn std::error::Error| PostError::Client(causes(error));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?;
        let tls = match url.scheme() {
            "https" => tls.with_platform_verifier().map_err(|error| failed(&error))?.with_no_client_auth(),
            // Without TLS nothing is verified, so the client works on a machine without certificates, too.
            _ => tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
        };
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(PublicOnly))
            .connect_timeout(CONNECT)
            .pool_idle_timeout(KEPT_OPEN)
            .tcp_nodelay(true)
            .user_agent(concat!("turnbuckle/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| failed(&error.without_url()))?;
        Ok(Self { client, url })
    }

    /// The host and its port, for messages.
    pub(crate) fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Posts a JSON body. Dropping the future closes the connection.
    pub(crate) async fn post(&self, headers: HeaderMap, body: Vec<u8>, limit: Duration) -> Result<Posted, PostError> {
        let host = self.host();
        let broken =
            |error: reqwest::Error| PostError::NoAnswer { host: self.host(), why: causes(&error.without_url()) };
        let exchange = async {
            let mut request = self.client.post(self.url.clone()).headers(headers).body(body);
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let mut answer = request.send().await.map_err(broken)?;
            let mut body = Vec::new();
            while let Some(chunk) = answer.chunk().await.map_err(broken)? {
                if body.len() + chunk.len() > LONGEST_ANSWER {
                    return Err(PostError::TooLong { host: host.clone() });
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Posted { status: answer.status().as_u16(), body })
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(PostError::Late { host: self.host(), limit }),
        }
    }
}

pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl fmt::Debug for Poster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poster").field("host", &self.host()).finish_non_exhaustive()
    }
}
