//! `turnbuckle chat`, and `turnbuckle` alone: one turn after the other, in a terminal or from a pipe.
//!
//! In a terminal, `session` is the event loop. `terminal` reads bytes, `keys` turns them into keys, and `draft` is the line
//! being typed. `view` turns events into text, `screen` places it above the footer, and `question` asks what a turn needs.
//! `command_queue` carries out what the user entered.

mod command_queue;
mod draft;
mod keys;
mod piped;
pub(crate) mod question;
mod screen;
mod session;
mod terminal;
mod view;

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};

use tokio::sync::mpsc::{Receiver, channel};
use turnbuckle::clock::{Clock as _, SystemClock};
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
use crate::problem::Problem;
use crate::run::{Ready, ResolveHints, conversation};
use crate::signals::Heard;
use crate::trust::{Gate, TrustOptions};

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
    let ready = Ready::of(prepare(common, Gate::Needed(trust)))?;
    let common = &ready.with_store(common);
    if ready.is_demo() {
        // Ctrl-C skips the rest of it.
        if let Played::CutOff(Heard::Leave) = demo::play().await? {
            return Ok(Exit::Cancelled);
        }
    }
    in_terminal(&ready, conversation(None)?, CarryOn::default(), common).await
}

/// Chat in the given conversation, or a new one.
pub(crate) async fn chat(args: Chat, common: &Common) -> Result<Exit, Stopped> {
    let id = conversation(args.conversation.as_deref())?;
    let common = &args.trust.noted_in(common);
    let ready = Ready::of(prepare(common, Gate::Needed(args.trust)))?;
    let common = &ready.with_store(common);
    match is_watched() {
        true => in_terminal(&ready, id, args.carry_on, common).await,
        false => piped::chat(&ready, id, args.carry_on, common).await,
    }
}

/// Whether stdin and stdout are terminals.
fn is_watched() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

async fn in_terminal(ready: &Ready, id: ConversationId, carry_on: CarryOn, common: &Common) -> Result<Exit, Stopped> {
    let (told, taken_up) = taken_up();
    let builder = ready.conversations()?.permission_mode(PermissionMode::Interactive).on_taken_up(told);
    session::chat((builder.build(), taken_up), id, ready, carry_on, common).await
}

/// Open turns of the store that this chat takes up beside its own conversation: each is told once, and then carried on.
pub(super) fn taken_up()
-> (impl Fn(&ConversationId, &TurnId) + Send + Sync + 'static, Receiver<(ConversationId, TurnId)>) {
    let (tell, told) = channel(MAX_UNTOLD);
    let tell = move |id: &ConversationId, turn: &TurnId| {
        if tell.try_send((id.clone(), turn.clone())).is_err() {
            tracing::info!(target: CLI, conversation = %id, %turn, "a turn is taken up");
        }
    };
    (tell, told)
}

/// Tells of turns that are taken up, each once.
#[derive(Default)]
pub(super) struct TakenUp {
    told: VecDeque<TurnId>,
}

impl TakenUp {
    /// What to say of it in the chat of conversation `own`, if anything.
    pub(super) fn words(
        &mut self,
        own: &ConversationId,
        (id, turn): (ConversationId, TurnId),
        model: &str,
    ) -> Option<String> {
        if id == *own || self.told.contains(&turn) {
            return None;
        }
        if self.told.len() >= MAX_UNTOLD {
            self.told.pop_front();
        }
        self.told.push_back(turn);
        let model = without_password(model);
        Some(format!("the turn of conversation {id}, which no process carried on, goes on here, with {model}"))
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

/// What a typed line is.
#[derive(Debug, PartialEq, Eq)]
enum Input<'a> {
    Nothing,
    Help,
    Quit,
    /// A slash and a word that is no command.
    Unknown(&'a str),
    Words(&'a str),
}

impl<'a> Input<'a> {
    /// A path at the beginning of a sentence is no command.
    fn of(line: &'a str) -> Self {
        let line = line.trim();
        let is_command = line.strip_prefix('/').is_some_and(|word| word.chars().all(|ch| ch.is_ascii_alphabetic()));
        match line {
            "" => Self::Nothing,
            "/help" => Self::Help,
            "/quit" | "/exit" => Self::Quit,
            command if is_command => Self::Unknown(command),
            words => Self::Words(words),
        }
    }
}

const HELP: &str = "\
A line is a message; typed while a turn runs, it is queued. Alt-Enter begins a new line.
What a turn asks: y approves, n refuses, any other text refuses with that reason.
Ctrl-C cancels the turn and what is queued; again leaves. Ctrl-D and /quit leave; a turn that waits goes on waiting.
Elsewhere: `turnbuckle list`, `show ID`, `trace ID`, `resolve ID CALL`, `cancel ID`.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_no_command() {
        assert_eq!(Input::of(" /quit "), Input::Quit);
        assert_eq!(Input::of("/qiut"), Input::Unknown("/qiut"));
        assert_eq!(Input::of("/etc/hosts"), Input::Words("/etc/hosts"));
        assert_eq!(Input::of("/tmp is full"), Input::Words("/tmp is full"));
        assert_eq!(Input::of("  "), Input::Nothing);
    }
}
