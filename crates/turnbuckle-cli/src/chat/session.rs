//! A chat in a terminal: keys, signals and what is told come in, in any order, and the screen never waits.

mod input;

use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use turnbuckle::conversation::{Conversations, LeftTurn};
use turnbuckle::event::EventKind;
use turnbuckle::feed::{ConversationState, Delivery, FeedEvent, FeedItem, LiveEvent, Subscription};
use turnbuckle::projection::{Pending, Projection};
use turnbuckle::{CallId, ConversationId, Outcome, Scope, TurnId};
use turnbuckle_models::without_password;

use super::command_queue::{self, Command, CommandOutcome, CommandQueue, TypedAnswer};
use super::keys::Keys;
use super::terminal::{LEAVE_PASTES, MARK_PASTES, Terminal};
use super::view::View;
use super::{TakenUp, left_elsewhere, question};
use crate::Stopped;
use crate::args::{CarryOn, Common};
use crate::exit::Exit;
use crate::logging;
use crate::output::Output;
use crate::problem::{Problem, with_causes};
use crate::run::{Ready, ResolveHints, for_others, refused};
use crate::show::Tone;
use crate::signals::{Heard, Second, Signals};

/// How long background hooks are waited for when the person leaves. What is left then stays in the outbox.
const BACKGROUND: Duration = Duration::from_secs(10);
/// How long a cancelled turn may take to write its end when the user leaves at once.
const CLOSING: Duration = Duration::from_secs(1);
/// What a person is told whose command another process carries out.
const ELSEWHERE: &str = "another process has this conversation and carries it on; what it writes is shown here";
/// How often it is looked whether another process wrote to the conversation.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Until the person leaves.
pub(super) async fn chat(
    (conversations, taken_up): (Conversations, Receiver<(ConversationId, TurnId)>),
    id: ConversationId,
    ready: &Ready,
    carry_on: CarryOn,
    common: &Common,
) -> Result<Exit, Stopped> {
    let tail = conversations.subscribe(&id, Delivery::Lossless, ready.scope.clone()).await;
    let tail = tail.map_err(|error| refused(error, common))?;
    let broken = |error: std::io::Error| Stopped::failed(Problem::error(format!("starting: {error}")));
    let (output, signals) = (Output::start().map_err(broken)?, Signals::listen(Second::IsPassedOn).map_err(broken)?);
    let terminal = Terminal::take().map_err(broken)?;
    output.out(MARK_PASTES);
    let mut session = Session {
        queue: command_queue::spawn(conversations.clone(), id.clone(), ready.scope.clone()),
        view: View::new(output, ready.agent.tools().len()),
        projection: tail.snapshot.clone(),
        hints: ResolveHints::new(id.clone(), ready.store.is_durable(), common, &ready.scope),
        conversations,
        id,
        scope: ready.scope.clone(),
        tail,
        question: None,
        left: None,
        kept: None,
        shown: Vec::new(),
        answered: Vec::new(),
        handed_over: Vec::new(),
        interrupted: false,
        unwanted: 0,
        leaving: None,
        model: ready.model.clone(),
        taken_up: TakenUp::default(),
    };
    session.welcome(ready);
    if let Some(text) = left_elsewhere(&session.conversations, &session.id, &session.scope, &session.hints).await {
        session.view.say("notice", Tone::Hook, &text);
    }
    session.submit(if carry_on.accept_changes { Command::AcceptChanges } else { Command::Resume });
    Ok(session.run(terminal, signals, taken_up).await)
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
    /// What the person is asked now.
    question: Option<Pending>,
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
    /// The person wants to go, as soon as the turn rests.
    leaving: Option<Exit>,
    /// The model's name, as given.
    model: String,
    /// Turns of other conversations that go on here.
    taken_up: TakenUp,
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

    async fn run(
        mut self,
        mut terminal: Terminal,
        mut signals: Signals,
        mut taken_up: Receiver<(ConversationId, TurnId)>,
    ) -> Exit {
        let conversations = self.conversations.clone();
        let mut upkeep = pin!(conversations.run_maintenance());
        let mut others = pin!(follow_others(conversations.clone(), self.id.clone(), self.scope.clone()));
        let mut broken = pin!(self.view.output.broken());
        let mut log = logging::for_chat();
        let (mut keeps, mut gone, mut keys) = (true, false, Keys::default());
        let exit = loop {
            self.ask();
            self.draw_footer();
            if let Some(exit) = self.leaving.filter(|_| self.rests()) {
                break exit;
            }
            tokio::select! {
                biased;
                heard = signals.next() => if let Some(exit) = self.heard(heard) { break exit },
                () = &mut broken, if !gone => {
                    gone = true;
                    self.heard(Heard::Leave);
                }
                bytes = terminal.bytes.recv(), if self.leaving.is_none() => match bytes {
                    Some(bytes) => keys.feed(&bytes).into_iter().for_each(|key| self.pressed(key)),
                    None => self.quit(),
                },
                told = self.tail.next() => self.told(told).await,
                Some(report) = self.queue.outcomes.recv() => self.reported(report),
                Some(taken) = taken_up.recv() => {
                    if let Some(text) = self.taken_up.words(&self.id, taken, &self.model) {
                        self.view.say("notice", Tone::Hook, &text);
                    }
                }
                Some(line) = log.recv() => self.view.say("log", Tone::Dim, line.trim_end()),
                error = &mut upkeep, if keeps => {
                    keeps = false;
                    let text = format!("what other processes left in this store is not taken up: {}", with_causes(&error));
                    self.view.say("warning", Tone::Bad, &text);
                }
                () = &mut others => {}
            }
        };
        self.leave(exit, signals).await
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
        let (label, tone) = match (&self.question, self.projection.state) {
            _ if self.left.is_some() => ("y or n › ".to_owned(), Tone::Hook),
            (Some(pending), _) => (question::label(&pending.question).to_owned(), Tone::Hook),
            (None, _) if self.rests() => ("› ".to_owned(), Tone::Good),
            (None, ConversationState::Idle | ConversationState::Waiting) => ("… › ".to_owned(), Tone::Dim),
            (None, stage) => (format!("{stage:?} › ").to_lowercase(), Tone::Dim),
        };
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
            self.question = None;
            self.view.draft.take_up();
            self.view.redraw();
        }
        let has_answer = |call: &CallId| self.answered.contains(call) || self.handed_over.contains(call);
        let open = self.projection.pending.values().filter(|pending| !has_answer(&pending.call));
        let (mine, others): (Vec<_>, Vec<_>) =
            open.cloned().partition(|pending| self.hints.who_else(pending).is_none());
        self.show_to_watch(&others);
        // Whether the turn goes on at all is asked first.
        let may_ask = self.leaving.is_none() && self.left.is_none();
        let Some(pending) = mine.into_iter().next().filter(|_| may_ask) else { return };
        question::shown(&pending).iter().for_each(|line| self.view.line(line));
        self.view.draft.set_aside();
        self.question = Some(pending);
    }

    /// Questions that others must answer are shown, once.
    fn show_to_watch(&mut self, pending: &[Pending]) {
        self.shown.retain(|call| pending.iter().any(|pending| pending.call == *call));
        for pending in pending {
            if let (Some(who), false) = (self.hints.who_else(pending), self.shown.contains(&pending.call)) {
                question::shown(pending).iter().for_each(|line| self.view.line(line));
                self.view.say("", Tone::Hook, &for_others(pending, &who));
                self.shown.push(pending.call.clone());
            }
        }
    }

    async fn told(&mut self, told: Option<FeedEvent>) {
        let Some(told) = told.filter(|told| !matches!(told.item, FeedItem::Live(LiveEvent::Lagged { .. }))) else {
            return self.catch_up().await;
        };
        self.projection.apply(&told);
        if matches!(told.item, FeedItem::Live(LiveEvent::TurnStarted { .. })) && self.unwanted > 0 {
            self.unwanted -= 1;
            self.submit(Command::Cancel);
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
                    self.answered.clear();
                    self.handed_over.clear();
                    // Ctrl-C again leaves, also when the turn that it cancelled is over.
                    self.interrupted &= ended.outcome == Outcome::Cancelled;
                    // Another process ended the turn that waited here, and sends no change of state.
                    if self.projection.state == ConversationState::Waiting {
                        self.projection.state = ConversationState::Idle;
                    }
                }
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
                self.leaving = Some(Exit::Failed);
                (self.projection.state, self.answered) = (ConversationState::Idle, Vec::new());
                self.view.sent.clear();
            }
        }
    }

    fn reported(&mut self, report: CommandOutcome) {
        let problem = match report {
            CommandOutcome::NotSent(problem) => {
                self.view.sent.pop_back();
                self.unwanted = self.unwanted.min(self.view.sent.len());
                problem
            }
            CommandOutcome::NotAnswered(call, problem) => {
                self.answered.retain(|answered| *answered != call);
                problem
            }
            CommandOutcome::NotAnsweredNow(typed, left) => {
                self.answered.retain(|answered| *answered != typed.call);
                self.kept = left.can_insist().then_some(typed);
                return self.ask_to_insist(left);
            }
            CommandOutcome::Left(left) => return self.ask_to_insist(left),
            CommandOutcome::Recorded(left) => {
                return self.view.say("notice", Tone::Hook, &format!("the answer is recorded: {left}"));
            }
            CommandOutcome::Failed(problem) => problem,
            CommandOutcome::Remote => {
                self.view.sent.clear();
                self.unwanted = 0;
                return self.view.say("notice", Tone::Hook, ELSEWHERE);
            }
            CommandOutcome::HandedOver(call) => {
                // If it is not there any more, the log has the answer already.
                if self.answered.contains(&call) {
                    self.answered.retain(|answered| *answered != call);
                    self.handed_over.push(call);
                }
                return self.view.say("notice", Tone::Hook, ELSEWHERE);
            }
        };
        self.view.say("error", Tone::Bad, &problem.without_severity());
    }

    /// The open turn is not carried on here. If its agent has only changed, the person can insist.
    fn ask_to_insist(&mut self, left: LeftTurn) {
        if !left.can_insist() {
            let text = format!("the open turn is left: {left}\n{}", self.hints.after_left(&left));
            return self.view.say("notice", Tone::Hook, &text);
        }
        self.view.say("ask", Tone::Hook, &format!("{left}"));
        self.view.say("", Tone::Hook, "carry it on without? The log will say that you insisted");
        self.left = Some(left);
    }

    /// Ends the session. The caller restores the terminal.
    async fn leave(mut self, exit: Exit, mut signals: Signals) -> Exit {
        let ended = async {
            while !self.rests() {
                let told = self.tail.next().await;
                self.told(told).await;
            }
        };
        // What is not done by then stays in the store, for the next process that resumes the conversation.
        let _ = tokio::time::timeout(CLOSING, ended).await;
        self.view.remove_footer();
        let (id, options, palette) = (&self.id, &self.hints.options, LEAVE_PASTES);
        let mut words = palette.to_owned();
        if self.hints.durable && !self.projection.events.is_empty() {
            // If it cannot be asked, the commands are printed: they say what is wrong.
            let left = self.conversations.left_turn(&self.id, self.scope.clone()).await.ok().flatten();
            for pending in self.projection.pending.values() {
                let what_to_do = match &left {
                    Some(left) => format!("{left}; {}", self.hints.after_left(left)),
                    None => self.hints.what_to_do(pending),
                };
                words += &format!("It waits: {what_to_do}\n");
            }
            words += &format!("Go on: `turnbuckle chat -c {id}{options}`\n");
        }
        self.view.output.out(words);
        tokio::select! {
            () = self.conversations.drain(BACKGROUND) => {}
            _ = signals.next() => {}
        }
        // A terminal that takes nothing any more has gone.
        let _ = self.view.output.finish().await;
        exit
    }
}

/// Reads the store again and again: only a read makes events of other processes visible in this one.
async fn follow_others(conversations: Conversations, id: ConversationId, scope: Scope) {
    while conversations.is_durable() {
        tokio::time::sleep(LOOK_EVERY).await;
        // What cannot be read now is read the next time.
        let _ = conversations.snapshot(&id, scope.clone()).await;
    }
    std::future::pending().await
}
