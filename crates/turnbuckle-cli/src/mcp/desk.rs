//! Where questions of MCP servers meet the person at the terminal, or those who use a server of conversations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};
use turnbuckle::BoxFuture;
use turnbuckle_mcp::{Elicitation, ElicitationAnswer, Person};
use turnbuckle_server::{LiveAnswer, LiveQuestion, LiveQuestions};

/// Questions that wait until the person has answered another one. More are declined.
const MOST_WAITING: usize = 8;

/// Takes the questions of all servers. While nobody listens they are declined at once, as in `run`.
#[derive(Clone, Default)]
pub(crate) struct Desk(Arc<Mutex<Option<Listener>>>);

/// Who answers.
#[derive(Clone)]
enum Listener {
    Terminal(mpsc::Sender<Asked>),
    Server(LiveQuestions),
}

/// A question, and where its answer goes. Dropping it says that nobody answers.
pub(crate) struct Asked {
    pub(crate) question: Elicitation,
    pub(crate) answer: oneshot::Sender<ElicitationAnswer>,
}

impl Desk {
    fn listener(&self) -> MutexGuard<'_, Option<Listener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The questions from now on. Whoever listened before hears nothing more.
    pub(crate) fn listen(&self) -> mpsc::Receiver<Asked> {
        let (send, receive) = mpsc::channel(MOST_WAITING);
        *self.listener() = Some(Listener::Terminal(send));
        receive
    }

    /// From now on questions stand among these, for those who may answer in their conversation.
    pub(crate) fn ask_at(&self, questions: LiveQuestions) {
        *self.listener() = Some(Listener::Server(questions));
    }
}

impl Person for Desk {
    fn ask(&self, question: Elicitation) -> BoxFuture<'static, Option<ElicitationAnswer>> {
        let listener = self.listener().clone();
        Box::pin(async move {
            match listener? {
                Listener::Terminal(terminal) => {
                    let (answer, given) = oneshot::channel();
                    terminal.try_send(Asked { question, answer }).ok()?;
                    given.await.ok()
                }
                Listener::Server(questions) => Some(match questions.ask(live(question)).await? {
                    LiveAnswer::Given(content) => ElicitationAnswer::Accepted(content),
                    LiveAnswer::Declined => ElicitationAnswer::Declined,
                }),
            }
        })
    }
}

fn live(asked: Elicitation) -> LiveQuestion {
    let Elicitation { server, conversation, call, tool, agent, requester, expires, message, schema, .. } = asked;
    let (asker, question) = (format!("the MCP server {server}").into(), message.into());
    LiveQuestion { conversation, call, tool, agent, requester, asker, question, schema, expires }
}
