//! Slash commands.

use std::sync::Arc;

use turnbuckle::ConversationId;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::id::{Ids as _, SystemIds};
use turnbuckle_models::without_password;

use super::super::command_queue::Command;
use super::super::{commands, told};
use super::answers::Mode;
use super::{Leave, Session};
use crate::model_name::ModelName;
use crate::show::Tone;

impl Session {
    pub(super) fn slash(&mut self, command: &str, rest: &str) {
        match command {
            "help" => self.view.say("", Tone::Dim, &commands::help()),
            "exit" => self.quit(),
            "model" => self.model(rest),
            "hooks" => self.view.say("hooks", Tone::Plain, &told::hooks(&self.agent)),
            "tools" => self.view.say("tools", Tone::Plain, &told::tools(&self.agent)),
            "mcp" => self.view.say("mcp", Tone::Plain, &told::mcp(&self.agent, &self.mcp)),
            "trace" => self.trace(),
            "cost" => {
                let spent = self.view.status.spent();
                self.view.say("cost", Tone::Plain, &spent);
            }
            "clear" => self.go_on_with(ConversationId::from(SystemIds::default().mint("c_"))),
            "permissions" => self.permissions(rest),
            "resume" => match rest {
                "" => drop(self.submit(Command::ListConversations)),
                id => match ConversationId::parse(id) {
                    Ok(id) => self.go_on_with(id),
                    Err(error) => self.view.say("error", Tone::Bad, &error.to_string()),
                },
            },
            "undo" => drop(self.submit(Command::Undo)),
            _ => {}
        }
    }

    /// Leaves this conversation for another one, in the same chat.
    pub(super) fn go_on_with(&mut self, id: ConversationId) {
        self.mode = Mode::Plain;
        match self.rests() {
            true => self.leaving = Some(Leave::Again { id, model: None }),
            false => self.view.say("", Tone::Dim, "a turn runs: Esc interrupts it, then try again"),
        }
    }

    fn model(&mut self, wanted: &str) {
        let model = without_password(&self.model);
        match wanted {
            "" => self.view.say("model", Tone::Plain, &format!("{model}; `/model NAME` chooses another one")),
            _ if !self.rests() => {
                self.view.say("", Tone::Dim, "a turn runs, and keeps its model; try again when it rests")
            }
            // Before the chat is left for it: a wrong name changes nothing.
            wanted => match ModelName::parse(wanted).and_then(|name| name.open(&self.folder)) {
                Ok(_) => self.leaving = Some(Leave::Again { id: self.id.clone(), model: Some(wanted.to_owned()) }),
                Err(problem) => self.view.say("error", Tone::Bad, &problem.without_severity()),
            },
        }
    }

    fn trace(&mut self) {
        let events = &self.projection.events;
        let Some(last) = events.last().map(|event| event.turn.clone()) else {
            return self.view.say("", Tone::Dim, "nothing has happened yet");
        };
        let is_over = |event: &Arc<Event>| event.turn == last && matches!(event.kind, EventKind::TurnEnded(_));
        let more = if events.iter().any(is_over) { "" } else { "; the turn goes on" };
        let note = format!("`turnbuckle trace {}{}` has hooks and times{more}", self.id, self.hints.options);
        // What a call was sent depends on turns and cuts that this view may not have.
        self.submit(Command::Trace(last, note));
    }

    fn permissions(&mut self, rest: &str) {
        match rest.split_once(' ').map(|(word, id)| (word, id.trim())) {
            Some(("revoke", id)) => drop(self.submit(Command::Revoke(id.to_owned()))),
            _ if rest.is_empty() => drop(self.submit(Command::ListApprovals)),
            _ => self.view.say("", Tone::Dim, told::PERMISSIONS),
        }
    }
}
