//! `turnbuckle pending`: the calls that wait for the acting user, over all conversations, the oldest first.

use std::io::{self, IsTerminal as _};

use serde_json::json;
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::conversation::PendingCall;
use turnbuckle::event::EventKind;
use turnbuckle::message::Text;
use turnbuckle::store::{Store as _, StoreError};
use wildmatch::WildMatch;

use crate::Stopped;
use crate::args::{Common, Pending};
use crate::chat::question;
use crate::exit::Exit;
use crate::inspect::{age, failed, print_all, unprintable};
use crate::output;
use crate::run::ResolveHints;
use crate::show::{Layout, Line, Palette, Tone, clean, json_line, pending as in_short, terminal_width};
use crate::without_agent::WithoutAgent;

/// Prints them, with the command that answers each.
pub(crate) async fn pending(args: Pending, common: &Common) -> Result<Exit, Stopped> {
    let (desk, now) = (WithoutAgent::read_only(common)?, SystemClock::default().now());
    let mut calls = desk.conversations.pending(desk.scope.clone()).await.map_err(failed)?;
    if let Some(glob) = &args.tool {
        calls = of_tools(&desk, calls, &WildMatch::new(glob)).await.map_err(failed)?;
    }
    calls.retain(|call| {
        args.agent.as_deref().is_none_or(|agent| agent == &*call.agent)
            && args.older.is_none_or(|older| now.since(call.asked) >= older)
    });
    if args.json {
        let lines: Result<String, _> = calls.iter().map(as_json).collect();
        return print_all(&lines.map_err(unprintable)?);
    }
    if calls.is_empty() && io::stderr().is_terminal() {
        output::say(&format!("nothing waits for {}", desk.scope.by()));
    }
    let (mut text, mut layout) =
        (String::new(), Layout::new(Palette::of(&io::stdout()), terminal_width(&io::stdout())));
    for call in &calls {
        let mut line = |label, tone, line: String| text += &layout.asked(&Line { label, tone, text: clean(&line) });
        let PendingCall { conversation, agent, requester, pending, asked, .. } = call;
        let asked = age(now.since(*asked));
        line(
            "pending",
            Tone::Hook,
            format!("{conversation}, agent {agent}, asked {asked} for {requester}: {}", in_short(pending)),
        );
        let lines = question::shown(pending);
        let is_whole = lines == question::in_full(pending);
        for shown in lines.into_iter().skip(1) {
            line("", Tone::Plain, shown.text);
        }
        let hints = ResolveHints::new(conversation.clone(), true, common, &desk.scope);
        let how = if is_whole { hints.record(pending) } else { hints.look_first(pending) };
        let how = clean(&format!("until {}; {how}", pending.expires));
        text += &layout.note(Tone::Plain, &how);
    }
    print_all(&text)
}

/// Those that are about a tool of such a name.
async fn of_tools(
    desk: &WithoutAgent,
    calls: Vec<PendingCall>,
    names: &WildMatch,
) -> Result<Vec<PendingCall>, StoreError> {
    let mut found = Vec::new();
    for call in calls {
        let is_of_tool = match call.pending.question.tool() {
            Some(tool) => names.matches(tool),
            None => called_tool(desk, &call).await?.is_some_and(|tool| names.matches(&tool)),
        };
        if is_of_tool {
            found.push(call);
        }
    }
    Ok(found)
}

/// The tool that asks a person: the question does not name it, and the log does. `None` if a hook asks, or about a reply.
async fn called_tool(desk: &WithoutAgent, waiting: &PendingCall) -> Result<Option<Text>, StoreError> {
    let (mut before, mut tokens) = (u64::MAX, 1_024);
    loop {
        let events = desk.store.tail(&waiting.conversation, before, tokens).await?;
        for event in events.iter().rev() {
            match &event.kind {
                EventKind::ToolCall { call, name, .. } if *call == waiting.pending.call => {
                    return Ok(Some(name.clone()));
                }
                // What waits is of the turn that is open.
                EventKind::TurnEnded(_) => return Ok(None),
                _ => {}
            }
        }
        let Some(first) = events.first() else { return Ok(None) };
        (before, tokens) = (first.seq, tokens.saturating_mul(4));
    }
}

/// The question as its `suspension` has it, and whose it is.
fn as_json(call: &PendingCall) -> serde_json::Result<String> {
    let PendingCall { conversation, agent, requester, asked, pending, .. } = call;
    let mut line = serde_json::to_value(&pending.question)?;
    let more = json!({
        "conversation": conversation, "call": pending.call, "agent": agent, "requester": requester, "asked": asked,
        "expires": pending.expires, "answer_by": pending.rule, "approvals": pending.approvals,
    });
    if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
        line.extend(more.clone());
    }
    json_line(&line)
}
