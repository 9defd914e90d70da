//! `turnbuckle run`: one turn. The answer goes to stdout, everything else to stderr.

mod message;
mod verdict;
mod view;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use turnbuckle::conversation::{SendError, TurnError, TurnHandle};
use turnbuckle::event::EventKind;
use turnbuckle::hook::Point;
use turnbuckle::id::{Ids, SystemIds};
use turnbuckle::live::{ConversationState, Delivery, Live, Subscription, Telling, Told};
use turnbuckle::stores::MemoryStore;
use turnbuckle::turn::PermissionMode;
use turnbuckle::{Agent, ConversationId, Conversations, Rest, Scope};

use crate::Stopped;
use crate::args::{Common, Run};
use crate::assemble::{Prepared, prepare};
use crate::exit::Exit;
use crate::output::Output;
use crate::problem::Problem;
use crate::signals::Signals;
use view::View;

/// How long background hooks are waited for. What is left then stays in the outbox.
const BACKGROUND: Duration = Duration::from_secs(10);
/// How long a turn that rests may take to say so. It says so at once; this is against waiting forever.
const REST: Duration = Duration::from_secs(2);

/// Runs one turn and says how it came out.
pub(crate) async fn run(args: Run, common: &Common) -> Result<Exit, Stopped> {
    let id = conversation(args.conversation.as_deref())?;
    let prepared = prepare(common);
    let Prepared { agent: Some(agent), model_is_default, problems, .. } = prepared else {
        let problems = prepared.problems.into_iter().filter(Problem::is_error).collect();
        return Err(Stopped { problems, exit: Exit::Usage });
    };
    let message = message::read(args.message.as_deref())?;
    let broken = |error: io::Error| Stopped::failed(Problem::error(format!("starting: {error}")));
    let (output, signals) = (Output::start().map_err(broken)?, Signals::listen().map_err(broken)?);
    if !args.quiet {
        problems.iter().for_each(|problem| output.problem(problem));
        if model_is_default {
            output.err(
                "note: no model was chosen, so the demo model answers\nhint: choose one with --model script:FILE\n",
            );
        }
    }
    let view = View::new(&args, agent.tools().len());
    let conversations = conversations(agent, args.bare);
    let tail = conversations.subscribe(&id, Delivery::Lossless, Scope::local()).await.map_err(refused)?;
    let handle = conversations.send(&id, message, Scope::local()).await.map_err(refused)?;
    let watch = Watch { conversations, id, output, view, tail, signals, lost: false, resting: false, ended: false };
    Ok(watch.until_the_end(handle).await)
}

fn conversation(given: Option<&str>) -> Result<ConversationId, Stopped> {
    let Some(given) = given else { return Ok(SystemIds::default().mint("c_").into()) };
    ConversationId::parse(given).map_err(|error| {
        Stopped::usage(Problem::error(error.to_string()).hint("for example `-c build-42`; leave -c out for a new one"))
    })
}

fn conversations(agent: Agent, bare: bool) -> Conversations {
    // Someone can be asked only if they see the question and can type the answer.
    let watched = io::stdin().is_terminal() && io::stderr().is_terminal();
    let mode = if watched { PermissionMode::Interactive } else { PermissionMode::Headless };
    let builder = Conversations::builder(agent, MemoryStore::default()).permission_mode(mode);
    if bare { builder.bare() } else { builder }.build()
}

fn refused(error: SendError) -> Stopped {
    let problem = Problem::error(error.to_string());
    match error {
        SendError::Empty => Stopped::usage(problem.hint(message::HOW)),
        SendError::Busy { .. } => Stopped::failed(problem.hint("wait for its turn, or answer what it waits for")),
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
    /// Whether the turn's end was told: what is left are hooks that run after it.
    ended: bool,
}

impl Watch {
    async fn until_the_end(mut self, handle: TurnHandle) -> Exit {
        let rest = self.follow(handle).await;
        self.settle().await;
        let (exit, problems) = verdict::of(&rest);
        if let Ok(Rest::Ended(ended)) = &rest {
            self.view.answer(ended, &self.output);
        }
        problems.iter().for_each(|problem| self.output.err(format!("{problem}\n")));
        if self.lost {
            self.output.problem(&Problem::error("events are missing: they were not taken in time"));
        }
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
                    Telling::Log(event) => self.ended |= matches!(event.kind, EventKind::TurnEnded(_)),
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
        if self.conversations.agent().hooks().iter().any(|hook| hook.points().contains(Point::Background)) {
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
