//! A chat in a terminal: keys, signals and what is told come in, in any order, and the screen never waits.

mod answers;
mod choice;
mod console;
mod elicited;
mod held;
mod input;
mod leaving;
mod outcomes;
mod slash;
mod unseen;
mod waiting;

use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use turnbuckle::conversation::{Conversations, LeftTurn, TakenUp};
use turnbuckle::event::EventKind;
use turnbuckle::feed::{ConversationState, Delivery, FeedEvent, FeedItem, LiveEvent, Subscription};
use turnbuckle::projection::{Pending, Projection};
use turnbuckle::store::PrivateFile;
use turnbuckle::{Agent, CallId, ConversationId, Outcome, Scope};
use turnbuckle_models::without_password;
use turnbuckle_tools::GuardedNames;

use super::command_queue::{self, Command, CommandQueue, TypedAnswer};
use super::complete::{Completion, Files};
use super::draft::Draft;
use super::history;
use super::notify::Waiting;
use super::own_command::OwnCommand;
use super::status::Status;
use super::view::View;
use super::{ToldTakenUp, left_elsewhere, question};
use crate::Stopped;
use crate::args::{CarryOn, Common};
use crate::exit::Exit;
use crate::logging;
use crate::mcp::{Asked, ServerLine};
use crate::output::Output;
use crate::problem::with_causes;
use crate::run::{Ready, ResolveHints, for_others, refused};
use crate::show::Tone;
use crate::signals::Heard;
use answers::Mode;
pub(super) use console::Console;
use elicited::{Elicited, withdrawn};
use held::Held;
use unseen::Cut;
use waiting::{LOOK_EVERY, at, follow_others, listed, next_line, next_resize};

/// What a person is told whose command another process carries out.
const ELSEWHERE: &str = "another process has this conversation and carries it on; what it writes is shown here";

/// How long an escape waits for the rest of a key.
const ESCAPE: Duration = Duration::from_millis(40);
/// A turn that took longer rings the bell when it is over.
const LONG_TURN: u64 = 10_000;

/// How a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Exit(Exit),
    /// The chat goes on with this conversation, or with another model.
    Again {
        id: ConversationId,
        model: Option<String>,
    },
}

/// What a chat begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// The conversation.
    Talk,
    /// The choice of another one.
    Pick,
}

/// One conversation, until the person leaves it.
pub(super) async fn chat(
    console: &mut Console,
    (conversations, taken_up): (Conversations, Receiver<TakenUp>),
    (id, first): (ConversationId, First),
    ready: &Ready,
    carry_on: CarryOn,
    common: &Common,
) -> Result<Leave, Stopped> {
    let tail = conversations.subscribe(&id, Delivery::Lossless, ready.scope.clone()).await;
    let tail = tail.map_err(|error| refused(error, common))?;
    let Some(output) = console.output.take() else { return Ok(Leave::Exit(Exit::Failed)) };
    let history = ready.store.is_durable().then(|| history::file(&ready.folder));
    let draft = Draft::with_history(history.as_ref().map(history::read).unwrap_or_default());
    let status = Status::new(&without_password(&ready.model), ready.agent.limits().context_tokens);
    let mut session = Session {
        queue: command_queue::spawn(conversations.clone(), id.clone(), ready.scope.clone(), ready.workspace.clone()),
        view: View::new(output, ready.agent.tools().len(), draft, status),
        projection: tail.snapshot.clone(),
        hints: ResolveHints::new(id.clone(), ready.store.is_durable(), common, &ready.scope),
        agent: ready.agent.clone(),
        folder: ready.folder.clone(),
        history,
        conversations,
        id,
        scope: ready.scope.clone(),
        tail,
        elicited: None,
        elicitations: ready.desk.listen(),
        mcp: ready.mcp.clone(),
        guarded: ready.guarded.clone(),
        question: None,
        cut: None,
        asked_at: None,
        previewing: None,
        mode: Mode::Plain,
        completion: None,
        files: None,
        files_coming: None,
        own: None,
        ran: String::new(),
        left: None,
        kept: None,
        shown: Vec::new(),
        answered: Vec::new(),
        handed_over: Vec::new(),
        interrupted: false,
        unwanted: 0,
        cancelling: false,
        leaving: None,
        model: ready.model.clone(),
        taken_up: ToldTakenUp::default(),
        is_elsewhere: false,
        held: None,
    };
    session.welcome(ready);
    if let Some(text) = left_elsewhere(&session.conversations, &session.id, &session.scope, &session.hints).await {
        session.view.say("notice", Tone::Hook, &text);
    }
    session.submit(if carry_on.accept_changes { Command::AcceptChanges } else { Command::Resume });
    if first == First::Pick {
        session.submit(Command::ListConversations);
    }
    let (leave, output) = session.run(console, taken_up).await;
    console.output = Some(output);
    Ok(leave)
}

