//! `turnbuckle run` and `resolve`: one turn, or the rest of one. The answer goes to stdout, everything else to stderr.

mod message;
mod verdict;
mod view;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use turnbuckle::conversation::{ConversationsBuilder, ResolveError, SendError, TurnError, TurnHandle};
use turnbuckle::event::EventKind;
use turnbuckle::hook::{HookEntry, Point};
use turnbuckle::id::{Ids, SystemIds};
use turnbuckle::live::{ConversationState, Delivery, Live, Subscription, Telling, Told};
use turnbuckle::projection::Pending;
use turnbuckle::store::{Answer, StoreError};
use turnbuckle::turn::PermissionMode;
use turnbuckle::{Agent, CallId, ConversationId, Conversations, Outcome, Rest, Scope};

use crate::Stopped;
use crate::args::{Common, Resolve, Run};
use crate::assemble::{Prepared, prepare};
use crate::exit::Exit;
use crate::output::Output;
use crate::problem::{Problem, with_causes};
use crate::signals::Signals;
use crate::store::StoreName;
pub(crate) use verdict::Answering;
use view::View;

/// How long background hooks are waited for. What is left then stays in the outbox.
const BACKGROUND: Duration = Duration::from_secs(10);
/// How long a turn that rests may take to say so. It says so at once; this is against waiting forever.
const REST: Duration = Duration::from_secs(2);

/// Runs one turn and says how it came out. A turn that a crash left open is finished first.
pub(crate) async fn run(args: Run, common: &Common) -> Result<Exit, Stopped> {
    let id = conversation(args.conversation.as_deref())?;
    let ready = Ready::of(prepare(common))?;
    // What is kept may have something left to be done.
    let kept = args.conversation.is_some() && ready.store.is_durable();
    let message = message::read(args.message.as_deref(), kept)?;
    let conversations = match &message {
        Some(_) => ready.store.conversations(ready.agent.clone())?,
        None => Conversations::builder(ready.agent.clone(), ready.store.existing()?),
    };
    let looks = Looks { json: args.json, quiet: args.quiet, bare: args.bare };
    let mut watch = Watch::begin(conversations, id, looks, &ready, common, message.is_some()).await?;
    let open = match kept {
        true => watch.conversations.resume(&watch.id, Scope::local()).await.map_err(refused)?,
        false => None,
    };
    let Some(message) = message else {
        let Some(handle) = open else {
            watch.output.err(format!("conversation {} has no open turn: nothing is left to do\n", watch.id));
            return Ok(watch.finish(Exit::Completed).await);
        };
        let rest = watch.follow(handle).await;
        return Ok(match rest {
            Ok(Rest::Waiting(pending)) if !watch.moved => watch.refuse(&pending).await,
            rest => watch.conclude(rest).await,
        });
    };
    if let Some(handle) = open {
        match watch.follow(handle).await {
            Ok(Rest::Ended(ended)) if ended.outcome != Outcome::Cancelled => {
                (watch.resting, watch.ended) = (false, false)
            }
            Ok(Rest::Waiting(pending)) => return Ok(watch.refuse(&pending).await),
            rest => return Ok(watch.conclude(rest).await),
        }
    }
    let handle = watch.conversations.send(&watch.id, message, Scope::local()).await.map_err(refused)?;
    let rest = watch.follow(handle).await;
    Ok(watch.conclude(rest).await)
}

/// Answers a call that waits, and carries the turn on.
pub(crate) async fn resolve(args: Resolve, common: &Common) -> Result<Exit, Stopped> {
    let id = named(&args.id)?;
    let answer = answer(&args)?;
    let ready = Ready::of(prepare(common))?;
    let conversations = Conversations::builder(ready.agent.clone(), ready.store.existing()?);
    let looks = Looks { json: args.json, quiet: false, bare: false };
    let mut watch = Watch::begin(conversations, id, looks, &ready, common, false).await?;
    let call = CallId::from(args.call.as_str());
    let resolved = watch.conversations.resolve(&watch.id, &call, answer, None, Scope::local()).await;
    let handle = resolved.map_err(|error| {
        let hint = match &error {
            ResolveError::Stale { .. } => format!("`turnbuckle show {}` says what it waits for, if it does", watch.id),
            ResolveError::Unfit { .. } => "see `turnbuckle resolve --help` for the kinds of answers".to_owned(),
            ResolveError::Store(_) => {
                "if another process carries the conversation on, try again when it rests".to_owned()
            }
            _ => KNOWN.to_owned(),
        };
        Stopped::failed(Problem::error(error.to_string()).hint(hint))
    })?;
    let rest = watch.follow(handle).await;
    Ok(watch.conclude(rest).await)
}

