//! What is known of a server before it runs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use turnbuckle::clock::{Clock, SystemClock};
use turnbuckle_tools::{CommandLine, ProgramOptions};
use wildmatch::WildMatch;

use crate::elicitation::Person;

/// Where a server is.
#[derive(Clone)]
pub enum Endpoint {
    /// A program that is started here and spoken to over its stdin and stdout.
    Program(ProgramOptions),
    /// An address that is spoken to over HTTP ("streamable HTTP").
    Http {
        /// The whole address.
        url: String,
        /// Headers of every request: a token, say. Their values are never shown.
        headers: Vec<(String, String)>,
        /// The file with the tokens of a [`login`](crate::login), which are sent and renewed. Without one, or if it is not there, requests go without.
        tokens: Option<PathBuf>,
    },
}

/// Whether what a server says about its tools (`readOnlyHint`, `idempotentHint`) counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hints {
    /// No: each call is asked about, and one that a crash cut off is not repeated.
    #[default]
    Ignored,
    /// Yes: tools that only read run unasked, and are called again after a crash, as are idempotent ones.
    Trusted,
}

/// A server, and which of its tools are used how.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Part of the names of its tools: `mcp__NAME__TOOL`.
    pub name: String,
    /// Where it is.
    pub endpoint: Endpoint,
    /// Patterns of the tools that are offered; all if empty.
    pub allow: Vec<String>,
    /// Patterns of those that are not, also if `allow` has them.
    pub deny: Vec<String>,
    /// Patterns of those whose calls need approval.
    pub approve: Vec<String>,
    /// Whether annotations count.
    pub hints: Hints,
    /// How long a call may take.
    pub timeout: Duration,
    /// How long the server may take to start and to say what it offers.
    pub start_timeout: Duration,
    /// Who is asked what the server wants to know of a person; without one it is told that nobody answers.
    pub person: Option<Arc<dyn Person>>,
    /// By which pauses between starts are measured.
    pub clock: Arc<dyn Clock>,
}

impl ServerOptions {
    /// A program, started in `folder`.
    pub fn program<W: Into<String>>(
        name: impl Into<String>,
        command: impl IntoIterator<Item = W>,
        folder: impl Into<PathBuf>,
    ) -> Self {
        let line = CommandLine::Argv(command.into_iter().map(Into::into).collect());
        let (folder, withheld_env, pass_env, env) = (folder.into(), Vec::new(), Vec::new(), Vec::new());
        Self::at(name, Endpoint::Program(ProgramOptions { line, folder, withheld_env, pass_env, env, check: None }))
    }

    /// An address.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::at(name, Endpoint::Http { url: url.into(), headers: Vec::new(), tokens: None })
    }

    /// All tools, each asked about; two minutes for a call, thirty seconds to start.
    pub fn at(name: impl Into<String>, endpoint: Endpoint) -> Self {
        Self {
            name: name.into(),
            endpoint,
            allow: Vec::new(),
            deny: Vec::new(),
            approve: vec!["*".to_owned()],
            hints: Hints::default(),
            timeout: Duration::from_secs(120),
            start_timeout: Duration::from_secs(30),
            person: None,
            clock: Arc::new(SystemClock::default()),
        }
    }

    /// Whether the tool is offered to the model.
    pub(crate) fn offers(&self, tool: &str) -> bool {
        (self.allow.is_empty() || matches(&self.allow, tool)) && !matches(&self.deny, tool)
    }

    pub(crate) fn asks_about(&self, tool: &str) -> bool {
        matches(&self.approve, tool)
    }
}

fn matches(patterns: &[String], tool: &str) -> bool {
    patterns.iter().any(|pattern| WildMatch::new(pattern).matches(tool))
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Environment, headers and addresses may hold secrets.
        f.debug_struct("ServerOptions").field("name", &self.name).finish_non_exhaustive()
    }
}
