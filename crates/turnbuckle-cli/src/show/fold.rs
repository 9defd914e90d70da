//! Events into lines. Pure: the same events give the same lines, on a terminal, in a pipe and in the demo.

use std::collections::HashMap;

use serde_json::Value;
use turnbuckle::event::{Cause, Event, EventKind, Evidence, TurnEnded};
use turnbuckle::feed::{ConversationState, FeedEvent, FeedItem, Level, LiveEvent};
use turnbuckle::hook::{Decision, Point};
use turnbuckle::message::Text;
use turnbuckle::{CallId, Outcome};

use super::safe;
use super::words::{asked, brief, called, count, failure, few_lines, recalled, result};
use super::{Line, Shown, Tone};

/// What must be remembered between events.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    tools: usize,
    /// The seq of the event that ended the last turn.
    ended: u64,
    /// In the context of the next model call, as far as the log tells.
    messages: usize,
    /// By call: its tool, and the call as it is shown with its result.
    calls: HashMap<CallId, (Text, String)>,
    /// Hooks that said what they are doing: that they run needs no line of its own.
    heard: Vec<Text>,
    /// A reply that turns out not to be the last when something follows it.
    said: Option<String>,
    /// Why hooks refused the stop that is being judged. Shown with the feedback or, if they are overruled, with the warning.
    refused: HashMap<Text, Text>,
}

impl Fold {
    /// Of an agent with so many tools.
    pub(crate) fn new(tools: usize) -> Self {
        Self { tools, ..Self::default() }
    }

    /// What happened before: later lines speak of it, and it is not shown.
    pub(crate) fn knows(&mut self, event: &Event) {
        let _shown_before = self.event(event);
        self.said = None;
    }

    /// How many messages contexts have by now: an earlier process may have cut some of what [happened](Self::knows).
    pub(crate) fn has_messages(&mut self, messages: usize) {
        self.messages = messages;
    }

    /// What there is to show.
    pub(crate) fn told(&mut self, told: &FeedEvent) -> Vec<Shown> {
        match &told.item {
            FeedItem::Log(event) => self.event(event),
            FeedItem::Live(live) => self.live(live),
        }
    }

    fn event(&mut self, event: &Event) -> Vec<Shown> {
        if matches!(event.kind, EventKind::TurnEnded(_)) {
            self.ended = event.seq;
        }
        match &event.kind {
            EventKind::UserMessage { content, .. } => {
                self.messages += 1;
                one("accept", Tone::Plain, brief(&content.text()))
            }
            EventKind::Injection { hook, content, .. } => {
                one("inject", Tone::Hook, format!("{hook}: {}", brief(&content.text())))
            }
            EventKind::AssistantMessage { content, .. } => {
                self.messages += 1;
                self.said = Some(content.text()).filter(|text| !text.trim().is_empty());
                vec![Shown::EndOfText]
            }
            EventKind::ToolCall { call, name, arguments, .. } => {
                self.calls.insert(call.clone(), (name.clone(), recalled(name, &arguments.value())));
                self.after_words([line("call", Tone::Tool, format!("→ {}", called(name, &arguments.value())))])
            }
            EventKind::ToolStarted { call, arguments, approvals, .. } => {
                // A hook or an approver may have put other arguments in the place of the model's.
                if let Some((tool, shown)) = self.calls.get_mut(call) {
                    *shown = recalled(tool, &arguments.value());
                }
                let by_rule = |rule| format!("{}: allowed by the rule {}", safe::name(call.as_str()), safe::name(rule));
                let rule = approvals.as_ref().and_then(|approvals| approvals.rule.as_deref());
                rule.map_or_else(Vec::new, |rule| one("resolve", Tone::Hook, by_rule(rule)))
            }
            EventKind::ToolResult { call, ok, content } => {
                self.messages += 1;
                let (text, called) = (content.text(), self.call(call));
                match *ok {
                    true => one("dispatch", Tone::Tool, format!("{called} = {}", result(&text))),
                    false => one("dispatch", Tone::Bad, format!("{called} ! {}", failure(&text))),
                }
            }
            EventKind::Suspension { call, question, .. } => self.after_words([line(
                "wait",
                Tone::Hook,
                format!("{}: {}", safe::name(call.as_str()), asked(question)),
            )]),
            EventKind::Resolution { call, decision, by, evidence, .. } => {
                let (call, word) = (safe::name(call.as_str()), format!("{decision:?}").to_lowercase());
                one("resolve", Tone::Hook, format!("{call}: {word} by {by}{}", how(evidence)))
            }
            EventKind::StopFeedback { refusals } => {
                self.messages += 1;
                self.refused.clear();
                let refused = |refusal: &turnbuckle::event::Refusal| {
                    line("refuse", Tone::Refusal, format!("{}: {}", refusal.hook, few_lines(&refusal.feedback)))
                };
                self.after_words(refusals.iter().map(refused))
            }
            EventKind::TurnEnded(ended) => self.ended(ended),
            _ => Vec::new(),
        }
    }

