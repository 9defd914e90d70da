//! A log as a person would tell it, so that two runs can be compared: no ids of turns, no times, results with their calls.

use std::fmt;
use std::sync::Arc;

use super::caller::{is_again, unnumbered};
use crate::event::{Event, EventKind, Question};
use crate::id::CallId;
use crate::message::Text;

/// What happened in a conversation, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transcript(Vec<Line>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    what: What,
    text: String,
}

/// What a line is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// What a model says, or what was said to it meanwhile.
    Said,
    /// The result of a call.
    Result(CallId),
    /// Anything about a call but its result.
    Call,
}

impl Transcript {
    /// Injections of `on_conversation` hooks are left out: a revival is one more occasion to make them.
    pub(super) fn of(log: &[Arc<Event>], meets: &dyn Fn(&Text) -> bool) -> Self {
        let mut lines = Vec::new();
        for (place, event) in log.iter().enumerate() {
            match &event.kind {
                EventKind::ToolCall { call, name, arguments, .. } => {
                    lines.push(Line { what: What::Call, text: format!("call       {call} {name}({arguments})") });
                    let later = log[place..].iter().filter_map(|event| about(call, &event.kind, log));
                    lines.extend(later);
                }
                EventKind::Injection { hook, .. } if meets(hook) => {}
                kind if is_of_a_tool_call(kind, log) => {}
                kind => lines.extend(said(kind).map(|text| Line { what: What::Said, text })),
            }
        }
        Self(lines)
    }
}

/// How two transcripts compare.
pub(super) enum Compared {
    Same,
    /// A result differs as its tool's policy allows; what the model said after it may differ, too.
    Departed,
    /// From this line on.
    Different(usize),
}

impl Transcript {
    /// `excused` says of a call whether its result may differ.
    pub(super) fn compare(&self, seen: &Self, excused: &dyn Fn(&CallId) -> bool) -> Compared {
        let (mut departed, mut read) = (false, false);
        for place in 0..self.0.len().max(seen.0.len()) {
            let (was, is) = (self.0.get(place), seen.0.get(place));
            // A model that speaks has read all results before.
            read |= departed && [was, is].into_iter().any(|line| line.is_none_or(|line| line.what == What::Said));
            if was == is {
                continue;
            }
            match (was.map(|line| &line.what), is.map(|line| &line.what)) {
                (Some(What::Result(was)), Some(What::Result(is))) if was == is && excused(is) => departed = true,
                _ if read => break,
                _ => return Compared::Different(place),
            }
        }
        if departed { Compared::Departed } else { Compared::Same }
    }

    pub(super) fn line(&self, place: usize) -> &str {
        self.0.get(place).map_or("nothing", |line| &line.text)
    }
}

/// Whether it stands with its call.
fn is_of_a_tool_call(kind: &EventKind, log: &[Arc<Event>]) -> bool {
    let of = match kind {
        EventKind::ToolStarted { call, .. }
        | EventKind::ToolResult { call, .. }
        | EventKind::Suspension { call, .. }
        | EventKind::Resolution { call, .. } => call,
        _ => return false,
    };
    log.iter().any(|event| matches!(&event.kind, EventKind::ToolCall { call, .. } if call == of))
}

/// What an event says about a tool call. What only a crash asks is left out.
fn about(of: &CallId, kind: &EventKind, log: &[Arc<Event>]) -> Option<Line> {
    let (what, text) = match kind {
        EventKind::ToolResult { call, ok, content } if call == of => {
            let error = if *ok { "" } else { "error: " };
            (What::Result(call.clone()), format!("result     {call} {error}{}", content.text()))
        }
        EventKind::Suspension { call, question, .. } if call == of && !is_again(question) => {
            (What::Call, format!("asked      {call} {}", kind_of(question)))
        }
        EventKind::Resolution { call, decision, .. } if call == of => {
            let is_this = |event: &&Arc<Event>| std::ptr::eq(&event.kind, kind);
            let place = log.iter().position(|event| is_this(&event))?;
            let asked = log[..place].iter().rev().find_map(|event| match &event.kind {
                EventKind::Suspension { call, question, .. } if call == of => Some(&**question),
                _ => None,
            });
            if asked.is_some_and(is_again) {
                return None;
            }
            (What::Call, format!("answered   {call} {decision:?}").to_lowercase())
        }
        _ => return None,
    };
    Some(Line { what, text })
}

fn kind_of(question: &Question) -> &'static str {
    match question {
        Question::Approval { .. } => "for approval",
        Question::Elicitation { .. } => "of a person",
        Question::ClientExec { .. } => "of a client",
        Question::Pause { .. } => "to look",
    }
}

fn said(kind: &EventKind) -> Option<String> {
    Some(match kind {
        EventKind::UserMessage { content, .. } => format!("user       {}", content.text()),
        EventKind::Injection { hook, content, .. } => format!("injection  {hook}: {}", content.text()),
        EventKind::AssistantMessage { content, .. } => format!("assistant  {}", content.text()),
        EventKind::StopFeedback { refusals } => {
            let each: Vec<String> = refusals.iter().map(|no| format!("{}: {}", no.hook, no.feedback)).collect();
            format!("refused    {}", each.join("; "))
        }
        EventKind::Suspension { call, question, .. } => {
            format!("asked      {} {}", unnumbered(call), kind_of(question))
        }
        EventKind::Resolution { call, decision, .. } => {
            format!("answered   {} {decision:?}", unnumbered(call)).to_lowercase()
        }
        EventKind::TurnEnded(ended) => {
            let reason = ended.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let result = ended.result().map(|result| format!(", shown {result}")).unwrap_or_default();
            let warnings: String =
                ended.warnings().iter().map(|warning| format!(", warned: {}", warning.text)).collect();
            format!("end        {}{reason}{result}{warnings}", ended.outcome)
        }
        _ => return None,
    })
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "    {}", line.text))
    }
}
