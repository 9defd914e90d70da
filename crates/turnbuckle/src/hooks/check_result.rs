//! Result check: the result of a tool must fit a JSON schema.
//!
//! # What it does
//!
//! Parses the text of a successful result as JSON and validates it against a schema. A result that does not fit becomes an error result
//! that says why, with the beginning of what came; with `then = "halt"` the turn ends. Error results are left alone.
//! Name the tools it is for with the common key `tools`: without it every result has to fit.
//!
//! # Points
//!
//! `after_tool`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `schema` | required | a JSON schema, or the name of a file with one |
//! | `then` | `"error"` | or `"halt"` |
//!
//! # Example
//!
//! ```
//! use serde_json::json;
//! use turnbuckle::hook::HookExt;
//! use turnbuckle::hooks::CheckResult;
//!
//! let schema = json!({"type": "object", "required": ["celsius"], "properties": {"celsius": {"type": "number"}}});
//! let check = CheckResult::new(schema)?.for_tools(["weather"]);
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::checks::{Schema, SchemaSource};
use super::{ConfigHook, HookBuildContext, OptionError};
use crate::BoxError;
use crate::hook::{AfterTool, Hook};
use crate::message::ToolCall;
use crate::tool::Output;
use crate::turn::Turn;

/// How much of a bad result the model still reads, in characters.
const MOST_SHOWN: usize = 2000;

/// Validates tool results against a schema. See the [module](self) for options.
#[derive(Clone, Debug)]
pub struct CheckResult {
    schema: Schema,
    then: OnMismatch,
}

/// Options of [`CheckResult`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckResultOptions {
    /// The schema that results must fit.
    pub schema: SchemaSource,
    /// What happens when a result does not fit.
    #[serde(default)]
    pub then: OnMismatch,
}

/// What happens when a result does not fit the schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMismatch {
    /// The model reads an error result instead.
    #[default]
    Error,
    /// The turn ends `halted`.
    Halt,
}

impl CheckResult {
    /// Results must fit this schema; the model reads an error for one that does not.
    pub fn new(schema: Value) -> Result<Self, OptionError> {
        let schema = Schema::load("schema", &SchemaSource::Inline(schema), Path::new(""))?;
        Ok(Self { schema, then: OnMismatch::Error })
    }

    /// A result that does not fit ends the turn.
    #[must_use]
    pub fn or_halt(mut self) -> Self {
        self.then = OnMismatch::Halt;
        self
    }
}

impl Hook for CheckResult {
    async fn after_tool(&self, _: &Turn, call: &ToolCall, output: &Output) -> Result<AfterTool, BoxError> {
        let text = output.content.text();
        let Some(complaint) = output.ok.then(|| self.schema.complaint_of_text(&text)).flatten() else {
            return Ok(AfterTool::Continue);
        };
        let what = format!("the result of {} does not fit its schema: {complaint}", call.name);
        Ok(match self.then {
            OnMismatch::Halt => AfterTool::Halt(what.into()),
            OnMismatch::Error => {
                let start: String = text.chars().take(MOST_SHOWN).collect();
                AfterTool::Modify(Output::error(format!("[{what}]\n{start}")))
            }
        })
    }
}

impl ConfigHook for CheckResult {
    const NAME: &'static str = "check_result";
    const SUMMARY: &'static str = "checks tool results against a JSON schema";
    type Options = CheckResultOptions;

    fn from_options(options: CheckResultOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let schema = Schema::load("schema", &options.schema, context.folder)?;
        Ok(Self { schema, then: options.then })
    }
}
