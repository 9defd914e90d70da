//! Questions of a turn, answered in place: by one key, or by a line.

use std::sync::Arc;
use std::time::Instant;

use turnbuckle::ConversationId;
use turnbuckle::event::Question;
use turnbuckle::projection::Pending;
use turnbuckle::store::{Answer, StandingApproval};

use super::super::command_queue::{Command, TypedAnswer};
use super::super::commands::Input;
use super::super::keys::Key;
use super::super::notify::Waiting;
use super::super::question::{self, READ_FIRST};
use super::Session;
use super::choice::Choice;
use super::unseen::{Cut, beside, short};
use crate::show::Tone;

/// What the next line is, if it is neither a message nor a plain answer.
#[derive(Debug)]
pub(super) enum Mode {
    Plain,
    /// Why a call is denied.
    Reason,
    /// Arguments in the place of those that were asked about.
    Arguments,
    /// Which of these standing approvals is to be stored.
    Always(Choice),
    /// Which of these conversations to go on with.
    Pick(Vec<ConversationId>),
}

/// The key that a typed text is, if it is one that answers.
fn key_of(text: &str) -> Option<char> {
    let mut letters = text.chars();
    letters.next().filter(|key| letters.next().is_none() && "adeAv".contains(*key))
}

impl Session {
    /// Asks, with what the call would change.
    pub(super) fn show_question(&mut self, pending: Pending, preview: Option<Result<String, String>>) {
        let call = pending.call.clone();
        let diff = preview.as_ref().and_then(|preview| preview.as_deref().ok());
        let width = self.view.text_width();
        question::shown_beside(&pending, beside(diff), width).iter().for_each(|line| self.view.asked(line));
        self.cut = Cut::of(&pending, diff, &self.view);
        match preview {
            Some(Ok(diff)) if diff.is_empty() => self.view.say("", Tone::Hook, question::NO_CHANGE),
            Some(Ok(diff)) => match short(&diff) {
                Some(short) => self.view.diff(&short),
                None => {
                    self.view.diff(&diff);
                    self.view.showed_diff(&call, &diff);
                }
            },
            Some(Err(why)) => self.view.say("", Tone::Hook, &format!("it would be refused now: {why}")),
            None => {}
        }
        self.view.draft.set_aside();
        (self.question, self.asked_at, self.mode) = (Some(pending), Some(Instant::now()), Mode::Plain);
        self.view.ring(Waiting::ForAnswer);
    }

    /// What stands before the line being typed, and what keys do.
    pub(super) fn question_footer(&self, pending: &Pending) -> (String, Vec<&'static str>) {
        match &self.mode {
            Mode::Reason => ("why not › ".to_owned(), vec!["Enter alone denies without a reason", "Esc goes back"]),
            Mode::Arguments => {
                let keys = vec!["Enter approves with these", "Alt-Enter begins a line", "Esc goes back"];
                ("arguments › ".to_owned(), keys)
            }
            // What is offered stands there, with what keys do.
            Mode::Always(choice) => (choice.label(), Vec::new()),
            Mode::Pick(_) => (self.pick_label(), Vec::new()),
            Mode::Plain if let Some(keys) = self.what_typed_answers(&pending.question) => {
                (question::label(&pending.question).to_owned(), keys)
            }
            Mode::Plain => {
                let mut keys = match &pending.question {
                    question if question::can_be_standing(question) => {
                        vec!["a approves", "d denies", "e edits", "A always"]
                    }
                    Question::Approval { tool: Some(_), .. } => vec!["a approves", "d denies", "e edits"],
                    Question::Approval { .. } | Question::Pause { .. } => vec!["a approves", "d denies"],
                    _ => Vec::new(),
                };
                keys.extend(self.cut.is_some().then_some("v views all of it"));
                (question::label(&pending.question).to_owned(), keys)
            }
        }
    }

