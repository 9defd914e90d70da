//! Model calls that a hook makes on its own, within the budget of the turn.

use super::Turn;
use crate::message::Reply;
use crate::model::{Model, ModelError, Request, Sink};

impl Turn {
    /// Asks `model` on behalf of a hook: a critic, a summary, a classifier.
    ///
    /// The tokens and the money it costs are taken from the turn's budget, and from that of the parent turns of a
    /// sub-agent. The call is not an attempt at a reply: it does not count as a model call of the turn, nothing of the
    /// reply is streamed to viewers, and nothing is logged.
    ///
    /// # Errors
    ///
    /// [`ModelError::Cancelled`] if the turn is cancelled or over, [`ModelError::Exhausted`] if its budget allows no
    /// further model call (the model is not asked in either case), and whatever error the model returns.
    ///
    /// ```
    /// use turnbuckle::hook::{AfterModel, Hook};
    /// use turnbuckle::model::Request;
    /// use turnbuckle::{BoxError, Reply, Turn, models::Script};
    /// use std::sync::Arc;
    ///
    /// struct Polite(Script);
    ///
    /// impl Hook for Polite {
    ///     async fn after_model(&self, turn: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
    ///         let question = Request::question(turn.agent().name(), "Is this polite? yes or no", reply.content.text());
    ///         let answer = turn.ask_model(&self.0, &question).await?;
    ///         Ok(match answer.content.text().as_str() {
    ///             "yes" => AfterModel::Continue,
    ///             _ => AfterModel::Regenerate("be polite".into()),
    ///         })
    ///     }
    /// }
    /// ```
    pub async fn ask_model(&self, model: &dyn Model, request: &Request) -> Result<Reply, ModelError> {
        let ctx = &self.ctx;
        if ctx.abort.is_aborted() {
            return Err(ModelError::Cancelled);
        }
        if let Some(limit) = ctx.budget.used_up(&ctx.limits) {
            return Err(ModelError::Exhausted { limit: limit.into() });
        }
        let reply = model.stream(request, &mut Unstreamed).await?;
        ctx.budget.spend(reply.usage, model.price(&reply.usage));
        Ok(reply)
    }
}

/// Discards the chunks: the reply as a whole is what counts.
struct Unstreamed;

impl Sink for Unstreamed {
    fn text(&mut self, _: &str) {}
    fn thinking(&mut self, _: &str) {}
}
