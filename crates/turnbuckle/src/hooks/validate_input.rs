//! Input validation: a message that the agent cannot use never reaches the model.
//!
//! # What it does
//!
//! Judges the user's message and ends the turn `halted`, with a reason, if it is empty, too short or too long, does not
//! match a pattern, matches a forbidden one, or is not JSON that fits a schema. With `erase` the message is not kept.
//! Length and patterns are about the text of the message; pictures and files count as content, not as text.
//!
//! # Points
//!
//! `before_agent`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `min_chars` | 1 | characters of text, white space at the ends not counted; 0 allows an empty text |
//! | `max_chars` | 100,000 | characters of text |
//! | `pattern` | none | must match |
//! | `forbid` | none | must not match |
//! | `schema` | none | a JSON schema, or the name of a file with one; the text must be JSON that fits |
//! | `reason` | what is wrong | the reason that the person reads instead |
//! | `erase` | `false` | do not keep a message that is refused |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use turnbuckle::hooks::validate_input::{ValidateInput, ValidateInputOptions};
//! use turnbuckle::{Agent, Outcome, RunError, models::Script};
//!
//! let options = ValidateInputOptions { max_chars: 10, ..ValidateInputOptions::default() };
//! let agent = Agent::builder("brief", Script::says(["never asked"])).hook(ValidateInput::new(options)?).build()?;
//! let Err(RunError::NotCompleted(ended)) = agent.run("a message that is too long").await else { panic!("it completed") };
//! assert_eq!(ended.outcome, Outcome::Halted);
//! assert_eq!(ended.reason.as_deref(), Some("the message has 26 characters, and 10 are the most"));
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

use std::path::Path;

use regex::Regex;
use serde::Deserialize;

use super::checks::{self, Schema, SchemaSource};
use super::{ConfigHook, HookBuildContext, OptionError};
use crate::BoxError;
use crate::hook::{BeforeAgent, BeforeAgentContext, Hook};
use crate::message::Content;

/// Refuses messages that the agent cannot use. See the [module](self) for options.
#[derive(Clone, Debug)]
pub struct ValidateInput {
    options: ValidateInputOptions,
    pattern: Option<Regex>,
    forbid: Option<Regex>,
    schema: Option<Schema>,
}

/// Options of [`ValidateInput`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValidateInputOptions {
    /// The fewest characters of text, without white space at the ends.
    pub min_chars: usize,
    /// The most characters of text.
    pub max_chars: usize,
    /// A pattern that the text must match.
    pub pattern: Option<String>,
    /// A pattern that the text must not match.
    pub forbid: Option<String>,
    /// A schema that the text, parsed as JSON, must fit.
    pub schema: Option<SchemaSource>,
    /// The reason that the person reads; `None`: what is wrong with the message.
    pub reason: Option<String>,
    /// Whether a refused message is deleted from the conversation.
    pub erase: bool,
}

impl Default for ValidateInputOptions {
    fn default() -> Self {
        Self { min_chars: 1, max_chars: 100_000, pattern: None, forbid: None, schema: None, reason: None, erase: false }
    }
}

impl ValidateInput {
    /// Checks the options; a schema's file is relative to the current folder.
    pub fn new(options: ValidateInputOptions) -> Result<Self, OptionError> {
        Self::within(options, Path::new(""))
    }

    fn within(options: ValidateInputOptions, folder: &Path) -> Result<Self, OptionError> {
        if options.max_chars == 0 {
            return Err(OptionError::new("max_chars", "must be at least 1: no message would be taken"));
        }
        if options.min_chars > options.max_chars {
            return Err(OptionError::new("min_chars", "must not be larger than `max_chars`"));
        }
        Ok(Self {
            pattern: options.pattern.as_deref().map(|text| checks::demanded("pattern", text)).transpose()?,
            forbid: options.forbid.as_deref().map(|text| checks::forbidden("forbid", text)).transpose()?,
            schema: options.schema.as_ref().map(|source| Schema::load("schema", source, folder)).transpose()?,
            options,
        })
    }

    fn complaint(&self, message: &Content) -> Option<String> {
        let whole = message.text();
        let text = whole.trim();
        let count = text.chars().count();
        if text.is_empty() && self.options.min_chars > 0 {
            return Some("the message is empty".to_owned());
        }
        if count < self.options.min_chars {
            return Some(format!("the message has {count} characters, and {} are the least", self.options.min_chars));
        }
        let count = whole.chars().count();
        if count > self.options.max_chars {
            return Some(format!("the message has {count} characters, and {} are the most", self.options.max_chars));
        }
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
            return Some("the message is not what is expected here".to_owned());
        }
        if self.forbid.as_ref().is_some_and(|pattern| pattern.is_match(text)) {
            return Some("the message has something in it that is not allowed here".to_owned());
        }
        let complaint = self.schema.as_ref()?.complaint_of_text(text)?;
        Some(format!("the message does not fit: {complaint}"))
    }
}

impl Hook for ValidateInput {
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        let Some(complaint) = self.complaint(turn.user_message()) else { return Ok(BeforeAgent::Continue) };
        let reason = self.options.reason.as_deref().unwrap_or(&complaint).into();
        Ok(if self.options.erase { BeforeAgent::Erase(reason) } else { BeforeAgent::Halt(reason) })
    }
}

impl ConfigHook for ValidateInput {
    const NAME: &'static str = "validate_input";
    const SUMMARY: &'static str = "refuses messages that are empty, too long, or not what is expected";
    type Options = ValidateInputOptions;

    fn from_options(options: ValidateInputOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::within(options, context.folder)
    }
}
