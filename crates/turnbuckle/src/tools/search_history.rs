//! `search_history`: finds text of this conversation that contexts do not show any more.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::cut::steps::SEARCH_HISTORY;
use crate::cut::{Cut, LeftOutSteps};
use crate::event::{Event, EventKind};
use crate::hook::Fence;
use crate::id::{CallId, TurnId};
use crate::message::{Text, ToolCall};
use crate::store::StoreError;
use crate::tool::{Effect, Output, Retention, Spec, Tool};
use crate::turn::Turn;
use crate::{BoxError, BoxFuture};

/// How many events are read at a time.
const PAGE: u64 = 500;
/// How many events are looked at, the newest first. More would keep a turn waiting.
const MAX_EVENTS: u64 = 20_000;
/// How many places are shown, if the call does not say.
const DEFAULT_PLACES: usize = 5;
/// How many places are shown at most.
const MAX_PLACES: usize = 20;
/// How many characters are shown before a place, and from there on.
const AROUND: (usize, usize) = (120, 280);
/// What every answer of this tool begins with. It is not found again.
const MARK: &str = "[earlier in this conversation]";

/// Finds text of this conversation that contexts do not show any more: messages, replies, calls and results that were left out,
/// summarised or shortened. The log has them as hooks let them through, so what was redacted is not found.
///
/// What is found is fenced, and at most about eight kilobytes. An agent has this tool only if it is given to it:
///
/// ```
/// use turnbuckle::tools::SearchHistory;
/// use turnbuckle::{Agent, models::Script};
/// let agent = Agent::builder("a", Script::says(["hi"])).tool(SearchHistory::default()).build()?;
/// assert_eq!(&*agent.tools()[0].name, SearchHistory::NAME);
/// # Ok::<(), turnbuckle::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SearchHistory {
    spec: Spec,
}

impl SearchHistory {
    /// The tool's name.
    pub const NAME: &'static str = SEARCH_HISTORY;
}

impl Default for SearchHistory {
    fn default() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "query": { "type": "string", "minLength": 1, "maxLength": 200,
                           "description": "A phrase, or words that stand in the same message. Upper and lower case are the same." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MAX_PLACES,
                           "description": "How many places to show; 5 if it is not given." },
            },
            "required": ["query"],
            "additionalProperties": false,
        });
        let about = "Finds text of this conversation that is not shown above any more: messages, replies, calls and results that \
                     were left out, summarised or shortened to save room. The newest places come first.";
        let mut spec = Spec::server(Self::NAME, about, schema, Effect::Pure);
        spec.retention = Retention::Turns(1);
        Self { spec }
    }
}

impl Tool for SearchHistory {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move {
            let query = call.arguments.get("query").and_then(Value::as_str).unwrap_or_default();
            let most =
                call.arguments.get("limit").and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok());
            let most = most.unwrap_or(DEFAULT_PLACES).clamp(1, MAX_PLACES);
            let Some(wanted) = Wanted::of(query) else { return Ok(Output::error("the query has no words")) };
            let Some(cut) = turn.ctx.store().cuts(turn.conversation()).await?.pop() else {
                return Ok(Output::ok(format!("{MARK} Nothing was left out so far: all of it is above.")));
            };
            Ok(Output::ok(search(turn, &cut, &wanted, most).await?))
        })
    }
}

/// What is looked for, in lower case.
struct Wanted {
    phrase: String,
    words: Vec<String>,
}

impl Wanted {
    fn of(query: &str) -> Option<Self> {
        let phrase = query.trim().to_lowercase();
        let words: Vec<String> = phrase.split_whitespace().map(str::to_owned).collect();
        (!words.is_empty()).then_some(Self { phrase, words })
    }

    /// The text around the phrase, or around the first of the words if all of them are there.
    fn excerpt(&self, text: &str) -> Option<String> {
        let lower = text.to_lowercase();
        let place = lower.find(&self.phrase).or_else(|| {
            let places: Option<Vec<usize>> = self.words.iter().map(|word| lower.find(word)).collect();
            places?.into_iter().min()
        })?;
        // Lower case may have other lengths, so this is about the place.
        let before = lower[..place].chars().count();
        let begin = before.saturating_sub(AROUND.0);
        let shown: String = text.chars().skip(begin).take(before - begin + AROUND.1).collect();
        let (head, tail) = (
            if begin > 0 { "…" } else { "" },
            if begin + shown.chars().count() < text.chars().count() { "…" } else { "" },
        );
        Some(format!("{head}{}{tail}", shown.trim()))
    }
}

