//! One server: started when it is needed, started again when it died, compared with what was accepted.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use serde_json::{Map, Value};
use turnbuckle::BoxFuture;
use turnbuckle::clock::Timestamp;
use turnbuckle::hooks::ToolAnswer;
use turnbuckle::tool::{Definition, Tool};

use crate::client::Caller;
use crate::connection::{Connection, McpError};
use crate::listing::Listing;
use crate::options::ServerOptions;
use crate::{result, tool};

/// The longest pause before a server that keeps failing is started again.
const LONGEST_REST: Duration = Duration::from_secs(60);

type Starting = Shared<BoxFuture<'static, Result<Arc<Connection>, Arc<McpError>>>>;
type OnListed = Arc<dyn Fn(&Listing) + Send + Sync>;

/// An MCP server. Clones are the same server.
#[derive(Clone)]
pub struct McpServer(Arc<Inner>);

struct Inner {
    options: ServerOptions,
    /// What was accepted.
    pinned: Option<Arc<Listing>>,
    /// Told what the server lists when one of its tools is called.
    on_listed: Option<OnListed>,
    /// Held only to look and to replace, never while something is awaited.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Link,
    /// In a row.
    failures: u32,
    /// The last failure, and until when the server is left alone because of it.
    resting: Option<(Timestamp, Arc<McpError>)>,
    /// What the server lists now, once it was found to be what was accepted.
    accepted: Option<Arc<Listing>>,
}

#[derive(Default)]
enum Link {
    #[default]
    Down,
    /// Everyone who needs it waits for one start.
    Starting(Starting),
    Up(Arc<Connection>),
}

impl McpServer {
    /// It is not started yet.
    pub fn new(options: ServerOptions) -> Self {
        Self(Arc::new(Inner { options, pinned: None, on_listed: None, state: Mutex::default() }))
    }

    /// A server of which this listing was accepted. Its tools are known without starting it.
    #[must_use]
    pub fn pinned(&self, listing: Listing) -> Self {
        self.with(Some(Arc::new(listing)), self.0.on_listed.clone())
    }

    /// The same, which tells what the server lists when one of its tools is called: with each call while that is not what was accepted, and
    /// once for each listing that is, so that an offer which was noted before can be forgotten.
    #[must_use]
    pub fn on_listed(&self, tell: impl Fn(&Listing) + Send + Sync + 'static) -> Self {
        self.with(self.0.pinned.clone(), Some(Arc::new(tell)))
    }

    fn with(&self, pinned: Option<Arc<Listing>>, on_listed: Option<OnListed>) -> Self {
        Self(Arc::new(Inner { options: self.0.options.clone(), pinned, on_listed, state: Mutex::default() }))
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.0.options.name
    }

    /// Whether it has an address, where somebody may have to log in.
    pub fn is_remote(&self) -> bool {
        matches!(self.0.options.endpoint, crate::Endpoint::Http { .. })
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.0.options
    }

    /// Starts the server, asks what it offers, and ends it again.
    pub async fn list(&self) -> Result<Listing, McpError> {
        let connection = start(&self.0.options).await?;
        let listing = connection.listing().await;
        connection.close().await;
        Ok((*listing?).clone())
    }

