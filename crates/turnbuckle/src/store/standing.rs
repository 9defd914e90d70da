//! Standing approvals: "always, for this rule, until …". They answer the approval that a tool or the agent asks for, and
//! nothing else.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::clock::Timestamp;
use crate::id::{CallId, ConversationId};
use crate::message::Text;
use crate::scope::Actor;

/// An approval that holds for more than one call: of one agent, one tool, one project and one requester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StandingApproval {
    /// Its id, by which it is revoked and which the log names with every use.
    pub id: Text,
    /// The name of the agent whose calls it approves.
    pub agent: Text,
    /// The tool.
    pub tool: Text,
    /// The digest of the tool's definition: a tool that changes is asked about again.
    pub definition: Text,
    /// What the arguments must be like; all of these must match.
    pub arguments: Vec<ArgumentMatch>,
    /// The project it was given in.
    pub project: Text,
    /// The id of the user whose messages the calls serve.
    pub requester: Text,
    /// Who gave it, with the roles that they had.
    pub by: Actor,
    /// When it was given.
    pub at: Timestamp,
    /// Until when it holds.
    pub expires: Timestamp,
    /// How often it may still be used; `None`: as often as needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u32>,
    /// The call that it was made from.
    pub from: (ConversationId, CallId),
}

/// What a part of the arguments must be like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ArgumentMatch {
    /// Which part, as a JSON pointer (RFC 6901). Empty: all of them.
    pub pointer: String,
    /// What it must be.
    #[serde(flatten)]
    pub must: MustBe,
}

/// What a part of the arguments must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MustBe {
    /// Exactly this value. `null` also stands for a part that is not there.
    Equals(Value),
    /// A text that this pattern matches: `*` stands for any characters, `?` for one.
    Like(String),
    /// Whatever it is, or not there: said, so that people see what is left open.
    Anything,
    /// An object without other members than these. What they must be, other parts say.
    NoOtherMembers(Vec<String>),
    /// Such that these rules allow the call, in the language of the tool itself
    /// ([`Tool::allowed_by`](crate::tool::Tool::allowed_by)). They are about all arguments.
    AllowedBy(Vec<String>),
}

/// How many characters of a value an error has.
const MAX_SHOWN: usize = 80;

/// A pattern does not match the arguments of the call that a standing approval is to be made from.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{place} is {}, and the pattern wants {}", beginning(shown), beginning(wanted))]
#[non_exhaustive]
pub struct NotLikeShown {
    /// Which part, for people.
    pub place: String,
    /// What it is in the call.
    pub shown: Value,
    /// What the pattern has in its place.
    pub wanted: Value,
}

impl ArgumentMatch {
    /// The part at `pointer` must be this value.
    pub fn equals(pointer: impl Into<String>, value: Value) -> Self {
        Self { pointer: pointer.into(), must: MustBe::Equals(value) }
    }

    /// The part at `pointer` must be a text like this pattern.
    pub fn like(pointer: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), must: MustBe::Like(pattern.into()) }
    }

    /// The tool's own rules must allow the call.
    pub fn allowed_by<R: Into<String>>(rules: impl IntoIterator<Item = R>) -> Self {
        Self { pointer: String::new(), must: MustBe::AllowedBy(rules.into_iter().map(Into::into).collect()) }
    }

    /// Everything that arguments must be to be like `pattern`, where the call that is approved has the arguments `shown`.
    ///
    /// `pattern` is an object. In its texts `*` stands for any characters and `?` for one; `"*"` alone is any value, also none.
    /// Other values must be the same. Members that the pattern does not name must be as they were shown, and what neither was
    /// shown nor is named must not be there. Objects inside are compared in the same way.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnbuckle::store::ArgumentMatch;
    ///
    /// let shown = json!({ "path": "docs/a.md", "content": "x", "mode": "append" });
    /// let parts = ArgumentMatch::like_shown(&shown, &json!({ "path": "docs/*", "content": "*" }))?;
    /// let words: Vec<String> = parts.iter().map(ToString::to_string).collect();
    /// assert_eq!(words.join(" and "), r#"any content and mode = "append" and path like "docs/*" and no other arguments"#);
    /// # Ok::<(), turnbuckle::store::NotLikeShown>(())
    /// ```
    pub fn like_shown(shown: &Value, pattern: &Value) -> Result<Vec<Self>, NotLikeShown> {
        let mut parts = Vec::new();
        match (shown, pattern) {
            (Value::Object(_), Value::Object(_)) => add_like(&mut parts, String::new(), shown, pattern)?,
            _ => return Err(not_like("", shown, pattern)),
        }
        Ok(parts)
    }

    /// Whether the part is what it must be in these arguments. Of rules only the tool can say it: here they cover nothing.
    pub fn covers(&self, arguments: &Value) -> bool {
        self.covers_if(arguments, &|_| false)
    }

    /// The same, where `allowed_by` says whether rules of the tool allow the call.
    fn covers_if(&self, arguments: &Value, allowed_by: &dyn Fn(&[String]) -> bool) -> bool {
        let part = arguments.pointer(&self.pointer).unwrap_or(&Value::Null);
        match &self.must {
            MustBe::Equals(value) => part == value,
            MustBe::Like(pattern) => part.as_str().is_some_and(|text| wildmatch::WildMatch::new(pattern).matches(text)),
            MustBe::Anything => true,
            MustBe::NoOtherMembers(names) => {
                part.as_object().is_some_and(|members| members.keys().all(|name| names.contains(name)))
            }
            MustBe::AllowedBy(rules) => allowed_by(rules),
        }
    }

    /// Whether it leaves no argument open that no other part names.
    fn closes_arguments(&self) -> bool {
        self.pointer.is_empty()
            && matches!(self.must, MustBe::Equals(_) | MustBe::NoOtherMembers(_) | MustBe::AllowedBy(_))
    }
}

