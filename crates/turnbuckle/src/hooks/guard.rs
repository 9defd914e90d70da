//! Guard: rules that every reply of the model must satisfy.
//!
//! # What it does
//!
//! Checks each complete reply against rules, in order; the first that is broken decides. A rule looks for something that
//! must not be there (`forbid`, `phrases`), that must be there (`require`), at the length (`min_chars`, `max_chars`), or
//! parses the text as JSON and validates it against a `schema`.
//!
//! - What then: `regenerate` asks for another reply with the `reason` as feedback, at most `max_regenerations` times,
//!   `reject` ends the turn, `modify` takes out what must not be there or cuts what is too long.
//! - `require`, `min_chars` and `schema` apply only to replies without tool calls: final answers.
//! - Patterns are those of the `regex` crate, which match in linear time.
//! - With the common key `release = "on_accept"` nothing of a reply is shown before it was checked.
//!
//! # Points
//!
//! `after_model`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `rules` | required | a list; of each rule exactly one of the next six |
//! | `forbid` | | a pattern that must not match |
//! | `phrases` | | texts that must not be there, upper and lower case alike: claims that must not be made |
//! | `require` | | a pattern that must match |
//! | `min_chars`, `max_chars` | | characters |
//! | `schema` | | a JSON schema, or the name of a file with one |
//! | `then` | `"regenerate"` | or `"reject"`; with `forbid`, `phrases` and `max_chars` also `"modify"` |
//! | `replace` | `""` | what `modify` puts in the place |
//! | `reason` | what was broken | the reason that the model, or the person, reads |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use turnbuckle::hooks::guard::{Guard, GuardRule, Rule};
//! use turnbuckle::models::Script;
//! use turnbuckle::Agent;
//!
//! let rule = GuardRule::new(Rule::Phrases(vec!["guaranteed returns".into()])).because("promise nothing");
//! let model = Script::says(["Guaranteed returns!", "Returns may vary."]);
//! let agent = Agent::builder("broker", model).hook(Guard::new([rule])?).build()?;
//! assert_eq!(agent.run("invest?").await?.text(), "Returns may vary.");
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

use std::path::Path;
use std::sync::Arc;

use regex::Regex;
use serde::Deserialize;

use super::checks::{self, Schema, SchemaSource};
use super::{ConfigHook, HookBuildContext, OptionError};
use crate::BoxError;
use crate::hook::{AfterModel, Hook};
use crate::message::{Content, Part, Reply, Text};
use crate::turn::Turn;

/// Checks replies against rules. See the [module](self) for rules and options.
#[derive(Clone, Debug)]
pub struct Guard {
    rules: Vec<Compiled>,
}

/// Options of [`Guard`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardOptions {
    /// The rules, in order.
    pub rules: Vec<RuleOptions>,
}

/// One rule, as configuration writes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "the table of the module says what they are")]
pub struct RuleOptions {
    pub forbid: Option<String>,
    pub phrases: Option<Vec<String>>,
    pub require: Option<String>,
    pub min_chars: Option<usize>,
    pub max_chars: Option<usize>,
    pub schema: Option<SchemaSource>,
    pub then: OnViolation,
    pub replace: Option<String>,
    pub reason: Option<String>,
}

/// What a rule looks for.
#[derive(Clone, Debug)]
pub enum Rule {
    /// A pattern that must not match.
    Forbid(String),
    /// Texts that must not be there, upper and lower case alike.
    Phrases(Vec<String>),
    /// A pattern that must match.
    Require(String),
    /// The least number of characters.
    MinChars(usize),
    /// The greatest number of characters.
    MaxChars(usize),
    /// A schema that the text, parsed as JSON, must fit.
    Schema(SchemaSource),
}

/// What happens to a reply that breaks a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnViolation {
    /// The model is asked for another reply.
    #[default]
    Regenerate,
    /// The turn ends `rejected`.
    Reject,
    /// The forbidden text is replaced, or the text that is too long is cut.
    Modify,
}

