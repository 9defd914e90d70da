//! Dry run: tools with effects are not run; the model reads what would have run.
//!
//! # What it does
//!
//! Answers a call in the tool's place with the tool's name and arguments, so that one can see what an agent would do.
//! Tools without effect ([`Effect::Pure`]) still run, so that the agent can look around; `pure = true` stops these, too.
//! The common key `tools` narrows it to some tools.
//!
//! # Points
//!
//! `before_tool`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `pure` | `false` | also tools without effect |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hook::HookExt;
//! use turnbuckle::hooks::DryRun;
//!
//! let everything = DryRun::default().pure();
//! let deletions = DryRun::default().for_tools(["delete_*"]);
//! ```

use serde::Deserialize;

use super::{ConfigHook, HookBuildContext, OptionError};
use crate::BoxError;
use crate::hook::{BeforeTool, Hook};
use crate::message::ToolCall;
use crate::tool::{Effect, Output};
use crate::turn::Turn;

/// Answers tool calls with what would run. See the [module](self) for options.
#[derive(Clone, Debug, Default)]
pub struct DryRun {
    pure: bool,
}

/// Options of [`DryRun`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DryRunOptions {
    /// Answers calls of tools without effect as well.
    pub pure: bool,
}

impl DryRun {
    /// Answers calls of tools without effect as well.
    #[must_use]
    pub fn pure(mut self) -> Self {
        self.pure = true;
        self
    }
}

impl Hook for DryRun {
    async fn before_tool(&self, turn: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        let effect = turn.agent().spec(&call.name).map(|spec| &spec.effect);
        if matches!(effect, Some(Effect::Pure)) && !self.pure {
            return Ok(BeforeTool::Continue);
        }
        let text = format!("[dry run: nothing was done] {} would run with {}", call.name, call.arguments);
        Ok(BeforeTool::Answer(Output::ok(text)))
    }
}

impl ConfigHook for DryRun {
    const NAME: &'static str = "dry_run";
    const SUMMARY: &'static str = "answers tool calls with what would run";
    type Options = DryRunOptions;

    fn from_options(options: DryRunOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Ok(Self { pure: options.pure })
    }
}