/// Enough of a value to recognise it.
fn beginning(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A part of arguments, for people.
fn place_of(pointer: &str) -> &str {
    match pointer.strip_prefix('/') {
        Some(place) => place,
        None => "arguments",
    }
}

fn not_like(pointer: &str, shown: &Value, wanted: &Value) -> NotLikeShown {
    NotLikeShown { place: place_of(pointer).to_owned(), shown: shown.clone(), wanted: wanted.clone() }
}

/// Adds what the part at `pointer` must be. As deep as the JSON that was parsed, which has a limit.
fn add_like(
    parts: &mut Vec<ArgumentMatch>,
    pointer: String,
    shown: &Value,
    pattern: &Value,
) -> Result<(), NotLikeShown> {
    let part = match (shown, pattern) {
        (_, Value::String(text)) if text == "*" => ArgumentMatch { pointer, must: MustBe::Anything },
        (_, Value::String(text)) if text.contains(['*', '?']) => ArgumentMatch::like(pointer, text),
        (Value::Object(shown), Value::Object(pattern)) => {
            let names: BTreeSet<&String> = shown.keys().chain(pattern.keys()).collect();
            for name in &names {
                let inside = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                let as_shown = shown.get(*name).unwrap_or(&Value::Null);
                match pattern.get(*name) {
                    Some(pattern) => add_like(parts, inside, as_shown, pattern)?,
                    None => parts.push(ArgumentMatch::equals(inside, as_shown.clone())),
                }
            }
            let names = names.into_iter().cloned().collect();
            ArgumentMatch { pointer, must: MustBe::NoOtherMembers(names) }
        }
        _ => ArgumentMatch::equals(pointer, pattern.clone()),
    };
    let fits = match &part.must {
        MustBe::Equals(value) => value == shown,
        MustBe::Like(like) => shown.as_str().is_some_and(|text| wildmatch::WildMatch::new(like).matches(text)),
        MustBe::Anything | MustBe::NoOtherMembers(_) => true,
        // A pattern has no rules.
        MustBe::AllowedBy(_) => false,
    };
    if !fits {
        return Err(not_like(&part.pointer, shown, pattern));
    }
    parts.push(part);
    Ok(())
}

impl std::fmt::Display for ArgumentMatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = place_of(&self.pointer);
        match &self.must {
            MustBe::Equals(value) => write!(f, "{what} = {value}"),
            MustBe::Like(pattern) => write!(f, "{what} like {pattern:?}"),
            MustBe::Anything => write!(f, "any {what}"),
            MustBe::NoOtherMembers(_) if self.pointer.is_empty() => write!(f, "no other arguments"),
            MustBe::NoOtherMembers(_) => write!(f, "no other members of {what}"),
            MustBe::AllowedBy(rules) => write!(f, "what {} allows", rules.join(" and ")),
        }
    }
}

/// A call that needs approval, as far as a standing approval is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandingRequest<'a> {
    pub(crate) agent: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) definition: &'a str,
    pub(crate) arguments: &'a Value,
    pub(crate) project: &'a str,
    pub(crate) requester: &'a str,
    pub(crate) now: Timestamp,
}

impl StandingApproval {
    /// Whether it covers only calls whose arguments are all the same as those of the call that it was made from.
    pub fn is_exact(&self) -> bool {
        let is_open =
            |part: &ArgumentMatch| matches!(part.must, MustBe::Like(_) | MustBe::Anything | MustBe::AllowedBy(_));
        self.arguments.iter().any(ArgumentMatch::closes_arguments) && !self.arguments.iter().any(is_open)
    }

    /// Whether rules of the tool must allow the calls that it covers.
    pub(crate) fn is_by_rules(&self) -> bool {
        self.arguments.iter().any(|part| matches!(part.must, MustBe::AllowedBy(_)))
    }

    /// Whether it covers this call. `allowed_by` says whether rules of the tool allow it.
    pub(crate) fn covers(&self, request: StandingRequest<'_>, allowed_by: &dyn Fn(&[String]) -> bool) -> bool {
        *self.agent == *request.agent
            && *self.tool == *request.tool
            && *self.definition == *request.definition
            && *self.project == *request.project
            && *self.requester == *request.requester
            && self.is_usable(request.now)
            && self.arguments.iter().all(|part| part.covers_if(request.arguments, allowed_by))
    }

    /// Whether it covers this call as far as can be said without the tool, which judges by its rules at each use.
    pub(crate) fn could_cover(&self, request: StandingRequest<'_>) -> bool {
        self.covers(request, &|_| true)
    }

    /// What arguments it covers, for people: all of it, and with what is left open.
    pub fn covered(&self) -> String {
        if self.arguments.is_empty() {
            return "any arguments".to_owned();
        }
        let parts: Vec<String> = self.arguments.iter().map(ToString::to_string).collect();
        // What is left open is part of what is agreed to.
        let is_closed = self.arguments.iter().any(ArgumentMatch::closes_arguments);
        parts.join(" and ") + if is_closed { "" } else { " and any other arguments" }
    }

    /// Whether it has neither expired nor been used up.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.expires > now && self.uses_left != Some(0)
    }
}

impl std::fmt::Display for StandingApproval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { agent, tool, requester, expires, .. } = self;
        write!(f, "agent {agent} may call {tool}")?;
        write!(f, " with {} for user {requester}", self.covered())?;
        if !self.project.is_empty() {
            write!(f, " in {}", self.project)?;
        }
        write!(f, " until {expires}")?;
        match self.uses_left {
            Some(0) => write!(f, ", with no use left"),
            Some(1) => write!(f, ", once"),
            Some(times) => write!(f, ", {times} times"),
            None => Ok(()),
        }
    }
}
