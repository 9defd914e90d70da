//! `turnbuckle why`: what the model was sent, what had been left out, by what, where the provider's cache broke, and what it cost.

pub(super) mod data;
mod find;
mod html;
pub(super) mod json;
mod search;

use std::fmt::Write as _;

use turnbuckle::Outcome;
use turnbuckle::TurnId;
use turnbuckle::context::Segment;
use turnbuckle::hook::{Decision, Point};
use turnbuckle::message::Usage;
use turnbuckle::store::{Cut, LeftOutSteps, Store as _, Stub};

use self::data::{Call, Conversation, Wanted};
use super::{check_readable, failed, parse_id, print_all};
use crate::Stopped;
use crate::args::{Common, Why};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::show::{clean, count};
use crate::without_agent::WithoutAgent;

/// How much of a message is quoted, in characters.
const QUOTED: usize = 60;

/// All turns, one, where a text was, or a picture.
pub(crate) async fn why(args: Why, common: &Common) -> Result<Exit, Stopped> {
    if args.find.as_deref() == Some("") {
        let problem = Problem::error("`--find` needs a text, and this one is empty: every call has it");
        return Err(Stopped::usage(problem));
    }
    let id = parse_id(&args.id, common)?;
    let desk = WithoutAgent::read_only(common)?;
    desk.name.tell_standing();
    check_readable(&desk, &id, common).await?;
    let wanted = Wanted { text: args.find.as_deref(), events: args.json, call: None };
    let conversation = Conversation::read(&desk, &id, wanted).await?;
    if let (Some(text), true) = (&args.find, args.json) {
        return print_all(&json::found(&conversation, text)?);
    }
    if let Some(text) = &args.find {
        return print_all(&clean(&find::find(&conversation, text)));
    }
    if let Some(file) = &args.html {
        return html::write(&conversation, &id, file);
    }
    let mut turns = conversation.turns();
    turns.retain(|one| args.turn.as_deref().is_none_or(|turn| turn == one.as_str()));
    if let (Some(turn), true) = (&args.turn, turns.is_empty()) {
        let problem = Problem::error(format!("conversation {id} has no turn {turn}"));
        let hint = format!("`turnbuckle why {id}{}` tells of all turns", common.same_store());
        return Err(Stopped::failed(problem.hint(hint)));
    }
    if args.json {
        let calls = turns.iter().flat_map(|turn| conversation.calls_of(turn));
        return print_all(&calls.map(json::call).collect::<Result<String, Stopped>>()?);
    }
    let mut text = String::new();
    for turn in &turns {
        text.push_str(&of_turn(&conversation, turn));
        for record in desk.store.records(&id, turn).await.map_err(failed)? {
            // Writing to a String cannot fail.
            if record.shed > 0 {
                let _ = writeln!(
                    text,
                    "  hook      {} wanted to add {} tokens more at {}: left out for lack of room",
                    record.hook, record.shed, record.point
                );
            }
            if record.point == Point::BeforeCompaction && record.decision == Decision::Skip {
                let reason = record.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                let _ = writeln!(text, "  hook      {} skipped a summary that was due{reason}", record.hook);
            }
            if record.tokens > 0
                && !matches!(record.point, Point::BeforeAgent | Point::BeforeModel | Point::OnConversation)
            {
                let _ =
                    writeln!(text, "  hook      {} added {} tokens at {}", record.hook, record.tokens, record.point);
            }
        }
    }
    let shown = || turns.iter().flat_map(|turn| conversation.calls_of(turn));
    text.push_str(&total(&conversation, &turns, shown().collect()));
    if args.turn.is_none() {
        text.push_str(&spent_on_summaries(&conversation));
    }
    if conversation.has_uncorrected(shown()) {
        let _ = writeln!(text, "sizes: {UNCORRECTED}");
    }
    if let Some(not_known) = conversation.not_known(shown()) {
        let _ = writeln!(text, "not known: {not_known}");
    }
    print_all(&clean(&text))
}

/// Why sizes may differ from what a decision was made with.
pub(super) const UNCORRECTED: &str = "those of calls before the first cut are estimates without the correction that is learned \
                                      from the provider's counts and that cuts are decided with; cuts record it";

fn of_turn(conversation: &Conversation, turn: &TurnId) -> String {
    let mut text = String::new();
    if let Some((at, said)) = conversation.opening(turn) {
        let _ = writeln!(text, "turn {turn}, {at}: {}", quoted(&said));
    }
    let own = conversation.calls_of(turn);
    if own.is_empty() {
        let _ = writeln!(text, "  no model was asked, or none answered");
    }
    for call in own {
        text.push_str(&of_call(conversation, call));
    }
    for attempt in conversation.attempts.iter().filter(|attempt| attempt.audited.turn == *turn) {
        let call = &attempt.audited;
        let took = took(call.usage, call.cost.unwrap_or(0.0));
        let _ = writeln!(text, "  attempt   {} by {}, {}{took}", attempt.name(), call.model, attempt.fate());
    }
    if let Some((usage, cost)) = conversation.beside_replies(turn) {
        let _ = writeln!(
            text,
            "  beside    the replies{}: attempts that were discarded or failed, hooks that asked models, sub-agents",
            took(usage, cost)
        );
    }
    text.push_str(&end_of_turn(conversation, turn));
    text
}