fn answer(args: &Resolve) -> Result<Answer, Stopped> {
    match (&args.deny, &args.answer) {
        (Some(reason), _) => Ok(Answer::Deny(reason.as_deref().map(Into::into))),
        (None, None) => Ok(Answer::Approve),
        (None, Some(json)) => serde_json::from_str(json).map(Answer::Result).map_err(|error| {
            let problem = Problem::error(format!("the answer is not JSON: {error}"));
            Stopped::usage(problem.hint("a text needs its quotes: --answer '\"blue\"'"))
        }),
    }
}

/// What a turn needs.
struct Ready {
    agent: Agent,
    store: StoreName,
    /// Warnings.
    problems: Vec<Problem>,
    /// The model, if nobody chose it.
    default_model: Option<String>,
}

impl Ready {
    fn of(prepared: Prepared) -> Result<Self, Stopped> {
        let Prepared { agent: Some(agent), store, model, model_is_default, problems, .. } = prepared else {
            let problems = prepared.problems.into_iter().filter(Problem::is_error).collect();
            return Err(Stopped { problems, exit: Exit::Usage });
        };
        Ok(Self { agent, store, problems, default_model: model_is_default.then_some(model) })
    }
}

/// What is said when nobody chose a model.
fn unchosen(model: &str) -> String {
    match model {
        "demo" => "note: no model was chosen and no key was found, so the demo model answers\n\
                   hint: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or choose one with --model; `turnbuckle doctor` says what is there\n"
            .to_owned(),
        model => format!("note: no model was chosen: {model} answers, by the key that was found\n"),
    }
}

/// How the person wants to see it.
#[derive(Clone, Copy)]
struct Looks {
    json: bool,
    quiet: bool,
    bare: bool,
}

fn conversation(given: Option<&str>) -> Result<ConversationId, Stopped> {
    let Some(given) = given else { return Ok(SystemIds::default().mint("c_").into()) };
    ConversationId::parse(given).map_err(|error| {
        Stopped::usage(Problem::error(error.to_string()).hint("for example `-c build-42`; leave -c out for a new one"))
    })
}

/// The id of a conversation that should be there.
pub(crate) fn named(given: &str) -> Result<ConversationId, Stopped> {
    ConversationId::parse(given).map_err(|error| Stopped::usage(Problem::error(error.to_string()).hint(KNOWN)))
}

/// How to find an id.
pub(crate) const KNOWN: &str = "`turnbuckle list` says which there are";

fn refused(error: SendError) -> Stopped {
    let problem = Problem::error(with_causes(&error));
    match error {
        SendError::Empty => Stopped::usage(problem.hint(message::HOW)),
        SendError::Busy { .. } => Stopped::failed(problem.hint("wait for its turn, or answer what it waits for")),
        SendError::NotFound { .. } => Stopped::failed(problem.hint(KNOWN)),
        SendError::Store(StoreError::InUse { .. }) => {
            Stopped::failed(problem.hint("another process carries it on; try again when it rests"))
        }
        _ => Stopped::failed(problem),
    }
}

/// One turn under way, and everyone who has a say.
struct Watch {
    conversations: Conversations,
    id: ConversationId,
    output: Output,
    view: View,
    tail: Subscription,
    signals: Signals,
    /// Set when the runtime cut us off: then events are missing.
    lost: bool,
    /// Whether the last state told was one of rest.
    resting: bool,
    /// Whether anything was added to the log.
    moved: bool,
    answering: Answering,
    /// Whether the turn's end was told: what is left are hooks that run after it.
    ended: bool,
}

impl Watch {
    /// From here on what happens is shown. The conversation is made only if it `may_be_new`.
    async fn begin(
        conversations: ConversationsBuilder,
        id: ConversationId,
        looks: Looks,
        ready: &Ready,
        common: &Common,
        may_be_new: bool,
    ) -> Result<Self, Stopped> {
        // Someone can be asked only if they see the question and can type the answer.
        let watched = io::stdin().is_terminal() && io::stderr().is_terminal();
        let mode = if watched { PermissionMode::Interactive } else { PermissionMode::Headless };
        let conversations = conversations.permission_mode(mode);
        let conversations = if looks.bare { conversations.bare() } else { conversations }.build();
        if !may_be_new {
            conversations.snapshot(&id, Scope::local()).await.map_err(refused)?;
        }
        let broken = |error: io::Error| Stopped::failed(Problem::error(format!("starting: {error}")));
        let (output, signals) = (Output::start().map_err(broken)?, Signals::listen().map_err(broken)?);
        if !looks.quiet {
            ready.problems.iter().for_each(|problem| output.problem(problem));
            if let Some(model) = &ready.default_model {
                output.err(unchosen(model));
            }
        }
        let mut view = View::new(looks.json, looks.quiet, ready.agent.tools().len());
        let tail = conversations.subscribe(&id, Delivery::Lossless, Scope::local()).await.map_err(refused)?;
        view.knows(&tail.snapshot.events);
        let answering = Answering::new(id.clone(), ready.store.is_durable(), common);
        let (lost, resting, moved, ended) = (false, false, false, false);
        Ok(Self { conversations, id, output, view, tail, signals, lost, resting, moved, answering, ended })
    }

