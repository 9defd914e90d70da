//! `turnbuckle show`: one conversation as a person reads it, or its events.

use std::collections::VecDeque;
use std::io;

use turnbuckle::access::AccessTo;
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::{FeedEvent, FeedItem};
use turnbuckle::projection::Pending;
use turnbuckle::store::{Cut, Job, Scratch, Store as _, StoreError};
use turnbuckle::{CallId, ConversationId};
use turnbuckle_stores::SqliteStore;

use super::context;
use super::left::{LeftTurns, OpenTurn, open_turn};
use super::pager::Pages;
use super::{check_readable, failed, parse_id, told_job, unprintable};
use crate::Stopped;
use crate::args::{Common, Show};
use crate::chat::question;
use crate::exit::Exit;
use crate::run::{ResolveHints, for_others};
use crate::show::{Fold, Layout, Line, Palette, Shown, Tone, clean, json_line, pending, terminal_width};
use crate::without_agent::WithoutAgent;

/// How many events are read at a time: a log may be long.
const PAGE: usize = 1_000;

/// Prints it page by page.
pub(crate) async fn show(args: Show, common: &Common) -> Result<Exit, Stopped> {
    let id = parse_id(&args.id, common)?;
    let desk = WithoutAgent::read_only(common)?;
    desk.name.tell_standing();
    check_readable(&desk, &id, common).await?;
    if let Some(wanted) = &args.context {
        return context::show(&desk, &id, wanted, common).await;
    }
    // A sub-agent's turn goes on, and is answered, through the conversation that it works for.
    let (store, main) = (&desk.store, id.root().unwrap_or_else(|| id.clone()));
    let begun = store.scratch(&main).await.map_err(failed)?;
    let hints = ResolveHints::for_turn_of(main, common, &desk, begun.as_ref()).await.map_err(failed)?;
    let mut reading = Reading::new(id.clone(), hints);
    let mut cuts: VecDeque<Cut> = store.cuts(&id).await.map_err(failed)?.into();
    let mut from = 1;
    let mut pages = if args.json { Pages::Direct } else { Pages::of_stdout() };
    loop {
        let page = store.log(&id, from, PAGE).await.map_err(failed)?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        let told = page.iter().map(|event| FeedEvent::read_back(&id, event.clone()));
        let text: String = match args.json {
            true => told.map(|told| as_json(&told)).collect::<Result<_, _>>()?,
            false => told.map(|told| reading.cuts_before(&told, &mut cuts) + &reading.told(&told)).collect(),
        };
        if !pages.print(&text)? {
            pages.finish()?;
            return Ok(Exit::Completed);
        }
    }
    if !args.json {
        let jobs = store.jobs(&id).await.map_err(failed)?;
        let open = reading.open_turn(&desk, begun.as_ref(), common).await?;
        pages.print(&(open + &reading.jobs(&jobs)))?;
    }
    pages.finish()?;
    Ok(Exit::Completed)
}

fn as_json(told: &FeedEvent) -> Result<String, Stopped> {
    json_line(told).map_err(unprintable)
}

/// A person at the log.
struct Reading {
    id: ConversationId,
    fold: Fold,
    layout: Layout,
    open: OpenQuestions,
    /// For the conversation, or the one that a sub-agent works for.
    hints: ResolveHints,
}

/// What a log leaves open.
#[derive(Default)]
struct OpenQuestions {
    /// Questions without an answer.
    pending: Vec<Pending>,
    /// Whether the last turn is not over.
    is_open: bool,
}

impl OpenQuestions {
    /// Reads the log of a conversation.
    async fn read(store: &SqliteStore, id: &ConversationId) -> Result<Self, StoreError> {
        let (mut open, mut from) = (Self::default(), 1);
        loop {
            let page = store.log(id, from, PAGE).await?;
            let Some(last) = page.last() else { return Ok(open) };
            from = last.seq + 1;
            page.iter().for_each(|event| open.note(event));
        }
    }

    fn note(&mut self, event: &Event) {
        match &event.kind {
            EventKind::UserMessage { .. } => self.is_open = true,
            EventKind::Suspension { .. } => self.pending.extend(Pending::of_event(&event.kind)),
            EventKind::Resolution { call, by, evidence, .. } if evidence.open => {
                for pending in self.pending.iter_mut().filter(|pending| pending.call == *call) {
                    pending.note_approval(by, evidence);
                }
            }
            EventKind::Resolution { call, .. } => self.pending.retain(|pending| pending.call != *call),
            EventKind::TurnEnded(_) => *self = Self::default(),
            _ => {}
        }
    }
}

impl Reading {
    fn new(id: ConversationId, hints: ResolveHints) -> Self {
        let layout = Layout::new(Palette::of(&io::stdout()), terminal_width(&io::stdout()));
        Self { id, fold: Fold::new(0), layout, open: OpenQuestions::default(), hints }
    }

