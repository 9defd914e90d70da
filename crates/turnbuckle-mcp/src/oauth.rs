//! Logging in at servers that want it (OAuth 2.1): the tokens, and the way to get them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, CredentialStore, OAuthHttpClient, OAuthHttpClientError,
    OAuthHttpClientFuture, OAuthHttpRequest, OAuthState, StoredCredentials,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::connection::McpError;
use crate::transport;

/// How long a person has to log in.
const LOGIN: Duration = Duration::from_secs(300);
/// How long one request may take, and how much of an answer is read.
const REQUEST: Duration = Duration::from_secs(30);
const MOST_ANSWER: usize = 1 << 20;
/// What a browser sends at most before the answer of the login is read.
const MOST_CALLBACK: usize = 16 << 10;
/// The path to which the browser comes back.
const CALLBACK: &str = "/callback";

/// Logs in at the server with this address. `show` is given the address that the person opens in a browser. The tokens go to `tokens`,
/// a file that only this user can read.
///
/// The answer comes to a port of this machine, so the browser must run on it, or reach it through a tunnel.
pub async fn login(url: &str, tokens: &Path, show: impl FnOnce(&str)) -> Result<(), McpError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(McpError::Callback)?;
    let port = listener.local_addr().map_err(McpError::Callback)?.port();
    let here = format!("http://127.0.0.1:{port}{CALLBACK}");
    let mut state = OAuthState::Unauthorized(manager(url, tokens).await?);
    let request = AuthorizationRequest::new(&here).with_client_name("Turnbuckle");
    state.start_authorization(request).await.map_err(failed)?;
    let address = state.get_authorization_url().await.map_err(failed)?;
    show(&address);
    let query = match tokio::time::timeout(LOGIN, callback(&listener)).await {
        Ok(query) => query.map_err(McpError::Callback)?,
        Err(_) => return Err(McpError::NotLoggedIn { seconds: LOGIN.as_secs() }),
    };
    belongs_to(&query, &address).map_err(failed)?;
    // It checks the `state` as well.
    state.handle_callback_url(&format!("{here}?{query}")).await.map_err(failed)
}

/// Whether the answer belongs to the login that was begun with this address, and lets somebody in. Whoever is denied is told why, in the server's words.
fn belongs_to(query: &str, address: &str) -> Result<(), AuthError> {
    let of = |text: &str| reqwest::Url::parse(text).map_err(AuthError::from);
    let (sent, answer) = (of(address)?, of(&format!("http://127.0.0.1{CALLBACK}?{query}"))?);
    let state = value_in(&sent, "state");
    if state.is_none() || value_in(&answer, "state") != state {
        let what = "the answer belongs to another login: its `state` is not the one that was sent";
        return Err(AuthError::AuthorizationFailed(what.to_owned()));
    }
    let Some(error) = value_in(&answer, "error") else { return Ok(()) };
    let about = value_in(&answer, "error_description").map(|about| format!(": {about}")).unwrap_or_default();
    Err(AuthError::AuthorizationFailed(format!("the server lets nobody in ({error}{about})")))
}

fn value_in(address: &reqwest::Url, name: &str) -> Option<String> {
    address.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
}

fn failed(error: AuthError) -> McpError {
    McpError::Login(Box::new(error))
}

/// What adds the tokens of the file to requests, and renews them. Without a file requests go without.
pub(crate) async fn manager(url: &str, tokens: &Path) -> Result<AuthorizationManager, McpError> {
    let client = Arc::new(Client(transport::client()?));
    let mut manager = AuthorizationManager::new_with_oauth_http_client(url, client).await.map_err(failed)?;
    manager.set_credential_store(TokenFile(tokens.to_path_buf()));
    Ok(manager)
}

