//! Permit: which users may use which tools.
//!
//! # What it does
//!
//! Looks at the roles of the acting user, which come with the scope. A tool is permitted if a rule for one of the
//! user's roles, or for everyone, allows it and no such rule denies it. A tool that no rule mentions is denied, unless
//! `otherwise = "allow"`. The model reads the denial as an error result and can go on without the tool.
//!
//! # Points
//!
//! `before_tool`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `rules` | required | a list; all that apply count, whatever their order |
//! | `role` | everyone | the role that the rule is for |
//! | `allow`, `deny` | none | globs of tool names; `deny` wins over every `allow` |
//! | `otherwise` | `"deny"` | or `"allow"`: for tools that no rule mentions |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hooks::permit::{Permit, PermitRule};
//!
//! let permit = Permit::new([
//!     PermitRule::everyone().allow(["read_*", "search_*"]),
//!     PermitRule::role("editor").allow(["*"]).deny(["shell"]),
//! ])?;
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use serde::Deserialize;
use wildmatch::WildMatch;

use super::{ConfigHook, HookBuildContext, OptionError};
use crate::BoxError;
use crate::hook::{BeforeTool, Hook};
use crate::message::ToolCall;
use crate::scope::Scope;
use crate::turn::Turn;

/// Permits tools by role. See the [module](self) for rules and options.
#[derive(Clone, Debug)]
pub struct Permit {
    rules: Vec<PermitRule>,
    otherwise: DefaultDecision,
}

/// Options of [`Permit`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermitOptions {
    /// The rules. All that apply count, in any order.
    pub rules: Vec<PermitRule>,
    /// What happens to tools that no rule mentions.
    #[serde(default)]
    pub otherwise: DefaultDecision,
}

/// The tools that one role may use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PermitRule {
    /// The role that the rule is for; `None` for everyone.
    pub role: Option<String>,
    /// Globs of the tools that are allowed.
    pub allow: Vec<String>,
    /// Globs of the tools that are denied, whatever other rules allow.
    pub deny: Vec<String>,
}

/// What happens to tools that no rule mentions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultDecision {
    /// They are denied.
    #[default]
    Deny,
    /// They are allowed.
    Allow,
}

impl PermitRule {
    /// A rule for everyone.
    pub fn everyone() -> Self {
        Self::default()
    }

    /// A rule for users with this role.
    pub fn role(role: impl Into<String>) -> Self {
        Self { role: Some(role.into()), ..Self::default() }
    }

    /// Allows tools whose name matches one of the globs.
    #[must_use]
    pub fn allow<G: Into<String>>(mut self, globs: impl IntoIterator<Item = G>) -> Self {
        self.allow.extend(globs.into_iter().map(Into::into));
        self
    }

    /// Denies tools whose name matches one of the globs.
    #[must_use]
    pub fn deny<G: Into<String>>(mut self, globs: impl IntoIterator<Item = G>) -> Self {
        self.deny.extend(globs.into_iter().map(Into::into));
        self
    }

    fn applies(&self, scope: &Scope) -> bool {
        self.role.as_ref().is_none_or(|role| scope.has_role(role))
    }
}

fn any(globs: &[String], tool: &str) -> bool {
    globs.iter().any(|glob| WildMatch::new(glob).matches(tool))
}

impl Permit {
    /// Checks the rules. A tool that no rule mentions is denied.
    pub fn new(rules: impl IntoIterator<Item = PermitRule>) -> Result<Self, OptionError> {
        let rules: Vec<PermitRule> = rules.into_iter().collect();
        if rules.is_empty() {
            return Err(OptionError::new("rules", "must have at least one rule"));
        }
        for (item, rule) in rules.iter().enumerate() {
            if rule.role.as_ref().is_some_and(|role| role.trim().is_empty()) {
                return Err(OptionError::new("rules", "has an empty `role`; leave it out for everyone").item(item));
            }
            if rule.allow.iter().chain(&rule.deny).any(|glob| glob.trim().is_empty()) {
                return Err(OptionError::new("rules", "has an empty tool name").item(item));
            }
        }
        let idle = rules.iter().position(|rule| rule.allow.is_empty() && rule.deny.is_empty());
        if let Some(item) = idle {
            return Err(OptionError::new("rules", "has a rule that neither allows nor denies anything").item(item));
        }
        Ok(Self { rules, otherwise: DefaultDecision::Deny })
    }

    /// Sets what happens to tools that no rule mentions.
    #[must_use]
    pub fn otherwise(mut self, otherwise: DefaultDecision) -> Self {
        self.otherwise = otherwise;
        self
    }

    fn permits(&self, scope: &Scope, tool: &str) -> bool {
        let applying = || self.rules.iter().filter(|rule| rule.applies(scope));
        let denied = applying().any(|rule| any(&rule.deny, tool));
        let allowed = applying().any(|rule| any(&rule.allow, tool));
        // Rules for other roles count here, too: a tool that only editors are allowed must not fall to everyone
        // through `otherwise = "allow"`.
        let mentioned = self.rules.iter().any(|rule| any(&rule.allow, tool) || any(&rule.deny, tool));
        !denied && (allowed || (!mentioned && self.otherwise == DefaultDecision::Allow))
    }
}

impl Hook for Permit {
    async fn before_tool(&self, turn: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        if self.permits(turn.scope(), &call.name) {
            return Ok(BeforeTool::Continue);
        }
        let whom = turn.scope().user_id().map_or_else(|| "the system".to_owned(), |user| format!("user {user}"));
        Ok(BeforeTool::Deny(format!("{} is not permitted for {whom}", call.name).into()))
    }
}

impl ConfigHook for Permit {
    const NAME: &'static str = "permit";
    const SUMMARY: &'static str = "permits tools by the roles of the acting user";
    type Options = PermitOptions;

    fn from_options(options: PermitOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Ok(Self::new(options.rules)?.otherwise(options.otherwise))
    }
}
