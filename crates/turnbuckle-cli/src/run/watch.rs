//! One turn under way: what is told is shown, a signal cancels it, and what it leaves behind is waited for.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use turnbuckle::access::Action;
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::conversation::{ConversationsBuilder, SendError, TurnError, TurnHandle};
use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::{ConversationState, Delivery, FeedEvent, FeedItem, LiveEvent, Subscription};
use turnbuckle::hook::Point;
use turnbuckle::projection::Pending;
use turnbuckle::scope::PermissionMode;
use turnbuckle::sent::{Stored, messages_shown};
use turnbuckle::store::{Job, JobKind, Store as _};
use turnbuckle::{ConversationId, Conversations, Outcome, Scope, TurnStatus};
use turnbuckle_tools::GuardedNames;

use super::hints::ResolveHints;
use super::verdict;
use super::view::View;
use super::{Ready, guarded_appeared, refused};
use crate::Stopped;
use crate::args::{CarryOn, Common};
use crate::exit::Exit;
use crate::inspect::failed;
use crate::output::Output;
use crate::problem::Problem;
use crate::signals::{Heard, Second, Signals};
use crate::without_agent::WithoutAgent;

/// How long background hooks are waited for. What is left then stays in the outbox.
const BACKGROUND: Duration = Duration::from_secs(10);
/// What takes longer is told of before it is waited for any further.
const UNTOLD: Duration = Duration::from_secs(1);
/// How long the event that a turn has stopped may take to arrive. It comes at once; this is against waiting for ever.
const REST: Duration = Duration::from_secs(2);

/// For someone who may answer a call and not read its conversation.
const NOT_SHOWN: &str = "note: you may answer this call, and [access] here does not let you read its conversation: what the turn \
                         does is not shown\n";

/// For someone who did not wait for it.
const SUMMARY_LEFT: &str = "a summary of the oldest turns was not waited for: it stays in the outbox, and who takes up the \
                            conversation next makes it\n";

/// How the person wants to see it.
#[derive(Clone, Copy, Default)]
pub(crate) struct DisplayOptions {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) bare: bool,
    /// The answer is not streamed: it is an object, and whole or nothing.
    pub(crate) in_one_piece: bool,
}

/// Whether the conversation must be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// It must be in the store, and the acting user may carry its turn on.
    Existing,
    /// It must be in the store, and the acting user may answer a call of it.
    ToAnswer,
    /// It is created if it is not there.
    MaybeNew,
    /// It is in the store, and the acting user may answer a call of it without reading it: nothing of it is shown.
    NotReadable,
}

/// One turn under way: its events, its output and the signals that may cancel it.
pub(crate) struct Watch {
    pub(crate) conversations: Conversations,
    pub(crate) id: ConversationId,
    /// Who is acting.
    pub(crate) scope: Scope,
    pub(crate) output: Output,
    pub(super) view: View,
    /// `None` if the acting user may not read the conversation.
    tail: Option<Subscription>,
    pub(crate) signals: Signals,
    /// Set when the runtime cut us off: then events are missing.
    lost: bool,
    /// Whether the last state told was one of rest.
    pub(crate) resting: bool,
    /// Whether anything was added to the log.
    pub(crate) moved: bool,
    pub(crate) hints: ResolveHints,
    /// Whether the turn's end was told: what is left are hooks that run after it.
    pub(crate) ended: bool,
    /// Whether a signal asked the program to leave: then no summary is waited for.
    is_leaving: bool,
    /// Whether that was more than a Ctrl-C, which may be meant for the turn alone.
    is_to_end: bool,
    /// Whether the turn was cancelled because stdout is closed.
    is_unread: bool,
    guarded: GuardedNames,
    /// Whether no progress is told.
    is_quiet: bool,
}

