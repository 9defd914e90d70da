//! Questions that are asked while a call runs, such as those of an MCP server. They are stored nowhere: they are answered here, or lapse with the
//! call. Beside that they are like those that are stored: they are listed with them, and answered by the same requests of the same people.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::{oneshot, watch};
use turnbuckle::access::Action;
use turnbuckle::clock::{Clock, SystemClock};
use turnbuckle::event::Question;
use turnbuckle::json_schema::JsonSchema;
use turnbuckle::message::Text;
use turnbuckle::projection::Pending;
use turnbuckle::scope::Author;
use turnbuckle::store::Answer;
use turnbuckle::{BoxFuture, CallId, ConversationId, Scope, Timestamp, TurnId};

use crate::keys::random_bytes;
use crate::rejection::{Code, Rejection};
use crate::server::App;
use crate::waits::{Live, Waiting};

/// How many stand at once in a conversation, and in all of them. More are not asked.
const MOST_HERE: usize = 16;
const MOST: usize = 1_024;
/// The longest answer, in bytes: as long as that to a question that is stored.
const MOST_ANSWER: usize = 1 << 20;

/// A question that stands while a call runs.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveQuestion {
    /// The conversation of the call. What is asked in that of a sub-agent is shown in the main agent's.
    pub conversation: ConversationId,
    /// The call.
    pub call: CallId,
    /// The tool that runs.
    pub tool: Text,
    /// The agent that called it.
    pub agent: Text,
    /// Who sent the message of the turn.
    pub requester: Author,
    /// Who asks, for people: `the MCP server time`.
    pub asker: Text,
    /// What is asked, in the asker's words.
    pub question: Text,
    /// What the answer must fit.
    pub schema: Value,
    /// When the call ends, if nothing ends it before. It is told and not enforced: whoever asks drops the future of
    /// [`LiveQuestions::ask`].
    pub expires: Timestamp,
}

/// What somebody answered.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveAnswer {
    /// What fits the schema.
    Given(Value),
    /// Nobody wants to answer it.
    Declined,
}

/// The questions that stand. Whoever asks has one clone, and the server another: [`ServerBuilder::live_questions`](crate::ServerBuilder::live_questions).
#[derive(Clone)]
pub struct LiveQuestions(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    /// Locked after the state of a hub, never before it.
    table: Mutex<Table>,
    /// Sent after every change of the table.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Table {
    open: Vec<Open>,
    /// Nothing is asked any more.
    is_closed: bool,
}

/// A question, and where its answer goes.
struct Open {
    waiting: Waiting,
    schema: JsonSchema,
    answer: oneshot::Sender<LiveAnswer>,
}

/// Takes the question away when the one who asks does not wait any more.
struct Place {
    questions: LiveQuestions,
    call: CallId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.questions.take(&self.call);
    }
}

impl Default for LiveQuestions {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::default()))
    }
}

