//! Models that hooks ask by themselves: critics, summaries, suggestions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::message::{Content, Message, Reply, Text};
use crate::model::{Model, ModelError, Request, Sink};
use crate::turn::Turn;

/// A model that a hook asks aside from the conversation: it sees the question and nothing else, and nothing it says is
/// streamed to anybody.
///
/// Questions are counted from 1 in each process, over all conversations: a script answers its k-th question with its
/// k-th entry. Clones count together.
#[derive(Clone)]
pub struct Adviser {
    model: Arc<dyn Model>,
    asked: Arc<AtomicU64>,
}

impl Adviser {
    /// Asks `model`.
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { model, asked: Arc::default() }
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        self.model.name()
    }

    /// Asks within a turn: refused when the turn's budget of tokens or money is used up, and what it costs is taken
    /// from there. It is no attempt at a reply, so it does not count as a model call of the turn.
    pub async fn ask(&self, turn: &Turn, system: &str, question: impl Into<Content>) -> Result<Reply, ModelError> {
        let ctx = &turn.ctx;
        if ctx.abort.is_aborted() {
            return Err(ModelError::Cancelled);
        }
        if let Some(limit) = ctx.budget.used_up(&ctx.limits) {
            return Err(ModelError::Exhausted { limit: limit.into() });
        }
        let reply = self.ask_aside(turn.agent().name(), system, question).await?;
        ctx.budget.spend(reply.usage, self.model.price(&reply.usage));
        Ok(reply)
    }

    /// Asks after a turn, for background hooks: nobody's budget is left to take it from.
    pub async fn ask_aside(
        &self,
        agent: &str,
        system: &str,
        question: impl Into<Content>,
    ) -> Result<Reply, ModelError> {
        let messages = vec![Message::User(question.into())];
        let mut request = Request::new(agent.into(), Text::from(system), Arc::new(messages), Arc::new([]));
        request.attempt = 1;
        request.ordinal = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.model.stream(&request, &mut Nobody).await
    }
}

impl fmt::Debug for Adviser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adviser").field("model", &self.name()).finish_non_exhaustive()
    }
}

/// Listens to no stream: the whole reply comes at the end.
struct Nobody;

impl Sink for Nobody {
    fn text(&mut self, _: &str) {}
    fn thinking(&mut self, _: &str) {}
}
