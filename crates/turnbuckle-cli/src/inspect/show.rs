//! `turnbuckle show`: one conversation as a person reads it, or its events.

use std::io;

use turnbuckle::ConversationId;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::{FeedEvent, FeedItem};
use turnbuckle::projection::Pending;
use turnbuckle::store::{Job, Store as _};
use turnbuckle_stores::SqliteStore;

use super::{check_owner, failed, parse_id, print, told_job, unprintable};
use crate::Stopped;
use crate::args::{Common, Show};
use crate::chat::question;
use crate::exit::Exit;
use crate::run::ResolveHints;
use crate::show::{Fold, Layout, Line, Palette, Shown, Tone, clean, json_line, pending, terminal_width};
use crate::store::open_read_only;

/// How many events are read at a time: a log may be long.
const PAGE: usize = 1_000;

/// Prints it page by page.
pub(crate) async fn show(args: Show, common: &Common) -> Result<Exit, Stopped> {
    let id = parse_id(&args.id, common)?;
    let (store, scope) = open_read_only(common)?;
    check_owner(&store, &id, &scope, common).await?;
    let begun_with = store.scratch(&id).await.map_err(failed)?.map(|scratch| scratch.model);
    let mut reading = Reading::new(ResolveHints::for_turn_of(id.clone(), common, begun_with.as_deref()));
    let mut from = 1;
    loop {
        let page = store.log(&id, from, PAGE).await.map_err(failed)?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        let told = page.iter().map(|event| FeedEvent::read_back(&id, event.clone()));
        let text: String = match args.json {
            true => told.map(|told| as_json(&told)).collect::<Result<_, _>>()?,
            false => told.map(|told| reading.told(&told)).collect(),
        };
        if !print(&text)? {
            return Ok(Exit::Completed);
        }
    }
    if !args.json {
        print(&reading.what_is_left(&jobs(&store, &id).await?))?;
    }
    Ok(Exit::Completed)
}

async fn jobs(store: &SqliteStore, id: &ConversationId) -> Result<Vec<Job>, Stopped> {
    store.jobs(id).await.map_err(failed)
}

fn as_json(told: &FeedEvent) -> Result<String, Stopped> {
    json_line(told).map_err(unprintable)
}

/// A person at the log.
struct Reading {
    fold: Fold,
    layout: Layout,
    /// Questions without an answer.
    pending: Vec<Pending>,
    /// Whether the last turn is not over.
    open: bool,
    hints: ResolveHints,
}

impl Reading {
    fn new(hints: ResolveHints) -> Self {
        let layout = Layout::new(Palette::of(&io::stdout()), terminal_width(&io::stdout()));
        Self { fold: Fold::new(0), layout, pending: Vec::new(), open: false, hints }
    }

    fn told(&mut self, told: &FeedEvent) -> String {
        let FeedItem::Log(event) = &told.item else { return String::new() };
        self.note_pending(event);
        let folded = self.fold.told(told);
        let whole = |label, text: String| vec![Shown::Line(Line { label, tone: Tone::Plain, text: clean(&text) })];
        let shown = match &event.kind {
            EventKind::UserMessage { content, .. } => whole("user", content.text()),
            EventKind::AssistantMessage { content, .. } if content.text().trim().is_empty() => Vec::new(),
            EventKind::AssistantMessage { content, .. } => whole("agent", content.text()),
            _ => folded,
        };
        let lines = shown.iter().filter_map(|shown| match shown {
            Shown::Line(line) => Some(self.layout.line(line)),
            _ => None,
        });
        let mut text: String = lines.collect();
        if matches!(event.kind, EventKind::TurnEnded(_)) {
            text.push('\n');
        }
        text
    }

    fn note_pending(&mut self, event: &Event) {
        match &event.kind {
            EventKind::UserMessage { .. } => self.open = true,
            EventKind::Suspension { .. } => self.pending.extend(Pending::of_event(&event.kind)),
            EventKind::Resolution { call, by, evidence, .. } if evidence.open => {
                for pending in self.pending.iter_mut().filter(|pending| pending.call == *call) {
                    pending.note_approval(by, evidence);
                }
            }
            EventKind::Resolution { call, .. } => self.pending.retain(|pending| pending.call != *call),
            EventKind::TurnEnded(_) => {
                self.pending.clear();
                self.open = false;
            }
            _ => {}
        }
    }

    /// Open questions with the command that answers each, and work that is not done.
    fn what_is_left(&mut self, jobs: &[Job]) -> String {
        let mut text = String::new();
        let mut line = |label, tone, line: String| text += &self.layout.line(&Line { label, tone, text: clean(&line) });
        for open in &self.pending {
            line("open", Tone::Hook, format!("{}, until {}", pending(open), open.expires));
            // The person who answers must see all of it.
            for shown in question::shown(open).into_iter().skip(1) {
                line("", Tone::Plain, shown.text);
            }
            line("", Tone::Plain, self.hints.command(open));
        }
        if self.open && self.pending.is_empty() {
            let (id, options) = (&self.hints.id, &self.hints.options);
            line("open", Tone::Hook, "the turn is not over: a process carries it on, or a crash left it".to_owned());
            line("", Tone::Plain, format!("`turnbuckle run -c {id}{options}` finishes what a crash left"));
        }
        for job in jobs {
            let tone = match (job.due, &job.error) {
                (None, _) => Tone::Bad,
                (Some(_), Some(_)) => Tone::Hook,
                (Some(_), None) => Tone::Dim,
            };
            let (label, words) = told_job(job);
            line(label, tone, words);
        }
        text
    }
}
