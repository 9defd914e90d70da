//! Approval: a person is asked about tool calls that rules select.
//!
//! # What it does
//!
//! Looks at each tool call: the first rule that fits decides whether a person is asked, the call is denied, or this hook
//! has no objection (a tool that requires approval still asks). A call that no rule fits goes on.
//!
//! - A rule fits if its `tool` glob matches the tool's name and every pattern of `where` matches the argument that its
//!   JSON pointer leads to. An argument that is no string is matched as JSON; one that is not there does not fit.
//! - The person reads `explain`, with `{tool}`, `{arguments}` and JSON pointers such as `{/path}` filled in.
//! - Rules see the arguments as the model wrote them: `src/../secrets` begins with `src/`. To allow paths, let the tool
//!   confine them, as the file tools do; a rule is for asking.
//!
//! # Points
//!
//! `before_tool`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `rules` | required | a list, in order |
//! | `tool` | `"*"` | a glob of tool names |
//! | `where` | none | `{ "/pointer" = "pattern" }`, all must match |
//! | `then` | `"ask"` | or `"deny"`, `"allow"` |
//! | `explain` | tool and arguments | what the person, or after a denial the model, reads |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hooks::approval::{Approval, ApprovalRule};
//!
//! let rule = ApprovalRule::ask("shell").when("/command", "rm |sudo ").explain("{tool} wants to run: {/command}");
//! let approval = Approval::new([rule])?;
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use wildmatch::WildMatch;

use super::template::Template;
use super::{ConfigHook, HookBuildContext, OptionError, checks};
use crate::BoxError;
use crate::hook::{BeforeTool, Hook};
use crate::message::ToolCall;
use crate::turn::Turn;

/// The longest argument shown in an explanation, in characters: a person has to read it.
const MOST_SHOWN: usize = 2000;

/// Asks a person about tool calls that rules select. See the [module](self) for rules and options.
#[derive(Clone, Debug)]
pub struct Approval {
    rules: Vec<Compiled>,
}

/// Options of [`Approval`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalOptions {
    /// The rules, in order; the first that fits a call decides.
    pub rules: Vec<ApprovalRule>,
}

/// Which calls a rule is about, and what happens to them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalRule {
    /// A glob of tool names; `"*"` for all.
    pub tool: String,
    /// Patterns that arguments must match, by JSON pointer. The key in configuration is `where`.
    #[serde(rename = "where")]
    pub arguments: BTreeMap<String, String>,
    /// What happens to a call that the rule fits.
    pub then: CallDecision,
    /// What the person reads, or the model after a denial.
    pub explain: String,
}

/// What a rule decides about a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallDecision {
    /// A person decides whether it runs.
    #[default]
    Ask,
    /// It does not run; the model reads why.
    Deny,
    /// It goes on, as far as this hook is concerned: the tool may still require approval.
    Allow,
}

impl Default for ApprovalRule {
    fn default() -> Self {
        let explain = "{tool} with {arguments}".to_owned();
        Self { tool: "*".to_owned(), arguments: BTreeMap::new(), then: CallDecision::Ask, explain }
    }
}

impl ApprovalRule {
    /// A person is asked about calls of these tools.
    pub fn ask(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), ..Self::default() }
    }

    /// Calls of these tools are denied.
    pub fn deny(tool: impl Into<String>) -> Self {
        Self { then: CallDecision::Deny, ..Self::ask(tool) }
    }

    /// Calls of these tools go on; later rules are not looked at.
    pub fn allow(tool: impl Into<String>) -> Self {
        Self { then: CallDecision::Allow, ..Self::ask(tool) }
    }

    /// Restricts the rule to calls whose argument at this JSON pointer matches the pattern.
    #[must_use]
    pub fn when(mut self, pointer: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.arguments.insert(pointer.into(), pattern.into());
        self
    }

    /// Sets what the person reads, or the model after a denial.
    #[must_use]
    pub fn explain(mut self, text: impl Into<String>) -> Self {
        self.explain = text.into();
        self
    }
}

#[derive(Clone, Debug)]
struct Compiled {
    tool: WildMatch,
    arguments: Vec<(String, Regex)>,
    then: CallDecision,
    explain: Template,
}

impl Approval {
    /// Checks and compiles the rules.
    pub fn new(rules: impl IntoIterator<Item = ApprovalRule>) -> Result<Self, OptionError> {
        let compiled = rules.into_iter().enumerate();
        let compiled = compiled.map(|(item, rule)| Compiled::new(&rule).map_err(|error| error.item(item)));
        let rules = compiled.collect::<Result<Vec<_>, _>>()?;
        if rules.is_empty() {
            return Err(OptionError::new("rules", "must have at least one rule"));
        }
        Ok(Self { rules })
    }
}

impl Compiled {
    fn new(rule: &ApprovalRule) -> Result<Self, OptionError> {
        let one = |(pointer, pattern): (&String, &String)| {
            if !pointer.starts_with('/') {
                let why = format!("has the JSON pointer {pointer:?} in `where`, and one begins with `/`");
                return Err(OptionError::new("rules", why));
            }
            Ok((pointer.clone(), checks::pattern("rules", pattern)?))
        };
        Ok(Self {
            tool: WildMatch::new(&rule.tool),
            arguments: rule.arguments.iter().map(one).collect::<Result<_, _>>()?,
            then: rule.then,
            explain: Template::parse("rules", &rule.explain, &["tool", "arguments", "/"])?,
        })
    }

    fn fits(&self, call: &ToolCall) -> bool {
        let matches = |(pointer, pattern): &(String, Regex)| {
            call.arguments.pointer(pointer).is_some_and(|value| pattern.is_match(&plain(value)))
        };
        self.tool.matches(&call.name) && self.arguments.iter().all(matches)
    }

    fn explained(&self, call: &ToolCall) -> String {
        self.explain.fill(|place| match place {
            "tool" => Cow::Borrowed(&*call.name),
            "arguments" => shown(&call.arguments),
            pointer => call.arguments.pointer(pointer).map_or(Cow::Borrowed("(nothing)"), shown),
        })
    }
}

/// A string without its quotes, everything else as JSON.
fn plain(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed)
}

fn shown(value: &Value) -> Cow<'_, str> {
    let whole = plain(value);
    match whole.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => Cow::Owned(format!("{}… ({} bytes)", &whole[..end], whole.len())),
        None => whole,
    }
}

impl Hook for Approval {
    async fn before_tool(&self, _: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        let Some(rule) = self.rules.iter().find(|rule| rule.fits(call)) else { return Ok(BeforeTool::Continue) };
        Ok(match rule.then {
            CallDecision::Allow => BeforeTool::Continue,
            CallDecision::Deny => BeforeTool::Deny(rule.explained(call).into()),
            CallDecision::Ask => BeforeTool::Ask(rule.explained(call).into()),
        })
    }
}

impl ConfigHook for Approval {
    const NAME: &'static str = "approval";
    const SUMMARY: &'static str = "asks a person about tool calls that rules select";
    type Options = ApprovalOptions;

    fn from_options(options: ApprovalOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options.rules)
    }
}
