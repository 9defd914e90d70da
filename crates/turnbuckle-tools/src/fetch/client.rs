//! The requests, one for each redirect.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Response, Url};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::FetchOptions;
use super::address::{self, AddressError, OpenInternet};
use super::page::Page;
use crate::http::causes;

/// How many redirects are followed.
const MOST_REDIRECTS: usize = 5;
const CONNECT: Duration = Duration::from_secs(10);
/// What is asked for, so that servers with several forms of a page choose text.
const ACCEPTED: &str = "text/markdown, text/html;q=0.9, text/plain;q=0.9, application/json;q=0.8, */*;q=0.1";

/// Why nothing was fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum FetchError {
    #[error("{0}")]
    Address(#[from] AddressError),
    #[error("no client for HTTP: {0}")]
    Client(String),
    #[error("{host} did not answer: {why}")]
    NoAnswer { host: String, why: String },
    #[error("it did not answer within {limit:?}")]
    Late { limit: Duration },
    #[error("it redirects more than {MOST_REDIRECTS} times")]
    Redirects,
    #[error("it redirects to something that is no address")]
    Redirect,
    #[error("it redirects from https to http, which anybody on the way could read and change")]
    Downgrade,
}

impl FetchError {
    /// Whether another try would end the same: what was asked for is not fetched.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Address(_) | Self::Redirects | Self::Redirect | Self::Downgrade)
    }
}

/// What came back.
pub(super) enum Fetched {
    Page(Page),
    /// A redirect to another host.
    Elsewhere {
        status: u16,
        url: Url,
    },
}

/// Two clients: one for the open internet, one for the private hosts that the user named. Made at the first request: reading the
/// machine's certificates takes a while.
pub(super) struct Client {
    options: FetchOptions,
    open: OnceLock<reqwest::Client>,
    private: OnceLock<reqwest::Client>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(options: FetchOptions) -> Self {
        Self { options, open: OnceLock::new(), private: OnceLock::new() }
    }

    /// Follows redirects on the same host.
    pub(super) async fn get(&self, mut url: Url) -> Result<Fetched, FetchError> {
        for _ in 0..=MOST_REDIRECTS {
            let response = self.request(&url).await?;
            let Some(next) = redirect(&url, &response)? else {
                return self.page(url, response).await.map(Fetched::Page);
            };
            if !is_same_host(&url, &next) {
                return Ok(Fetched::Elsewhere { status: response.status().as_u16(), url: next });
            }
            if url.scheme() == "https" && next.scheme() == "http" {
                return Err(FetchError::Downgrade);
            }
            url = next;
        }
        Err(FetchError::Redirects)
    }

    async fn request(&self, url: &Url) -> Result<Response, FetchError> {
        address::checked(url)?;
        let is_named = self.options.private.iter().any(|host| host.matches(url));
        let client = if is_named {
            client(&self.private, true)?
        } else {
            address::check_literal(url)?;
            client(&self.open, false)?
        };
        let sent = client.get(url.clone()).header(ACCEPT, ACCEPTED).send().await;
        sent.map_err(|error| no_answer(url, &error))
    }

    /// Reads as much as is allowed. What is beyond it stays unread, and the connection is closed.
    async fn page(&self, url: Url, mut response: Response) -> Result<Page, FetchError> {
        let status = response.status().as_u16();
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let (mut body, most, mut is_cut) = (Vec::new(), self.options.max_bytes, false);
        while let Some(chunk) = response.chunk().await.map_err(|error| no_answer(&url, &error))? {
            let room = most - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                is_cut = true;
                break;
            }
        }
        Ok(Page { url, status, kind, body, is_cut })
    }
}

fn client(kept: &OnceLock<reqwest::Client>, is_private: bool) -> Result<reqwest::Client, FetchError> {
    if let Some(client) = kept.get() {
        return Ok(client.clone());
    }
    let failed = |error: &dyn std::error::Error| FetchError::Client(causes(error));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.map_err(|error| failed(&error))?;
    let tls = tls.with_platform_verifier().map_err(|error| failed(&error))?.with_no_client_auth();
    // No proxy: the address that is checked would be the proxy's. No redirects: each is checked first.
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .no_proxy()
        .referer(false)
        .user_agent(concat!("turnbuckle/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT);
    let builder = if is_private { builder } else { builder.dns_resolver(Arc::new(OpenInternet)) };
    let client = builder.build().map_err(|error| failed(&error))?;
    Ok(kept.get_or_init(|| client).clone())
}

/// Where a response leads, if it is a redirect.
fn redirect(url: &Url, response: &Response) -> Result<Option<Url>, FetchError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let mut next = location.to_str().ok().and_then(|next| url.join(next).ok()).ok_or(FetchError::Redirect)?;
    address::checked(&next)?;
    next.set_fragment(None);
    Ok(Some(next))
}

/// The same host and port, or the same host moved from http to https.
fn is_same_host(from: &Url, to: &Url) -> bool {
    let is_upgrade = from.scheme() == "http" && to.scheme() == "https" && from.port().is_none() && to.port().is_none();
    let is_same_port = from.port_or_known_default() == to.port_or_known_default();
    let is_downgrade = from.scheme() == "https" && to.scheme() == "http";
    from.host_str() == to.host_str() && (is_same_port || is_upgrade || is_downgrade)
}

/// The address is not repeated: it may hold what the model put there, and the result names the host.
fn no_answer(url: &Url, error: &reqwest::Error) -> FetchError {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<AddressError>() {
            let mut refused = refused.clone();
            if let AddressError::Private { port, .. } = &mut refused {
                *port = url.port();
            }
            return refused.into();
        }
        cause = error.source();
    }
    let why = std::error::Error::source(error).map_or_else(|| "the connection failed".to_owned(), causes);
    FetchError::NoAnswer { host: url.host_str().unwrap_or_default().to_owned(), why }
}
