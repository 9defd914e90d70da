//! Slash commands, and commands of the person's own, where nothing is drawn.

use turnbuckle::ConversationId;
use turnbuckle::id::{Ids as _, SystemIds};
use turnbuckle_models::without_password;

use super::super::command_queue::{self, Command, CommandOutcome};
use super::super::own_command::OwnCommand;
use super::super::session::Leave;
use super::super::status::Status;
use super::super::{commands, told};
use super::answers::Mode;
use super::{Piped, laid_out};
use crate::exit::Exit;
use crate::model_name::ModelName;
use crate::problem::Problem;
use crate::show::clean;
use crate::signals::Heard;

const HELP: &str = "\
A line is a message. What a turn asks is answered by the next line: y approves, n refuses, any other text refuses with that reason.
/exit leaves, and so does the end of the input; a turn that waits goes on waiting.
Elsewhere: `turnbuckle list`, `show ID`, `trace ID`, `resolve ID CALL`, `cancel ID`.";

/// What a person can do beside that.
const BY_HAND: &str = "\
Of what a turn asks, a approves, d denies and asks why, e edits the arguments, A approves always.
!COMMAND runs a command of yours; the next message has its output. A path to a picture in a message sends the picture.
Ctrl-C cancels the turn; twice at rest it leaves.";

/// What is said where a conversation is chosen.
const CHOOSE: &str = "a number goes on with that conversation, an empty line stays here";

