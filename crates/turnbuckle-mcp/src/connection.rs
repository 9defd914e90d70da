//! A server that runs: what it lists, and calls of its tools.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, GetPromptRequestParams, GetPromptResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResult, ServerResult,
};
use rmcp::service::{ClientInitializeError, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::AuthRequiredError;
use serde_json::{Map, Value};
use turnbuckle_tools::CommandError;

use crate::client::{Caller, Hearing, Open, Told};
use crate::listing::{Listing, MOST_TOOLS};
use crate::options::ServerOptions;
use crate::transport::{self, Opened, WhyEnded};

/// Pages of a list that are read; a server could go on for ever.
const MOST_PAGES: usize = 64;

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// Its program could not be started.
    #[error("its program could not be started: {0}")]
    Start(#[from] CommandError),
    /// Its program ended before it said anything.
    #[error("its program ended before it answered ({status})")]
    Ended {
        /// How it ended.
        status: String,
    },
    /// It did not answer as an MCP server does.
    #[error("it did not answer as an MCP server does: {0}")]
    Greeting(#[source] Box<ClientInitializeError>),
    /// It took too long to start and to list its tools.
    #[error("it did not start within {seconds} s")]
    TooSlow {
        /// How long it had.
        seconds: u64,
    },
    /// A header of the configuration cannot be sent.
    #[error("the header {name:?} cannot be sent: its name or its value has characters that are not allowed")]
    Header {
        /// Its name. The value is a secret.
        name: String,
    },
    /// No encrypted connection can be made here.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[source] rustls::Error),
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made: {0}")]
    Client(#[source] reqwest::Error),
    /// Logging in failed, or tokens could not be used.
    #[error("logging in: {0}")]
    Login(#[source] Box<AuthError>),
    /// No port of this machine can take the answer of a login.
    #[error("the answer of the login cannot be taken: {0}")]
    Callback(#[source] std::io::Error),
    /// Nobody logged in.
    #[error("nobody logged in within {seconds} s")]
    NotLoggedIn {
        /// How long there was.
        seconds: u64,
    },
    /// A request failed.
    #[error("{0}")]
    Request(#[source] Box<ServiceError>),
    /// The configuration does not offer this tool, or the server has none of this name.
    #[error("it offers no tool {tool:?}")]
    NoTool {
        /// Which one.
        tool: String,
    },
    /// The tool is not what a person accepted.
    #[error("its tool {tool:?} is not the one that was accepted: `turnbuckle trust` shows the change")]
    Changed {
        /// Which one.
        tool: String,
    },
    /// One of its messages was longer than one may be, which ended the connection.
    #[error("it sent a message of more than {mebibytes} MiB, and the connection was ended")]
    TooLong {
        /// How long one may be.
        mebibytes: usize,
    },
    /// It answered with something else than what was asked for.
    #[error("it answered with something else than a result of the call")]
    WrongAnswer,
    /// It failed lately, and is not started again yet.
    #[error("{cause}; it is started again in {seconds} s at the earliest")]
    Resting {
        /// How much of the pause is left.
        seconds: u64,
        /// Why it failed.
        cause: Arc<McpError>,
    },
    /// Somebody else started it, and that failed.
    #[error("{0}")]
    Shared(Arc<McpError>),
}

impl McpError {
    /// Whether the server wants somebody to log in, or to do so again: its tokens are missing, or were taken back.
    pub fn wants_login(&self) -> bool {
        let inner: &(dyn Error + 'static) = match self {
            Self::Resting { cause, .. } | Self::Shared(cause) => return cause.wants_login(),
            Self::Greeting(error) => match &**error {
                // It is not told as the source of the other.
                ClientInitializeError::TransportError { error, .. } => &*error.error,
                _ => return false,
            },
            error => error,
        };
        let has_no_tokens = |error: &AuthError| {
            matches!(
                error,
                AuthError::AuthorizationRequired
                    | AuthError::TokenExpired
                    | AuthError::TokenRefreshFailed(_)
                    | AuthError::TokenRefreshRejected(_)
            )
        };
        let is_refused = |error: &(dyn Error + 'static)| {
            error.is::<AuthRequiredError>() || error.downcast_ref().is_some_and(has_no_tokens)
        };
        let mut next = Some(inner);
        while let Some(error) = next {
            if is_refused(error) {
                return true;
            }
            next = error.source();
        }
        false
    }
}

impl From<ServiceError> for McpError {
    fn from(error: ServiceError) -> Self {
        Self::Request(Box::new(error))
    }
}

/// A server that has been greeted and has listed its tools. Dropping it ends the program.
pub(crate) struct Connection {
    opened: Opened,
    told: Arc<Told>,
    /// What it offers now. Replaced when it says that its tools have changed. Held only to look and to change.
    listed: Mutex<Listed>,
    /// Whether a call has said already that the server was lost.
    is_lost: AtomicBool,
}

/// The newest list of what a server offers.
#[derive(Default)]
struct Listed {
    listing: Arc<Listing>,
    /// How often the server had said that its tools have changed when this list was asked for.
    after: u64,
}

impl Listed {
    /// Takes the place of the list that is kept, unless that one was asked for after a later change: the answers to two requests at
    /// once may come in any order.
    fn replace(&mut self, listing: Arc<Listing>, after: u64) {
        if after >= self.after {
            *self = Self { listing, after };
        }
    }
}

impl Connection {
    pub(crate) async fn open(options: &ServerOptions) -> Result<Self, McpError> {
        let told = Arc::new(Told::default());
        let opened = transport::open(&options.name, &options.endpoint, told.clone()).await?;
        let connection = Self { opened, told, listed: Mutex::default(), is_lost: AtomicBool::new(false) };
        connection.relist(connection.told.tool_changes()).await?;
        Ok(connection)
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Over HTTP nothing else ends with a message that is too long.
        self.opened.ended.is_too_long()
            || self.opened.service.is_closed()
            || self.opened.service.peer().is_transport_closed()
    }

    /// Notes that a call says that the server was lost. True for the first one.
    pub(crate) fn note_loss(&self) -> bool {
        !self.is_lost.swap(true, Ordering::AcqRel)
    }

    /// What it offers; listed anew if it said that this has changed. As long as no such list has come, also because a call was cancelled that had
    /// asked for it, the next call asks again.
    pub(crate) async fn listing(&self) -> Result<Arc<Listing>, McpError> {
        let changes = self.told.tool_changes();
        if self.listed().after < changes {
            self.relist(changes).await?;
        }
        Ok(self.listed().listing.clone())
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the list. The server had said so often that its tools have changed.
    async fn relist(&self, changes: u64) -> Result<(), McpError> {
        let peer = self.opened.service.peer();
        let info = peer.peer_info();
        let has = |what: fn(&rmcp::model::ServerCapabilities) -> bool| {
            info.as_ref().is_some_and(|info| what(&info.capabilities))
        };
        let (mut tools, mut cursor) = (Vec::new(), None);
        if has(|offers| offers.tools.is_some()) {
            for _ in 0..MOST_PAGES {
                let page = PaginatedRequestParams::default().with_cursor(cursor.take());
                let page = peer.list_tools(Some(page)).await.map_err(|error| self.opened.ended.why(error))?;
                tools.extend(page.tools);
                cursor = page.next_cursor;
                if cursor.is_none() || tools.len() > MOST_TOOLS {
                    break;
                }
            }
        }
        let listing =
            Listing::of(tools, has(|offers| offers.resources.is_some()), has(|offers| offers.prompts.is_some()));
        self.listed().replace(Arc::new(listing), changes);
        Ok(())
    }

    /// Sends a call. Whoever awaits it can give up at any time: then the server is told.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        caller: Caller,
    ) -> Result<PendingCall, McpError> {
        // Before it is sent: the server may ask at once.
        let open = self.told.open(caller);
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = Some(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let peer = self.opened.service.peer();
        let handle = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let handle = handle.map_err(|error| self.opened.ended.why(error))?;
        let (hearing, progress) = self.told.hear(handle.progress_token.clone());
        Ok(PendingCall { handle: Some(handle), open, progress, ended: self.opened.ended.clone(), _hearing: hearing })
    }

    pub(crate) async fn read_resource(&self, uri: &str) -> Result<ReadResourceResult, McpError> {
        let params = ReadResourceRequestParams::new(uri.to_owned());
        self.opened.service.peer().read_resource(params).await.map_err(|error| self.opened.ended.why(error))
    }

    /// The first resources, each as a line.
    pub(crate) async fn resources(&self) -> Result<Vec<String>, McpError> {
        let page =
            self.opened.service.peer().list_resources(None).await.map_err(|error| self.opened.ended.why(error))?;
        let line =
            |one: &rmcp::model::Resource| format!("{} {}", one.uri, one.description.as_deref().unwrap_or(&one.name));
        Ok(page.resources.iter().take(MOST_TOOLS).map(line).collect())
    }

    pub(crate) async fn prompt(&self, name: &str, arguments: Map<String, Value>) -> Result<GetPromptResult, McpError> {
        let params = GetPromptRequestParams::new(name.to_owned()).with_arguments(arguments);
        self.opened.service.peer().get_prompt(params).await.map_err(|error| self.opened.ended.why(error))
    }

    /// The first prompts, each as a line.
    pub(crate) async fn prompts(&self) -> Result<Vec<String>, McpError> {
        let page = self.opened.service.peer().list_prompts(None).await.map_err(|error| self.opened.ended.why(error))?;
        let line = |one: &rmcp::model::Prompt| {
            let arguments = one.arguments.iter().flatten().map(|argument| argument.name.as_str()).collect::<Vec<_>>();
            format!("{}({}) {}", one.name, arguments.join(", "), one.description.as_deref().unwrap_or_default())
        };
        Ok(page.prompts.iter().take(MOST_TOOLS).map(line).collect())
    }

    /// Ends it in order, which gives a program the chance to close its files.
    pub(crate) async fn close(self) {
        let Self { opened: Opened { service, mut program, .. }, .. } = self;
        if let Err(error) = service.cancel().await {
            tracing::debug!(%error, "closing an MCP server");
        }
        if let Some(program) = &mut program {
            // Whether it ends in time or not, dropping it ends it.
            let _ = tokio::time::timeout(std::time::Duration::from_secs(1), program.ended()).await;
        }
    }
}

/// A call that was sent. Dropping it tells the server that nobody waits any more.
pub(crate) struct PendingCall {
    /// Until the answer is there.
    handle: Option<RequestHandle<RoleClient>>,
    open: Open,
    progress: tokio::sync::mpsc::Receiver<String>,
    ended: WhyEnded,
    _hearing: Hearing,
}

impl PendingCall {
    /// Waits for the result; what the server reports meanwhile goes to `report`. It can be called again after it was dropped.
    pub(crate) async fn answer(&mut self, mut report: impl FnMut(String)) -> Result<CallToolResult, McpError> {
        let answer = loop {
            let Some(handle) = &mut self.handle else { return Err(McpError::WrongAnswer) };
            tokio::select! {
                biased;
                answer = &mut handle.rx => break answer,
                Some(text) = self.progress.recv() => report(text),
            }
        };
        self.handle = None;
        let answer = answer.unwrap_or(Err(ServiceError::TransportClosed));
        match answer.map_err(|error| self.ended.why(error))? {
            ServerResult::CallToolResult(result) => Ok(result),
            _ => Err(McpError::WrongAnswer),
        }
    }

    /// From now on no person is asked for the server.
    pub(crate) fn stop_asking(&self) {
        self.open.call.stop_asking();
    }

    /// What the server wanted to ask a person meanwhile, and nobody answered.
    pub(crate) fn take_declined(&self) -> Vec<String> {
        self.open.call.take_declined()
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let (Some(handle), Ok(runtime)) = (self.handle.take(), tokio::runtime::Handle::try_current()) else { return };
        runtime.spawn(async move {
            // A server that is gone need not be told.
            let _ = handle.cancel(Some("cancelled".to_owned())).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_asked_for_before_a_change_does_not_replace_one_that_was_asked_for_after_it() {
        let (mut listed, old, new, newest) = (Listed::default(), Arc::default(), Arc::default(), Arc::default());
        listed.replace(Arc::clone(&new), 2);
        listed.replace(Arc::clone(&old), 1);
        assert!(Arc::ptr_eq(&listed.listing, &new) && listed.after == 2);
        listed.replace(Arc::clone(&newest), 2);
        assert!(Arc::ptr_eq(&listed.listing, &newest));
    }
}