    /// What Enter does with the text that is typed, where it is not one of the keys.
    fn what_typed_answers(&self, question: &Question) -> Option<Vec<&'static str>> {
        let typed = self.view.draft.text();
        let is_approval = matches!(question, Question::Approval { .. } | Question::Pause { .. });
        if !is_approval || self.view.draft.is_empty() || key_of(typed.trim()).is_some() {
            return None;
        }
        let enter = match (Input::of(&typed), question::answer(question, &typed)) {
            (Input::Slash(..), _) | (_, Err(_)) => return Some(vec!["Esc clears"]),
            (_, Ok(Answer::Approve)) => "Enter approves",
            (_, Ok(Answer::Deny(None))) => "Enter denies",
            (_, Ok(_)) => "Enter denies with this reason",
        };
        Some(vec![enter, "Esc clears"])
    }

    /// Whether a key is the answer. Only if the question could be read before and nothing is typed.
    pub(super) fn answers_by_key(&mut self, key: &Key) -> bool {
        let was_read = self.asked_at.is_some_and(|asked| asked.elapsed() >= READ_FIRST);
        let is_plain = matches!(self.mode, Mode::Plain) && self.left.is_none() && self.view.draft.is_empty();
        match (key, &self.question) {
            (Key::Char(key @ ('a' | 'd' | 'e' | 'A' | 'v')), Some(asked)) if was_read && is_plain => {
                let asked = asked.clone();
                self.answer_key(*key, &asked)
            }
            _ => false,
        }
    }

    fn answer_key(&mut self, key: char, asked: &Pending) -> bool {
        let is_tool = matches!(asked.question, Question::Approval { tool: Some(_), .. });
        let is_approval = is_tool || matches!(asked.question, Question::Approval { .. } | Question::Pause { .. });
        match key {
            'v' if self.cut.is_some() => self.view_whole(asked),
            // Otherwise it would be the beginning of a reason, and the next key, too.
            'v' if is_approval => self.view.say("", Tone::Dim, "all of it is shown already"),
            'a' if is_approval => {
                if self.may_approve() {
                    self.give(asked, Answer::Approve, None);
                }
            }
            'd' if is_approval => self.mode = Mode::Reason,
            'e' if is_tool => self.edit(asked),
            'A' if question::can_be_standing(&asked.question) => {
                if self.may_approve() {
                    self.submit(Command::ProposeAlways(Box::new(asked.clone())));
                }
            }
            'A' if is_approval => self.view.say("", Tone::Dim, "no rule can approve this always; a approves it now"),
            _ => return false,
        }
        true
    }

    fn edit(&mut self, asked: &Pending) {
        let Question::Approval { arguments, redacted, .. } = &asked.question else { return };
        if *redacted {
            return self.view.say("", Tone::Hook, "the arguments are redacted here, and cannot be edited");
        }
        self.view.draft.replace(&serde_json::to_string_pretty(&**arguments).unwrap_or_default());
        self.mode = Mode::Arguments;
    }

    /// What stands before the number of a conversation.
    pub(super) fn pick_label(&self) -> String {
        let none = if self.projection.events.is_empty() { "for a new one" } else { "to stay here" };
        format!("number, or Esc {none} › ")
    }

    /// Back to the question itself, or to the conversation that this is.
    pub(super) fn end_mode(&mut self) {
        if matches!(self.mode, Mode::Pick(_)) {
            let is_new = self.projection.events.is_empty();
            let what = if is_new { "a new conversation" } else { "this conversation goes on" };
            self.view.say("", Tone::Dim, &format!("{what}: {}", self.id));
        }
        self.mode = Mode::Plain;
        self.view.draft.clear();
    }

    /// A line while something is asked.
    pub(super) fn answer_line(&mut self, line: &str) {
        let trimmed = line.trim();
        if let Mode::Pick(conversations) = &self.mode {
            let chosen = trimmed.parse::<usize>().ok().and_then(|number| conversations.get(number.checked_sub(1)?));
            match (chosen.cloned(), trimmed) {
                (Some(id), _) => self.go_on_with(id),
                (None, "") => self.end_mode(),
                (None, _) => self.view.say("", Tone::Dim, "type the number of a conversation; Esc picks none"),
            }
            return;
        }
        let Some(asked) = self.question.clone() else { return };
        match std::mem::replace(&mut self.mode, Mode::Plain) {
            Mode::Reason => {
                let reason = (!trimmed.is_empty()).then(|| trimmed.into());
                self.give(&asked, Answer::Deny(reason), None);
            }
            Mode::Arguments => match serde_json::from_str(line) {
                Ok(arguments) => self.give(&asked, Answer::ApproveWith(Arc::new(arguments)), None),
                Err(error) => {
                    self.view.say("", Tone::Bad, &format!("that is not JSON: {error}"));
                    self.view.draft.replace(line);
                    self.mode = Mode::Arguments;
                }
            },
            Mode::Always(choice) => self.chosen_line(&asked, choice, trimmed),
            Mode::Plain | Mode::Pick(_) => {
                if key_of(trimmed).is_some_and(|key| self.answer_key(key, &asked)) {
                    return;
                }
                match question::answer(&asked.question, line) {
                    Ok(Answer::Approve) if !self.may_approve() => {}
                    Ok(answer) => self.give(&asked, answer, None),
                    Err(why) => self.view.say("", Tone::Dim, why),
                }
            }
        }
    }

    pub(super) fn give(&mut self, asked: &Pending, answer: Answer, standing: Option<StandingApproval>) {
        let digest = question::digest(&asked.question);
        let typed = TypedAnswer { call: asked.call.clone(), answer, digest, standing: standing.map(Box::new) };
        if self.submit(Command::Answer(typed)) {
            self.answered.push(asked.call.clone());
            (self.question, self.asked_at, self.mode) = (None, None, Mode::Plain);
            self.view.draft.take_up();
        }
    }

    /// The answer to whether a turn is carried on although its agent has changed.
    pub(super) fn insist(&mut self, line: &str) {
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
}
