//! `turnbuckle list`, `show` and `trace`: what a store keeps. Nothing is written.

use std::io::{self, Write as _};
use std::sync::Arc;

use turnbuckle::event::{Event, EventKind};
use turnbuckle::hook::Record;
use turnbuckle::live::{Cursor, Telling, Told};
use turnbuckle::projection::Pending;
use turnbuckle::store::{Store, StoreError};
use turnbuckle::{ConversationId, Scope};
use turnbuckle_stores::SqliteStore;

use crate::Stopped;
use crate::args::{Common, Show, Trace};
use crate::exit::Exit;
use crate::problem::{Problem, with_causes};
use crate::run::{Answering, KNOWN, named};
use crate::show::{self, Fold, Line, Palette, Screen, Shown, Tone, clean, terminal_width};
use crate::store::existing;

/// The ids, the newest first. Those of sub-agents, `ID/CALL`, are part of their parent's.
pub(crate) async fn list(common: &Common) -> Result<Exit, Stopped> {
    let ids = existing(common)?.list().await.map_err(failed)?;
    let own = ids.iter().filter(|listed| ConversationId::parse(listed.id.as_str()).is_ok());
    print(&own.map(|listed| format!("{}\n", listed.id)).collect::<String>())
}

/// A conversation, or a sub-agent's in it.
fn looked_for(given: &str) -> Result<ConversationId, Stopped> {
    match given.split_once('/') {
        Some((parent, call)) if !call.is_empty() => named(parent).map(|_| given.into()),
        _ => named(given),
    }
}

/// One conversation.
pub(crate) async fn show(args: Show, common: &Common) -> Result<Exit, Stopped> {
    let id = looked_for(&args.id)?;
    let log = log(&existing(common)?, &id).await?;
    let told = log.iter().map(|event| Told {
        conversation: id.clone(),
        turn: Some(event.turn.clone()),
        // No writer has the epoch 0: it was read, not told.
        cursor: Cursor { epoch: 0, position: event.seq },
        at: event.at,
        what: Telling::Log(event.clone()),
    });
    if !args.json {
        return print(&read_by_people(told, &Answering::new(id.clone(), true, common)));
    }
    let line = |told: Told| serde_json::to_string(&told).map(|line| line + "\n");
    let lines: Result<String, _> = told.map(line).collect();
    print(&lines.map_err(|error| Stopped::failed(Problem::error(format!("an event cannot be printed: {error}"))))?)
}

fn read_by_people(told: impl Iterator<Item = Told>, answering: &Answering) -> String {
    let mut screen = Screen::new(Palette::of(&io::stdout()), terminal_width(&io::stdout()));
    let (mut fold, mut text, mut pending) = (Fold::new(0), String::new(), Vec::new());
    for told in told {
        let Telling::Log(event) = &told.what else { continue };
        note_pending(&mut pending, event);
        let folded = fold.told(&told);
        let whole = |label, tone, text: String| vec![Shown::Line(Line { label, tone, text: clean(&text) })];
        let shown = match &event.kind {
            EventKind::UserMessage { content, .. } => whole("user", Tone::Plain, content.text()),
            EventKind::AssistantMessage { content, .. } if content.text().trim().is_empty() => Vec::new(),
            EventKind::AssistantMessage { content, .. } => whole("agent", Tone::Plain, content.text()),
            _ => folded,
        };
        for shown in shown {
            if let Shown::Line(line) = shown {
                text.push_str(&screen.line(&line));
            }
        }
    }
    for pending in &pending {
        let waits = format!("{}: {}", show::pending(pending), answering.command(pending));
        text.push_str(&screen.line(&Line { label: "open", tone: Tone::Hook, text: clean(&waits) }));
    }
    text
}

/// Questions that nobody has answered.
fn note_pending(pending: &mut Vec<Pending>, event: &Event) {
    match &event.kind {
        EventKind::Suspension { call, prompt, expires } => {
            pending.push(Pending { call: call.clone(), prompt: prompt.clone(), expires: *expires });
        }
        EventKind::Resolution { call, .. } => pending.retain(|pending| pending.call != *call),
        EventKind::TurnEnded(_) => pending.clear(),
        _ => {}
    }
}

/// What each stage and hook did.
pub(crate) async fn trace(args: Trace, common: &Common) -> Result<Exit, Stopped> {
    let id = looked_for(&args.id)?;
    let store = existing(common)?;
    let log = log(&store, &id).await?;
    let told: Vec<Telling> = log.iter().cloned().map(Telling::Log).collect();
    // How many messages a model call had depends on all turns before; how many lines a turn has does not.
    let whole = turnbuckle::trace::trace(&told, 0);
    let mut lines = whole.lines();
    let (mut text, mut at, mut found) = (String::new(), 0, false);
    for events in log.chunk_by(|one, other| one.turn == other.turn) {
        let Some(first) = events.first() else { continue };
        let own = turnbuckle::trace::trace(&told[at..at + events.len()], 0).lines().count();
        at += events.len();
        let stages: Vec<&str> = lines.by_ref().take(own).collect();
        if args.turn.as_deref().is_some_and(|turn| turn != first.turn.as_str()) {
            continue;
        }
        found = true;
        text.push_str(&format!("turn      {}, {}\n", first.turn, first.at));
        stages.iter().for_each(|line| text.push_str(&format!("{}\n", clean(without_tools(line)))));
        // What was left for the next turn may stand apart from its own.
        if log[at..].iter().any(|later| later.turn == first.turn) {
            continue;
        }
        for record in store.records(&id, &first.turn).await.map_err(failed)? {
            text.push_str(&clean(&hook(&record)));
        }
    }
    if let (Some(turn), false) = (&args.turn, found) {
        let problem = Problem::error(format!("conversation {id} has no turn {turn}"));
        return Err(Stopped::failed(problem.hint(format!("`turnbuckle trace {id}` shows all turns"))));
    }
    print(&text)
}

/// How many tools the agent had is not in the log.
fn without_tools(line: &str) -> &str {
    if line.starts_with("build ") { line.strip_suffix(", 0 tools").unwrap_or(line) } else { line }
}

/// A run of a hook, as a line.
pub(crate) fn hook(record: &Record) -> String {
    let Record { point, hook, decision, took, call, failure, .. } = record;
    let call = call.as_ref().map(|call| format!(" for {call}")).unwrap_or_default();
    let failure = failure.as_ref().map(|failure| format!(": {}", failure.trim_end())).unwrap_or_default();
    let ms = took.as_micros() as f64 / 1000.0;
    format!("hook      {point} {hook}{call}: {decision}, {ms:.1} ms{failure}\n")
}

/// To others than its owner a conversation does not exist.
async fn log(store: &SqliteStore, id: &ConversationId) -> Result<Vec<Arc<Event>>, Stopped> {
    let owner = store.owner(id).await.map_err(failed)?;
    if owner.as_ref() != Some(Scope::local().actor()) {
        return Err(failed(StoreError::NotFound { id: id.clone() }));
    }
    store.log(id, 1, usize::MAX).await.map_err(failed)
}

fn failed(error: StoreError) -> Stopped {
    let problem = Problem::error(with_causes(&error));
    Stopped::failed(if matches!(error, StoreError::NotFound { .. }) { problem.hint(KNOWN) } else { problem })
}

/// Whoever closed stdout has seen enough.
fn print(text: &str) -> Result<Exit, Stopped> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Stopped::failed(Problem::error(format!("writing to stdout: {error}"))))
        }
        _ => Ok(Exit::Completed),
    }
}
