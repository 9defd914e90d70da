//! What the person does: keys, lines, answers, Ctrl-C.

use turnbuckle::projection::Pending;

use super::super::draft::Typed;
use super::super::keys::Key;
use super::super::office::Order;
use super::super::{HELP, Meant, question};
use super::Session;
use crate::exit::Exit;
use crate::show::Tone;
use crate::signals::Heard;

impl Session {
    pub(super) fn pressed(&mut self, key: Key) {
        self.interrupted = false;
        match self.face.draft.press(key) {
            Typed::Nothing => {}
            Typed::End => self.quit(),
            Typed::Line(line) => self.entered(&line),
        }
        self.face.redraw();
    }

    fn entered(&mut self, line: &str) {
        match (Meant::of(line), self.question.take()) {
            (Meant::Help, asked) => {
                self.question = asked;
                self.face.say("", Tone::Dim, HELP);
            }
            (Meant::Quit, asked) => {
                self.question = asked;
                self.quit();
            }
            (_, Some(asked)) => self.answer(asked, line),
            (Meant::Nothing, None) => {}
            (Meant::Unknown(command), None) => {
                self.face.say("", Tone::Dim, &format!("there is no command {command}; /help says which there are"));
            }
            (Meant::Words(words), None) => self.say(words),
        }
    }

    fn say(&mut self, words: &str) {
        let label = if self.rests() { "user" } else { "queued" };
        if self.order(Order::Say(words.to_owned())) {
            self.face.say(label, if label == "user" { Tone::Plain } else { Tone::Dim }, words);
            self.face.sent.push_back(words.to_owned());
        }
    }

    fn answer(&mut self, asked: Pending, line: &str) {
        match question::answer(&asked.question, line) {
            Ok(answer) => {
                let digest = question::digest(&asked.question);
                if self.order(Order::Answer { call: asked.call.clone(), answer, digest }) {
                    self.answered.push(asked.call);
                    self.face.draft.take_up();
                }
            }
            Err(why) => {
                self.face.say("", Tone::Dim, why);
                self.question = Some(asked);
            }
        }
    }

    /// Whether the office took it.
    pub(super) fn order(&mut self, order: Order) -> bool {
        let taken = self.office.orders.try_send(order).is_ok();
        if !taken {
            self.face.say("warning", Tone::Bad, "too much waits to be taken up: that was not sent");
        }
        taken
    }

    pub(super) fn quit(&mut self) {
        self.leaving = Some(Exit::Completed);
        if !self.rests() {
            self.face.say("", Tone::Dim, "leaving when the turn rests; Ctrl-C cancels it");
        }
    }

    pub(super) fn heard(&mut self, heard: Heard) -> Option<Exit> {
        let open = !self.rests() || !self.view.pending.is_empty();
        if heard == Heard::Leave {
            self.order(Order::Cancel);
            self.leaving = Some(Exit::Cancelled);
            return None;
        }
        if std::mem::replace(&mut self.interrupted, true) {
            return Some(Exit::Cancelled);
        }
        if open {
            self.order(Order::Cancel);
            // Each is cancelled when its turn begins: what was said stays said.
            self.unwanted = self.face.sent.len();
            let queued = match self.unwanted {
                0 => "",
                1 => " and the message that is queued",
                _ => " and all messages that are queued",
            };
            self.face.say("", Tone::Dim, &format!("cancelling the turn{queued}; Ctrl-C again leaves"));
        } else if self.face.draft.is_empty() {
            self.face.say("", Tone::Dim, "Ctrl-C again leaves");
        } else {
            self.face.draft.clear();
            self.face.redraw();
        }
        None
    }
}