    fn told(&mut self, told: &FeedEvent) -> String {
        let FeedItem::Log(event) = &told.item else { return String::new() };
        self.open.note(event);
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

    /// A note for each cut of the context that was made before this event.
    fn cuts_before(&mut self, told: &FeedEvent, cuts: &mut VecDeque<Cut>) -> String {
        let FeedItem::Log(event) = &told.item else { return String::new() };
        let mut text = String::new();
        while let Some(cut) = cuts.pop_front_if(|cut| cut.made_at < event.seq) {
            let note = format!("from here on the model does not see all of the above: {}", cut.summary());
            text += &self.line("compact", Tone::Dim, &note);
        }
        text
    }

    fn line(&mut self, label: &'static str, tone: Tone, text: &str) -> String {
        self.layout.line(&Line { label, tone, text: clean(text) })
    }

    fn asked(&mut self, label: &'static str, tone: Tone, text: &str) -> String {
        self.layout.asked(&Line { label, tone, text: clean(text) })
    }

    /// Open questions with the command that answers each, or why the turn is not over.
    async fn open_turn(
        &mut self,
        desk: &WithoutAgent,
        begun: Option<&Scratch>,
        common: &Common,
    ) -> Result<String, Stopped> {
        // A sub-agent's conversation is judged like the one that it works for.
        let (mut text, main, now) = (String::new(), self.hints.id.clone(), SystemClock::default().now());
        let owner = desk.store.owner(&main).await.map_err(failed)?;
        let asked_in_main = match self.id.is_sub_agent() {
            true => OpenQuestions::read(&desk.store, &main).await.map_err(failed)?.pending,
            false => Vec::new(),
        };
        for open in &std::mem::take(&mut self.open.pending) {
            text += &self.asked("open", Tone::Hook, &format!("{}, until {}", pending(open), open.expires));
            // The person who answers must see all of it.
            for shown in question::in_full(open).into_iter().skip(1) {
                text += &self.asked("", Tone::Plain, &shown.text);
            }
            let what_to_do = match self.answered_as(open, &asked_in_main) {
                Some(open) if open.expires <= now => match begun {
                    Some(begun) => format!("nobody answered in time; {}", self.hints.carried_on_by(&begun.agent)),
                    None => format!("nobody answered in time; {} finishes the turn", self.hints.finish()),
                },
                Some(open) => {
                    let who_else = owner.as_ref().and_then(|owner| desk.who_else(AccessTo::new(&main, owner), open));
                    who_else.map_or_else(|| self.hints.command(open), |who| for_others(open, &who))
                }
                None => format!("it is asked in conversation {main}: {}", self.look_at_main()),
            };
            text += &self.layout.note(Tone::Plain, &what_to_do);
        }
        if self.open.is_open && text.is_empty() {
            text += &self.why_open(desk, begun, common).await?;
        }
        Ok(text)
    }

    /// The question by which this one is answered: the same, unless a sub-agent asks. Its questions are asked one after the other
    /// under the call that started it.
    fn answered_as<'a>(&self, open: &'a Pending, asked_in_main: &'a [Pending]) -> Option<&'a Pending> {
        if !self.id.is_sub_agent() {
            return Some(open);
        }
        let is_above = |call: &CallId| self.id.is_within(&self.hints.id.child(call));
        asked_in_main.iter().find(|asked| is_above(&asked.call) && asked.question == open.question)
    }

    fn look_at_main(&self) -> String {
        format!("`turnbuckle show {}{}` says how it stands", self.hints.id, self.hints.options)
    }

    async fn why_open(
        &mut self,
        desk: &WithoutAgent,
        begun: Option<&Scratch>,
        common: &Common,
    ) -> Result<String, Stopped> {
        let id = &self.id.clone();
        if id.is_sub_agent() {
            let text = format!("the turn is not over: it goes on with that of conversation {}", self.hints.id);
            let (text, look) = (self.line("open", Tone::Hook, &text), self.look_at_main());
            return Ok(text + &self.layout.note(Tone::Plain, &look));
        }
        if open_turn(desk, id).await.map_err(failed)? != Some(OpenTurn::Rests) {
            return Ok(self.line("open", Tone::Hook, "the turn is not over: a process carries it on"));
        }
        let why = LeftTurns::new(desk, common).why(id, begun).await.map_err(failed)?;
        let mut text = self.line("left", Tone::Hook, &format!("the turn is not over: {}", why.words()));
        let who = begun.map(|begun| self.hints.carried_on_by(&begun.agent));
        text += &self.layout.note(Tone::Plain, &who.unwrap_or_else(|| format!("{} finishes it", self.hints.finish())));
        Ok(text)
    }

    /// Work that is not done.
    fn jobs(&mut self, jobs: &[Job]) -> String {
        let line = |job: &Job| {
            let tone = match (job.due, &job.error) {
                (None, _) => Tone::Bad,
                (Some(_), Some(_)) => Tone::Hook,
                (Some(_), None) => Tone::Dim,
            };
            let (label, words) = told_job(job);
            self.line(label, tone, &words)
        };
        jobs.iter().map(line).collect()
    }
}