/// A rule, what happens to a reply that breaks it, and the reason that is given.
#[derive(Clone, Debug)]
pub struct GuardRule {
    rule: Rule,
    then: OnViolation,
    replace: Option<String>,
    reason: Option<String>,
}

impl GuardRule {
    /// A rule whose violation makes the model try again.
    pub fn new(rule: Rule) -> Self {
        Self { rule, then: OnViolation::Regenerate, replace: None, reason: None }
    }

    /// Sets what happens to a reply that breaks the rule.
    #[must_use]
    pub fn then(mut self, then: OnViolation) -> Self {
        self.then = then;
        self
    }

    /// Sets the replacement that [`OnViolation::Modify`] puts in.
    #[must_use]
    pub fn replace(mut self, text: impl Into<String>) -> Self {
        self.replace = Some(text.into());
        self
    }

    /// Sets the reason that the model, or the person, reads.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

#[derive(Clone, Debug)]
struct Compiled {
    test: Test,
    then: OnViolation,
    replace: String,
    reason: Option<Text>,
}

#[derive(Clone, Debug)]
enum Test {
    Forbid(Regex),
    Require(Regex),
    MinChars(usize),
    MaxChars(usize),
    Schema(Schema),
}

impl Guard {
    /// Checks and compiles the rules; files of schemas are relative to the current folder.
    pub fn new(rules: impl IntoIterator<Item = GuardRule>) -> Result<Self, OptionError> {
        Self::within(rules, Path::new(""))
    }

    fn within(rules: impl IntoIterator<Item = GuardRule>, folder: &Path) -> Result<Self, OptionError> {
        let compiled = rules.into_iter().enumerate().map(|(item, rule)| {
            Compiled::new(rule, folder).map_err(|error| OptionError { option: "rules", ..error }.item(item))
        });
        let rules = compiled.collect::<Result<Vec<_>, _>>()?;
        if rules.is_empty() {
            return Err(OptionError::new("rules", "must have at least one rule"));
        }
        Ok(Self { rules })
    }
}

impl Compiled {
    fn new(rule: GuardRule, folder: &Path) -> Result<Self, OptionError> {
        let refused = |why: &str| Err(OptionError::new("rules", why));
        let test = match &rule.rule {
            Rule::Forbid(pattern) => Test::Forbid(checks::forbidden("rules", pattern)?),
            Rule::Phrases(phrases) if phrases.iter().any(|phrase| phrase.trim().is_empty()) || phrases.is_empty() => {
                return refused("has no phrases, or an empty one");
            }
            Rule::Phrases(phrases) => {
                let any: Vec<String> = phrases.iter().map(|phrase| regex::escape(phrase)).collect();
                Test::Forbid(checks::pattern("rules", &format!("(?i){}", any.join("|")))?)
            }
            Rule::Require(pattern) => Test::Require(checks::demanded("rules", pattern)?),
            Rule::MinChars(0) => return refused("has `min_chars = 0`, which every reply has"),
            Rule::MaxChars(0) => return refused("has `max_chars = 0`: no reply would be let through"),
            Rule::MinChars(count) => Test::MinChars(*count),
            Rule::MaxChars(count) => Test::MaxChars(*count),
            Rule::Schema(source) => Test::Schema(Schema::load("rules", source, folder)?),
        };
        let modifies = matches!(test, Test::Forbid(_) | Test::MaxChars(_));
        if rule.then == OnViolation::Modify && !modifies {
            return refused("cannot be kept by \"modify\": what is missing cannot be taken out");
        }
        if rule.replace.is_some() && rule.then != OnViolation::Modify {
            return refused("has `replace` without `then = \"modify\"`");
        }
        let (replace, reason) = (rule.replace.unwrap_or_default(), rule.reason.map(Into::into));
        Ok(Self { test, then: rule.then, replace, reason })
    }