struct Session {
    conversations: Conversations,
    id: ConversationId,
    /// Who is acting.
    scope: Scope,
    queue: CommandQueue,
    tail: Subscription,
    /// Everything told, folded.
    projection: Projection,
    view: View,
    hints: ResolveHints,
    /// The agent, for those who ask what it can do.
    agent: Agent,
    /// The project's folder.
    folder: PathBuf,
    /// Where what was typed is kept, if it is.
    history: Option<PrivateFile>,
    /// What an MCP server asks the person now.
    elicited: Option<Elicited>,
    elicitations: Receiver<Asked>,
    /// MCP servers, and what their tools cost.
    mcp: Vec<ServerLine>,
    /// What processes that commands left in the background must not make unnoticed.
    guarded: GuardedNames,
    /// What the person is asked now.
    question: Option<Pending>,
    /// What of it was not shown.
    cut: Option<Cut>,
    /// Since when it is on the screen.
    asked_at: Option<Instant>,
    /// The question that is shown as soon as it is known what the call would change.
    previewing: Option<Pending>,
    /// What the next line is.
    mode: Mode,
    completion: Option<Completion>,
    /// The project's files, once somebody wanted to name one.
    files: Option<Files>,
    files_coming: Option<oneshot::Receiver<Vec<String>>>,
    /// The command that the person runs.
    own: Option<OwnCommand>,
    /// What such commands said since the last message.
    ran: String,
    /// The open turn, whose agent has changed: the person is asked whether it is carried on.
    left: Option<LeftTurn>,
    /// The answer that was refused because of that. It is given again if the person insists.
    kept: Option<TypedAnswer>,
    /// Open questions that others must answer and that were shown.
    shown: Vec<CallId>,
    /// Calls whose answer is on its way.
    answered: Vec<CallId>,
    /// Calls whose answer is stored for the process that has the conversation. They are not asked about again.
    handed_over: Vec<CallId>,
    /// Whether Ctrl-C was the last thing that was pressed.
    interrupted: bool,
    /// Queued messages that Ctrl-C cancelled, and whose turns are still to come.
    unwanted: usize,
    /// Whether a cancellation was submitted and the turn has not ended yet.
    cancelling: bool,
    /// The person wants to go, as soon as the turn rests.
    leaving: Option<Leave>,
    /// The model's name, as given.
    model: String,
    /// Turns of other conversations that go on here.
    taken_up: ToldTakenUp,
    /// Whether the person was told that another process carries the turn on.
    is_elsewhere: bool,
    /// Lines that were not sent because there was no room for them.
    held: Option<Held>,
}

impl Session {
    fn welcome(&mut self, ready: &Ready) {
        let (name, model) = (ready.agent.name(), without_password(&ready.model));
        for line in ready.remarks().lines() {
            self.view.say("", Tone::Dim, line);
        }
        if let Some(text) = ready.erasure.retention() {
            self.view.say("", Tone::Dim, &format!("{text}; `turnbuckle list --acts` says which were"));
        }
        let text = format!("{name} ({model}), conversation {}. Enter sends, Ctrl-C cancels, /help says more.", self.id);
        self.view.say("", Tone::Dim, &text);
        let events = self.projection.events.clone();
        if self.projection.more || events.iter().any(|event| matches!(event.kind, EventKind::TurnEnded(_))) {
            let text = format!("It goes on; `turnbuckle show {}{}` has all of it.", self.id, self.hints.options);
            self.view.say("", Tone::Dim, &text);
        }
        self.view.knows(&events);
    }