/// `, 120 tokens read, 8 written, $0.0004`; nothing if it took nothing.
fn took(usage: Usage, cost: f64) -> String {
    if usage.input == 0 && usage.output == 0 && cost <= 0.0 {
        return String::new();
    }
    format!(", {} tokens read, {} written{}", usage.input, usage.output, dollars(cost))
}

fn dollars(cost: f64) -> String {
    if cost > 0.0 { format!(", ${cost:.4}") } else { String::new() }
}

fn of_call(conversation: &Conversation, call: &Call) -> String {
    let mut text = String::new();
    let (sent, mut parts) = (&call.sent, Vec::new());
    if let Some(summary) = &sent.summary {
        parts.push(format!(
            "summary {} of {} ({} tokens)",
            summary.version,
            count(summary.turns as usize, "turn"),
            sent.summary_tokens
        ));
    }
    let history = sent.tokens.saturating_sub(sent.summary_tokens + sent.turn_tokens);
    parts.push(format!("{} ({history} tokens)", count(sent.turns, "earlier turn")));
    parts.push(format!("this turn ({} tokens)", sent.turn_tokens));
    let model = sent.model.as_ref().map(|model| format!(", by {model}")).unwrap_or_default();
    let _ = writeln!(
        text,
        "  call {:<4} {}, about {} tokens: {}{model}",
        sent.number,
        count(sent.messages, "message"),
        sent.tokens,
        parts.join(", ")
    );
    let beside = [Segment::Tools, Segment::System, Segment::TurnInjections, Segment::CallInjections];
    let beside: Vec<String> = beside
        .into_iter()
        .filter(|segment| call.segments[*segment as usize] > 0)
        .map(|segment| format!("{segment} {}", call.segments[segment as usize]))
        .collect();
    if !beside.is_empty() {
        let _ = writeln!(text, "    beside  {}: about {} tokens in all", beside.join(", "), call.tokens());
    }
    for ((hook, point, tokens), texts) in call.injected.iter().zip(&call.added) {
        let whose = if *point == Point::BeforeModel { "this call" } else { "this turn" };
        let _ = writeln!(text, "    hook    {hook} added {tokens} tokens for {whose}");
        for added in texts {
            let _ = writeln!(text, "            {}", quoted(added));
        }
    }
    for cut in &sent.cuts {
        let _ = writeln!(text, "    cut     made for this call: {}", cut.summary());
    }
    if let Some(cut) = &sent.last_cut {
        text.push_str(&left_out(conversation, call, cut));
    }
    for found in &call.breaks {
        let _ = writeln!(text, "    cache   broke in the {}", found.summary());
    }
    let usage = sent.usage;
    if usage.input > 0 {
        let cost = if sent.cost > 0.0 { format!(", ${:.4}", sent.cost) } else { String::new() };
        let _ = writeln!(
            text,
            "    usage   {} tokens read, {} of them from the provider's cache, {} written{cost}",
            usage.input, usage.cache_read, usage.output
        );
    }
    if let Some(audited) = &call.audited {
        let attempt = if audited.attempt > 1 { format!(", attempt {}", audited.attempt) } else { String::new() };
        let _ = writeln!(text, "    audit   recorded as it was sent; {:.1} s{attempt}", audited.ms as f64 / 1000.0);
    }
    text
}

/// What is missing in a call. What was shortened for an earlier call is told there, and counted here.
fn left_out(conversation: &Conversation, call: &Call, cut: &Cut) -> String {
    let mut text = String::new();
    let turns = conversation.messages_between(0, cut.first);
    if turns > 0 {
        let covered = call.sent.summary.as_ref().map_or(0, |summary| summary.last);
        let bare = conversation.messages_between(covered + 1, cut.first);
        let how = match (&call.sent.summary, bare) {
            (None, _) => "without a summary".to_owned(),
            (Some(summary), 0) => format!("summary {} by {} stands in their place", summary.version, summary.model),
            (Some(summary), bare) => {
                format!(
                    "summary {} by {} stands in the place of all but the last {bare}",
                    summary.version, summary.model
                )
            }
        };
        let _ =
            writeln!(text, "    gone    {}, events 1 to {}: {how}", count(turns, "turn"), cut.first.saturating_sub(1));
    }
    for steps in &cut.left_out {
        let _ = writeln!(text, "    gone    {}", steps_gone(steps));
    }
    let mut new = 0;
    for made in &call.sent.cuts {
        for stub in conversation.new_stubs(made).into_iter().filter(|stub| cut.stubs.contains(stub)) {
            new += 1;
            let _ = writeln!(text, "    note    {}", note(conversation, stub, &made.reducers.join(", ")));
        }
    }
    match cut.stubs.len() - new {
        0 => {}
        1 => text.push_str("    note    one result or call was shortened before and still is\n"),
        rest => {
            let _ = writeln!(text, "    note    {rest} results and calls were shortened before and still are");
        }
    }
    text
}

