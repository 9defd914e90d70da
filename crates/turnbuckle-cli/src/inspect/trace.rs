//! `turnbuckle trace`: what each stage and hook did, turn by turn, with times and where they went.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use turnbuckle::TurnId;
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::event::{Event, EventKind};
use turnbuckle::hook::{Change, Record};
use turnbuckle::message::Text;
use turnbuckle::store::{CacheBreak, Job, Store as _, Summary};
use turnbuckle::trace::{place_of_cut, trace_with_times};

use super::pager::print_long;
use super::waterfall::{bars, spans};
use super::why::quoted;
use super::{age, check_readable, failed, parse_id, print_all, told_job, unprintable};
use crate::Stopped;
use crate::args::{Common, Trace};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::show::{clean, json_line, name, terminal_width};
use crate::without_agent::WithoutAgent;

/// All turns, or one.
pub(crate) async fn trace(args: Trace, common: &Common) -> Result<Exit, Stopped> {
    let id = parse_id(&args.id, common)?;
    let desk = WithoutAgent::read_only(common)?;
    desk.name.tell_standing();
    check_readable(&desk, &id, common).await?;
    let store = &desk.store;
    let log = store.log(&id, 1, usize::MAX).await.map_err(failed)?;
    let jobs = store.jobs(&id).await.map_err(failed)?;
    // How many messages a model call had depends on all turns before; how many lines a turn has does not.
    let cuts = store.cuts(&id).await.map_err(failed)?;
    let whole = trace_with_times(&log, &cuts);
    let places: Vec<usize> = cuts.iter().filter_map(|cut| place_of_cut(&log, cut)).collect();
    let breaks = store.cache_breaks(&id).await.map_err(failed)?;
    let mut lines = whole.lines();
    // What was left for the next turn may stand apart from its own.
    let ends: HashMap<&TurnId, u64> = log.iter().map(|event| (&event.turn, event.seq)).collect();
    let (mut text, mut at, mut found) = (String::new(), 0, false);
    let (width, now) = (terminal_width(&std::io::stdout()), SystemClock::default().now());
    for events in log.chunk_by(|one, other| one.turn == other.turn) {
        let Some(first) = events.first() else { continue };
        let cut_here = places.iter().filter(|place| (at..at + events.len()).contains(*place)).count();
        let own = trace_with_times(events, &[]).lines().count() + cut_here;
        at += events.len();
        let stages: Vec<&str> = lines.by_ref().take(own).collect();
        if args.turn.as_deref().is_some_and(|turn| turn != first.turn.as_str()) {
            continue;
        }
        found = true;
        let is_last = ends.get(&first.turn) == events.last().map(|last| &last.seq);
        let records = match is_last {
            true => store.records(&id, &first.turn).await.map_err(failed)?,
            false => Vec::new(),
        };
        let own_jobs: Vec<&Job> = jobs.iter().filter(|job| is_last && job.turn == first.turn).collect();
        if args.json {
            text += &json_line(&as_json(events, &records, &own_jobs)).map_err(unprintable)?;
            continue;
        }
        let models = models(events);
        let (work, by) = (time_at_work(events), clean(&only_model(&models)));
        // Elsewhere than on a terminal it is read later, and "just now" would not be true any more.
        let ago = width.map(|_| format!(" ({})", age(now.since(first.at)))).unwrap_or_default();
        text.push_str(&format!("turn      {}, {}{ago}{work}{by}\n", first.turn, first.at));
        stages.iter().for_each(|line| text.push_str(&format!("{}\n", clean(line))));
        text.push_str(&clean(&model_lines(&models)));
        let own = |found: &&CacheBreak| found.turn == first.turn && of_these(events, found);
        for found in breaks.iter().filter(own) {
            text.push_str(&clean(&format!("cache     broke in the {}\n", found.summary())));
        }
        for record in &records {
            text.push_str(&clean(&hook(record)));
        }
        text.push_str(&bars(&spans(events), width.unwrap_or(100)));
        for job in own_jobs {
            let (label, words) = told_job(job);
            text.push_str(&clean(&format!("{label:<9} {words}\n")));
        }
    }
    if args.turn.is_none() && !args.json {
        for summary in store.summaries(&id).await.map_err(failed)? {
            text.push_str(&clean(&summary_line(&summary)));
        }
    }
    if let (Some(turn), false) = (&args.turn, found) {
        let problem = Problem::error(format!("conversation {id} has no turn {turn}"));
        return Err(Stopped::failed(
            problem.hint(format!("`turnbuckle trace {id}{}` shows all turns", common.same_store())),
        ));
    }
    match args.json {
        true => print_all(&text),
        false => print_long(&text).map(|()| Exit::Completed),
    }
}

