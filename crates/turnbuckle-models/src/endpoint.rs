//! The endpoint of a model: its URL, the HTTP client, and the headers of each request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use rustls_platform_verifier::BuilderVerifierExt as _;
use turnbuckle::clock::{Clock, SystemClock};
use turnbuckle::model::ModelError;

use crate::events::{Events, within};
use crate::failure::{a_page, broken, compressed, not_a_stream, of_response};
use crate::key::{Key, Secrets};

/// How long a server may be silent before a request fails with [`ModelError::Stalled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection is made. 10 seconds by default.
    pub connect: Duration,
    /// From the request to the headers of the response. 10 minutes by default: a local model may take minutes to read a long
    /// context.
    pub first_byte: Duration,
    /// From one piece of the response to the next. 2 minutes by default.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), first_byte: seconds(600), idle: seconds(120) }
    }
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The base URL cannot be parsed, or is not `http` or `https`. Neither the URL nor the parser's error is shown: the URL may
    /// contain a password.
    #[error("the base URL is not an address of the form https://host/path")]
    BaseUrl,
    /// The key cannot be sent in a header. Neither the key nor the parser's error is shown.
    #[error("the key holds characters that no key has")]
    Key,
    /// TLS cannot be set up, mostly because the machine has no root certificates.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made: {0}")]
    Client(#[source] reqwest::Error),
}

/// Where requests for a model are sent.
#[derive(Clone)]
pub(crate) struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
    secrets: Secrets,
    pub(crate) timeouts: Timeouts,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Endpoint {
    /// The endpoint at `path` below `base`.
    pub(crate) fn new(base: &str, path: &str, timeouts: Timeouts) -> Result<Self, SetupError> {
        let url = address(base, path)?;
        let client = client(&url, timeouts)?;
        let json = HeaderValue::from_static("application/json");
        let headers =
            HeaderMap::from_iter([(CONTENT_TYPE, json), (ACCEPT, HeaderValue::from_static("text/event-stream"))]);
        let mut secrets = Secrets::of_url(&url);
        // What the client makes of a user and a password in the address.
        let request = client.post(url.clone()).build().map_err(|error| SetupError::Client(error.without_url()))?;
        let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
        sent.into_iter().for_each(|sent| secrets.add(Key::new(sent)));
        Ok(Self { client, url, headers, secrets, timeouts, clock: Arc::new(SystemClock::default()) })
    }

    /// Sends `key` in a header with each request, behind `prefix`.
    pub(crate) fn key(mut self, header: HeaderName, prefix: &str, key: Key) -> Result<Self, SetupError> {
        let value = HeaderValue::try_from(format!("{prefix}{}", key.reveal()));
        let mut value = value.map_err(|_| SetupError::Key)?;
        value.set_sensitive(true);
        self.headers.insert(header, value);
        self.secrets.add(key);
        Ok(self)
    }

    pub(crate) fn header(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.headers.insert(HeaderName::from_static(name), value);
        self
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The host, without a port.
    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The host and its port. No other part of the URL may be shown in an error.
    fn host_and_port(&self) -> String {
        match self.url.port() {
            Some(port) => format!("{}:{port}", self.host()),
            None => self.host().to_owned(),
        }
    }

    /// Sends a request and returns the events of its response. Any response that is not a stream is an error.
    pub(crate) async fn ask(&self, body: Vec<u8>) -> Result<Events, ModelError> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let sent = within(&self.clock, self.timeouts.first_byte, request.send()).await?;
        let doing = || format!("asking {}", self.host_and_port());
        let response = sent.map_err(|error| broken(&doing(), error))?;
        if !response.status().is_success() {
            let failure = of_response(response, &self.secrets, self.clock.now());
            return Err(within(&self.clock, self.timeouts.idle, failure).await?);
        }
        match header(&response, CONTENT_ENCODING) {
            Some(coding) if coding != "identity" => return Err(compressed(&coding)),
            _ => {}
        }
        match header(&response, CONTENT_TYPE) {
            // Some servers refuse with status 200, and some do not stream although they are asked to.
            Some(kind) if kind.starts_with("application/json") => {
                let failure = not_a_stream(response, &self.secrets);
                return Err(within(&self.clock, self.timeouts.idle, failure).await?);
            }
            Some(kind) if kind.starts_with("text/html") => return Err(a_page(&self.host_and_port())),
            _ => {}
        }
        Ok(Events::of(response, self.clock.clone(), self.timeouts.idle))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("host", &self.host_and_port())
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
}

/// The value of a header in lower case. One that is not ASCII counts as absent.
fn header(response: &Response, name: HeaderName) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.trim().to_ascii_lowercase())
}

fn address(base: &str, path: &str) -> Result<Url, SetupError> {
    let base = base.trim().trim_end_matches('/');
    let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    // The base is parsed by itself first: in one without a host, the path would be taken for the host.
    let sound = Url::parse(base).is_ok_and(|url| is_http(&url));
    let joined = sound.then(|| Url::parse(&format!("{base}/{path}")).ok()).flatten();
    joined.ok_or(SetupError::BaseUrl)
}

/// An HTTP client for the host of `url`.
pub(crate) fn client(url: &Url, timeouts: Timeouts) -> Result<Client, SetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let tls = match url.scheme() {
        "https" => tls.with_platform_verifier()?.with_no_client_auth(),
        // Without TLS nothing is verified, so the client works on a machine without certificates, too.
        _ => tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
    };
    // Redirects are not followed: the key would be sent to the address that the response names.
    let builder = Client::builder().tls_backend_preconfigured(tls).redirect(Policy::none());
    let builder = builder.connect_timeout(timeouts.connect).tcp_nodelay(true);
    let builder = builder.user_agent(concat!("turnbuckle/", env!("CARGO_PKG_VERSION")));
    // A proxy cannot reach the loopback interface of this machine.
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    builder.build().map_err(SetupError::Client)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