    async fn run(mut self, console: &mut Console, mut taken_up: Receiver<TakenUp>) -> (Leave, Output) {
        let conversations = self.conversations.clone();
        let mut upkeep = pin!(conversations.run_maintenance());
        let mut others = pin!(follow_others(conversations.clone(), self.id.clone(), self.scope.clone()));
        let mut broken = pin!(self.view.output.broken());
        let mut log = logging::for_chat();
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut resized = signal(SignalKind::window_change()).ok();
        let (mut keeps, mut gone, mut escape) = (true, false, None);
        let leave = loop {
            self.ask();
            self.draw_footer();
            if let Some(leave) = self.leaving.clone().filter(|_| self.is_done()) {
                break leave;
            }
            let frame = self.view.next_frame();
            tokio::select! {
                biased;
                heard = console.signals.next() => if let Some(exit) = self.heard(heard) { break Leave::Exit(exit) },
                () = &mut broken, if !gone => {
                    gone = true;
                    if let Some(exit) = self.heard(Heard::Leave) { break Leave::Exit(exit) }
                }
                bytes = console.terminal.bytes.recv(), if self.leaving.is_none() => match bytes {
                    Some(bytes) => {
                        console.keys.feed(&bytes).into_iter().for_each(|key| self.pressed(key));
                        escape = console.keys.is_escape_pending().then(|| Instant::now() + ESCAPE);
                    }
                    None => self.quit(),
                },
                () = at(escape), if escape.is_some() => {
                    escape = None;
                    console.keys.end_escape().into_iter().for_each(|key| self.pressed(key));
                }
                () = at(frame), if frame.is_some() => self.view.draw(),
                () = at(self.held_until()), if self.held.is_some() => self.tell_held(),
                Some(()) = next_resize(&mut resized) => self.view.redraw(),
                told = self.tail.next() => self.told(told).await,
                Some(report) = self.queue.outcomes.recv() => self.reported(report),
                Some(taken) = taken_up.recv() => {
                    if let Some(text) = self.taken_up.words(&self.id, taken, &self.model) {
                        self.view.say("notice", Tone::Hook, &text);
                    }
                }
                Some(line) = log.recv() => self.view.say("log", Tone::Dim, line.trim_end()),
                Some(asked) = self.elicitations.recv(), if self.elicited.is_none() && self.question.is_none() => self.elicit(asked),
                () = withdrawn(&mut self.elicited), if self.elicited.is_some() => self.elicitation_withdrawn(),
                line = next_line(&mut self.own), if self.own.is_some() => self.own_said(line),
                files = listed(&mut self.files_coming), if self.files_coming.is_some() => self.files_listed(files),
                error = &mut upkeep, if keeps => {
                    keeps = false;
                    let text = format!("what other processes left in this store is not taken up: {}", with_causes(&error));
                    self.view.say("warning", Tone::Bad, &text);
                }
                () = &mut others => {}
                _ = look.tick() => self.look_for_guarded(),
            }
        };
        self.leave(leave, &mut console.signals).await
    }

    /// Whether no turn is under way or about to be.
    fn rests(&self) -> bool {
        let resting = match self.projection.state {
            ConversationState::Idle => true,
            // Once everything is answered it goes on.
            ConversationState::Waiting => !self.projection.pending.is_empty(),
            _ => false,
        };
        resting && self.view.sent.is_empty() && self.answered.is_empty()
    }

    fn draw_footer(&mut self) {
        let mut hint = Vec::new();
        let (label, tone) = match (&self.question, self.projection.state) {
            _ if self.left.is_some() => ("y or n › ".to_owned(), Tone::Hook),
            _ if let Some(elicited) = &self.elicited => {
                hint = vec!["Esc declines to answer"];
                (elicited.label(), Tone::Hook)
            }
            (Some(pending), _) => {
                let (label, keys) = self.question_footer(pending);
                hint = keys;
                (label, Tone::Hook)
            }
            (None, _) if matches!(self.mode, Mode::Pick(_)) => (self.pick_label(), Tone::Hook),
            (None, _) if self.rests() => ("› ".to_owned(), Tone::Good),
            (None, ConversationState::Idle | ConversationState::Waiting) => ("… › ".to_owned(), Tone::Dim),
            (None, ConversationState::Accept | ConversationState::Build) => ("prepares › ".to_owned(), Tone::Dim),
            (None, ConversationState::Call) => ("answers › ".to_owned(), Tone::Dim),
            (None, ConversationState::Dispatch) => ("uses tools › ".to_owned(), Tone::Dim),
            (None, _) => ("ends › ".to_owned(), Tone::Dim),
        };
        let is_busy = !matches!(self.projection.state, ConversationState::Idle | ConversationState::Waiting);
        self.view.status.works(is_busy, Instant::now());
        match (&self.completion, &self.mode) {
            (Some(completion), _) => self.view.set_hint(&completion.lines()),
            (None, Mode::Always(choice)) => self.view.set_hint(&choice.lines()),
            (None, _) => self.view.set_keys(&hint),
        }
        self.view.footer(label, tone);
    }

