//! What is recorded when a context had to be made smaller.

pub(crate) mod steps;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Event, EventKind};
use crate::id::TurnId;
use crate::message::{Content, Part, Text};

pub use steps::LeftOutSteps;

/// How much of a result's first line a stub quotes, in characters.
const QUOTED: usize = 80;

/// How many items of a list stay in shortened arguments.
const MAX_ITEMS: usize = 32;

/// What contexts show of a log from now on. It is stored beside the log, which stays as it is: whoever has the log and the last
/// cut sends the same context, in this process or in another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The turn whose model call needed room.
    pub turn: TurnId,
    /// The seq of the last event when the cut was made: it holds for every model call behind that event.
    pub made_at: u64,
    /// The seq of the first event that contexts show. Turns before it are left out whole.
    pub first: u64,
    /// The results and calls behind `first` that contexts show shortened, in the order of the log: those of earlier cuts, too.
    pub stubs: Vec<Stub>,
    /// How many turns this cut left out, beyond earlier ones.
    pub turns: u32,
    /// How many results this cut shortened, or shortened further.
    pub results: u32,
    /// How many calls this cut shows with shortened arguments, or with arguments that are shortened further.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u32,
    /// How many steps this cut left out, of its own turn and of earlier ones that are still shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps: u32,
    /// How many of them belong to earlier turns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended_steps: u32,
    /// Steps of turns behind `first` that are left out, one entry for each turn, in the order of the log: by earlier cuts, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutSteps>,
    /// Estimated tokens of history and open turn before the cut, corrected by `factor`.
    pub before: u64,
    /// Estimated tokens of them after it.
    pub after: u64,
    /// The reducers that did something, in order.
    pub reducers: Vec<Text>,
    /// What corrects estimates from this cut to the next one, so that the front of contexts moves with cuts only.
    #[serde(default, skip_serializing_if = "Factor::is_one")]
    pub factor: Factor,
    /// The version of the summary that stands before the first event, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<u32>,
    /// Why the cut was made, if not because the context was estimated to be too large.
    #[serde(default, skip_serializing_if = "CutCause::is_estimate")]
    pub cause: CutCause,
}

/// Why a cut was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CutCause {
    /// By estimate, the context did not fit.
    #[default]
    Estimate,
    /// The provider said that the request was too long.
    Refused,
}

impl CutCause {
    fn is_estimate(&self) -> bool {
        *self == Self::Estimate
    }
}

/// What the tokens of a model come to for one estimated token, in thousandths: between a half and two. Learned from what the
/// provider counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Factor(u32);

impl Factor {
    /// Estimates are right as they are.
    pub const ONE: Self = Self(1000);
    /// The largest one: what is small enough with it is small enough, whatever the factor is.
    pub(crate) const LARGEST: Self = Self(2000);
    /// What is added to an estimate, in percent: a call is sent only if it fits with that, too.
    pub const MARGIN: u64 = 10;

    /// From thousandths; what is beyond a half and two is cut to that.
    pub fn thousandths(value: u64) -> Self {
        Self(u32::try_from(value.clamp(500, 2000)).unwrap_or(1000))
    }

    /// In thousandths.
    pub fn as_thousandths(self) -> u32 {
        self.0
    }

    fn is_one(&self) -> bool {
        *self == Self::ONE
    }

    /// The tokens that so many estimated ones come to.
    pub fn apply(self, estimated: u64) -> u64 {
        estimated.saturating_mul(u64::from(self.0)).div_ceil(1000)
    }

    /// The tokens that so many estimated ones come to at most: with [`MARGIN`](Self::MARGIN).
    pub fn with_margin(self, estimated: u64) -> u64 {
        self.apply(estimated).saturating_mul(100 + Self::MARGIN).div_ceil(100)
    }

    /// How many estimated tokens may be shown where so many fit, margin counted.
    pub(crate) fn room(self, tokens: u64) -> u64 {
        tokens.saturating_mul(100_000) / (u64::from(self.0) * (100 + Self::MARGIN))
    }
}

impl Default for Factor {
    fn default() -> Self {
        Self::ONE
    }
}

impl std::fmt::Display for Factor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

