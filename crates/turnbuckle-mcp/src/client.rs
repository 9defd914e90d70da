//! Our side of a connection: what a server may ask of us and tell us.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    Implementation, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use turnbuckle::ConversationId;

use crate::elicitation::{Elicitation, ElicitationAnswer, Person};

/// Reports of progress that wait to be told; further ones are dropped.
const MOST_REPORTS: usize = 16;
/// Questions of a server that are kept for the result of a call.
const MOST_QUESTIONS: usize = 8;
/// The longest schema of an answer, as JSON: it is kept and shown while the question stands.
const MOST_SCHEMA: usize = 64 << 10;
/// Why there is no answer.
const NOT_ASKED: &str = "nobody was asked";
/// The longest text of one of them.
const MOST_QUESTION: usize = 1000;

/// What a server told us. The handler writes it, and the calls read it.
#[derive(Default)]
pub(crate) struct Told {
    /// Who wants to hear of the progress of which call. Protected by the lock only for the length of a look.
    progress: Mutex<HashMap<ProgressToken, mpsc::Sender<String>>>,
    /// How often the server said that it offers other tools now.
    tool_changes: AtomicU64,
    /// The calls that are open now.
    open: Mutex<Vec<Arc<OpenCall>>>,
}

/// Whose call it is, and who can be asked about it.
pub(crate) struct Caller {
    pub(crate) conversation: ConversationId,
    pub(crate) asked: Option<Asked>,
}

/// Who is asked, and what every question of the call says about it.
pub(crate) struct Asked {
    pub(crate) person: Arc<dyn Person>,
    /// Without words and schema.
    pub(crate) about: Elicitation,
}

impl Caller {
    /// A program such as a hook, for which no person is asked: while its call is open, it belongs to no conversation.
    pub(crate) fn program() -> Self {
        Self { conversation: "".into(), asked: None }
    }
}

/// A call that waits for its result.
pub(crate) struct OpenCall {
    caller: Caller,
    /// How often its server asked.
    asked: AtomicUsize,
    /// Nobody is asked any more.
    over: CancellationToken,
    /// What the server asked and nobody answered.
    declined: Mutex<Vec<String>>,
}

impl OpenCall {
    /// From now on nobody is asked, and what is being asked is declined.
    pub(crate) fn stop_asking(&self) {
        self.over.cancel();
    }

    /// What the server wanted to ask a person.
    pub(crate) fn take_declined(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.declined))
    }

    fn note(&self, text: &str) {
        let mut declined = lock(&self.declined);
        if declined.len() < MOST_QUESTIONS {
            declined.push(text.to_owned());
        }
    }

    /// The answer of the person, or why there is none.
    async fn ask(&self, message: String, schema: Value) -> Result<ElicitationAnswer, &'static str> {
        let Asked { person, about } = self.caller.asked.as_ref().ok_or(NOT_ASKED)?;
        // A server that asks without end is not passed on.
        if self.over.is_cancelled() || self.asked.fetch_add(1, Ordering::Relaxed) >= MOST_QUESTIONS {
            return Err(NOT_ASKED);
        }
        let asked = person.ask(Elicitation { message, schema, ..about.clone() });
        tokio::select! {
            answer = asked => answer.ok_or(NOT_ASKED),
            () = self.over.cancelled() => Err("nobody answered in time"),
        }
    }
}

impl Told {
    /// How often the server said that it offers other tools now.
    pub(crate) fn tool_changes(&self) -> u64 {
        self.tool_changes.load(Ordering::Acquire)
    }

    /// Until the guard is dropped, the server can ask whoever made the call.
    pub(crate) fn open(self: &Arc<Self>, caller: Caller) -> Open {
        let (asked, over, declined) = (AtomicUsize::new(0), CancellationToken::new(), Mutex::default());
        let call = Arc::new(OpenCall { caller, asked, over, declined });
        lock(&self.open).push(call.clone());
        Open { told: self.clone(), call }
    }

    /// What the server asked and nobody answered, for the results of the calls that are open. A question does not say to which call it belongs,
    /// so with several conversations none of them gets the words that may be another's.
    fn note_declined(&self, why: &str, message: &str) {
        let open = lock(&self.open).clone();
        let is_shared = open.iter().any(|call| call.caller.conversation != open[0].caller.conversation);
        let message = if is_shared { "something, while several conversations used it" } else { message };
        open.iter().for_each(|call| call.note(&format!("{why}: {message}")));
    }

    /// The call that a question belongs to: any, if all that are open are of one conversation.
    fn asking(&self) -> Option<Arc<OpenCall>> {
        let open = lock(&self.open);
        let first = open.first()?;
        let is_one = open.iter().all(|call| call.caller.conversation == first.caller.conversation);
        is_one.then(|| first.clone())
    }

    /// Until the guard is dropped, reports for this token arrive.
    pub(crate) fn hear(self: &Arc<Self>, token: ProgressToken) -> (Hearing, mpsc::Receiver<String>) {
        let (send, receive) = mpsc::channel(MOST_REPORTS);
        lock(&self.progress).insert(token.clone(), send);
        (Hearing { told: self.clone(), token }, receive)
    }
}

/// A registration for reports of progress.
pub(crate) struct Hearing {
    told: Arc<Told>,
    token: ProgressToken,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        lock(&self.told.progress).remove(&self.token);
    }
}

/// A call that is open until this is dropped.
pub(crate) struct Open {
    told: Arc<Told>,
    pub(crate) call: Arc<OpenCall>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.call.stop_asking();
        lock(&self.told.open).retain(|open| !Arc::ptr_eq(open, &self.call));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers what a server asks. It offers neither a model nor folders.
pub(crate) struct Handler(pub(crate) Arc<Told>);

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::new());
        ClientConfig::new(capabilities, Implementation::new("turnbuckle", env!("CARGO_PKG_VERSION")))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        let (message, schema) = match request {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                (message, serde_json::to_value(requested_schema).ok())
            }
            // A link is not opened on the word of a server.
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => (format!("{message} {url}"), None),
            _ => ("a question of an unknown kind".to_owned(), None),
        };
        let message = message[..message.floor_char_boundary(MOST_QUESTION)].to_owned();
        let schema = schema.filter(|schema| schema.to_string().len() <= MOST_SCHEMA);
        let answer = match (schema, self.0.asking()) {
            (Some(schema), Some(call)) => call.ask(message.clone(), schema).await,
            _ => Err(NOT_ASKED),
        };
        Ok(match answer {
            Ok(ElicitationAnswer::Accepted(content)) => {
                let mut accepted = ElicitResult::new(ElicitationAction::Accept);
                accepted.content = Some(content);
                accepted
            }
            Ok(ElicitationAnswer::Declined) => ElicitResult::new(ElicitationAction::Decline),
            Err(why) => {
                self.0.note_declined(why, &message);
                ElicitResult::new(ElicitationAction::Decline)
            }
        })
    }

    async fn on_progress(&self, report: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let text = match (&report.message, report.total) {
            (Some(message), _) => message[..message.floor_char_boundary(MOST_QUESTION)].to_owned(),
            (None, Some(total)) => format!("{} of {total}", report.progress),
            (None, None) => report.progress.to_string(),
        };
        if let Some(listener) = lock(&self.0.progress).get(&report.progress_token) {
            // One that is full has enough to tell.
            let _ = listener.try_send(text);
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.tool_changes.fetch_add(1, Ordering::AcqRel);
    }
}
