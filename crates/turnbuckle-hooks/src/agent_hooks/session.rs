//! The emitters of turns that run. One turn has one emitter, whose emissions are numbered in the order in which they are made.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::agent_hooks::{
    AgentContext, AgentContextBuilder, FinalizeMeta, HostError, InterceptionEmitter, InterceptionRecord, Verdict,
    finalize,
};
use serde_json::Value;
use turnbuckle::{BoxError, ConversationId, TurnId};

use super::MakeEmitter;

/// What is kept of turns that have not ended. A turn may wait for a person for weeks; one whose emitter was dropped gets a new one.
const MOST_SESSIONS: usize = 4096;

type Key = (ConversationId, TurnId);
type Record = dyn Fn(&InterceptionRecord) + Send + Sync;

/// All turns of one hook.
pub(super) struct Sessions {
    make: Box<MakeEmitter>,
    pub(super) record: Option<Box<Record>>,
    /// Held only to look something up or change it, never across an await.
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    sessions: HashMap<Key, (u64, Arc<tokio::sync::Mutex<Session>>)>,
    uses: u64,
}

struct Session {
    emitter: InterceptionEmitter,
    builder: AgentContextBuilder,
    /// The tools of the agent, until `agent_startup` was emitted.
    tools: Option<Vec<String>>,
    /// Why `agent_startup` was denied, if it was: then everything is.
    refused: Option<String>,
    /// Why the reply that is being told may not go on, if it may not.
    denied: Option<String>,
    /// The text that was permitted in increments, to its end.
    judged: Option<String>,
    /// Whether text came that no emission has judged.
    has_residue: bool,
    last: Option<InterceptionRecord>,
}

/// A verdict that blocks, and its reason.
#[derive(Debug)]
pub(super) struct Blocked(pub(super) String);

/// One turn.
#[derive(Clone)]
pub(super) struct Run {
    sessions: Arc<Sessions>,
    /// Held while an interceptor works: emissions of a turn are made one after the other, also if tools run at the same time.
    session: Arc<tokio::sync::Mutex<Session>>,
}

impl Sessions {
    pub(super) fn new(make: Box<MakeEmitter>, record: Option<Box<Record>>) -> Self {
        Self { make, record, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run of a turn, made if there is none.
    pub(super) fn run(
        self: &Arc<Self>,
        conversation: &ConversationId,
        turn: &TurnId,
        agent: &str,
        tools: impl FnOnce() -> Vec<String>,
    ) -> Result<Run, BoxError> {
        let key = (conversation.clone(), turn.clone());
        let mut open = self.open();
        open.uses += 1;
        let uses = open.uses;
        if let Some((used, session)) = open.sessions.get_mut(&key) {
            *used = uses;
            return Ok(Run { sessions: self.clone(), session: session.clone() });
        }
        drop(open);
        let mut tools = tools();
        tools.sort();
        let name = format!("{}/{}", conversation.as_str(), turn.as_str());
        let session = Session {
            emitter: (self.make)()?,
            builder: AgentContextBuilder::new(agent, "turnbuckle", &name),
            tools: Some(tools),
            refused: None,
            denied: None,
            judged: None,
            has_residue: false,
            last: None,
        };
        let mut open = self.open();
        if open.sessions.len() >= MOST_SESSIONS
            && let Some(oldest) = open.sessions.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone())
        {
            open.sessions.remove(&oldest);
        }
        let session = Arc::new(tokio::sync::Mutex::new(session));
        let (_, session) = open.sessions.entry(key).or_insert((uses, session));
        Ok(Run { sessions: self.clone(), session: session.clone() })
    }

    /// The run of a turn that has ended, if it had one.
    pub(super) fn end(self: &Arc<Self>, conversation: &ConversationId, turn: &TurnId) -> Option<Run> {
        let (_, session) = self.open().sessions.remove(&(conversation.clone(), turn.clone()))?;
        Some(Run { sessions: self.clone(), session })
    }

    fn record(&self, record: &InterceptionRecord) {
        if let Some(sink) = &self.record {
            sink(record);
        }
    }
}

impl Run {
    /// Emits what `build` makes; the context as the interceptors left it.
    pub(super) async fn emit(
        &self,
        build: impl FnOnce(&mut AgentContextBuilder) -> AgentContext,
    ) -> Result<Value, Blocked> {
        let mut session = self.session.lock().await;
        session.start(&self.sessions).await?;
        let context = build(&mut session.builder);
        session.emit(&self.sessions, context).await
    }

