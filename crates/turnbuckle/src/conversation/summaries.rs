//! Makes summaries of the oldest turns: between turns, from the outbox, without a claim.
//!
//! A summary is made of the one before it and of the turns behind that, read from the log in pieces that the model can take. What
//! users said is kept beside it word for word, as far as there is room. An error leaves everything as it was.

mod kept;
mod prompt;
mod repeats;
mod sections;
mod transcript;
mod work;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::json;

use self::kept::{NotKept, fit_kept, fit_messages, user_message};
use self::transcript::{Transcript, transcripts};
use self::work::Work;
use super::error::with_causes;
use super::observers::Observers;
use super::outbox::{UnwrittenJobs, context_after, settle, write_results};
use super::runtime::Runtime;
use super::shared::Conversation;
use crate::context::summary_room::SummaryRoom;
use crate::context::tokens;
use crate::digest;
use crate::event::{Event, EventKind};
use crate::feed::{Level, LiveEvent};
use crate::hook::call::HookCaller;
use crate::hook::{BeforeCompaction, BeforeCompactionContext, Point, WhenSummarised};
use crate::limits::Limits;
use crate::message::{Reply, StopReason, Text};
use crate::model::{ModelError, Request, Retry, SUMMARY_AGENT};
use crate::record::Record;
use crate::store::{Job, JobDisposition, JobKind, PartialSummary, StoreError, Summary};
use crate::turn::{JobResults, TurnContext, after_failure};

/// How many events are read at a time.
const PAGE: usize = 500;
/// A provider that wants to be left alone for longer is asked again after this time.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Notes that are longer than what they are of are no notes if they also take so many times the room that there is for them.
const MUCH_TOO_LONG: u64 = 4;

/// Why no summary was made.
#[derive(Debug, thiserror::Error)]
enum SummaryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the model did not answer")]
    Model(#[from] ModelError),
    #[error("it took longer than {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    #[error("hook {hook} failed: {failure}")]
    Hook { hook: Text, failure: String },
    #[error("the model refused")]
    Refused,
    #[error("the model answered with nothing")]
    Empty,
    #[error("the model answered with {size} tokens, and the turns have {covered}")]
    LongerThanTurns { size: u64, covered: u64 },
    #[error("the model repeated itself")]
    Loops,
    #[error("the answer was cut off at the model's limit")]
    CutOff,
    #[error("the model answered with something else than notes")]
    NoNotes,
}

impl SummaryError {
    /// How long the model's provider wants to be left alone.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Model(error) => match error.retry() {
                Retry::After(wait) => Some(wait.min(LONGEST_WAIT)),
                Retry::Soon | Retry::Never => None,
            },
            _ => None,
        }
    }
}

/// Tries the job once. If it failed, it is due again some time later: whoever takes up the conversation then tries it, so that
/// nobody waits for it.
pub(super) async fn make(conversation: &Arc<Conversation>, runtime: &Arc<Runtime>, job: Job) {
    let unwritten = UnwrittenJobs::new(conversation, std::slice::from_ref(&job));
    let observers = Observers::of(conversation, runtime);
    let ctx = context_after(conversation, runtime, job.turn.clone(), (runtime.scope_source)(&job.actor));
    ctx.publish(LiveEvent::BackgroundStarted { hook: SUMMARY_AGENT.into() });
    let (clock, limit) = (&runtime.services.clock, conversation.agent.summary_timeout());
    let mut work = Work::of(&ctx, &job);
    let made = tokio::select! {
        biased;
        made = attempt(&ctx, &job, &mut work) => made,
        () = clock.sleep(limit) => Err(SummaryError::TimedOut(limit)),
    };
    if let Err(error) = work.store_audit(&ctx).await {
        tracing::warn!(conversation = %ctx.conversation, %error, "what a summary's model was sent could not be recorded");
    }
    let (records, turn, actor) = (std::mem::take(&mut work.records), job.turn.clone(), job.actor.clone());
    let (then, error) = match made {
        Ok(then) => (then, None),
        Err(error) => (None, Some(error)),
    };
    let told = error.as_ref().map(|error| Text::from(with_causes(error)));
    ctx.publish(LiveEvent::BackgroundFinished { hook: SUMMARY_AGENT.into(), error: told.clone() });
    // Outside of the limit: the summary is stored, and hooks have limits of their own.
    if let Some(Made { text, then }) = then {
        let guarded = |then: WhenSummarised| AssertUnwindSafe(then(text.clone())).catch_unwind();
        if join_all(then.into_iter().map(guarded)).await.iter().any(Result::is_err) {
            tracing::warn!(conversation = %ctx.conversation, "a hook panicked after a summary was made");
        }
    }
    if let (Some(error), Some(told)) = (error, told) {
        let at_least = error.retry_after().unwrap_or_default();
        // A try that ran out of time and yet came further is none of those that count: pieces come to an end.
        let came_further = matches!(error, SummaryError::TimedOut(_)) && work.partial != job.partial;
        let tries = job.tries.saturating_sub(u32::from(came_further));
        let job = Job { tries, spent: work.spent_on(&job), partial: work.partial, ..job };
        let job = after_failure(job, told.to_string(), clock.now(), at_least);
        if job.due.is_none() {
            let text = format!("no summary of the oldest turns could be made: {told}; they are left out without one");
            ctx.publish(LiveEvent::Notice { level: Level::Warning, text: text.into(), hook: None });
        }
        settle(conversation, runtime, job).await;
    }
    if !records.is_empty() {
        let results = JobResults { records, ..JobResults::default() };
        write_results(conversation, runtime, (turn, actor), results).await;
    }
    drop((observers, unwritten));
}

