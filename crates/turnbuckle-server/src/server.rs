//! A server as it is built, and what all of its requests share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;
use turnbuckle::clock::{Clock, SystemClock};
use turnbuckle::{BoxFuture, Conversations, Scope};

use crate::costs::Costs;
use crate::first_words::FirstWords;
use crate::hub::Hubs;
use crate::keys::{Keys, KeysError};
use crate::limits::{ServerLimits, Usage};
use crate::live_questions::LiveQuestions;
use crate::metrics::{Gauge, Looker, Metrics};
use crate::mount::Mount;
use crate::page::HookLine;
use crate::rejection::{Code, Rejection};
use crate::routes::{self, StoreRead};
use crate::session::Session;
use crate::tls::Certificate;
use crate::tokens::{OnRemoved, Tokens};
use crate::waiting_counts::WaitingCounts;

/// How long turns may take to come to rest when the server shuts down, if nothing else is said.
const REST_WITHIN: Duration = Duration::from_secs(30);

/// Conversations over HTTP. Clones share everything.
#[derive(Clone)]
pub struct Server {
    pub(crate) app: Arc<App>,
}

/// What all requests share.
pub(crate) struct App {
    pub(crate) conversations: Conversations,
    /// `None`: whoever reaches the server is its one user.
    pub(crate) tokens: Option<Tokens>,
    /// What the tokens call for as long as this server is there.
    _on_removed: Arc<OnRemoved>,
    /// The user of a server without tokens.
    pub(crate) local: Scope,
    /// Whether callers may choose the ids of conversations.
    pub(crate) client_ids: bool,
    pub(crate) limits: Arc<Usage>,
    pub(crate) hubs: Arc<Hubs>,
    pub(crate) costs: Costs,
    pub(crate) first_words: FirstWords,
    pub(crate) waiting: WaitingCounts,
    pub(crate) live_questions: LiveQuestions,
    pub(crate) store_read: StoreRead,
    pub(crate) rest_within: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: Keys,
    pub(crate) metrics: Metrics,
    pub(crate) looker: Looker,
    /// The hooks at each point, as the page of a turn shows them.
    pub(crate) hook_lines: Vec<HookLine>,
    /// What the program adds to the metrics.
    pub(crate) gauges: Vec<Gauge>,
    /// Routes of the program.
    pub(crate) mounts: Vec<Mount>,
    /// What connections are encrypted with, if they are.
    pub(crate) certificate: Option<Certificate>,
    /// True from the moment in which the server shuts down.
    closing: watch::Sender<bool>,
}

impl App {
    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Ready when the server shuts down.
    pub(crate) async fn closing(&self) {
        // The sender is in `self`, so the wait ends with the change alone.
        drop(self.closing.subscribe().wait_for(|closing| *closing).await);
    }

    /// Refuses what would begin or carry on a turn while the server shuts down.
    pub(crate) fn takes_work(&self) -> Result<(), Rejection> {
        match self.is_closing() {
            true => Err(Rejection::new(Code::InUse, "the server shuts down")),
            false => Ok(()),
        }
    }

    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
        // Answers are refused from now on, so the calls must not wait for any.
        self.live_questions.close();
    }
}

impl Server {
    /// A server of these conversations.
    pub fn builder(conversations: Conversations) -> ServerBuilder {
        ServerBuilder {
            conversations,
            tokens: None,
            local: Scope::local(),
            client_ids: None,
            limits: ServerLimits::default(),
            rest_within: REST_WITHIN,
            clock: Arc::new(SystemClock::default()),
            keys: None,
            metrics: Metrics::default(),
            gauges: Vec::new(),
            certificate: None,
            mounts: Vec::new(),
            live_questions: LiveQuestions::default(),
            hook_lines: None,
        }
    }

    /// Its routes, for an application of your own. A server without tokens takes every request whose `Host` is this machine for its
    /// one user, so it must be reachable from loopback alone; [`serve`](Self::serve) checks that, and here it is yours to see to.
    pub fn router(&self) -> Router {
        routes::router(self.app.clone())
    }

    /// The description of the API: OpenAPI 3.1, as `/openapi.json` has it.
    pub fn openapi() -> serde_json::Value {
        routes::openapi()
    }

    /// From now on no work is taken, `/readyz` says so, and streams are told and end. [`serve`](Self::serve) does this at its
    /// signal; a program that mounts [`router`](Self::router) calls it.
    pub fn close(&self) {
        self.app.close();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("tokens", &self.app.tokens).finish_non_exhaustive()
    }
}

/// Settings of a [`Server`].
#[must_use = "settings do nothing until `build` is called"]
pub struct ServerBuilder {
    conversations: Conversations,
    tokens: Option<Tokens>,
    local: Scope,
    client_ids: Option<bool>,
    limits: ServerLimits,
    rest_within: Duration,
    clock: Arc<dyn Clock>,
    keys: Option<Keys>,
    metrics: Metrics,
    gauges: Vec<Gauge>,
    certificate: Option<Certificate>,
    mounts: Vec<Mount>,
    live_questions: LiveQuestions,
    hook_lines: Option<Vec<HookLine>>,
}

