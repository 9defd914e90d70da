//! A model that a hook asks on its own: critics, summaries, suggestions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use turnbuckle::hook::{BackgroundContext, ModelNext};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::{Content, Reply, Turn};

/// A model that a hook asks outside the conversation: it sees the question and nothing else, and nothing it answers is
/// streamed.
///
/// Questions are counted from 1 per process, over all conversations: a script answers its k-th question with its k-th
/// entry. Clones share the count.
#[derive(Clone)]
pub(crate) struct AuxiliaryModel {
    model: Arc<dyn Model>,
    asked: Arc<AtomicU64>,
}

impl AuxiliaryModel {
    pub(crate) fn new(model: Arc<dyn Model>) -> Self {
        Self { model, asked: Arc::default() }
    }

    /// The model that the wrapped call would ask.
    pub(crate) fn of_call(next: ModelNext<'_>) -> Self {
        Self::new(next.model().clone())
    }

    /// Asks within a turn. The cost is taken from the turn's budget, and a budget that is used up is an error.
    pub(crate) async fn ask(
        &self,
        turn: &Turn,
        system: &str,
        question: impl Into<Content>,
    ) -> Result<Reply, ModelError> {
        turn.ask_model(&*self.model, &self.request(turn.agent().name(), system, question)).await
    }

    /// Asks after a turn, from a background hook. No budget is charged: the turn is over.
    pub(crate) async fn ask_in_background(
        &self,
        snapshot: &BackgroundContext,
        system: &str,
        question: impl Into<Content>,
    ) -> Result<Reply, ModelError> {
        self.model.stream(&self.request(snapshot.agent(), system, question), &mut Unstreamed).await
    }

    fn request(&self, agent: &str, system: &str, question: impl Into<Content>) -> Request {
        let mut request = Request::question(agent, system, question);
        request.ordinal = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        request
    }
}

impl fmt::Debug for AuxiliaryModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuxiliaryModel").field("model", &self.model.name()).finish_non_exhaustive()
    }
}

/// Discards the chunks: the reply as a whole is what counts.
struct Unstreamed;

impl Sink for Unstreamed {
    fn text(&mut self, _: &str) {}
    fn thinking(&mut self, _: &str) {}
}