    /// What was said before these lines was not the last word.
    fn after_words(&mut self, lines: impl IntoIterator<Item = Shown>) -> Vec<Shown> {
        self.said.take().map(Shown::Message).into_iter().chain(lines).collect()
    }

    fn call(&self, call: &CallId) -> String {
        self.calls.get(call).map_or_else(|| safe::name(call.as_str()), |(_, shown)| shown.clone())
    }

    fn ended(&mut self, ended: &TurnEnded) -> Vec<Shown> {
        self.said = None;
        let tone = if ended.outcome == Outcome::Completed { Tone::Good } else { Tone::Bad };
        let by = ended.by().map(|by| format!(" by {by}")).unwrap_or_default();
        let reason = ended.reason().map(|reason| format!(": {}", few_lines(reason))).unwrap_or_default();
        let calls = count(ended.model_calls as usize, "model call");
        let tokens = match ended.usage.total() {
            0 => String::new(),
            tokens => format!(", {tokens} tokens"),
        };
        let cost = if ended.cost > 0.0 { format!(", ${:.4}", ended.cost) } else { String::new() };
        let seconds = std::time::Duration::from_millis(ended.ms).as_secs_f64();
        let end = format!("{}{by}{reason} ({calls}{tokens}{cost}, {seconds:.1} s)", ended.outcome);
        let refused = std::mem::take(&mut self.refused);
        let warned = |warning: &turnbuckle::event::Warning| {
            let hook = warning.hook.as_ref().map(|hook| format!("{hook}: ")).unwrap_or_default();
            let feedback = match &warning.cause {
                Some(Cause::Overruled { hook }) => refused.get(hook),
                _ => None,
            };
            let feedback = feedback.map(|text| format!("; it refused with: {}", brief(text))).unwrap_or_default();
            line("warning", Tone::Hook, format!("{hook}{}{feedback}", few_lines(&warning.text)))
        };
        ended.warnings().iter().map(warned).chain([line("end", tone, end)]).collect()
    }

    fn live(&mut self, live: &LiveEvent) -> Vec<Shown> {
        match live {
            LiveEvent::StateChanged { state: ConversationState::Build } => {
                let text = format!("{}, {}", count(self.messages, "message"), count(self.tools, "tool"));
                one("build", Tone::Dim, text)
            }
            LiveEvent::Compacted {
                first,
                turns,
                results,
                calls,
                steps,
                left_out,
                before,
                after,
                messages,
                summary,
                ..
            } => {
                self.messages = usize::try_from(*messages).unwrap_or(usize::MAX);
                let is_of_this_turn = left_out.iter().all(|steps| steps.first() > self.ended);
                let whose = if is_of_this_turn { " of this turn" } else { "" };
                let some = |number: u32, what: &str| (number > 0).then(|| count(number as usize, what));
                let gone = [some(*turns, "turn"), some(*steps, "step").map(|steps| steps + whose)];
                let smaller = [some(*results, "result"), some(*calls, "call")];
                let done = |what: [Option<String>; 2], how: &str| {
                    let what: Vec<String> = what.into_iter().flatten().collect();
                    if what.is_empty() { String::new() } else { format!("{} {how}, ", what.join(" and ")) }
                };
                let summary = summary.map(|version| format!("summary {version} is shown, ")).unwrap_or_default();
                let mut named = done(gone, "left out") + &done(smaller, "shortened") + &summary;
                if named.is_empty() {
                    named = format!("everything before event {first} left out, ");
                }
                let text = format!(
                    "the context was too large: {named}{before} tokens became {after}; {} {} left",
                    count(self.messages, "message"),
                    if self.messages == 1 { "is" } else { "are" },
                );
                one("compact", Tone::Hook, text)
            }
            LiveEvent::TextDelta { text, .. } => vec![Shown::Text(text.to_string())],
            LiveEvent::ThinkingDelta { text, .. } => vec![Shown::Thinking(text.to_string())],
            LiveEvent::AttemptDiscarded { attempt, by, reason, replaced } => {
                let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                let reason = reason.as_ref().map(|reason| format!(": {}", few_lines(reason))).unwrap_or_default();
                let what = if *replaced { "replaced" } else { "taken back" };
                let text = format!("attempt {attempt} is {what}{by}{reason}");
                vec![Shown::EndOfText, line("discard", Tone::Refusal, text)]
            }
            LiveEvent::ToolProgress { call, payload } => self.progress(call, payload),
            // A background hook has events of its own, which are shown instead; what `on_logged` fails at is a notice.
            LiveEvent::HookStarted { point: Point::Background | Point::OnLogged, .. }
            | LiveEvent::HookFinished { point: Point::Background | Point::OnLogged, .. } => Vec::new(),
            LiveEvent::HookStarted { hook, .. } if self.heard.contains(hook) => Vec::new(),
            LiveEvent::HookStarted { hook, point } => one("hook", Tone::Dim, format!("{hook} runs at {point}")),
            LiveEvent::HookProgress { hook, text } => {
                self.heard.push(hook.clone());
                one("hook", Tone::Hook, format!("{hook}: {}", brief(text)))
            }
            LiveEvent::HookFinished { hook, decision, reason, ms, error, point, .. } => {
                self.heard.retain(|heard| heard != hook);
                // A stop that is refused shows that the reply before it was not the last: it stands above the refusal.
                let refused = *decision == Decision::Refuse && *point == Point::OnStop;
                let said = if refused { self.said.take() } else { None };
                let (tone, why) = match (error, reason) {
                    (Some(error), _) => (Tone::Bad, format!(": {}", few_lines(error))),
                    // The feedback follows in full.
                    (None, Some(reason)) if *decision == Decision::Refuse => {
                        self.refused.insert(hook.clone(), reason.clone());
                        (Tone::Hook, String::new())
                    }
                    (None, Some(reason)) => (Tone::Hook, format!(": {}", brief(reason))),
                    (None, None) => (Tone::Hook, String::new()),
                };
                let finished = line("hook", tone, format!("{hook}: {decision}{why} ({point}, {ms:.0} ms)"));
                said.map(Shown::Message).into_iter().chain([finished]).collect()
            }
            LiveEvent::BackgroundStarted { hook } => one("after", Tone::Dim, format!("{hook} works in the background")),
            LiveEvent::BackgroundFinished { hook, error: None } => one("after", Tone::Dim, format!("{hook} is done")),
            LiveEvent::BackgroundFinished { hook, error: Some(error) } => {
                one("after", Tone::Bad, format!("{hook} failed: {}", few_lines(error)))
            }
            LiveEvent::Suggestion { text } => one("next", Tone::Dim, brief(text)),
            LiveEvent::Notice { level, text, hook } => {
                let hook = hook.as_ref().map(|hook| format!("{hook}: ")).unwrap_or_default();
                let tone = if *level == Level::Warning { Tone::Hook } else { Tone::Dim };
                one("notice", tone, format!("{hook}{}", few_lines(text)))
            }
            _ => Vec::new(),
        }
    }