impl Cut {
    /// What it did, for people: `4 turns left out, 2 results shortened: 31200 tokens became 15800 (tool_results, window)`.
    pub fn summary(&self) -> String {
        let count = |number: u32, what: &str, done: &str| {
            (number > 0).then(|| format!("{number} {what}{} {done}", if number == 1 { "" } else { "s" }))
        };
        let parts = [
            count(self.turns, "turn", "left out"),
            count(self.ended_steps, "step", "of earlier turns left out"),
            count(self.steps.saturating_sub(self.ended_steps), "step", "of the open turn left out"),
            count(self.results, "result", "shortened"),
            count(self.calls, "call", "shortened"),
        ];
        let summary = self.summary.map(|version| format!(", summary {version} shown")).unwrap_or_default();
        let mut what = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if what.is_empty() {
            what = format!("everything before event {} left out", self.first);
        }
        let by = if self.reducers.is_empty() { String::new() } else { format!(" ({})", self.reducers.join(", ")) };
        let factor = if self.factor.is_one() { String::new() } else { format!(", estimates × {}", self.factor) };
        let why = match self.cause {
            CutCause::Estimate => "",
            CutCause::Refused => "; the provider had said that the request was too long",
        };
        format!("{what}{summary}: {} tokens became {}{by}{factor}{why}", self.before, self.after)
    }
}

/// A result, or the arguments of a call, that contexts show shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stub {
    /// The seq of the event.
    pub seq: u64,
    /// Bytes of text that the result has in the log; of a call, the bytes of its arguments as JSON.
    pub bytes: u64,
    /// Pictures and files that it has in the log. A stub shows none of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attachments: u32,
    /// Bytes of text that are shown from its beginning; of a call, from the beginning of each string in its arguments.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub head: u32,
    /// Bytes of text that are shown from its end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tail: u32,
    /// How the model can get at what is missing.
    pub recovery: Recovery,
}

/// How a model gets a result back that was shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// The tool can be called again without harm.
    CallAgain,
    /// The tool changes something, so calling it again is no way to read its result.
    AskUser,
}

fn is_zero(bytes: &u32) -> bool {
    *bytes == 0
}

impl Stub {
    /// The smallest `head` that is not 0. The quote of a stub lies within it, so that a result that is shortened in two steps
    /// reads like one that is shortened at once.
    pub(crate) const MIN_HEAD: u32 = 4 * QUOTED as u32;

    /// A stub of a result that shows nothing of it.
    pub(crate) fn of(seq: u64, content: &Content, recovery: Recovery) -> Self {
        let bytes = content.parts().iter().filter_map(Part::as_text).map(|text| text.len() as u64).sum();
        let attachments = content.parts().iter().filter(|part| part.as_text().is_none()).count();
        let attachments = u32::try_from(attachments).unwrap_or(u32::MAX);
        Self { seq, bytes, attachments, head: 0, tail: 0, recovery }
    }