impl Watch {
    /// From here on what happens is shown.
    pub(crate) async fn begin(
        conversations: ConversationsBuilder,
        id: ConversationId,
        display: DisplayOptions,
        ready: &Ready,
        common: &Common,
        expected: Expected,
    ) -> Result<Self, Stopped> {
        let conversations = conversations.permission_mode(permission_mode());
        let conversations = if display.bare { conversations.without_background_hooks() } else { conversations }.build();
        if expected == Expected::Existing || expected == Expected::MaybeNew {
            // Refused before anything is read: then nobody has read the conversation of another.
            match conversations.may(&id, Action::Say, &ready.scope).await {
                // A new one is nobody's yet.
                Ok(()) | Err(SendError::NotFound { .. }) => {}
                Err(error) => return Err(refused(error, common)),
            }
        }
        if expected == Expected::Existing || expected == Expected::ToAnswer {
            conversations.snapshot(&id, ready.scope.clone()).await.map_err(|error| refused(error, common))?;
        }
        let broken = |error: io::Error| Stopped::failed(Problem::error(format!("starting: {error}")));
        let (output, signals) = (Output::start().map_err(broken)?, Signals::listen(Second::Ends).map_err(broken)?);
        output.err(ready.warnings());
        if !display.quiet {
            output.err(ready.notes());
        }
        // An answer in a shape is given without tools.
        let tools = if display.in_one_piece { 0 } else { ready.agent.tools().len() };
        let mut view = View::new(display, tools);
        let tail = match expected {
            Expected::NotReadable => {
                output.err(NOT_SHOWN);
                None
            }
            Expected::Existing | Expected::ToAnswer | Expected::MaybeNew => {
                let tail = conversations.subscribe(&id, Delivery::Lossless, ready.scope.clone()).await;
                Some(tail.map_err(|error| refused(error, common))?)
            }
        };
        if let Some(tail) = &tail {
            let log = &tail.snapshot.events;
            view.knows(log);
            // A conversation that is not there yet cannot be asked.
            if let Some(oldest) = log.first() {
                let shown = messages_of(&conversations, &id, (log, oldest.seq), &ready.scope).await;
                view.has_messages(shown.map_err(|error| refused(error, common))?);
            }
        }
        let hints = ResolveHints::new(id.clone(), ready.store.is_durable(), common, &ready.scope);
        let (lost, resting, moved, ended, is_leaving) = (false, false, false, false, false);
        let scope = ready.scope.clone();
        Ok(Self {
            conversations,
            id,
            scope,
            output,
            view,
            tail,
            signals,
            lost,
            resting,
            moved,
            hints,
            ended,
            is_leaving,
            is_to_end: false,
            is_unread: false,
            guarded: ready.guarded.clone(),
            is_quiet: display.quiet,
        })
    }

    /// Insists, if the person does, that a turn whose agent has changed since it began is carried on here.
    pub(crate) async fn accept_changes(&self, carry_on: CarryOn, common: &Common) -> Result<(), Stopped> {
        if !carry_on.accept_changes {
            return Ok(());
        }
        match self.conversations.accept_changes(&self.id, self.scope.clone()).await {
            Ok(Some(left)) => self.output.err(format!("insisting: {left}\n")),
            // A conversation that is not there yet has no turn to insist on.
            Ok(None) | Err(SendError::NotFound { .. }) => {}
            Err(error) => return Err(refused(error, common)),
        }
        Ok(())
    }

