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

use std::io::{self, IsTerminal as _};

use turnbuckle::ConversationId;
use turnbuckle::conversation::ConversationsBuilder;
use turnbuckle::scope::PermissionMode;

use crate::Stopped;
use crate::args::{Chat, Common};
use crate::assemble::prepare;
use crate::demo::{self, Played};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::run::{Ready, conversation};
use crate::signals::Heard;

/// Chat with nothing but the program's name: the demo model opens with its story, and without a terminal there is only
/// that.
pub(crate) async fn open(common: &Common) -> Result<Exit, Stopped> {
    if !is_watched() {
        if common.is_given() {
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
    let ready = Ready::of(prepare(common))?;
    if ready.is_demo() {
        // Ctrl-C skips the rest of it.
        if let Played::CutOff(Heard::Leave) = demo::play().await? {
            return Ok(Exit::Cancelled);
        }
    }
    in_terminal(&ready, conversation(None)?, common).await
}

/// Chat in the given conversation, or a new one.
pub(crate) async fn chat(args: Chat, common: &Common) -> Result<Exit, Stopped> {
    let id = conversation(args.conversation.as_deref())?;
    let ready = Ready::of(prepare(common))?;
    match is_watched() {
        true => in_terminal(&ready, id, common).await,
        false => piped::chat(&ready, id, common).await,
    }
}

/// Whether stdin and stdout are terminals.
fn is_watched() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

async fn in_terminal(ready: &Ready, id: ConversationId, common: &Common) -> Result<Exit, Stopped> {
    let builder = conversations(ready)?.permission_mode(PermissionMode::Interactive);
    session::chat(builder.build(), id, ready, common).await
}

fn conversations(ready: &Ready) -> Result<ConversationsBuilder, Stopped> {
    Ok(ready.erasure.apply(ready.store.conversations(ready.agent.clone())?))
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
