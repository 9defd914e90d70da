//! What the user enters: keys, lines, Ctrl-C.

use std::time::{Duration, Instant};

use anstyle::Style;

use super::super::command_queue::Command;
use super::super::commands::{self, Input};
use super::super::complete::{Completion, Files, list_files, names_file};
use super::super::draft::Typed;
use super::super::keys::{Key, LONGEST_PASTE};
use super::super::own_command::OwnCommand;
use super::super::styled::Row;
use super::super::view::{Sent, Steering};
use super::super::{history, pictures};
use super::Session;
use super::answers::Mode;
use crate::show::{Tone, count};

/// How long a list of the project's files is taken as it is: then it is made anew, for those who name a file. The model makes some meanwhile.
const FILES_STAY: Duration = Duration::from_secs(3);

impl Session {
    pub(super) fn pressed(&mut self, key: Key) {
        // Nobody pressed these.
        if matches!(key, Key::FocusIn | Key::FocusOut) {
            return self.view.focus(key == Key::FocusIn);
        }
        if let Key::PasteCut(missing) = key {
            return self.tell_cut_paste(missing);
        }
        self.interrupted = false;
        let key = self.held_key(key);
        let is_up = key == Key::Up;
        if self.chooses_by_key(&key)
            || self.answers_by_key(&key)
            || (is_up && self.view.draft.is_empty() && self.take_back_last())
        {
            return self.view.redraw();
        }
        let completes = matches!(key, Key::Tab | Key::BackTab);
        match self.view.draft.press(key) {
            Typed::Nothing => {}
            Typed::End => self.quit(),
            Typed::Line(line) => self.entered(&line),
            Typed::Steer(line) => self.steer(&line),
            Typed::Other(Key::Tab) => self.complete(1),
            Typed::Other(Key::BackTab) => self.complete(-1),
            Typed::Other(Key::Escape) => self.escape(),
            Typed::Other(Key::Unfold) => self.view.unfold(),
            Typed::Other(_) => {}
        }
        if !completes {
            self.look_for_completion();
        }
        self.view.redraw();
    }

    /// Says that a paste was too long.
    fn tell_cut_paste(&mut self, missing: usize) {
        let (most, missing) = (LONGEST_PASTE >> 20, count(missing, "byte"));
        let text = format!("a paste is taken up to {most} MiB: its last {missing} are missing in the line being typed");
        self.view.say("warning", Tone::Bad, &format!("{text}\n`@file` names a file that the model can read in parts"));
        self.view.redraw();
    }

    fn entered(&mut self, line: &str) {
        if self.elicited.is_some() && self.left.is_none() {
            return self.answer_elicited(line);
        }
        match Input::of(line) {
            Input::Slash(name, rest) if !matches!(self.mode, Mode::Arguments | Mode::Reason) => {
                self.slash(name, rest);
            }
            _ if self.left.is_some() => self.insist(line.trim()),
            _ if self.question.is_some() || matches!(self.mode, Mode::Pick(_)) => self.answer_line(line),
            Input::Nothing => {}
            Input::Unknown(word) => self.view.say("", Tone::Dim, &commands::unknown(word)),
            Input::Slash(command, _) => self.view.say("", Tone::Dim, &commands::unknown(&format!("/{command}"))),
            Input::Run(command) => self.run_own(command),
            Input::Words(words) => self.say(words),
        }
    }

    /// What the model is sent: the words, what the person ran before, and pictures.
    fn composed(&mut self, words: &str) -> (String, turnbuckle::message::Content) {
        let text = std::mem::take(&mut self.ran) + words;
        let (content, remarks) = pictures::attach(&text, words, &self.folder);
        for remark in remarks {
            self.view.say("warning", Tone::Hook, &remark);
        }
        if let Some(file) = &self.history {
            history::add(file, &self.id, words);
        }
        (text, content)
    }

    fn say(&mut self, words: &str) {
        if !self.has_room() {
            return self.hold(words);
        }
        let is_queued = !self.rests();
        let (text, content) = self.composed(words);
        if self.submit(Command::Send(content.clone())) {
            if !is_queued {
                self.view.user_said("user", words);
            }
            self.view.sent.push_back(Sent { text, content, is_queued, turn: None });
        }
    }

