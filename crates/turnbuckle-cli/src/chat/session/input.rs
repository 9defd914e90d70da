//! What the user enters: keys, lines, answers, Ctrl-C.

use turnbuckle::projection::Pending;

use super::super::command_queue::{Command, TypedAnswer};
use super::super::draft::Typed;
use super::super::keys::Key;
use super::super::{HELP, Input, question};
use super::Session;
use crate::exit::Exit;
use crate::show::Tone;
use crate::signals::Heard;

impl Session {
    pub(super) fn pressed(&mut self, key: Key) {
        self.interrupted = false;
        match self.view.draft.press(key) {
            Typed::Nothing => {}
            Typed::End => self.quit(),
            Typed::Line(line) => self.entered(&line),
        }
        self.view.redraw();
    }

    fn entered(&mut self, line: &str) {
        match (Input::of(line), self.question.take()) {
            (Input::Help, asked) => {
                self.question = asked;
                self.view.say("", Tone::Dim, HELP);
            }
            (Input::Quit, asked) => {
                self.question = asked;
                self.quit();
            }
            (_, asked) if self.left.is_some() => {
                self.question = asked;
                self.insist(line.trim());
            }
            (_, Some(asked)) => self.answer(asked, line),
            (Input::Nothing, None) => {}
            (Input::Unknown(command), None) => {
                self.view.say("", Tone::Dim, &format!("there is no command {command}; /help says which there are"));
            }
            (Input::Words(words), None) => self.say(words),
        }
    }

    fn say(&mut self, words: &str) {
        let label = if self.rests() { "user" } else { "queued" };
        if self.submit(Command::Send(words.to_owned())) {
            self.view.say(label, if label == "user" { Tone::Plain } else { Tone::Dim }, words);
            self.view.sent.push_back(words.to_owned());
        }
    }

    /// The answer to whether a turn is carried on although its agent has changed.
    fn insist(&mut self, line: &str) {
        if question::is_yes(line) {
            self.left = None;
            match self.kept.take() {
                Some(typed) => {
                    let call = typed.call.clone();
                    if self.submit(Command::AcceptChangesAndAnswer(typed)) {
                        self.answered.push(call);
                    }
                }
                None => drop(self.submit(Command::AcceptChanges)),
            }
        } else if question::is_no(line) {
            (self.left, self.kept) = (None, None);
            let text = "the turn stays as it is; `/quit`, give the agent back what it lacks, and go on then";
            self.view.say("", Tone::Dim, text);
        } else {
            self.view.say("", Tone::Dim, "y carries the turn on without what the agent lacks, n leaves it");
        }
    }

    fn answer(&mut self, asked: Pending, line: &str) {
        match question::answer(&asked.question, line) {
            Ok(answer) => {
                let digest = question::digest(&asked.question);
                if self.submit(Command::Answer(TypedAnswer { call: asked.call.clone(), answer, digest })) {
                    self.answered.push(asked.call);
                    self.view.draft.take_up();
                }
            }
            Err(why) => {
                self.view.say("", Tone::Dim, why);
                self.question = Some(asked);
            }
        }
    }

    /// Adds a command to the queue; whether there was room for it.
    pub(super) fn submit(&mut self, command: Command) -> bool {
        let taken = self.queue.commands.try_send(command).is_ok();
        if !taken {
            self.view.say("warning", Tone::Bad, "too much waits to be taken up: that was not sent");
        }
        taken
    }

    pub(super) fn quit(&mut self) {
        self.leaving = Some(Exit::Completed);
        if !self.rests() {
            self.view.say("", Tone::Dim, "leaving when the turn rests; Ctrl-C cancels it");
        }
    }

    pub(super) fn heard(&mut self, heard: Heard) -> Option<Exit> {
        let open = !self.rests() || !self.projection.pending.is_empty();
        if heard == Heard::Leave {
            self.submit(Command::Cancel);
            self.leaving = Some(Exit::Cancelled);
            return None;
        }
        if std::mem::replace(&mut self.interrupted, true) {
            return Some(Exit::Cancelled);
        }
        if open {
            self.submit(Command::Cancel);
            // Each is cancelled when its turn begins: what was said stays said.
            self.unwanted = self.view.sent.len();
            let queued = match self.unwanted {
                0 => "",
                1 => " and the message that is queued",
                _ => " and all messages that are queued",
            };
            self.view.say("", Tone::Dim, &format!("cancelling the turn{queued}; Ctrl-C again leaves"));
        } else if self.view.draft.is_empty() {
            self.view.say("", Tone::Dim, "Ctrl-C again leaves");
        } else {
            self.view.draft.clear();
            self.view.redraw();
        }
        None
    }
}