    /// A string is a status line; a sub-agent tells its own events, of which its calls and refusals are shown.
    fn progress(&self, call: &CallId, payload: &Value) -> Vec<Shown> {
        let name = self.call(call);
        let name = name.split('(').next().unwrap_or_default();
        let text = match (payload, payload.get("type").and_then(Value::as_str)) {
            (Value::String(text), _) => format!("{name}: {}", brief(text)),
            (_, Some("tool_call")) => {
                let tool = payload.get("name").and_then(Value::as_str).unwrap_or_default();
                format!("{name} → {}", called(tool, payload.get("arguments").unwrap_or(&Value::Null)))
            }
            (_, Some("stop_feedback")) => format!("{name}: a stop was refused"),
            _ => return Vec::new(),
        };
        one("dispatch", Tone::Dim, text)
    }
}

/// What stands behind an answer, beside who gave it.
fn how(evidence: &Evidence) -> String {
    let Evidence { open, arguments, standing, via, .. } = evidence;
    let arguments =
        arguments.as_ref().map(|arguments| format!(", with other arguments: {}", brief(&arguments.to_string())));
    let standing = standing.as_ref().map(|id| format!(", as always (standing approval {id})"));
    let via = via.as_ref().map(|via| format!(", via {via}"));
    let open = open.then(|| ", and others must approve as well".to_owned());
    [arguments, standing, via, open].into_iter().flatten().collect()
}

fn line(label: &'static str, tone: Tone, text: String) -> Shown {
    Shown::Line(Line { label, tone, text })
}

fn one(label: &'static str, tone: Tone, text: String) -> Vec<Shown> {
    vec![line(label, tone, text)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compacted(turns: u32, summary: Option<u32>) -> String {
        let live = LiveEvent::Compacted {
            made_at: 40,
            first: 12,
            turns,
            results: 0,
            calls: 0,
            steps: 0,
            left_out: Vec::new(),
            before: 900,
            after: 300,
            messages: 7,
            reducers: vec!["window".into()],
            summary,
        };
        match Fold::new(0).live(&live).remove(0) {
            Shown::Line(line) => line.text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cut_names_the_summary_that_is_shown_and_always_what_went() {
        let told =
            |what: &str| format!("the context was too large: {what}, 900 tokens became 300; 7 messages are left");
        assert_eq!(compacted(2, Some(3)), told("2 turns left out, summary 3 is shown"));
        assert_eq!(compacted(0, Some(1)), told("summary 1 is shown"));
        assert_eq!(compacted(0, None), told("everything before event 12 left out"));
    }
}