async fn search(turn: &Turn, cut: &Cut, wanted: &Wanted, most: usize) -> Result<String, StoreError> {
    let stubs: HashSet<u64> = cut.stubs.iter().map(|stub| stub.seq).collect();
    let steps = cut.left_out.iter().map(LeftOutSteps::last).max().unwrap_or(0);
    let last = stubs.iter().copied().max().unwrap_or(0).max(cut.first.saturating_sub(1)).max(steps);
    let oldest = last.saturating_sub(MAX_EVENTS) + 1;
    let (mut found, mut out): (Vec<String>, HashSet<TurnId>) = (Vec::new(), HashSet::new());
    let mut end = last;
    while end >= oldest && found.len() < most {
        let begin = end.saturating_sub(PAGE - 1).max(oldest);
        let limit = usize::try_from(end - begin + 1).unwrap_or(usize::MAX);
        let page = turn.ctx.store().log(turn.conversation(), begin, limit).await?;
        let tools: HashMap<&CallId, &Text> = page.iter().filter_map(|event| call_of(event)).collect();
        for event in page.iter().rev() {
            // What halted and rejected turns said was in no context. Their end comes first here.
            if matches!(&event.kind, EventKind::TurnEnded(ended) if !ended.outcome.joins_history()) {
                out.insert(event.turn.clone());
            }
            let in_steps = || cut.left_out.iter().any(|steps| steps.covers(event));
            let has_left = event.seq < cut.first || stubs.contains(&event.seq) || in_steps();
            if !has_left || out.contains(&event.turn) || found.len() >= most {
                continue;
            }
            let Some((who, text)) = said(event, &tools) else { continue };
            found.extend(wanted.excerpt(&text).map(|excerpt| format!("event {}, {who}: {excerpt}", event.seq)));
        }
        if begin <= 1 {
            break;
        }
        end = begin - 1;
    }
    Ok(shown(&found, most, oldest))
}

fn call_of(event: &Arc<Event>) -> Option<(&CallId, &Text)> {
    match &event.kind {
        EventKind::ToolCall { call, name, .. } => Some((call, name)),
        _ => None,
    }
}

/// Who said it, and what. What this tool was asked and what it answered is left out.
fn said(event: &Event, tools: &HashMap<&CallId, &Text>) -> Option<(String, String)> {
    Some(match &event.kind {
        EventKind::UserMessage { content, .. } => ("the user".to_owned(), content.text()),
        EventKind::AssistantMessage { content, .. } => ("you".to_owned(), content.text()),
        EventKind::ToolCall { name, .. } if **name == *SearchHistory::NAME => return None,
        EventKind::ToolCall { name, arguments, .. } => (format!("your call of {name}"), arguments.to_string()),
        EventKind::ToolResult { call, content, .. } => {
            let text = content.text();
            if text.starts_with(MARK) {
                return None;
            }
            (tools.get(call).map_or_else(|| "a result".to_owned(), |name| format!("a result of {name}")), text)
        }
        EventKind::Injection { hook, content, .. } => (format!("a note by {hook}"), content.text()),
        _ => return None,
    })
}

fn shown(found: &[String], most: usize, oldest: u64) -> String {
    let mut text = match found.len() {
        0 => format!("{MARK} Nothing was found."),
        1 => format!("{MARK} One place, as it was then:"),
        count => format!("{MARK} {count} places, the newest first, as they were then:"),
    };
    if !found.is_empty() {
        let fenced = Fence::new("earlier in this conversation").wrap(&found.join("\n"));
        let _ = write!(text, "\n{}", fenced.as_text().unwrap_or_default());
    }
    if found.len() >= most {
        text.push_str("\nThere may be more: ask with other words, or with a larger limit.");
    } else if oldest > 1 {
        let _ = write!(text, "\nEvents before {oldest} were not looked at.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_or_all_its_words_are_found_whatever_their_case() {
        let wanted = Wanted::of("  Grey HERON ").unwrap();
        assert_eq!(wanted.excerpt("the grey heron"), Some("the grey heron".to_owned()));
        assert_eq!(wanted.excerpt("a heron, which was grey"), Some("a heron, which was grey".to_owned()));
        assert_eq!(wanted.excerpt("a heron"), None);
        assert!(Wanted::of(" \t").is_none());
    }

    #[test]
    fn an_excerpt_is_bounded_and_cuts_no_character() {
        let text = format!("{}İstanbul heron{}", "é".repeat(3_000), "ß".repeat(3_000));
        let excerpt = Wanted::of("heron").unwrap().excerpt(&text).unwrap();
        assert!(excerpt.contains("heron") && excerpt.chars().count() <= AROUND.0 + AROUND.1 + 2, "{excerpt}");
        assert!(excerpt.starts_with('…') && excerpt.ends_with('…'));
    }
}