    /// Judges a piece of a reply, and notes whether it is all of it.
    pub(super) async fn judge(&self, model: &str, text: &str, is_last: bool) -> Result<Value, Blocked> {
        let mut session = self.session.lock().await;
        session.start(&self.sessions).await?;
        let finish = if is_last { "stop" } else { "incremental" };
        let context = session.builder.post_model_call(model, Value::from(text), Vec::new(), finish);
        let decided = session.emit(&self.sessions, context).await;
        session.judged = (is_last && decided.is_ok()).then(|| text.to_owned());
        if let Err(Blocked(reason)) = &decided {
            session.refuse(reason);
        }
        decided
    }

    /// The reply that is being told may not go on.
    pub(super) async fn refuse(&self, reason: &str) {
        self.session.lock().await.refuse(reason);
    }

    /// Why the reply that was told in increments may not be kept, if it may not.
    pub(super) async fn take_denial(&self) -> Option<Blocked> {
        self.session.lock().await.denied.take().map(Blocked)
    }

    /// Notes whether text came that was not judged yet.
    pub(super) async fn leave_residue(&self, has_residue: bool) {
        self.session.lock().await.has_residue = has_residue;
    }

    /// Whether this text was permitted in increments.
    pub(super) async fn has_judged(&self, text: &str) -> bool {
        self.session.lock().await.judged.take().is_some_and(|judged| judged == text)
    }

    /// The turn is over.
    pub(super) async fn shut_down(&self, reason: &str) {
        let mut session = self.session.lock().await;
        if session.has_residue {
            session.deny_residue(&self.sessions);
        }
        let context = session.builder.agent_shutdown(reason);
        // Nothing is left to stop.
        let _ = session.emit(&self.sessions, context).await;
    }
}

impl Session {
    fn refuse(&mut self, reason: &str) {
        self.denied = Some(reason.to_owned());
        // What is behind a deny is withheld by it.
        self.has_residue = false;
    }

    async fn start(&mut self, sessions: &Sessions) -> Result<(), Blocked> {
        if let Some(tools) = self.tools.take() {
            let context = self.builder.agent_startup(tools);
            if let Err(Blocked(reason)) = self.emit(sessions, context).await {
                self.refused = Some(reason);
            }
        }
        match &self.refused {
            Some(reason) => Err(Blocked(reason.clone())),
            None => Ok(()),
        }
    }

    async fn emit(&mut self, sessions: &Sessions, mut context: AgentContext) -> Result<Value, Blocked> {
        let outcome = self.emitter.emit(&mut context).await;
        // They were given away; the emitter would keep them for as long as the turn runs.
        self.emitter.take_records();
        let (record, is_blocked) = match outcome {
            Ok(outcome) => (outcome.record, false),
            Err(blocked) => (blocked.record, true),
        };
        sessions.record(&record);
        let verdict = &record.verdict;
        let reason = match (&verdict.reason, &verdict.message) {
            (Some(reason), Some(message)) => format!("{reason}: {message}"),
            (Some(text), None) | (None, Some(text)) => text.clone(),
            (None, None) => "denied without a reason".to_owned(),
        };
        self.last = Some(record);
        if is_blocked { Err(Blocked(reason)) } else { Ok(Value::Object(context)) }
    }

    /// Text came that nobody has judged, because the model broke off: it was withheld, which the records say.
    fn deny_residue(&mut self, sessions: &Sessions) {
        let Some(last) = &self.last else { return };
        let context = self.builder.post_model_call("model", Value::Null, Vec::new(), "incremental");
        let meta = FinalizeMeta {
            identity_provider: last.identity_provider.clone(),
            composition: last.composition,
            declaration: last.declaration.clone(),
            interceptors_registered: last.interceptors_registered,
            ..FinalizeMeta::default()
        };
        let verdict = Verdict::host_error(HostError::StreamingUnsupported, None);
        let record = finalize(&context, verdict, self.emitter.mode(), meta);
        sessions.record(&record);
        self.has_residue = false;
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("open", &self.open().sessions.len()).finish_non_exhaustive()
    }
}