/// A summary that was stored, and what hooks wanted to do then.
struct Made {
    text: Text,
    then: Vec<WhenSummarised>,
}

/// `None` if no summary was needed, or none was wanted.
async fn attempt(ctx: &Arc<TurnContext>, job: &Job, work: &mut Work) -> Result<Option<Made>, SummaryError> {
    let (store, id) = (ctx.store(), &ctx.conversation);
    let before = store.summaries(id).await?.pop();
    let covered = before.as_ref().map_or(0, |before| before.last);
    let events = if covered < job.seq { read(ctx, covered + 1, job.seq).await? } else { Vec::new() };
    if events.is_empty() {
        // Another process, or a later job, was quicker.
        remove(ctx, job).await?;
        return Ok(None);
    }
    let said = joined(&events);
    let whole = Transcript::of(&said);
    let Some((kept, then)) = ask_hooks(ctx, job, &whole, &mut work.records).await? else {
        remove(ctx, job).await?;
        return Ok(None);
    };
    // Jobs for a smaller part that were given up. This summary stands for them, and what they took is its cost.
    let given_up = |other: &Job| other.kind == JobKind::Summary && other.due.is_none() && other.seq <= job.seq;
    let given_up: Vec<Job> = store.jobs(id).await?.into_iter().filter(|other| given_up(other)).collect();
    let tried = || given_up.iter().chain([job]).filter_map(|failed| failed.spent);
    // A script goes on behind the replies that failed tries had.
    let calls =
        tried().map(|spent| u64::from(spent.calls)).sum::<u64>() + before.as_ref().map_or(0, |before| before.calls);
    let mut summary = summarise(ctx, before.as_deref(), (&events, &said), kept, calls, work).await?;
    work.store_audit(ctx).await?;
    for spent in tried() {
        summary.usage += spent.usage;
        summary.cost += spent.cost;
    }
    let text = summary.text.clone();
    match store.add_summary(id, summary, job).await {
        Err(StoreError::Fenced { .. }) => {
            remove(ctx, job).await?;
            return Ok(None);
        }
        added => added?,
    }
    for job in &given_up {
        remove(ctx, job).await?;
    }
    Ok(Some(Made { text, then }))
}

async fn read(ctx: &TurnContext, first: u64, last: u64) -> Result<Vec<Arc<Event>>, StoreError> {
    let mut events = Vec::new();
    let mut from = first;
    while from <= last {
        let page = ctx.store().log(&ctx.conversation, from, PAGE).await?;
        let Some(end) = page.last() else { break };
        from = end.seq + 1;
        events.extend(page.into_iter().filter(|event| event.seq <= last));
    }
    Ok(events)
}

/// Leaves out what halted and rejected turns said: it is in no context, and so in no summary.
fn joined(events: &[Arc<Event>]) -> Vec<Arc<Event>> {
    let is_out =
        |event: &&Arc<Event>| matches!(&event.kind, EventKind::TurnEnded(ended) if !ended.outcome.joins_history());
    let out: Vec<_> = events.iter().filter(is_out).map(|event| event.turn.clone()).collect();
    events.iter().filter(|event| !out.contains(&event.turn)).cloned().collect()
}

/// Nothing is left to do for the job.
async fn remove(ctx: &TurnContext, job: &Job) -> Result<(), StoreError> {
    ctx.store().settle_job(&ctx.conversation, job.clone(), JobDisposition::Remove).await
}