    /// The accepted tools that the options offer, for an agent. None without [`pinned`](Self::pinned).
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let Some(listing) = self.0.pinned.clone() else { return Vec::new() };
        tool::all(self, &listing)
    }

    /// Calls a tool for a program, not for a model: the text is not fenced, and no longer than a result may be. Only tools that
    /// were accepted and that the options offer are called.
    pub async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Result<ToolAnswer, McpError> {
        let is_accepted = self.0.pinned.as_ref().is_some_and(|listing| listing.tool(tool).is_some());
        if !is_accepted || !self.0.options.offers(tool) {
            return Err(McpError::NoTool { tool: tool.to_owned() });
        }
        let connection = self.connection().await?;
        let answered = async {
            let listing = connection.listing().await?;
            if !self.is_as_accepted(&listing, tool) {
                return Err(McpError::Changed { tool: tool.to_owned() });
            }
            connection.call(tool, arguments, Caller::program()).await?.answer(|_| {}).await
        };
        match answered.await {
            Ok(answered) => {
                self.succeeded();
                Ok(result::answer(answered))
            }
            Err(error) if connection.is_closed() => Err(McpError::Shared(self.lost(&connection, error))),
            Err(error) => Err(error),
        }
    }

    /// About how many tokens the offered tools add to every request, those for resources and prompts included.
    pub fn tokens(&self) -> usize {
        let tools = self.tools();
        let definitions = tools.iter().map(|tool| &tool.spec().definition);
        let bytes = |one: &Definition| one.name.len() + one.description.len() + one.parameters.to_string().len();
        definitions.map(|one| bytes(one).div_ceil(4)).sum()
    }

    /// The running server: started if need be, by whoever comes first.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, McpError> {
        let starting = {
            let mut state = self.0.state();
            match &state.link {
                Link::Up(connection) if !connection.is_closed() => return Ok(connection.clone()),
                Link::Starting(starting) => starting.clone(),
                Link::Up(_) | Link::Down => {
                    if let Some((until, cause)) = &state.resting {
                        let left = until.since(self.0.options.clock.now());
                        if !left.is_zero() {
                            let seconds = left.as_secs_f64().ceil() as u64;
                            return Err(McpError::Resting { seconds, cause: cause.clone() });
                        }
                    }
                    let starting = self.begin();
                    state.link = Link::Starting(starting.clone());
                    starting
                }
            }
        };
        starting.await.map_err(McpError::Shared)
    }

    /// In a task of its own: whoever waits for it may go.
    fn begin(&self) -> Starting {
        let server = self.0.clone();
        let task = tokio::spawn(async move {
            let started = start(&server.options).await.map(Arc::new).map_err(Arc::new);
            server.started(&started);
            started
        });
        let outcome = async move {
            match task.await {
                Ok(started) => started,
                // The runtime is shutting down.
                Err(_) => Err(Arc::new(McpError::WrongAnswer)),
            }
        };
        outcome.boxed().shared()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn started(&self, outcome: &Result<Arc<Connection>, Arc<McpError>>) {
        let mut state = self.state();
        match outcome {
            Ok(connection) => {
                state.link = Link::Up(connection.clone());
                // A server that dies right after each start would be started without end: the count goes down with the
                // first call that succeeds.
                state.resting = None;
            }
            Err(error) => {
                state.failed(self.options.clock.now(), error.clone());
                state.link = Link::Down;
            }
        }
    }

    /// A call succeeded.
    fn succeeded(&self) {
        self.state().failures = 0;
    }

    /// The server was lost in the middle of a call. Every call that was open says so, and only the first of them counts: the others must neither
    /// make the pause longer nor end a server that was started since.
    fn lost(&self, connection: &Arc<Connection>, error: &Arc<McpError>) {
        let mut state = self.state();
        if connection.note_loss() {
            state.failed(self.options.clock.now(), error.clone());
        }
        if matches!(&state.link, Link::Up(up) if Arc::ptr_eq(up, connection)) {
            state.link = Link::Down;
        }
    }
}

impl State {
    fn failed(&mut self, now: Timestamp, error: Arc<McpError>) {
        self.failures = self.failures.saturating_add(1);
        let rest = Duration::from_secs(1 << self.failures.min(6)).min(LONGEST_REST);
        self.resting = Some((now.after(rest), error));
    }
}

impl McpServer {
    pub(crate) fn succeeded(&self) {
        self.0.succeeded();
    }

    pub(crate) fn lost(&self, connection: &Arc<Connection>, error: McpError) -> Arc<McpError> {
        let error = Arc::new(error);
        self.0.lost(connection, &error);
        error
    }

    /// Whether the server still means by this tool what was accepted. Tells who asked to know what it lists.
    pub(crate) fn is_as_accepted(&self, listing: &Arc<Listing>, tool: &str) -> bool {
        let Some(pinned) = &self.0.pinned else { return true };
        // A listing is compared once, and not at each call: it may have hundreds of tools.
        if self.0.state().accepted.as_ref().is_some_and(|accepted| Arc::ptr_eq(accepted, listing)) {
            return true;
        }
        let is_equal = **pinned == **listing;
        if is_equal {
            self.0.state().accepted = Some(listing.clone());
        }
        if let Some(tell) = &self.0.on_listed {
            tell(listing);
        }
        is_equal
            || pinned.tool(tool).map(crate::ListedTool::digest) == listing.tool(tool).map(crate::ListedTool::digest)
    }
}

async fn start(options: &ServerOptions) -> Result<Connection, McpError> {
    let limit = options.start_timeout;
    match tokio::time::timeout(limit, Connection::open(options)).await {
        Ok(opened) => opened,
        Err(_) => Err(McpError::TooSlow { seconds: limit.as_secs() }),
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("McpServer").field(&self.0.options).finish()
    }
}
