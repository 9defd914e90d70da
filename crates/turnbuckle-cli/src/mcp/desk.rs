//! Where questions of MCP servers meet the person at the terminal.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};
use turnbuckle::BoxFuture;
use turnbuckle_mcp::{Elicitation, ElicitationAnswer, Person};

/// Questions that wait until the person has answered another one. More are declined.
const MOST_WAITING: usize = 8;

/// Takes the questions of all servers. While nobody listens they are declined at once, as in `run`.
#[derive(Clone, Default)]
pub(crate) struct Desk(Arc<Mutex<Option<mpsc::Sender<Asked>>>>);

/// A question, and where its answer goes. Dropping it says that nobody answers.
pub(crate) struct Asked {
    pub(crate) question: Elicitation,
    pub(crate) answer: oneshot::Sender<ElicitationAnswer>,
}

impl Desk {
    fn listener(&self) -> MutexGuard<'_, Option<mpsc::Sender<Asked>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The questions from now on. Whoever listened before hears nothing more.
    pub(crate) fn listen(&self) -> mpsc::Receiver<Asked> {
        let (send, receive) = mpsc::channel(MOST_WAITING);
        *self.listener() = Some(send);
        receive
    }
}

impl Person for Desk {
    fn ask(&self, question: Elicitation) -> BoxFuture<'static, Option<ElicitationAnswer>> {
        let listener = self.listener().clone();
        Box::pin(async move {
            let (answer, given) = oneshot::channel();
            listener?.try_send(Asked { question, answer }).ok()?;
            given.await.ok()
        })
    }
}