    /// Says what is wrong with the reply, if anything is.
    fn complaint(&self, reply: &Reply, text: &str) -> Option<String> {
        let answers = reply.calls.is_empty();
        match &self.test {
            Test::Forbid(pattern) => {
                let found = pattern.find(text)?.as_str();
                let start: String = found.chars().take(80).collect();
                Some(format!("it must not say {start:?}"))
            }
            Test::Require(pattern) => {
                (answers && !pattern.is_match(text)).then(|| format!("it lacks what `{pattern}` looks for"))
            }
            Test::MinChars(least) => {
                let count = text.chars().count();
                (answers && count < *least).then(|| format!("it has {count} characters, and {least} are the least"))
            }
            Test::MaxChars(most) => {
                let count = text.chars().count();
                (count > *most).then(|| format!("it has {count} characters, and {most} are the most"))
            }
            Test::Schema(schema) => schema.complaint_of_text(text).filter(|_| answers),
        }
    }

    fn decide(&self, reply: &Reply, complaint: String) -> AfterModel {
        let reason = self.reason.clone().unwrap_or_else(|| complaint.into());
        match self.then {
            OnViolation::Regenerate => AfterModel::Regenerate(reason),
            OnViolation::Reject => AfterModel::Reject(reason),
            OnViolation::Modify => {
                AfterModel::Modify(Box::new(Reply { content: self.kept(&reply.content), ..reply.clone() }))
            }
        }
    }

    /// The content with the violation removed.
    fn kept(&self, content: &Content) -> Content {
        let mut room = if let Test::MaxChars(most) = self.test { most } else { usize::MAX };
        let keep = |part: &Part| match (part, &self.test) {
            (Part::Text { text }, Test::Forbid(pattern)) => {
                Part::text(pattern.replace_all(text, regex::NoExpand(&self.replace)))
            }
            (Part::Text { text }, Test::MaxChars(_)) => {
                let kept: String = text.chars().take(room).collect();
                let whole = kept.len() == text.len();
                room -= kept.chars().count();
                Part::text(if whole { kept } else { kept + &self.replace })
            }
            (other, _) => other.clone(),
        };
        content.parts().iter().map(keep).collect()
    }
}

impl Hook for Guard {
    async fn after_model(&self, _: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        let mut reply = Arc::clone(reply);
        let mut modified = false;
        for rule in &self.rules {
            let Some(complaint) = rule.complaint(&reply, &reply.content.text()) else { continue };
            match rule.decide(&reply, complaint) {
                // The rules behind judge what is left.
                AfterModel::Modify(kept) => (reply, modified) = (Arc::from(kept), true),
                decided => return Ok(decided),
            }
        }
        Ok(if modified { AfterModel::Modify(Box::new(Reply::clone(&reply))) } else { AfterModel::Continue })
    }
}

impl ConfigHook for Guard {
    const NAME: &'static str = "guard";
    const SUMMARY: &'static str = "holds replies to rules: patterns, phrases, length, a JSON schema";
    type Options = GuardOptions;

    fn from_options(options: GuardOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let rules = options.rules.into_iter().enumerate();
        let rules = rules.map(|(item, rule)| rule.rule().map_err(|error| error.item(item)));
        Self::within(rules.collect::<Result<Vec<_>, _>>()?, context.folder)
    }
}

impl RuleOptions {
    fn rule(self) -> Result<GuardRule, OptionError> {
        let kinds = [
            self.forbid.map(Rule::Forbid),
            self.phrases.map(Rule::Phrases),
            self.require.map(Rule::Require),
            self.min_chars.map(Rule::MinChars),
            self.max_chars.map(Rule::MaxChars),
            self.schema.map(Rule::Schema),
        ];
        let mut kinds = kinds.into_iter().flatten();
        match (kinds.next(), kinds.next()) {
            (Some(rule), None) => Ok(GuardRule { rule, then: self.then, replace: self.replace, reason: self.reason }),
            _ => Err(OptionError::new(
                "rules",
                "needs exactly one of forbid, phrases, require, min_chars, max_chars, schema in each rule",
            )),
        }
    }
}