    /// Asks the first question that is open and has no answer under way.
    fn ask(&mut self) {
        if let Some(asked) = &self.question {
            // Another process may have changed the arguments, or taken this person's answer.
            let is_asked = |now: &Pending| now.question == asked.question && self.hints.who_else(now).is_none();
            if self.projection.pending.get(&asked.call).is_some_and(is_asked) {
                return;
            }
            (self.question, self.asked_at, self.mode) = (None, None, Mode::Plain);
            self.view.draft.take_up();
            self.view.redraw();
        }
        if let Some(previewed) = &self.previewing {
            // Nothing else is asked before it is known what the call would change.
            if self.projection.pending.get(&previewed.call).is_some_and(|now| now.question == previewed.question) {
                return;
            }
            self.previewing = None;
        }
        let has_answer = |call: &CallId| self.answered.contains(call) || self.handed_over.contains(call);
        let open = self.projection.pending.values().filter(|pending| !has_answer(&pending.call));
        let (mine, others): (Vec<_>, Vec<_>) =
            open.cloned().partition(|pending| self.hints.who_else(pending).is_none());
        self.show_to_watch(&others);
        // Whether the turn goes on at all is asked first.
        let may_ask = self.leaving.is_none() && self.left.is_none() && self.elicited.is_none();
        let Some(pending) = mine.into_iter().next().filter(|_| may_ask) else { return };
        if self.submit(Command::Preview(Box::new(pending.clone()))) {
            self.previewing = Some(pending);
        }
    }

    /// Questions that others must answer are shown, once.
    fn show_to_watch(&mut self, pending: &[Pending]) {
        self.shown.retain(|call| pending.iter().any(|pending| pending.call == *call));
        for pending in pending {
            if let (Some(who), false) = (self.hints.who_else(pending), self.shown.contains(&pending.call)) {
                question::shown(pending).iter().for_each(|line| self.view.asked(line));
                self.view.say("", Tone::Hook, &for_others(pending, &who));
                self.shown.push(pending.call.clone());
            }
        }
    }

    async fn told(&mut self, told: Option<FeedEvent>) {
        let Some(told) = told.filter(|told| !matches!(told.item, FeedItem::Live(LiveEvent::Lagged { .. }))) else {
            return self.catch_up().await;
        };
        let waited = self.projection.state == ConversationState::Waiting;
        self.projection.apply(&told);
        if matches!(told.item, FeedItem::Live(LiveEvent::TurnStarted { .. })) && self.unwanted > 0 {
            self.unwanted -= 1;
            self.cancel();
        }
        if let FeedItem::Log(event) = &told.item {
            match &event.kind {
                // The approval of another leaves this person's answer on its way, unless it changes what is asked.
                EventKind::Resolution { call, by, evidence, .. }
                    if !evidence.open || evidence.arguments.is_some() || *by == self.scope.by() =>
                {
                    self.answered.retain(|answered| answered != call);
                    self.handed_over.retain(|answered| answered != call);
                }
                EventKind::TurnEnded(ended) => {
                    if ended.ms >= LONG_TURN {
                        self.view.ring(Waiting::ForMessage);
                    }
                    self.answered.clear();
                    self.handed_over.clear();
                    (self.cancelling, self.is_elsewhere) = (false, false);
                    // Ctrl-C again leaves, also when the turn that it cancelled is over.
                    self.interrupted &= ended.outcome == Outcome::Cancelled;
                    // Another process ended the turn that waited here, and sends no change of state.
                    if self.projection.state == ConversationState::Waiting {
                        self.projection.state = ConversationState::Idle;
                    }
                }
                // A turn that goes on here says so before it writes.
                EventKind::AssistantMessage { .. } | EventKind::ToolStarted { .. } if waited => self.tell_elsewhere(),
                _ => {}
            }
        }
        self.view.told(&told);
    }

    /// Something was missed: by a terminal that stood still, or because another process wrote meanwhile.
    async fn catch_up(&mut self) {
        let text = format!("something was missed: `turnbuckle show {}{}` has all of it", self.id, self.hints.options);
        self.view.say("warning", Tone::Hook, &text);
        match self.conversations.subscribe(&self.id, Delivery::Lossless, self.scope.clone()).await {
            Ok(tail) => {
                (self.projection, self.tail) = (tail.snapshot.clone(), tail);
                // Their resolution may be what was missed.
                let (pending, hints) = (&self.projection.pending, &self.hints);
                let waits = |call: &CallId| pending.get(call).is_some_and(|now| hints.who_else(now).is_none());
                self.answered.retain(waits);
                self.handed_over.retain(waits);
            }
            Err(error) => {
                self.view.say("error", Tone::Bad, &with_causes(&error));
                self.leaving = Some(Leave::Exit(Exit::Failed));
                (self.projection.state, self.answered) = (ConversationState::Idle, Vec::new());
                self.view.sent.clear();
            }
        }
    }
}