    /// What stands in the place of `content`, the result of `tool`, or what an earlier stub with a larger head and tail made of
    /// it.
    pub(crate) fn content(&self, tool: &str, content: &Content) -> Content {
        let text = content.text();
        let attached = match self.attachments {
            0 => String::new(),
            1 => " and an attachment".to_owned(),
            more => format!(" and {more} attachments"),
        };
        let back = match self.recovery {
            Recovery::CallAgain => format!("Call {tool} again with the same arguments to get it back."),
            Recovery::AskUser => format!("{tool} may change something, so ask the user before you call it again."),
        };
        let size = self.bytes;
        if self.head == 0 && self.tail == 0 {
            let line: String = text.lines().next().unwrap_or_default().chars().take(QUOTED).collect();
            let line = line.trim();
            let quoted = if line.is_empty() { String::new() } else { format!(", which began {line:?}") };
            let text = format!("[left out to save room: a result of {size} bytes{attached}{quoted}. {back}]");
            return Part::text(text).into();
        }
        let head = &text[..text.floor_char_boundary((self.head as usize).min(text.len()))];
        let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(self.tail as usize)).max(head.len())..];
        let missing = size.saturating_sub((head.len() + tail.len()) as u64);
        let text = format!(
            "{head}\n[left out to save room: {missing} of {size} bytes{attached}. {}]\n{tail}",
            match self.recovery {
                Recovery::CallAgain => format!("Ask {tool} for a smaller part to read them."),
                Recovery::AskUser => back,
            }
        );
        Part::text(text).into()
    }

    /// A stub of the arguments of a call that shows so many bytes of each string.
    pub(crate) fn of_call(seq: u64, arguments: &Value, head: u32) -> Self {
        let bytes = arguments.to_string().len() as u64;
        Self { seq, bytes, attachments: 0, head, tail: 0, recovery: Recovery::AskUser }
    }

    /// What stands in the place of arguments, or of what an earlier stub with a larger head made of them. It has the same fields,
    /// so it is still an object: providers take nothing else.
    fn arguments(&self, value: &Value) -> Value {
        let note = || format!("… [left out to save room; the arguments of this call had {} bytes]", self.bytes);
        match value {
            Value::String(text) if text.len() > self.head as usize => {
                Value::String(format!("{}{}", &text[..text.floor_char_boundary(self.head as usize)], note()))
            }
            Value::Array(items) => {
                let mut shown: Vec<Value> = items.iter().take(MAX_ITEMS).map(|item| self.arguments(item)).collect();
                if items.len() > MAX_ITEMS {
                    shown.push(Value::String(note()));
                }
                Value::Array(shown)
            }
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(name, field)| (name.clone(), self.arguments(field))).collect())
            }
            other => other.clone(),
        }
    }

    /// The event with the stub in the place of its content, or of its arguments.
    pub(crate) fn shorten(&self, event: &Event, tool: &str) -> Option<Arc<Event>> {
        let kind = match &event.kind {
            EventKind::ToolResult { call, ok, content } => {
                EventKind::ToolResult { call: call.clone(), ok: *ok, content: self.content(tool, content) }
            }
            EventKind::ToolCall { call, name, arguments, executor } => EventKind::ToolCall {
                call: call.clone(),
                name: name.clone(),
                arguments: self.arguments(&arguments.value()).into(),
                executor: *executor,
            },
            _ => return None,
        };
        Some(Arc::new(Event { seq: event.seq, turn: event.turn.clone(), at: event.at, kind }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_says_what_was_there_how_big_it_was_and_how_to_get_it_back() {
        let content = Content::from(format!("fn main() {{\n{}", "x".repeat(988)));
        let stub = Stub::of(1, &content, Recovery::CallAgain);
        assert_eq!(
            stub.content("read_file", &content).text(),
            "[left out to save room: a result of 1000 bytes, which began \"fn main() {\". Call read_file again with the \
             same arguments to get it back.]"
        );
    }

    #[test]
    fn arguments_keep_their_fields_and_are_the_same_in_one_step_and_in_two() {
        let many: Vec<u32> = (0..500).collect();
        let arguments = serde_json::json!({
            "path": "a.txt", "content": "é".repeat(5_000), "all": true, "edits": [{"old": "x".repeat(900), "new": ""}], "many": many,
        });
        let small = Stub::of_call(1, &arguments, 161);
        let large = Stub { head: 700, ..small };
        let shown = small.arguments(&arguments);
        assert_eq!(shown, small.arguments(&large.arguments(&arguments)));
        assert_eq!(shown, small.arguments(&shown));
        assert_eq!(
            (&shown["path"], &shown["all"], &shown["edits"][0]["new"]),
            (&"a.txt".into(), &true.into(), &"".into())
        );
        assert_eq!(shown["many"].as_array().map(Vec::len), Some(MAX_ITEMS + 1));
        let content = shown["content"].as_str().unwrap();
        assert!(content.starts_with("éé") && content.contains(&small.bytes.to_string()), "{content}");
    }

    #[test]
    fn both_ends_stay_and_no_character_is_cut_in_two() {
        let content = Content::from("ééééééé");
        let stub = Stub { head: 5, tail: 5, ..Stub::of(1, &content, Recovery::AskUser) };
        let text = stub.content("shell", &content).text();
        assert!(text.starts_with("éé\n[") && text.ends_with("]\néé"), "{text}");
        assert!(text.contains("6 of 14 bytes") && text.contains("ask the user"), "{text}");
    }

    #[test]
    fn a_result_that_is_shortened_in_steps_reads_like_one_that_is_shortened_at_once() {
        let content = Content::from(format!("  {}\nend", "é".repeat(5_000)));
        let whole = Stub::of(1, &content, Recovery::CallAgain);
        let large = Stub { head: 2_000, tail: 900, ..whole };
        let small = Stub { head: Stub::MIN_HEAD, tail: 100, ..whole };
        let shortened = large.content("t", &content);
        for stub in [small, whole] {
            assert_eq!(stub.content("t", &shortened), stub.content("t", &content));
        }
    }
}
