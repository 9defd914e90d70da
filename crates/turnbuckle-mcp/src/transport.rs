//! Opening a connection: a program's pipes, or HTTP.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::ServiceExt as _;
use rmcp::model::ErrorCode;
use rmcp::service::{RoleClient, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::auth::AuthClient;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader, ReadBuf};
use tokio::process::ChildStderr;
use turnbuckle_tools::{Pipes, Program, ProgramOptions};

use crate::client::{Handler, Told};
use crate::connection::McpError;
use crate::http_client::HttpClient;
use crate::oauth;
use crate::options::Endpoint;

/// The longest line of a server's stderr that is logged.
const MOST_LINE: u64 = 2000;

/// A running client and what must live as long as it.
pub(crate) struct Opened {
    pub(crate) service: RunningService<RoleClient, Handler>,
    /// Dropped with the connection, which ends the program.
    pub(crate) program: Option<Program>,
    pub(crate) ended: WhyEnded,
}

/// Why a connection ended, as far as this side knows: whoever waits for an answer is only told that it has.
#[derive(Clone, Default)]
pub(crate) struct WhyEnded {
    message_was_too_long: Arc<AtomicBool>,
}

impl WhyEnded {
    pub(crate) fn note_too_long(&self) {
        self.message_was_too_long.store(true, Ordering::Release);
    }

    /// Whether the server sent a message that is too long: the connection is not used any more.
    pub(crate) fn is_too_long(&self) -> bool {
        self.message_was_too_long.load(Ordering::Acquire)
    }

    fn too_long(&self) -> Option<McpError> {
        self.is_too_long().then_some(McpError::TooLong { mebibytes: MOST_MESSAGE >> 20 })
    }

    /// Why a request failed.
    pub(crate) fn why(&self, error: ServiceError) -> McpError {
        // A stream of answers that breaks off is told as an error of the protocol, made by the client.
        let of_connection = match &error {
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => true,
            ServiceError::McpError(error) => error.code == ErrorCode::INTERNAL_ERROR,
            _ => false,
        };
        self.too_long().filter(|_| of_connection).unwrap_or_else(|| error.into())
    }
}

/// Starts or reaches the server, and greets it.
pub(crate) async fn open(name: &str, endpoint: &Endpoint, told: Arc<Told>) -> Result<Opened, McpError> {
    match endpoint {
        Endpoint::Program(options) => open_program(name, options, told).await,
        Endpoint::Http { url, headers, tokens } => open_http(url, headers, tokens.as_deref(), told).await,
    }
}

async fn open_program(name: &str, options: &ProgramOptions, told: Arc<Told>) -> Result<Opened, McpError> {
    let (mut program, Pipes { stdin, stdout, stderr }) = Program::start(options).await?;
    tokio::spawn(log(name.to_owned(), stderr));
    let ended = WhyEnded::default();
    let limited = LineLimit::new(stdout, ended.clone());
    // Its own limit leaves a longer line out without a word, and whoever waits for the answer waits in vain.
    let transport = AsyncRwTransport::new_client(limited, stdin).with_max_line_length(usize::MAX);
    let service = tokio::select! {
        greeted = Handler(told).serve(transport) => {
            greeted.map_err(|error| ended.too_long().unwrap_or_else(|| McpError::Greeting(Box::new(error))))?
        }
        status = program.ended() => {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(McpError::Ended { status });
        }
    };
    Ok(Opened { service, program: Some(program), ended })
}

/// The longest message. Without a limit a server that writes no end of a line would fill the memory of this process.
pub(crate) const MOST_MESSAGE: usize = 64 << 20;

/// Fails when a line is longer than a message may be, which ends the connection.
struct LineLimit<R> {
    inner: R,
    /// Bytes since the last end of a line.
    length: usize,
    /// Is told when it fails.
    ended: WhyEnded,
}

impl<R> LineLimit<R> {
    fn new(inner: R, ended: WhyEnded) -> Self {
        Self { inner, length: 0, ended }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for LineLimit<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        let mut pieces = buffer.filled()[before..].split(|byte| *byte == b'\n');
        let mut longest = this.length + pieces.next().map_or(0, <[u8]>::len);
        this.length = longest;
        for piece in pieces {
            this.length = piece.len();
            longest = longest.max(this.length);
        }
        if longest > MOST_MESSAGE {
            this.ended.note_too_long();
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a message of the server is too long")));
        }
        Poll::Ready(Ok(()))
    }
}

/// What a server writes to stderr is for people who look into the log. It ends with the program.
async fn log(name: String, stderr: ChildStderr) {
    let mut lines = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut lines).take(MOST_LINE).read_until(b'\n', &mut line).await {
            Ok(1..) => tracing::debug!(server = %name, said = %String::from_utf8_lossy(&line).trim_end(), "MCP server"),
            _ => return,
        }
    }
}

async fn open_http(
    url: &str,
    headers: &[(String, String)],
    tokens: Option<&Path>,
    told: Arc<Told>,
) -> Result<Opened, McpError> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
    let mut own = HashMap::new();
    for (name, value) in headers {
        let unusable = || McpError::Header { name: name.clone() };
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| unusable())?;
        value.set_sensitive(true);
        own.insert(parsed, value);
    }
    let own_token = own.contains_key(&reqwest::header::AUTHORIZATION);
    config.custom_headers = own;
    // A token of the configuration is not replaced by one of a login.
    let tokens = tokens.filter(|_| !own_token);
    config.max_sse_event_size = MOST_MESSAGE;
    let ended = WhyEnded::default();
    let client = HttpClient::new(client()?, ended.clone());
    let greeted = match tokens {
        Some(tokens) => {
            let mut manager = oauth::manager(url, tokens).await?;
            manager.initialize_from_store().await.map_err(|error| McpError::Login(Box::new(error)))?;
            let client = AuthClient::new(client, manager);
            Handler(told).serve(StreamableHttpClientTransport::with_client(client, config)).await
        }
        None => Handler(told).serve(StreamableHttpClientTransport::with_client(client, config)).await,
    };
    let service = greeted.map_err(|error| ended.too_long().unwrap_or_else(|| McpError::Greeting(Box::new(error))))?;
    Ok(Opened { service, program: None, ended })
}

/// Follows no redirect: the address is the one that was accepted, and headers may hold a token.
pub(crate) fn client() -> Result<reqwest::Client, McpError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.and_then(|builder| builder.with_platform_verifier()).map_err(McpError::Tls)?.with_no_client_auth();
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls).redirect(reqwest::redirect::Policy::none());
    builder.build().map_err(McpError::Client)
}