impl LiveQuestions {
    /// None so far. The clock says when each is asked.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared { clock, table: Mutex::default(), changed: watch::Sender::default() }))
    }

    /// Asks. The question stands until it is answered or the future is dropped. `None` if it cannot be asked: too many stand, its schema
    /// cannot be used, or the server shuts down.
    pub fn ask(&self, question: LiveQuestion) -> BoxFuture<'static, Option<LiveAnswer>> {
        let asked = self.add(question);
        Box::pin(async move {
            let (place, answer) = asked?;
            let answer = answer.await.ok();
            drop(place);
            answer
        })
    }

    fn add(&self, asked: LiveQuestion) -> Option<(Place, oneshot::Receiver<LiveAnswer>)> {
        let LiveQuestion { conversation, call, tool, agent, requester, asker, question, schema, expires } = asked;
        let not_asked = |why: &str| tracing::warn!(%conversation, %asker, why, "a question is not asked");
        let compiled = JsonSchema::compile(&schema).map_err(|_| not_asked("its schema cannot be used")).ok()?;
        let random: [u8; 16] = random_bytes().map_err(|_| not_asked("there are no random numbers")).ok()?;
        // Nobody can guess it, so no call of a model has it.
        let own = CallId::from(format!("live-{}", hex(&random)));
        // Viewers of the main agent's conversation know of its own call, which waits for the sub-agent.
        let (shown_in, call) = match conversation.as_str().split_once('/') {
            Some((root, calls)) => (root.into(), calls.split('/').next().unwrap_or_default().into()),
            None => (conversation.clone(), call),
        };
        let (rule, approvals) = (None, Vec::new());
        let question = Question::Elicitation { question, schema: Some(schema.into()) };
        let waiting = Waiting {
            conversation: shown_in,
            agent,
            requester,
            asked: self.0.clock.now(),
            pending: Pending { call: own.clone(), question, expires, rule, approvals },
            live: Some(Live { call, tool, asker: asker.clone() }),
        };
        let (answer, given) = oneshot::channel();
        let mut table = self.table();
        let here = table.open.iter().filter(|open| open.waiting.conversation == waiting.conversation).count();
        if table.is_closed || here >= MOST_HERE || table.open.len() >= MOST {
            drop(table);
            not_asked("too many stand, or the server shuts down");
            return None;
        }
        table.open.push(Open { waiting, schema: compiled, answer });
        drop(table);
        self.0.changed.send_replace(());
        Some((Place { questions: self.clone(), call: own }, given))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, call: &CallId) -> Option<Open> {
        let mut table = self.table();
        let place = table.open.iter().position(|open| open.waiting.pending.call == *call)?;
        let open = table.open.remove(place);
        drop(table);
        self.0.changed.send_replace(());
        Some(open)
    }

    /// Told whenever one comes or goes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// All that stand, the oldest first.
    pub(crate) fn all(&self) -> Vec<Waiting> {
        self.table().open.iter().map(|open| open.waiting.clone()).collect()
    }

    /// Those of a conversation, the oldest first.
    pub(crate) fn of(&self, conversation: &ConversationId) -> Vec<Waiting> {
        let is_here = |open: &&Open| open.waiting.conversation == *conversation;
        self.table().open.iter().filter(is_here).map(|open| open.waiting.clone()).collect()
    }

    /// The one with this id.
    pub(crate) fn find(&self, conversation: &ConversationId, call: &CallId) -> Option<Waiting> {
        self.of(conversation).into_iter().find(|waiting| waiting.pending.call == *call)
    }

    /// From now on nothing is asked, and what stands is not answered: the call goes on without an answer.
    pub(crate) fn close(&self) {
        let mut table = self.table();
        table.is_closed = true;
        let gone = std::mem::take(&mut table.open);
        drop(table);
        drop(gone);
        self.0.changed.send_replace(());
    }

    /// Gives the answer to whoever asks. The first one counts.
    fn resolve(&self, call: &CallId, answer: Answer, digest: Option<&str>) -> Result<(), Rejection> {
        let stale = |why: &str| Rejection::new(Code::Stale, format!("call {call}: {why}"));
        if digest.is_some() {
            return Err(stale("it was shown with other arguments"));
        }
        let answer = match answer {
            Answer::Result(value) => {
                if value.to_string().len() > MOST_ANSWER {
                    return Err(Rejection::new(Code::TooLarge, format!("an answer has at most {MOST_ANSWER} bytes")));
                }
                LiveAnswer::Given(value)
            }
            Answer::Deny(None) => LiveAnswer::Declined,
            Answer::Deny(Some(_)) => {
                return Err(Rejection::bad_request("whoever asks is told no, and no reason: leave `reason` out"));
            }
            Answer::Error(_) => {
                return Err(Rejection::bad_request("this question is answered, or declined with `approve` false"));
            }
            _ => {
                return Err(Rejection::bad_request("this call wants an answer"));
            }
        };
        let mut table = self.table();
        let place = table.open.iter().position(|open| open.waiting.pending.call == *call);
        let Some(place) = place else { return Err(stale("it was answered, or its call is over")) };
        if let LiveAnswer::Given(value) = &answer
            && let Some(complaint) = table.open[place].schema.complaint(value)
        {
            return Err(Rejection::bad_request(format!("the answer does not fit the schema: {complaint}")));
        }
        let open = table.open.remove(place);
        drop(table);
        self.0.changed.send_replace(());
        open.answer.send(answer).map_err(|_| stale("its call is over"))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Answers a live question for somebody who may answer what the conversation asks, and says which turn it is in.
pub(crate) async fn answer(
    app: &App,
    asked: &Waiting,
    answer: Answer,
    digest: Option<&str>,
    scope: &Scope,
) -> Result<TurnId, Rejection> {
    let (id, call) = (&asked.conversation, &asked.pending.call);
    app.conversations.may(id, Action::Answer, scope).await?;
    let view = app.conversations.snapshot(id, Scope::system()).await?;
    let turn = view.events.last().map(|event| event.turn.clone()).ok_or_else(Rejection::not_found)?;
    let what = if matches!(answer, Answer::Deny(_)) { "declined" } else { "answered" };
    app.live_questions.resolve(call, answer, digest)?;
    // Nothing else says who it was: it is in no log of the conversation.
    tracing::info!(conversation = %id, %turn, %call, by = %scope.by(), what, "a live question is over");
    Ok(turn)
}

impl fmt::Debug for LiveQuestions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is asked may be a secret.
        f.debug_struct("LiveQuestions").field("open", &self.table().open.len()).finish_non_exhaustive()
    }
}
