//! `turnbuckle chat`, and `turnbuckle` alone: one turn after the other, in a terminal or from a pipe.
//!
//! In a terminal, `session` is the event loop. `terminal` reads bytes, `keys` turns them into keys, and `draft` is the text
//! being typed, with `complete` and `history`. `view` is what the user sees: `reply` and `markdown` lay a reply out, `styled` is
//! text with styles and the one way onto the screen, `screen` draws. `question` asks what a turn needs, `commands` are the slash
//! commands, `told` is what some of them say, and `command_queue` carries out what the user entered. Where nothing can be drawn, `piped` goes line by line.

mod command_queue;
mod commands;
mod complete;
mod draft;
mod highlight;
pub(crate) mod history;
mod keys;
mod markdown;
mod notify;
mod own_command;
mod pictures;
mod piped;
pub(crate) mod question;
mod reply;
mod screen;
mod session;
mod status;
mod styled;
mod terminal;
mod told;
mod view;

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};

use tokio::sync::mpsc::{Receiver, channel};
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::conversation::TakenUp;
use turnbuckle::scope::PermissionMode;
use turnbuckle::{ConversationId, Conversations, Scope, TurnId};
use turnbuckle_models::without_password;

use crate::Stopped;
use crate::args::{CarryOn, Chat, Common};
use crate::assemble::prepare;
use crate::demo::{self, Played};
use crate::exit::Exit;
use crate::inspect::left_turns;
use crate::logging::CLI;
use crate::output;
use crate::problem::Problem;
use crate::run::{Ready, ResolveHints, conversation};
use crate::signals::Heard;
use crate::trust::{Gate, TrustOptions};
use session::{First, Leave};

/// How many turns that were taken up may wait to be told of, and are remembered as told.
const MAX_UNTOLD: usize = 256;

/// Chat with nothing but the program's name: the demo model opens with its story, and without a terminal there is only
/// that.
pub(crate) async fn open(trust: TrustOptions, common: &Common) -> Result<Exit, Stopped> {
    if !is_watched() {
        if common.is_given() || trust.given().is_some() {
            let problem = Problem::error("there is no terminal to chat in, and no command");
            return Err(Stopped::usage(
                problem.hint("`turnbuckle chat` reads stdin line by line, `run \"…\"` is one turn"),
            ));
        }
        return match demo::play().await? {
            Played::ToTheEnd(exit) => Ok(exit),
            Played::CutOff(_) => Ok(Exit::Cancelled),
        };
    }
    let common = &trust.noted_in(common);
    let prepared = prepare(common, Gate::Needed(trust));
    // Who has conversations here knows the story.
    let is_known = prepared.store.is_there();
    let ready = Ready::of(prepared)?;
    let common = &ready.with_store(common);
    if ready.is_demo() {
        if is_known {
            output::say("the demo model answers; `turnbuckle | cat` plays its story again");
        } else if let Played::CutOff(Heard::Leave) = demo::play().await? {
            // Ctrl-C only skips the rest of it.
            return Ok(Exit::Cancelled);
        }
    }
    in_terminal(ready, (conversation(None)?, First::Talk), CarryOn::default(), common, trust).await
}

/// Chat in the given conversation, or a new one.
pub(crate) async fn chat(args: Chat, common: &Common) -> Result<Exit, Stopped> {
    let (id, first) = match args.conversation.as_deref() {
        // `-c` without an id: the person chooses, and until then there is a new one.
        Some("") if is_watched() && can_be_drawn() => (conversation(None)?, First::Pick),
        Some("") => {
            let problem = Problem::error("`-c` without an id lets you choose, and there is no terminal for that");
            return Err(Stopped::usage(problem.hint("`turnbuckle list` says which conversations there are: `-c ID`")));
        }
        given => (conversation(given)?, First::Talk),
    };
    let common = &args.trust.noted_in(common);
    let ready = Ready::of(prepare(common, Gate::Needed(args.trust)))?;
    let common = &ready.with_store(common);
    match is_watched() {
        true => in_terminal(ready, (id, first), args.carry_on, common, args.trust).await,
        false => piped::chat(ready, id, args.carry_on, common, args.trust).await,
    }
}