    /// Questions of the open turn that can still be answered.
    pub(crate) async fn open_questions(&self) -> Result<Vec<Pending>, SendError> {
        let now = SystemClock::default().now();
        match self.conversations.snapshot(&self.id, self.scope.clone()).await {
            Ok(snapshot) => Ok(snapshot.pending.values().filter(|pending| pending.expires > now).cloned().collect()),
            // A conversation that is not there yet asks nothing.
            Err(SendError::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Reports that the turn waits for an answer. Another process may have begun it, with other options and elsewhere.
    pub(crate) async fn refuse(mut self, pending: &[Pending], common: &Common) -> Result<Exit, Stopped> {
        let desk = WithoutAgent::read_only(common)?;
        let begun = desk.store.scratch(&self.id).await.map_err(failed)?;
        let hints = ResolveHints::for_turn_of(self.id.clone(), common, &desk, begun.as_ref());
        self.hints = hints.await.map_err(failed)?;
        self.output.problem(&self.busy(pending));
        Ok(self.finish(Exit::Failed).await)
    }

    /// Why nothing can be said: the turn waits for an answer.
    pub(crate) fn busy(&self, pending: &[Pending]) -> Problem {
        verdict::busy(pending, &self.hints)
    }

    /// The answer, and what went wrong.
    pub(crate) fn tell(&mut self, rest: &Result<TurnStatus, TurnError>) -> Exit {
        let (exit, mut problems) = verdict::of(rest, &self.hints);
        if self.is_unread && matches!(rest, Ok(TurnStatus::Ended(ended)) if ended.outcome == Outcome::Cancelled) {
            problems = vec![verdict::unread(&self.hints)];
        }
        if !self.is_shown() {
            self.output.err(verdict::unseen(rest) + "\n");
            return exit;
        }
        if let Ok(TurnStatus::Ended(ended)) = rest {
            self.view.answer(ended, &self.output);
        }
        let blamed = match rest {
            Ok(TurnStatus::Ended(ended)) => ended.by.as_ref(),
            _ => None,
        };
        self.view.troubles(blamed).iter().chain(&problems).for_each(|problem| self.output.problem(problem));
        exit
    }

    pub(crate) async fn conclude(mut self, rest: Result<TurnStatus, TurnError>) -> Exit {
        self.catch_up().await;
        self.wait_for_hooks().await;
        let exit = self.tell(&rest);
        // The answer does not wait for it.
        self.wait_for_summary().await;
        if self.lost {
            self.output.problem(&Problem::error("events are missing: they were not taken in time"));
        }
        guarded_appeared(&self.guarded).iter().for_each(|problem| self.output.problem(problem));
        self.finish(exit).await
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(self, exit: Exit) -> Exit {
        let Self { output, mut signals, lost, .. } = self;
        let written = tokio::select! {
            biased;
            // The reader of stdout is slow, and the user does not want to wait for it.
            () = signals.first() => return Exit::Cancelled,
            written = output.finish() => written,
        };
        match written {
            Ok(()) if lost => Exit::Failed,
            Ok(()) => exit,
            Err(error) => {
                crate::output::report(&[Problem::error(format!("writing to stdout: {error}"))]);
                Exit::Failed
            }
        }
    }

    /// Shows what is told until the turn rests. A signal or a closed stdout cancels it.
    pub(crate) async fn follow(&mut self, handle: TurnHandle) -> Result<TurnStatus, TurnError> {
        (self.resting, self.ended) = (false, false);
        let mut rest = pin!(handle.wait());
        let mut broken = pin!(self.output.broken());
        loop {
            tokio::select! {
                biased;
                heard = self.signals.next() => {
                    self.is_leaving = true;
                    self.is_to_end |= heard == Heard::Leave;
                    if self.ended {
                        self.output.err("waiting for hooks that run after the turn; again to stop at once\n");
                    }
                    self.cancel().await;
                }
                () = &mut broken, if !self.is_unread => {
                    self.is_unread = true;
                    self.cancel().await;
                }
                told = next(&mut self.tail), if !self.lost => self.show(told.as_ref()),
                rest = &mut rest => return rest,
            }
        }
    }

    /// Goes on after a turn, if nothing asked the program to end: the next Ctrl-C is a first one again, also where one came too late to cancel
    /// the turn. False if it is to end.
    pub(crate) fn goes_on(&mut self) -> bool {
        if !self.is_to_end {
            self.is_leaving = false;
            self.signals.begin_anew();
        }
        !self.is_to_end
    }

    /// Whether a signal came while a turn ran.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether the acting user may read the conversation, and so sees what happens in it.
    pub(crate) fn is_shown(&self) -> bool {
        self.tail.is_some()
    }

    async fn cancel(&self) {
        // It fails only if the conversation is not there, and then there is nothing to cancel.
        let _ = self.conversations.cancel(&self.id, self.scope.clone()).await;
    }

    fn show(&mut self, told: Option<&FeedEvent>) {
        match told {
            Some(told) => {
                match &told.item {
                    FeedItem::Live(LiveEvent::StateChanged { state }) => {
                        self.resting = matches!(state, ConversationState::Idle | ConversationState::Waiting);
                    }
                    FeedItem::Log(event) => {
                        self.moved = true;
                        self.ended |= matches!(event.kind, EventKind::TurnEnded(_));
                    }
                    FeedItem::Live(_) => {}
                }
                self.view.told(told, &self.output);
            }
            None => self.lost = true,
        }
    }

    /// Shows what was told until the conversation rests.
    pub(crate) async fn catch_up(&mut self) {
        if !self.is_shown() {
            return;
        }
        let told = async {
            while !self.resting && !self.lost {
                let told = next(&mut self.tail).await;
                self.show(told.as_ref());
            }
        };
        // Without it nothing but the last word would be missing.
        let _ = tokio::time::timeout(REST, told).await;
    }

    /// What turns left to be done, by this process or one before.
    pub(crate) async fn wait_for_leftovers(&mut self) {
        self.wait_for_hooks().await;
        self.wait_for_summary().await;
    }

    async fn wait_for_hooks(&mut self) {
        // Observers run beside the turn: what they were not given yet would be missing in an audit log or a trace.
        let leaves_work = [Point::Background, Point::OnEnded, Point::OnLogged, Point::OnEvent];
        let hooks = self.conversations.agent().hooks();
        if hooks.iter().any(|hook| leaves_work.iter().any(|point| hook.points().contains(*point))) {
            self.wait_for_background("background hooks", BACKGROUND).await;
        }
    }

    async fn wait_for_summary(&mut self) {
        // A signal leaves it to the next process, also one that came while the turn ran.
        if self.has_summary_to_make().await {
            if !self.is_leaving {
                let most = self.conversations.agent().summary_timeout();
                self.wait_for_background("the summary of the oldest turns", most).await;
            }
            if self.is_leaving {
                self.output.err(SUMMARY_LEFT);
            }
        }
        while let Some(told) = self.tail.as_mut().and_then(Subscription::try_next) {
            self.show(Some(&told));
        }
        self.view.troubles(None).iter().for_each(|problem| self.output.problem(problem));
    }

    /// Whether a summary of the oldest turns is due, and this process makes it.
    async fn has_summary_to_make(&self) -> bool {
        if !self.conversations.makes_summaries() {
            return false;
        }
        // A store that cannot be read was told of before, or will be.
        let jobs = self.conversations.jobs(&self.id, self.scope.clone()).await.unwrap_or_default();
        // One that failed is due again some time later, and left to whoever is there then.
        let now = SystemClock::default().now();
        jobs.iter().any(|job| job.kind == JobKind::Summary && job.due.is_some_and(|due| due <= now))
    }

    async fn wait_for_background(&mut self, what: &str, most: Duration) {
        let conversations = self.conversations.clone();
        let mut drained = pin!(conversations.drain(most));
        let mut takes_longer = pin!(tokio::time::sleep(UNTOLD));
        let mut is_told = self.is_quiet;
        loop {
            tokio::select! {
                biased;
                () = self.signals.first() => {
                    self.is_leaving = true;
                    return;
                }
                told = next(&mut self.tail), if !self.lost => self.show(told.as_ref()),
                () = &mut drained => break,
                () = &mut takes_longer, if !is_told => {
                    is_told = true;
                    let most = humantime::format_duration(most);
                    self.output.err(format!("waiting for {what}, at most {most}; Ctrl-C leaves it to the next process\n"));
                }
            }
        }
        // Commands are taken in order: once this is answered, what the hooks left is in the log.
        let _ = self.conversations.resume(&self.id, self.scope.clone()).await;
        self.tell_of_jobs().await;
    }

    /// Reports background hooks and summaries that are not done, and those that are given up.
    async fn tell_of_jobs(&self) {
        // They stay in the outbox, whether they can be counted or not.
        let jobs = self.conversations.jobs(&self.id, self.scope.clone()).await.unwrap_or_default();
        let now = SystemClock::default().now();
        // A reminder waits for its time. Whatever process is there then sends it.
        let is_early = |job: &&Job| job.reminder.is_some() && job.tries == 0 && job.due.is_some_and(|due| due > now);
        let left = jobs.iter().filter(|job| !is_early(job));
        let (waiting, parked): (Vec<_>, Vec<_>) = left.partition(|job| job.due.is_some());
        let names = |jobs: &[&Job]| jobs.iter().map(|job| &*job.hook).collect::<Vec<_>>().join(", ");
        let (id, options) = (&self.id, &self.hints.options);
        if !waiting.is_empty() && self.hints.durable {
            let what = format!("work that is not done stays in the outbox: {}", names(&waiting));
            // While a question is open, `run` is refused as busy.
            let asks = self.conversations.snapshot(&self.id, self.scope.clone()).await;
            let hint = match asks.is_ok_and(|snapshot| !snapshot.pending.is_empty()) {
                true => format!("{} takes them up, and so does an answer", self.hints.chat()),
                false => format!("{} takes them up, and so does `turnbuckle chat`", self.hints.finish()),
            };
            self.output.problem(&Problem::warning(what).hint(hint));
        }
        if !parked.is_empty() && self.hints.durable {
            let what = format!("work that failed too often is not tried again: {}", names(&parked));
            let hint = format!("`turnbuckle show {id}{options}` has their errors");
            self.output.problem(&Problem::warning(what).hint(hint));
        }
    }
}

/// How many messages contexts have. `log` is what viewers are given, from the event `oldest` on: contexts may show older ones.
async fn messages_of(
    conversations: &Conversations,
    id: &ConversationId,
    (log, oldest): (&[Arc<Event>], u64),
    scope: &Scope,
) -> Result<usize, SendError> {
    let cuts = conversations.cuts(id, scope.clone()).await?;
    let summaries = match cuts.iter().any(|cut| cut.summary.is_some()) {
        true => conversations.summaries(id, scope.clone()).await?,
        false => Vec::new(),
    };
    let first = cuts.last().map_or(1, |cut| cut.first);
    let mut all = match oldest.saturating_sub(first) {
        0 => Vec::new(),
        missing => {
            let most = usize::try_from(missing).unwrap_or(usize::MAX);
            conversations.history(id, Some(oldest), most, scope).await?.items
        }
    };
    all.extend(log.iter().cloned());
    Ok(messages_shown(Stored { log: &all, cuts: &cuts, summaries: &summaries }))
}

/// What is told next; nothing ever, where nothing is shown.
async fn next(tail: &mut Option<Subscription>) -> Option<FeedEvent> {
    match tail {
        Some(tail) => tail.next().await,
        None => std::future::pending().await,
    }
}

/// Someone can be asked only if they see the question and can type the answer.
fn permission_mode() -> PermissionMode {
    match io::stdin().is_terminal() && io::stderr().is_terminal() {
        true => PermissionMode::Interactive,
        false => PermissionMode::Headless,
    }
}
