//! Fallback: when a model fails, the next one is asked.
//!
//! # What it does
//!
//! Asks the agent's own model first, then others in order, until one answers. Each failure is told as a notice, and if
//! all fail the error holds the error of every one ([`ModelError::AllFailed`]).
//!
//! - Every failure counts, also one that a retry of the same model would not help: another model may take the request.
//!   What does not count: the turn was cancelled, or its budget is used up.
//! - Hooks further in wrap every one of the models. Put `retry` behind `fallback` and each model is tried again before
//!   the next is asked; put it before and the whole row is tried again.
//! - Each model that is asked is an attempt of the turn. With `after_text = false` (the default) a reply that broke off
//!   is not replaced by another model's: text that was told would have to be taken back.
//!
//! # Points
//!
//! `wrap_model_call`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `models` | required | names of models, in order |
//! | `after_text` | `false` | also when part of the reply was told |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use turnbuckle::hooks::Fallback;
//! use turnbuckle::models::{Script, ScriptReply};
//! use turnbuckle::Agent;
//!
//! let broken = Script::of([ScriptReply::fails(500)]);
//! // A script's entry k answers the k-th model call of the conversation, whoever was asked before.
//! let spare = Script::says(["", "Hello from the second."]);
//! let agent = Agent::builder("greeter", broken).hook(Fallback::to([Arc::new(spare) as _])?).build()?;
//! assert_eq!(agent.run("hi").await?.text(), "Hello from the second.");
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use super::tracking_sink::TrackingSink;
use super::{ConfigHook, HookBuildContext, OptionError};
use crate::feed::Level;
use crate::hook::{Hook, HookEntry, ModelNext};
use crate::message::{Reply, Text};
use crate::model::{Model, ModelError, Request, Sink};
use crate::turn::Turn;

/// Asks other models when one fails.
#[derive(Clone)]
pub struct Fallback {
    name: Text,
    models: Vec<Arc<dyn Model>>,
    after_text: bool,
}

/// Options of [`Fallback`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FallbackOptions {
    /// Names of models, in order.
    pub models: Vec<String>,
    /// Also when part of the reply was told.
    #[serde(default)]
    pub after_text: bool,
}

impl Fallback {
    /// To these models, in order.
    pub fn to(models: impl IntoIterator<Item = Arc<dyn Model>>) -> Result<Self, OptionError> {
        let models: Vec<_> = models.into_iter().collect();
        if models.is_empty() {
            return Err(OptionError::new("models", "must name at least one model"));
        }
        Ok(Self { name: Self::NAME.into(), models, after_text: false })
    }

    /// Also when part of the reply was told; it is taken back.
    #[must_use]
    pub fn after_text(mut self) -> Self {
        self.after_text = true;
        self
    }
}

impl Hook for Fallback {
    fn name(&self) -> String {
        self.name.to_string()
    }

    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let mut out = TrackingSink::new(out);
        let row = std::iter::once(next.model()).chain(&self.models);
        let mut errors: Vec<(String, ModelError)> = Vec::new();
        for model in row {
            if let Some((failed, error)) = errors.last() {
                let text = format!("{failed} failed, {} is asked instead: {error}", model.name());
                turn.notice(Level::Warning, &self.name, text);
            }
            match next.on(model).run(request, &mut out).await {
                Ok(reply) => return Ok(reply),
                Err(error @ (ModelError::Cancelled | ModelError::Exhausted { .. })) => return Err(error),
                Err(error) => errors.push((model.name().to_owned(), error)),
            }
            if out.has_text && !self.after_text {
                break;
            }
        }
        match (errors.pop(), errors.is_empty()) {
            (Some((_, only)), true) => Err(only),
            (last, _) => Err(ModelError::AllFailed { errors: errors.into_iter().chain(last).collect() }),
        }
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models: Vec<_> = self.models.iter().map(|model| model.name()).collect();
        f.debug_struct("Fallback").field("models", &models).field("after_text", &self.after_text).finish()
    }
}

impl ConfigHook for Fallback {
    const NAME: &'static str = "fallback";
    const SUMMARY: &'static str = "asks other models, in order, when one fails";
    type Options = FallbackOptions;

    fn from_options(options: FallbackOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let open = |(item, name): (usize, &String)| context.model("models", name).map_err(|error| error.item(item));
        let models = options.models.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { after_text: options.after_text, ..Self::to(models)? })
    }

    /// The hook posts notices under this name.
    fn entry(mut self, name: String) -> HookEntry {
        self.name = name.into();
        self.into()
    }
}
