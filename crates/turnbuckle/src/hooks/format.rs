//! Format: the result of a turn as JSON, as Markdown or through a template.
//!
//! # What it does
//!
//! Changes the result that is shown: the JSON in the model's answer, a Markdown text made of that JSON, or a template
//! filled with it. The log keeps both. It works on the result that earlier `after_agent` hooks have left.
//!
//! - `to = "json"`: the text as a JSON value, also out of a Markdown fence. A text that is none becomes `{"text": "…"}`.
//! - `to = "markdown"`: an object becomes a list of its fields, a list a list; a text stays as it is.
//! - `template`: `{text}`, `{user}`, `{agent}`, `{conversation}`, `{turn}`, `{time}`, `{date}`, and JSON pointers such as
//!   `{/price}` into a result that is JSON; what is not there is left empty.
//!
//! # Points
//!
//! `after_agent`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `to` | | `"json"` or `"markdown"`; or `template` |
//! | `template` | | a text with places to fill |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use turnbuckle::hooks::Format;
//! use turnbuckle::{Agent, models::Script};
//!
//! let model = Script::says([r#"{"price": 12}"#]);
//! let agent = Agent::builder("shop", model).hook(Format::template("It costs {/price} euros.")?).build()?;
//! assert_eq!(agent.run("how much?").await?.text(), "It costs 12 euros.");
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use super::checks::unfenced;
use super::{ConfigHook, HookBuildContext, OptionError, Template};
use crate::BoxError;
use crate::hook::{AfterAgent, AfterAgentContext, Hook};

const PLACES: &[&str] = &["text", "user", "agent", "conversation", "turn", "time", "date", "/"];

/// Changes how the result is shown. See the [module](self) for options.
#[derive(Clone, Debug)]
pub struct Format(Target);

#[derive(Clone, Debug)]
enum Target {
    Json,
    Markdown,
    Template(Template),
}

/// Options of [`Format`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FormatOptions {
    /// A built-in format; excludes `template`.
    pub to: Option<FormatTo>,
    /// A template; excludes `to`.
    pub template: Option<String>,
}

/// A built-in format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatTo {
    /// The JSON value in the answer.
    Json,
    /// A Markdown text made of the JSON value in the answer.
    Markdown,
}

impl Format {
    /// Shows the result as a JSON value.
    pub fn json() -> Self {
        Self(Target::Json)
    }

    /// Shows the result as a Markdown text.
    pub fn markdown() -> Self {
        Self(Target::Markdown)
    }

    /// Shows the result through a template.
    pub fn template(template: &str) -> Result<Self, OptionError> {
        if template.trim().is_empty() {
            return Err(OptionError::new("template", "is empty: every result would be, too"));
        }
        Template::parse("template", template, PLACES).map(Target::Template).map(Self)
    }
}

/// The result so far: its text, and the JSON value that it is or contains.
fn result(turn: &AfterAgentContext) -> (String, Option<Value>) {
    let said = || turn.assistant_message().map(|reply| reply.content.text()).unwrap_or_default();
    match turn.result() {
        Some(Value::String(text)) => (text.clone(), serde_json::from_str(unfenced(text)).ok()),
        Some(value) => (value.to_string(), Some(value.clone())),
        None => {
            let text = said();
            let value = serde_json::from_str(unfenced(&text)).ok();
            (text, value)
        }
    }
}

fn filled(template: &Template, turn: &AfterAgentContext, text: &str, value: Option<&Value>) -> String {
    let now = turn.clock().now().to_string();
    template.fill(|place| match place {
        "text" => Cow::Borrowed(text),
        "user" => Cow::Borrowed(turn.scope().user_id().map_or("the system", |user| user)),
        "agent" => Cow::Borrowed(turn.agent().name()),
        "conversation" => Cow::Borrowed(turn.conversation().as_str()),
        "turn" => Cow::Borrowed(turn.id().as_str()),
        "time" => Cow::Owned(now.clone()),
        "date" => Cow::Owned(now.get(..10).unwrap_or(&now).to_owned()),
        pointer => match value.and_then(|value| value.pointer(pointer)) {
            Some(Value::String(text)) => Cow::Owned(text.clone()),
            Some(other) => Cow::Owned(other.to_string()),
            None => Cow::Borrowed(""),
        },
    })
}

/// Writes a value as nested lists, indented by `depth`.
fn markdown(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    // Writing to a String cannot fail.
    let mut item = |name: Option<&str>, value: &Value| {
        let name = name.map(|name| format!("**{name}**: ")).unwrap_or_default();
        match value {
            Value::Object(_) | Value::Array(_) => {
                let _ = writeln!(out, "{}", format!("{indent}- {name}").trim_end());
                markdown(value, depth + 1, out);
            }
            Value::String(text) => drop(writeln!(out, "{indent}- {name}{}", text.replace('\n', " "))),
            other => drop(writeln!(out, "{indent}- {name}{other}")),
        }
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| item(Some(name), value)),
        Value::Array(items) => items.iter().for_each(|value| item(None, value)),
        other => drop(write!(out, "{other}")),
    }
}

impl Hook for Format {
    async fn after_agent(&self, turn: &mut AfterAgentContext) -> Result<AfterAgent, BoxError> {
        let (text, value) = result(turn);
        let shown = match (&self.0, value) {
            (Target::Json, Some(value)) => value,
            (Target::Json, None) => json!({ "text": text }),
            (Target::Markdown, Some(value @ (Value::Object(_) | Value::Array(_)))) => {
                let mut out = String::new();
                markdown(&value, 0, &mut out);
                Value::String(out)
            }
            (Target::Markdown, _) => Value::String(text),
            (Target::Template(template), value) => Value::String(filled(template, turn, &text, value.as_ref())),
        };
        turn.set_result(shown);
        Ok(AfterAgent::Continue)
    }
}

impl ConfigHook for Format {
    const NAME: &'static str = "format";
    const SUMMARY: &'static str = "shows the result as JSON, as Markdown or through a template";
    type Options = FormatOptions;

    fn from_options(options: FormatOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        match (options.to, options.template) {
            (Some(FormatTo::Json), None) => Ok(Self::json()),
            (Some(FormatTo::Markdown), None) => Ok(Self::markdown()),
            (None, Some(template)) => Self::template(&template),
            (Some(_), Some(_)) => Err(OptionError::new("to", "and `template` exclude each other")),
            (None, None) => Err(OptionError::new("to", "is missing, and so is `template`")),
        }
    }
}