impl ServerBuilder {
    /// Callers need one of these tokens. Default: none is needed, the server listens on loopback alone, and there is one user.
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// The user of a server without tokens. Default: [`Scope::local`].
    pub fn local_user(mut self, scope: Scope) -> Self {
        self.local = scope;
        self
    }

    /// Whether callers may choose the ids of new conversations. An id that is taken is told to be, whoever has it, so callers can
    /// find out about ids of others. Default: only on a server without tokens.
    pub fn client_ids(mut self, allowed: ClientIds) -> Self {
        self.client_ids = Some(allowed == ClientIds::Allowed);
        self
    }

    /// How much callers may ask.
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How long turns may take to come to rest when the server shuts down; what runs then is carried on by the next start.
    /// Default: 30 seconds.
    pub fn rest_within(mut self, most: Duration) -> Self {
        self.rest_within = most;
        self
    }

    /// Another source of time for what the server itself tells. Default: the system clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What sessions of the page and links are signed with. Default: [`Keys::random`], so that they end with the process.
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Connections are encrypted with this, over HTTP/1.1 or HTTP/2 as the client likes. It changes nothing about who may call:
    /// without tokens the server listens on loopback alone. [`router`](Server::router) knows nothing of it. Default: no TLS.
    pub fn tls(mut self, certificate: Certificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Answers requests to `path`, of any method, with `handler`. It is given the caller as every route of the API knows them (by a
    /// token, or as the one user of a server without tokens) and is not called for others, for those who ask too much, and while the
    /// server shuts down. The body was read when the handler is called, up to the limit and the deadline of all bodies.
    ///
    /// # Panics
    /// [`Server::router`] does, if the server has a route of this path itself, or the path does not begin with `/`.
    pub fn mount<F, Fut>(mut self, path: &str, handler: F) -> Self
    where
        F: Fn(Scope, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoResponse> + Send + 'static,
    {
        let answer = move |scope, request| -> BoxFuture<'static, Response> {
            let answer = handler(scope, request);
            Box::pin(async move { answer.await.into_response() })
        };
        self.mounts.push(Mount { path: path.to_owned(), handler: Arc::new(answer) });
        self
    }

    /// Where questions come from that are asked while a call runs, and that are stored nowhere. Default: nobody asks any.
    pub fn live_questions(mut self, questions: LiveQuestions) -> Self {
        self.live_questions = questions;
        self
    }

    /// Where this server counts. Turns and hooks are counted only if the store of its conversations is
    /// [measured](Metrics::measured). Default: requests, streams and how conversations stand.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// How the page of a turn shows the hooks at each point. Whoever may read a conversation sees it, so nothing secret may be in it.
    /// Default: what the agent itself knows of its hooks, which is neither their options nor where they come from.
    pub fn hook_lines(mut self, lines: Vec<HookLine>) -> Self {
        self.hook_lines = Some(lines);
        self
    }

    /// One more number in `/metrics`, found out whenever it is read; `None` leaves it out. `value` must not take long. In names,
    /// characters that Prometheus does not allow become `_`, and a name that there is already is left out.
    pub fn gauge(
        mut self,
        name: &str,
        help: impl Into<String>,
        value: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        self.gauges.push(Gauge::new(name, help.into(), Box::new(value)));
        self
    }

    /// The server.
    ///
    /// # Errors
    /// If no keys are given and the system has no random numbers to make them of.
    pub fn build(self) -> Result<Server, KeysError> {
        let Self {
            conversations,
            tokens,
            local,
            client_ids,
            limits,
            rest_within,
            clock,
            keys,
            metrics,
            gauges,
            certificate,
            mounts,
            live_questions,
            hook_lines,
        } = self;
        let agent = conversations.agent().clone();
        let keys = keys.map_or_else(Keys::random, Ok)?;
        let on_removed = ending_sessions(keys.clone(), clock.clone());
        if let Some(tokens) = &tokens {
            tokens.when_removed(&on_removed);
        }
        let app = App {
            client_ids: client_ids.unwrap_or(tokens.is_none()),
            hubs: Arc::new(Hubs::new(conversations.clone(), clock.clone(), live_questions.clone())),
            costs: Costs::default(),
            first_words: FirstWords::default(),
            waiting: WaitingCounts::default(),
            live_questions,
            store_read: StoreRead::default(),
            keys,
            _on_removed: on_removed,
            conversations,
            tokens,
            local,
            limits: Arc::new(Usage::new(limits)),
            rest_within,
            clock,
            metrics,
            looker: Looker::default(),
            hook_lines: hook_lines.unwrap_or_else(|| HookLine::of_agent(&agent)),
            gauges,
            certificate,
            mounts,
            closing: watch::Sender::new(false),
        };
        Ok(Server { app: Arc::new(app) })
    }
}

/// Ends the sessions of tokens that are removed.
fn ending_sessions(keys: Keys, clock: Arc<dyn Clock>) -> Arc<OnRemoved> {
    Arc::new(move |removed| {
        if let Err(error) = Session::end_all_of(removed, &keys, clock.now()) {
            let error = &error as &dyn std::error::Error;
            tracing::error!(
                error,
                "the end of a removed token's sessions could not be kept: after a restart they count again if it is put back"
            );
        }
    })
}

/// Whether callers may choose ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientIds {
    /// They may.
    Allowed,
    /// The server makes all ids.
    Refused,
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("tokens", &self.tokens)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