/// Whether stdin and stdout are terminals.
fn is_watched() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Whether the screen may be drawn again and again: not where someone listens to it instead of looking, and not on a terminal that
/// cannot move its cursor.
fn can_be_drawn() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    !is_set("TURNBUCKLE_SCREEN_READER") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// One conversation after the other, until the person leaves.
async fn in_terminal(
    ready: Ready,
    (id, first): (ConversationId, First),
    carry_on: CarryOn,
    common: &Common,
    trust: TrustOptions,
) -> Result<Exit, Stopped> {
    if !can_be_drawn() {
        return piped::chat(ready, id, carry_on, common, trust).await;
    }
    let mut console = session::Console::open()?;
    let (mut ready, mut id, mut first, mut common, mut carry_on) = (ready, id, first, common.clone(), carry_on);
    loop {
        let (told, taken_up) = taken_up();
        let builder = ready.conversations()?.permission_mode(PermissionMode::Interactive).on_taken_up(told);
        let left =
            session::chat(&mut console, (builder.build(), taken_up), (id, first), &ready, carry_on, &common).await?;
        match left {
            Leave::Exit(exit) => return Ok(console.close(exit).await),
            Leave::Again { id: next, model } => {
                (id, first) = (next, First::Talk);
                carry_on = CarryOn::default();
                let Some(model) = model else { continue };
                match with_model(model, &common, trust) {
                    Ok(with_model) => (ready, common) = with_model,
                    Err(stopped) => console.report(&stopped),
                }
            }
        }
    }
}

/// The same agent with another model, and the options that lead to it.
fn with_model(model: String, common: &Common, trust: TrustOptions) -> Result<(Ready, Common), Stopped> {
    let wanted = Common { model: Some(model), ..common.clone() };
    let ready = Ready::of(prepare(&wanted, Gate::Needed(trust)))?;
    Ok((ready, wanted))
}

/// Open turns of the store that this chat takes up beside its own conversation: each is told once, and then carried on.
pub(super) fn taken_up() -> (impl Fn(&TakenUp) + Send + Sync + 'static, Receiver<TakenUp>) {
    let (tell, told) = channel(MAX_UNTOLD);
    let tell = move |taken: &TakenUp| {
        if tell.try_send(taken.clone()).is_err() {
            tracing::info!(target: CLI, conversation = %taken.conversation, turn = %taken.turn, "a turn is taken up");
        }
    };
    (tell, told)
}

/// Tells of turns that are taken up, each once.
#[derive(Default)]
pub(super) struct ToldTakenUp {
    told: VecDeque<TurnId>,
}

impl ToldTakenUp {
    /// What to say of it in the chat of conversation `own`, if anything.
    pub(super) fn words(&mut self, own: &ConversationId, taken: TakenUp, model: &str) -> Option<String> {
        let TakenUp { conversation: id, turn, model_before, .. } = taken;
        if id == *own || self.told.contains(&turn) {
            return None;
        }
        if self.told.len() >= MAX_UNTOLD {
            self.told.pop_front();
        }
        self.told.push_back(turn);
        let model = without_password(model);
        let before = model_before.map(|before| format!(" instead of {}", without_password(&before)));
        let before = before.unwrap_or_default();
        Some(format!("the turn of conversation {id}, which no process carried on, goes on here, with {model}{before}"))
    }
}

/// Turns of other conversations in the store that this agent does not carry on, for an operator to know.
async fn left_elsewhere(
    conversations: &Conversations,
    id: &ConversationId,
    scope: &Scope,
    hints: &ResolveHints,
) -> Option<String> {
    let left = match left_turns(conversations, scope, SystemClock::default().now()).await {
        Ok(left) => left,
        Err(error) => {
            // The chat itself meets the same trouble, and tells of it.
            tracing::warn!(target: CLI, %error, "turns that are left could not be looked for");
            return None;
        }
    };
    for (id, left) in &left {
        tracing::warn!(target: CLI, conversation = %id, turn = %left.turn, %left, "a turn is left");
    }
    let others: Vec<&str> = left.iter().filter(|(other, _)| other != id).map(|(other, _)| other.as_str()).collect();
    let (first, more) = (others.iter().take(3).copied().collect::<Vec<_>>().join(", "), others.len().saturating_sub(3));
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let options = &hints.options;
    let text = format!("turns that this agent does not carry on: {first}{more}; `turnbuckle list{options}` says why");
    (!others.is_empty()).then_some(text)
}