    /// The turn waits for somebody else's answer.
    async fn refuse(self, pending: &[Pending]) -> Exit {
        self.output.problem(&verdict::busy(pending, &self.answering));
        self.finish(Exit::Failed).await
    }

    async fn conclude(mut self, rest: Result<Rest, TurnError>) -> Exit {
        self.settle().await;
        let (exit, problems) = verdict::of(&rest, &self.answering);
        if let Ok(Rest::Ended(ended)) = &rest {
            self.view.answer(ended, &self.output);
        }
        problems.iter().for_each(|problem| self.output.err(format!("{problem}\n")));
        if self.lost {
            self.output.problem(&Problem::error("events are missing: they were not taken in time"));
        }
        self.finish(exit).await
    }

    /// Waits until everything is written.
    async fn finish(self, exit: Exit) -> Exit {
        let Self { output, mut signals, lost, .. } = self;
        let written = tokio::select! {
            biased;
            // Nobody reads stdout, and somebody does not want to wait for it.
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
    async fn follow(&mut self, handle: TurnHandle) -> Result<Rest, TurnError> {
        let mut rest = pin!(handle.rest());
        let mut broken = pin!(self.output.broken());
        let mut unread = false;
        loop {
            tokio::select! {
                biased;
                () = self.signals.first() => {
                    if self.ended {
                        self.output.err("waiting for hooks that run after the turn; again to stop at once\n");
                    }
                    self.cancel().await;
                }
                () = &mut broken, if !unread => {
                    unread = true;
                    self.cancel().await;
                }
                told = self.tail.next(), if !self.lost => self.show(told.as_deref()),
                rest = &mut rest => return rest,
            }
        }
    }

    async fn cancel(&self) {
        // It fails only if the conversation is not there, and then there is nothing to cancel.
        let _ = self.conversations.cancel(&self.id, Scope::local()).await;
    }

    fn show(&mut self, told: Option<&Told>) {
        match told {
            Some(told) => {
                match &told.what {
                    Telling::Live(Live::StateChanged { state }) => {
                        self.resting = matches!(state, ConversationState::Idle | ConversationState::Waiting);
                    }
                    Telling::Log(event) => {
                        self.moved = true;
                        self.ended |= matches!(event.kind, EventKind::TurnEnded(_));
                    }
                    Telling::Live(_) => {}
                }
                self.view.told(told, &self.output);
            }
            None => self.lost = true,
        }
    }

    /// What is told after the turn: that the conversation rests, and what background hooks do.
    async fn settle(&mut self) {
        let told = async {
            while !self.resting && !self.lost {
                let told = self.tail.next().await;
                self.show(told.as_deref());
            }
        };
        // Without it nothing but the last word would be missing.
        let _ = tokio::time::timeout(REST, told).await;
        // Observers run beside the turn: what they were not given yet would be missing in an audit log or a trace.
        let aside = [Point::Background, Point::OnEvent];
        let works_aside = |hook: &HookEntry| aside.iter().any(|point| hook.points().contains(*point));
        if self.conversations.agent().hooks().iter().any(works_aside) {
            self.wait_for_background().await;
        }
        while let Some(told) = self.tail.try_next() {
            self.show(Some(&told));
        }
    }

    async fn wait_for_background(&mut self) {
        let conversations = self.conversations.clone();
        let mut drained = pin!(conversations.drain(BACKGROUND));
        loop {
            tokio::select! {
                biased;
                () = self.signals.first() => return,
                told = self.tail.next(), if !self.lost => self.show(told.as_deref()),
                () = &mut drained => break,
            }
        }
        // Commands are taken in order: once this is answered, what the hooks left is in the log.
        let _ = self.conversations.resume(&self.id, Scope::local()).await;
    }
}