/// What hooks want to be kept word for word, and to do then; `None` if one of them skips the summary.
async fn ask_hooks(
    ctx: &TurnContext,
    job: &Job,
    whole: &Transcript,
    records: &mut Vec<Record>,
) -> Result<Option<(Vec<Text>, Vec<WhenSummarised>)>, SummaryError> {
    let hooks = ctx.agent.hooks_at(Point::BeforeCompaction);
    let mut context = BeforeCompactionContext {
        conversation: ctx.conversation.clone(),
        turn: job.turn.clone(),
        agent: ctx.agent.clone(),
        agent_name: ctx.agent_name().clone(),
        scope: ctx.scope.clone(),
        transcript: if hooks.is_empty() { "".into() } else { whole.text.as_str().into() },
        turns: whole.turns,
        kept: Vec::new(),
        then: Vec::new(),
    };
    let mut caller = HookCaller::new(ctx, Point::BeforeCompaction).after_turn();
    for entry in hooks {
        let Some(hook) = entry.hook() else { continue };
        let before = (context.kept.len(), context.then.len());
        // Nothing stops a hook between turns, so this always has a result.
        let Ok(run) = caller.run(entry, pin!(hook.before_compaction(&mut context))).await else { continue };
        match caller.record(&entry.name, run, records) {
            Ok(BeforeCompaction::Continue) => {}
            Ok(BeforeCompaction::Skip(reason)) => {
                let text = format!("no summary of the oldest turns is made now: {} skipped it: {reason}", entry.name);
                let hook = Some(entry.name.clone());
                ctx.publish(LiveEvent::Notice { level: Level::Info, text: text.into(), hook });
                return Ok(None);
            }
            Err(failure) => {
                // What a hook that failed wanted does not count.
                context.kept.truncate(before.0);
                context.then.truncate(before.1);
                if !entry.ignores(Point::BeforeCompaction, &failure) {
                    let (hook, failure) = (entry.name.clone(), failure.to_string());
                    return Err(SummaryError::Hook { hook, failure });
                }
            }
        }
    }
    Ok(Some((context.kept, context.then)))
}

/// What there is room for, in tokens.
struct Room {
    /// For what the model reads at a time.
    piece: u64,
    /// For what it writes.
    text: u64,
    /// For what it writes, as long as it is to read more.
    longest: u64,
    /// For what users said.
    messages: u64,
    /// For what hooks want to keep.
    kept: u64,
}

impl Room {
    fn of(ctx: &TurnContext) -> Self {
        let limits = ctx.agent.limits();
        let of = |model: &str| ctx.services.calibrations.factor(model);
        let SummaryRoom { text, messages, kept } = ctx.summary_room(limits, of(ctx.agent.model_choice()));
        let model = ctx.agent.summary_model();
        // A model of its own may take less than the agent's: instructions, notes and a piece fit into its window together.
        let whole = of(model.name()).room(model.context_window().map_or(limits.context_tokens, Limits::ceiling));
        let longest = (whole / 4).max(100);
        Self { piece: (whole / 2).max(200), text: text.min(longest), longest, messages, kept }
    }
}