impl Piped<'_> {
    /// The model's name, as it may be shown.
    pub(super) fn model(&self) -> String {
        without_password(&self.ready.model).into_owned()
    }

    pub(super) async fn slash(&mut self, command: &str, rest: &str) {
        if !self.is_watched && !commands::is_for_pipes(command) {
            let problem =
                Problem::error(format!("/{command} is for a person at a terminal, and is not taken from a pipe"));
            let hint = "/help says what is; `--model NAME` and `-c ID` choose a model and a conversation";
            return self.refused(&problem.hint(hint));
        }
        let agent = self.watch.conversations.agent().clone();
        match command {
            "help" => {
                let more = if self.is_watched { format!("\n{BY_HAND}") } else { String::new() };
                let list = commands::list(|name| self.is_watched || commands::is_for_pipes(name));
                self.watch.output.err(format!("{HELP}{more}{list}\n"));
            }
            "hooks" => self.say("hooks", &told::hooks(&agent)),
            "tools" => self.say("tools", &told::tools(&agent)),
            "mcp" => self.say("mcp", &told::mcp(&agent, &self.ready.mcp)),
            "model" if rest.is_empty() => {
                self.say("model", &format!("{}; `/model NAME` chooses another one", self.model()));
            }
            // Before this conversation is left for it: a wrong name changes nothing.
            "model" => match ModelName::parse(rest).and_then(|name| name.open(&self.ready.folder)) {
                Ok(_) => self.again = Some(Leave::Again { id: self.watch.id.clone(), model: Some(rest.to_owned()) }),
                Err(problem) => self.refused(&problem),
            },
            "clear" => self.go_on_with(ConversationId::from(SystemIds::default().mint("c_"))),
            "resume" if rest.is_empty() => self.at_once(Command::ListConversations).await,
            "resume" => match ConversationId::parse(rest) {
                Ok(id) => self.go_on_with(id),
                Err(error) => self.watch.output.err(format!("{error}\n")),
            },
            "permissions" => match rest.split_once(' ').map(|(word, id)| (word, id.trim())) {
                Some(("revoke", id)) => self.at_once(Command::Revoke(id.to_owned())).await,
                _ if rest.is_empty() => self.at_once(Command::ListApprovals).await,
                _ => self.watch.output.err(format!("{}\n", told::PERMISSIONS)),
            },
            "undo" => self.at_once(Command::Undo).await,
            "trace" => self.trace().await,
            "cost" => self.cost().await,
            other => self.watch.output.err(format!("{}\n", commands::unknown(&format!("/{other}")))),
        }
    }

    async fn trace(&mut self) {
        match self.watch.conversations.log(&self.watch.id, self.watch.scope.clone()).await {
            Ok(log) => match log.last().map(|event| event.turn.clone()) {
                Some(turn) => {
                    let (id, options) = (&self.watch.id, &self.watch.hints.options);
                    let note = format!("`turnbuckle trace {id}{options}` has hooks and times");
                    self.at_once(Command::Trace(turn, note)).await;
                }
                None => self.watch.output.err("nothing has happened yet\n"),
            },
            Err(error) => self.watch.output.err(format!("{error}\n")),
        }
    }

    async fn cost(&mut self) {
        let agent = self.watch.conversations.agent();
        let mut status = Status::new(&self.model(), agent.limits().context_tokens);
        // A conversation that is not there yet has cost nothing.
        let log = self.watch.conversations.log(&self.watch.id, self.watch.scope.clone()).await;
        log.iter().flatten().for_each(|event| status.saw(event));
        self.say("cost", &status.spent());
    }

    fn go_on_with(&mut self, id: ConversationId) {
        self.again = Some(Leave::Again { id, model: None });
    }

    /// The number of a conversation. Anything else is told back: it may have been meant as a message.
    pub(super) fn picked(&mut self, line: &str) {
        let Mode::Pick(found) = std::mem::replace(&mut self.mode, Mode::Plain) else { return };
        let chosen = line.parse::<usize>().ok().and_then(|number| found.get(number.checked_sub(1)?).cloned());
        match chosen {
            Some(id) => self.go_on_with(id),
            None if line.is_empty() => self.watch.output.err(format!("this conversation goes on: {}\n", self.watch.id)),
            None => {
                let text = format!("{CHOOSE}\nnot sent: {line}\n");
                self.watch.output.err(clean(&text));
                self.mode = Mode::Pick(found);
            }
        }
    }

    pub(super) async fn carry_out(&self, command: Command) -> Option<CommandOutcome> {
        let of = (&self.watch.id, &self.watch.scope);
        command_queue::at_once(&self.watch.conversations, of, self.ready.workspace.as_ref(), command).await
    }

    async fn at_once(&mut self, command: Command) {
        let outcome = self.carry_out(command).await;
        self.tell(outcome);
    }

    pub(super) fn tell(&mut self, outcome: Option<CommandOutcome>) {
        match outcome {
            Some(CommandOutcome::Told(label, text)) => self.say(label, &text),
            Some(CommandOutcome::Conversations(found)) if found.is_empty() => {
                self.watch.output.err("there is no other conversation\n");
            }
            Some(CommandOutcome::Conversations(found)) => {
                let lines = found.iter().zip(1..).map(|((id, said), number)| format!("{number:>3}  {id}  {said}"));
                self.say("resume", &lines.collect::<Vec<_>>().join("\n"));
                self.watch.output.err(format!("{CHOOSE}\n"));
                self.mode = Mode::Pick(found.into_iter().map(|(id, _)| id).collect());
            }
            Some(CommandOutcome::Failed(problem)) => self.watch.output.problem(&problem),
            _ => {}
        }
    }

    fn say(&self, label: &str, text: &str) {
        self.watch.output.err(clean(&laid_out(label, text)));
    }

    /// Runs a command of the person's own. A line from a pipe is no person.
    pub(super) async fn run_own(&mut self, command: &str) {
        if !self.is_watched {
            return self.watch.output.err("commands of yours are run in a terminal only\n");
        }
        let mut own = match OwnCommand::start(command, self.ready.folder.clone()) {
            Ok(own) => own,
            Err(error) => return self.watch.output.err(clean(&format!("{command} does not start: {error}\n"))),
        };
        loop {
            tokio::select! {
                biased;
                // Dropping it ends it.
                heard = self.watch.signals.next() => {
                    self.watch.signals.begin_anew();
                    if heard == Heard::Leave {
                        (self.over, self.exit) = (true, Exit::Cancelled);
                    }
                    return self.watch.output.err("stopped the command\n");
                }
                line = own.lines.recv() => match line {
                    Some(line) => {
                        self.watch.output.err(clean(&format!("{line}\n")));
                        own.keep(&line);
                    }
                    None => break,
                },
            }
        }
        self.ran.push_str(&own.told());
        self.watch.output.err("the next message has this output\n");
    }
}