/// A turn, or the part of it that stands together in the log.
fn as_json(events: &[Arc<Event>], records: &[Record], jobs: &[&Job]) -> Value {
    let first = events.first();
    let ended = events.iter().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(ended),
        _ => None,
    });
    let jobs: Vec<Value> = jobs
        .iter()
        .map(|job| json!({ "hook": job.hook, "kind": job.kind.name(), "tries": job.tries, "error": job.error }))
        .collect();
    let hooks: Vec<Value> = records
        .iter()
        .map(|record| {
            let ms = record.took.as_micros() as f64 / 1000.0;
            json!({ "point": record.point, "hook": record.hook, "decision": record.decision, "ms": ms, "call": record.call,
                    "tokens": record.tokens, "reason": record.reason, "error": record.failure, "outcome": record.outcome, "change": record.change })
        })
        .collect();
    json!({
        "turn": first.map(|first| &first.turn), "at": first.map(|first| first.at),
        "outcome": ended.map(|ended| ended.outcome), "ms": ended.map(|ended| ended.ms),
        "spans": spans(events), "hooks": hooks, "jobs": jobs,
    })
}

/// What making a summary took. It is the conversation's, and in no turn's usage or cost.
fn summary_line(summary: &Summary) -> String {
    let Summary { version, turns, model, usage, cost, at, cut_off, .. } = summary;
    let cost = if *cost > 0.0 { format!(", ${cost:.4}") } else { String::new() };
    let (read, written, s) = (usage.input, usage.output, if *turns == 1 { "" } else { "s" });
    let cut_off = if *cut_off > 0 { format!("; {cut_off} tokens of its notes cut off") } else { String::new() };
    format!(
        "summary   {version} of {turns} turn{s}, {at}, by {model}: {read} tokens read, {written} written{cost}{cut_off}\n"
    )
}

/// Whether the request of a break was made for one of these events.
fn of_these(events: &[Arc<Event>], found: &CacheBreak) -> bool {
    events.first().is_some_and(|first| first.seq <= found.made_at)
        && events.last().is_some_and(|last| found.made_at <= last.seq)
}

/// Waiting is not counted.
fn time_at_work(events: &[Arc<Event>]) -> String {
    let ended = events.iter().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(Duration::from_millis(ended.ms)),
        _ => None,
    });
    ended.map_or_else(|| ", not over".to_owned(), |work| format!(", {:.1} s at work", work.as_secs_f64()))
}

/// The model that gave each reply. `None` for a reply of a wrap, a cache for instance, that asked no model.
fn models(events: &[Arc<Event>]) -> Vec<Option<&Text>> {
    let replies = events.iter().filter_map(|event| match &event.kind {
        EventKind::AssistantMessage { model, .. } => Some(model.as_ref()),
        _ => None,
    });
    replies.collect()
}

/// The model, if one gave all replies. The log does not have the model that the agent was built with, so a fallback that
/// answered everything is seen only here.
fn only_model(models: &[Option<&Text>]) -> String {
    match models.first() {
        Some(Some(model)) if models.iter().all(|other| *other == Some(*model)) => format!(", by {model}"),
        _ => String::new(),
    }
}

/// A line for each reply if they are not all of one model.
fn model_lines(models: &[Option<&Text>]) -> String {
    if models.windows(2).all(|pair| pair[0] == pair[1]) {
        return String::new();
    }
    let line = |(index, model): (usize, &Option<&Text>)| {
        format!("model     reply {}: {}\n", index + 1, model.map_or("no model was asked", |model| &**model))
    };
    models.iter().enumerate().map(line).collect()
}

/// A run of a hook, as a line.
pub(crate) fn hook(record: &Record) -> String {
    let Record { point, hook, decision, took, call, failure, reason, tokens, shed, outcome, change, .. } = record;
    let call = call.as_ref().map(|call| format!(" for {}", name(call.as_str()))).unwrap_or_default();
    // A hook that failed decided nothing, so it has no reason of its own.
    let why = failure.as_ref().or(reason.as_ref());
    let why = why.map(|why| format!(": {}", why.trim_end().replace('\n', "\n          "))).unwrap_or_default();
    let count = |tokens: u32, what: &str| if tokens > 0 { format!(", {tokens} tokens {what}") } else { String::new() };
    let (added, left_out) = (count(*tokens, "added"), count(*shed, "left out for lack of room"));
    let outcome = outcome.as_ref().map(|outcome| format!(" ({outcome})")).unwrap_or_default();
    let ms = took.as_micros() as f64 / 1000.0;
    let changed = change.as_deref().map(changed).unwrap_or_default();
    format!("hook      {point} {hook}{call}: {decision}{outcome}, {ms:.1} ms{added}{left_out}{why}\n{changed}")
}

/// What a hook changed: a line for each change.
fn changed(change: &Change) -> String {
    let mut text = String::new();
    for injected in &change.injected {
        let (what, lasts) = (if injected.left_out { "left out" } else { "added" }, injected.lasts.name());
        text += &format!("          {what} {lasts}: {}\n", quoted(&injected.text));
    }
    if let Some(edit) = &change.edit {
        let what = edit.what.as_ref().map(|what| format!(" ({what})")).unwrap_or_default();
        let side = |side: &Option<Text>| match side {
            Some(text) => quoted(text),
            None => "(not kept)".to_owned(),
        };
        let became = match (&edit.before, &edit.after) {
            (None, Some(after)) if !edit.hidden => quoted(after),
            (before, after) => format!("{} -> {}", side(before), side(after)),
        };
        text += &format!("          changed the {}{what}: {became}\n", edit.of.name());
    }
    text
}