/// What is gone of a turn that was too long by itself.
fn steps_gone(steps: &LeftOutSteps) -> String {
    let tools: Vec<String> = steps.calls.iter().map(|(tool, calls)| format!("{tool} {calls}")).collect();
    let others = (steps.other_calls > 0).then(|| format!("others {}", steps.other_calls));
    let tools: Vec<String> = tools.into_iter().chain(others).collect();
    let tools = if tools.is_empty() { String::new() } else { format!(" ({})", tools.join(", ")) };
    format!(
        "{} of a turn, events {} to {}, with {}{tools}: a note stands in their place",
        count(steps.steps as usize, "step"),
        steps.first(),
        steps.last(),
        count(steps.call_count() as usize, "call"),
    )
}

/// How something is shown that was shortened.
fn note(conversation: &Conversation, stub: &Stub, by: &str) -> String {
    let (what, is_call) = conversation.shortened(stub.seq);
    let how = match (is_call, stub.head) {
        (true, _) => "shortened to the beginnings of their strings",
        (false, 0) => "replaced by a note",
        (false, _) => "shortened to its beginning and end",
    };
    let is = if is_call { "are" } else { "is" };
    format!("{what} at event {} ({} bytes) {is} {how} from here on, by {by}", stub.seq, stub.bytes)
}

/// What was cut for a call that nobody answered, and how the turn ended if it did not end well.
fn end_of_turn(conversation: &Conversation, turn: &TurnId) -> String {
    let mut text = String::new();
    for cut in conversation.unanswered_cuts.iter().filter(|cut| cut.turn == *turn) {
        let _ = writeln!(text, "  cut       made for a call without a reply: {}", cut.summary());
        for stub in conversation.new_stubs(cut) {
            let _ = writeln!(text, "    note    {}", note(conversation, stub, &cut.reducers.join(", ")));
        }
    }
    if let Some(ended) = conversation.end_of(turn).filter(|ended| ended.outcome != Outcome::Completed) {
        let reason = ended.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
        let _ = writeln!(text, "  ended     {}{reason}", ended.outcome);
    }
    text
}

/// What the calls come to.
fn total(conversation: &Conversation, turns: &[&TurnId], calls: Vec<&Call>) -> String {
    let mut text = String::new();
    let (mut usage, mut cost) = (Usage::default(), 0.0);
    for call in &calls {
        usage += call.sent.usage;
        cost += call.sent.cost;
    }
    for (more, dollars) in turns.iter().filter_map(|turn| conversation.beside_replies(turn)) {
        usage += more;
        cost += dollars;
    }
    let breaks: Vec<_> = calls.iter().flat_map(|call| &call.breaks).collect();
    if usage.input > 0 {
        let cost = dollars(cost);
        let _ = writeln!(
            text,
            "in all: {}, {} tokens read, {} of them from the provider's cache, {} written{cost}",
            count(calls.len(), "call"),
            usage.input,
            usage.cache_read,
            usage.output
        );
    }
    if !breaks.is_empty() {
        let (lost, cost): (u64, f64) =
            breaks.iter().fold((0, 0.0), |(lost, cost), one| (lost + one.lost, cost + one.cost));
        let cost = if cost > 0.0 { format!(", ${cost:.4} at list prices") } else { String::new() };
        let times = if breaks.len() == 1 { "once".to_owned() } else { format!("{} times", breaks.len()) };
        let _ = writeln!(text, "cache: broke {times}, {lost} tokens read anew{cost}");
    }
    text
}

/// What making the summaries took: it is the conversation's, and in no call's usage or cost.
fn spent_on_summaries(conversation: &Conversation) -> String {
    let mut text = String::new();
    let (mut usage, mut cost) = (Usage::default(), 0.0);
    for summary in &conversation.summaries {
        usage += summary.usage;
        cost += summary.cost;
    }
    if !conversation.summaries.is_empty() {
        let versions = count(conversation.summaries.len(), "version");
        let (read, written, cost) = (usage.input, usage.output, dollars(cost));
        let _ = writeln!(text, "summaries: {versions}, {read} tokens read, {written} written{cost}, beside the calls");
    }
    for summary in conversation.summaries.iter().filter(|summary| summary.cut_off > 0) {
        let _ = writeln!(text, "  version {}: {} tokens of its notes were cut off", summary.version, summary.cut_off);
    }
    let failed = conversation.failed_summaries;
    if failed.calls > 0 {
        let (calls, took) = (count(failed.calls as usize, "call"), took(failed.usage, failed.cost));
        let _ = writeln!(text, "summaries that could not be made: {calls}{took}, beside the calls");
    }
    for (place, call) in conversation.summary_calls.iter().enumerate() {
        let version = call.summary.map(|version| format!(" for version {version}")).unwrap_or_default();
        let fate = data::fate(call).map(|fate| format!(", {fate}")).unwrap_or_default();
        let took = took(call.usage, call.cost.unwrap_or(0.0));
        let _ = writeln!(text, "  summary.{}{version}, {}, by {}{fate}{took}", place + 1, call.at, call.model);
    }
    text
}

pub(super) fn quoted(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(QUOTED).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    format!("{short:?}")
}
