//! Fallback: when a model fails, the next one is asked.
//!
//! # What it does
//!
//! Asks the agent's own model first, then others in order, until one answers. Each failure is announced as a notice. If
//! none answers, the error holds the error of every model that was asked, and names those that were not
//! ([`ModelError::ModelsFailed`]). Models are called by [`Model::name`], numbered if several have one name: what configuration
//! calls them may have a password in it.
//!
//! - Every failure counts, also one that a retry of the same model would not help: another model may take the request.
//!   What does not count: the turn was cancelled, or its budget is used up.
//! - Hooks that are registered after `fallback` wrap each of the models. Register `retry` after `fallback`, and each model
//!   is tried again before the next is asked; register it before, and the whole list is tried again.
//! - Each model that is asked is an attempt of the turn. With `after_text = false` (the default) a reply that broke off
//!   after text was shown is not replaced by another model's, because the shown text would have to be taken back. The
//!   remaining models are then not asked.
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
//! | `after_text` | `false` | ask the next model also when text of the reply was shown; it is taken back |
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
//! // A script's entry k answers the k-th model call of the conversation, calls of other models included.
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

/// Asks other models when one fails. See the [module](self) for rules and options.
#[derive(Clone)]
pub struct Fallback {
    name: Text,
    /// In order, each with its name in messages.
    models: Vec<(String, Arc<dyn Model>)>,
    after_text: bool,
}

/// Options of [`Fallback`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FallbackOptions {
    /// The names of the models, in order.
    pub models: Vec<String>,
    /// Whether the next model is asked also when text of the reply was shown; it is taken back.
    #[serde(default)]
    pub after_text: bool,
}

impl Fallback {
    /// Falls back to these models, in order. Messages call them by [`Model::name`], numbered if several have one name.
    pub fn to(models: impl IntoIterator<Item = Arc<dyn Model>>) -> Result<Self, OptionError> {
        let models: Vec<Arc<dyn Model>> = models.into_iter().collect();
        let named = models.iter().enumerate().map(|(index, model)| {
            let shared = models.iter().filter(|other| other.name() == model.name()).count() > 1;
            let name = if shared { format!("{} ({})", model.name(), index + 1) } else { model.name().to_owned() };
            (name, model.clone())
        });
        let models: Vec<_> = named.collect();
        if models.is_empty() {
            return Err(OptionError::new("models", "must name at least one model"));
        }
        Ok(Self { name: Self::NAME.into(), models, after_text: false })
    }

    /// Asks the next model also when text of the reply was shown; it is taken back.
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
        let own = (format!("the agent's model {}", next.model().name()), next.model().clone());
        let mut left = std::iter::once(&own).chain(&self.models);
        let mut errors: Vec<(String, ModelError)> = Vec::new();
        for (name, model) in left.by_ref() {
            if let Some((failed, error)) = errors.last() {
                turn.notice(Level::Warning, &self.name, format!("{failed} failed, {name} is asked instead: {error}"));
            }
            match next.on(model).run(request, &mut out).await {
                Ok(reply) => return Ok(reply),
                Err(error @ (ModelError::Cancelled | ModelError::Exhausted { .. })) => return Err(error),
                Err(error) => errors.push((name.clone(), error)),
            }
            if out.has_text && !self.after_text {
                break;
            }
        }
        let not_asked = left.map(|(name, _)| name.clone()).collect();
        Err(ModelError::ModelsFailed { errors, not_asked })
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models: Vec<_> = self.models.iter().map(|(name, _)| name).collect();
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