async fn summarise(
    ctx: &TurnContext,
    before: Option<&Summary>,
    (events, said): (&[Arc<Event>], &[Arc<Event>]),
    kept: Vec<Text>,
    mut calls: u64,
    work: &mut Work,
) -> Result<Summary, SummaryError> {
    let (room, model) = (Room::of(ctx), ctx.agent.summary_model());
    let mut text = before.map_or_else(String::new, |before| before.text.to_string());
    let version = before.map_or(0, |before| before.version) + 1;
    let first_new = events.first().map_or(0, |event| event.seq);
    // A try before may have read a part of it, in pieces that still fit.
    let begun = work.partial.take().filter(|one| one.first_new == first_new && one.piece <= room.piece);
    let most = begun.as_ref().map_or(room.piece, |begun| begun.piece);
    let pieces = transcripts(said, most);
    let done = begun.as_ref().map_or(0, |begun| begun.pieces).min(pieces.len());
    if let Some(begun) = &begun {
        text = begun.text.to_string();
    }
    work.partial = begun;
    let mut cut_off = 0;
    for (place, piece) in pieces.iter().enumerate().skip(done) {
        calls += 1;
        let mut request =
            Request::question(SUMMARY_AGENT, prompt::system(room.text), prompt::question(&text, &piece.text));
        request.ordinal = calls;
        let reply = work.ask(ctx, &**model, &request, version).await?;
        text = checked(&reply, &text, &piece.text, &room).inspect_err(|error| work.note_refused(ctx, error))?;
        // Between pieces they may be as long as the model can read beside the next one.
        cut_off += cut_to(&mut text, room.longest);
        let text = text.as_str().into();
        work.partial = Some(PartialSummary { first_new, piece: most, pieces: place + 1, text });
    }
    let size = tokens::of_text(&text);
    if size > room.text {
        // Its own choice of what to leave out is better than the end of what it wrote.
        calls += 1;
        let ask = prompt::shorten(&text, (size, room.text));
        let mut request = Request::question(SUMMARY_AGENT, prompt::system(room.text), ask);
        request.ordinal = calls;
        let reply = work.ask(ctx, &**model, &request, version).await?;
        // What is no shorter, or cannot be used, changes nothing.
        match checked(&reply, &text, "", &room) {
            Ok(shorter) if tokens::of_text(&shorter) < size => text = shorter,
            Ok(_) => {}
            Err(error) => work.note_refused(ctx, &error),
        }
        cut_off += cut_to(&mut text, room.text);
    }
    let mut messages = before.map_or_else(Vec::new, |before| before.messages.clone());
    messages.extend(said.iter().filter_map(user_message));
    let missing = fit_messages(&mut messages, room.messages);
    let unquoted = before.map_or(0, |before| before.unquoted).saturating_add(missing);
    let mut all_kept = before.map_or_else(Vec::new, |before| before.kept.clone());
    all_kept.extend(kept);
    let not_kept = fit_kept(&mut all_kept, room.kept);
    let unkept = before.map_or(0, |before| before.unkept).saturating_add(not_kept.gone);
    tell_of_missing(ctx, version, (cut_off, room.text), not_kept);
    let turns = before.map_or(0, |before| before.turns) + pieces.iter().map(|piece| piece.turns).sum::<u32>();
    let shown = prompt::shown(&text, (&messages, unquoted), (&all_kept, unkept), turns);
    let last = events.last().map_or(0, |event| event.seq);
    Ok(Summary {
        version,
        last,
        first_new,
        turns,
        model: model.name().into(),
        digest: digest_of(before, events),
        text: text.into(),
        cut_off,
        messages,
        unquoted,
        kept: all_kept,
        unkept,
        shown: shown.into(),
        calls,
        usage: work.spent.usage,
        cost: work.spent.cost,
        at: ctx.clock().now(),
    })
}

fn digest_of(before: Option<&Summary>, events: &[Arc<Event>]) -> Text {
    let mut chained = before.map_or_else(|| Text::from(""), |before| before.digest.clone());
    for event in events {
        chained = digest::of(&json!([chained, event]));
    }
    chained
}

/// Shortens notes to what there is room for. Returns how many tokens are missing then.
fn cut_to(text: &mut String, most: u64) -> u64 {
    let size = tokens::of_text(text);
    if size <= most {
        return 0;
    }
    *text = sections::shortened(text, most);
    size.saturating_sub(tokens::of_text(text))
}

/// Says what of the notes and of what hooks keep had no room.
fn tell_of_missing(ctx: &TurnContext, version: u32, (cut_off, room): (u64, u64), not_kept: NotKept) {
    let mut missing = Vec::new();
    if cut_off > 0 {
        missing.push(format!("{cut_off} tokens of its notes are cut off: the model wrote more than {room}"));
    }
    let texts = |count: u32| if count == 1 { "1 text".to_owned() } else { format!("{count} texts") };
    if not_kept.gone > 0 {
        missing.push(format!("there is no room for {} that hooks keep word for word", texts(not_kept.gone)));
    }
    if not_kept.shortened > 0 {
        missing.push(format!("{} that hooks keep word for word had to be shortened", texts(not_kept.shortened)));
    }
    if !missing.is_empty() {
        let text = format!("summary {version}: {}", missing.join("; "));
        ctx.publish(LiveEvent::Notice { level: Level::Warning, text: text.into(), hook: None });
    }
}

/// The text of a reply that can be a summary. It may be longer than there is room for.
fn checked(reply: &Reply, before: &str, piece: &str, room: &Room) -> Result<String, SummaryError> {
    if reply.stop_reason == StopReason::Refusal {
        return Err(SummaryError::Refused);
    }
    if reply.stop_reason == StopReason::Length {
        return Err(SummaryError::CutOff);
    }
    let text = reply.content.text();
    let text = text.trim();
    if text.is_empty() {
        return Err(SummaryError::Empty);
    }
    let (size, covered) = (tokens::of_text(text), tokens::of_text(before) + tokens::of_text(piece));
    // A small part may make the notes grow, and what is a little too long is shortened.
    if size > (covered + room.text).max(room.text * MUCH_TOO_LONG) {
        return Err(SummaryError::LongerThanTurns { size, covered });
    }
    if repeats::has_loop(text) {
        return Err(SummaryError::Loops);
    }
    if !prompt::has_heading(text) {
        return Err(SummaryError::NoNotes);
    }
    Ok(text.to_owned())
}