/// The query with which the browser comes back. Whatever else is asked for there is not found: browsers look for an icon, too.
async fn callback(listener: &TcpListener) -> io::Result<String> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        // Somebody who connects and says nothing must not keep the browser waiting.
        let Ok(line) = tokio::time::timeout(Duration::from_secs(5), request_line(&mut stream)).await else { continue };
        let target = line.unwrap_or_default();
        let query = target.strip_prefix(CALLBACK).and_then(|rest| rest.strip_prefix('?')).map(str::to_owned);
        let (status, text) = match query {
            Some(_) => (
                "200 OK",
                "Turnbuckle has the answer, and says in the terminal whether you are logged in. You can close this window.",
            ),
            None => ("404 Not Found", "Not found."),
        };
        let length = text.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
        );
        // A browser that went away still brought its answer.
        let _ = stream.write_all(answer.as_bytes()).await;
        if let Some(query) = query {
            return Ok(query);
        }
    }
}

/// The target of a GET request.
async fn request_line(stream: &mut TcpStream) -> io::Result<String> {
    let (mut read, mut buffer) = (Vec::new(), [0; 2048]);
    while !read.windows(4).any(|end| end == b"\r\n\r\n") && read.len() < MOST_CALLBACK {
        match stream.read(&mut buffer).await? {
            0 => break,
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
    let text = String::from_utf8_lossy(&read);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    Ok(if words.next() == Some("GET") { words.next().unwrap_or_default().to_owned() } else { String::new() })
}

/// Requests to the server that gives out tokens. No redirect is followed: a token would go along.
struct Client(reqwest::Client);

/// An answer that is too long.
#[derive(Debug, thiserror::Error)]
#[error("the answer is longer than {MOST_ANSWER} bytes")]
struct TooLong;

impl OAuthHttpClient for Client {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let other = |error: reqwest::Error| Box::new(error) as OAuthHttpClientError;
            let mut request = reqwest::Request::try_from(request.request).map_err(other)?;
            *request.timeout_mut() = Some(REQUEST);
            let answer = self.0.execute(request).await.map_err(other)?;
            let mut built = http::Response::builder().status(answer.status());
            for (name, value) in answer.headers() {
                built = built.header(name, value);
            }
            let (mut body, mut chunks) = (Vec::new(), answer.bytes_stream());
            while let Some(chunk) = chunks.next().await {
                body.extend_from_slice(&chunk.map_err(other)?);
                if body.len() > MOST_ANSWER {
                    return Err(Box::new(TooLong) as OAuthHttpClientError);
                }
            }
            built.body(body).map_err(|error| Box::new(error) as OAuthHttpClientError)
        })
    }
}

/// The tokens of one server, in a file of mode 0600.
struct TokenFile(PathBuf);

impl TokenFile {
    fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| self.unusable(error))?,
        };
        serde_json::from_str(&text).map(Some).map_err(|error| self.unusable(error))
    }

    fn save(&self, credentials: &StoredCredentials) -> Result<(), AuthError> {
        let write = || -> io::Result<()> {
            if let Some(folder) = self.0.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            let beside = self.0.with_extension(format!("{}.tmp", std::process::id()));
            // One that was left by a process that died could have another mode.
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(serde_json::to_string(credentials)?.as_bytes())?;
            fs::rename(&beside, &self.0)
        };
        write().map_err(|error| self.unusable(error))
    }

    fn clear(&self) -> Result<(), AuthError> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.unusable(error)),
            _ => Ok(()),
        }
    }

    fn unusable(&self, error: impl std::fmt::Display) -> AuthError {
        AuthError::CredentialStoreError(format!("{}: {error}", self.0.display()))
    }
}

type Stored<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

// The file is small, and used once in a call at most.
impl CredentialStore for TokenFile {
    fn load<'life0, 'async_trait>(&'life0 self) -> Stored<'async_trait, Option<StoredCredentials>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move { self.load() })
    }

    fn save<'life0, 'async_trait>(&'life0 self, credentials: StoredCredentials) -> Stored<'async_trait, ()>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move { self.save(&credentials) })
    }

    fn clear<'life0, 'async_trait>(&'life0 self) -> Stored<'async_trait, ()>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move { self.clear() })
    }
}