    /// Gives a message to the model of the turn that runs: the one being typed, or the one that was queued last.
    fn steer(&mut self, line: &str) {
        let words = line.trim();
        if self.question.is_some() || self.left.is_some() {
            return self.view.say("", Tone::Dim, "answer first: Ctrl-S is for the turn that runs");
        }
        if words.is_empty() {
            match self.view.sent.iter().rfind(|sent| sent.is_queued).cloned() {
                Some(Sent { turn: Some(turn), content, .. }) => {
                    self.submit(Command::TakeBackToSteer(turn, content));
                }
                _ => self.view.say("", Tone::Dim, "Ctrl-S gives what is typed, or queued last, to the turn that runs"),
            }
            return;
        }
        if self.rests() {
            return self.say(words);
        }
        if !self.has_room() {
            return self.hold(words);
        }
        let (text, content) = self.composed(words);
        if self.submit(Command::Steer(content)) {
            self.view.steering.push_back(Steering { text, id: None });
        }
    }

    /// Takes the message back that was queued last. False if none is.
    fn take_back_last(&mut self) -> bool {
        let last = self.view.sent.iter().rfind(|sent| sent.is_queued).and_then(|sent| sent.turn.clone());
        last.is_some_and(|turn| self.submit(Command::TakeBack(turn)))
    }

    /// Esc: what is shown goes, or an answer under way, or the turn.
    fn escape(&mut self) {
        if self.completion.take().is_some() {
            return;
        }
        if self.decline_elicited() {
            return;
        }
        if !matches!(self.mode, Mode::Plain) {
            return self.end_mode();
        }
        if self.question.is_some() && !self.view.draft.is_empty() {
            return self.view.draft.clear();
        }
        if let Some(own) = self.own.take() {
            self.view.say("", Tone::Dim, &format!("stopped `{}`", own.command));
            return;
        }
        if !self.rests() && self.question.is_none() {
            self.view.say("", Tone::Dim, "interrupting the turn; go on typing");
            // What waits would begin at once; the person wants to say something else first. That holds as well for what was meant for this
            // turn: what its model was not given opens the next one. All of it before the turn ends.
            let queued = self.view.sent.iter().filter_map(|sent| sent.turn.clone());
            let steering = self.view.steering.iter().filter_map(|steering| steering.id.clone());
            let waiting: Vec<_> = steering.chain(queued).collect();
            for turn in waiting.into_iter().rev() {
                self.submit(Command::TakeBack(turn));
            }
            self.cancel();
        }
    }

    // Completion.

    pub(super) fn look_for_completion(&mut self) {
        if self.question.is_some() || self.view.draft.searches_for().is_some() {
            self.completion = None;
            return;
        }
        let before = self.view.draft.before_cursor();
        let is_old = self.files.as_ref().is_none_or(|files| files.at.elapsed() >= FILES_STAY);
        if is_old && self.files_coming.is_none() && names_file(&before) {
            self.files_coming = Some(list_files(self.folder.clone()));
        }
        let files = self.files.as_ref().map_or(&[][..], |files| &files.names);
        self.completion = Completion::of(&before, files);
    }

    /// The project's files have been listed. What the person chooses between stays as it is.
    pub(super) fn files_listed(&mut self, names: Vec<String>) {
        (self.files, self.files_coming) = (Some(Files { names, at: Instant::now() }), None);
        if !self.completion.as_ref().is_some_and(Completion::is_under_way) {
            self.look_for_completion();
            self.view.redraw();
        }
    }

    fn complete(&mut self, step: isize) {
        if self.completion.is_none() {
            self.look_for_completion();
        }
        let Some(completion) = &mut self.completion else { return };
        let chosen = completion.choose(step).to_owned();
        let replaces = completion.replaces;
        self.view.draft.complete(replaces, &chosen);
        match completion.is_single() {
            true => {
                self.completion = None;
                self.view.draft.complete(0, " ");
            }
            false => completion.replaces = chosen.chars().count(),
        }
    }

    // Commands of the person's own.

    fn run_own(&mut self, command: &str) {
        if self.own.is_some() {
            return self.view.say("", Tone::Dim, "a command runs already; Esc stops it");
        }
        if let Some(file) = &self.history {
            history::add(file, &self.id, &format!("!{command}"));
        }
        match OwnCommand::start(command, self.folder.clone()) {
            Ok(own) => {
                self.view.say("$", Tone::Tool, command);
                self.own = Some(own);
            }
            Err(error) => self.view.say("error", Tone::Bad, &format!("{command} does not start: {error}")),
        }
    }

    /// A line of the command that runs, or its end.
    pub(super) fn own_said(&mut self, line: Option<String>) {
        let Some(own) = &mut self.own else { return };
        match line {
            Some(line) => {
                own.keep(&line);
                self.view.rows(vec![Row::of(&line, Style::new().dimmed())]);
            }
            None => {
                if let Some(own) = self.own.take() {
                    self.ran.push_str(&own.told());
                    self.view.say("", Tone::Dim, "the next message has this output");
                }
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
}
