//! The agents that are measured.

use turnbuckle::Agent;
use turnbuckle::hook::{HookEntry, HookExt};
use turnbuckle_hooks::Redact;

use crate::BoxError;
use crate::chunks::Chunks;
use crate::model::Instant;
use crate::tool::Add;

/// Two model calls and one tool call a turn.
pub fn calculator(model: &Instant, hooks: Vec<HookEntry>) -> Result<Agent, BoxError> {
    let agent = Agent::builder("calculator", model.clone()).tool(Add::default());
    Ok(hooks.into_iter().fold(agent, |agent, hook| agent.hook(hook)).build()?)
}

/// One model call a turn, of so many chunks, through so many transformers.
pub fn speaker(chunks: usize, transformers: usize) -> Result<Agent, BoxError> {
    let mut agent = Agent::builder("speaker", Chunks::new(chunks));
    for number in 1..=transformers {
        agent = agent.hook(Redact::standard()?.named(format!("redact_{number}")));
    }
    Ok(agent.build()?)
}
