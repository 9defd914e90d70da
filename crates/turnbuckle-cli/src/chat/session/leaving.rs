//! How a session ends: by a command, by Ctrl-C, or because the terminal is closed.

use std::time::Duration;

use turnbuckle::feed::ConversationState;

use super::super::command_queue::Command;
use super::{Leave, Session};
use crate::exit::Exit;
use crate::output::Output;
use crate::show::{Tone, clean};
use crate::signals::{Heard, Signals};

/// How long background hooks are waited for when the person leaves. What is left then stays in the outbox.
const BACKGROUND: Duration = Duration::from_secs(10);
/// How long a cancelled turn may take to write its end when the user leaves at once.
const CLOSING: Duration = Duration::from_secs(1);

impl Session {
    pub(super) fn quit(&mut self) {
        self.leaving = Some(Leave::Exit(Exit::Completed));
        if !self.is_done() {
            self.view.say("", Tone::Dim, "leaving when the turn rests; Ctrl-C cancels it");
        }
    }

    /// Whether the turn does something, or is about to: not if it waits for a person.
    fn is_at_work(&self) -> bool {
        match self.projection.state {
            ConversationState::Idle => !self.view.sent.is_empty(),
            // Once everything is answered it goes on.
            ConversationState::Waiting => {
                self.projection.pending.values().all(|pending| self.answered.contains(&pending.call))
            }
            _ => true,
        }
    }

    /// Whether nothing is lost if the session ends now: what was said and answered is stored, and no turn is at work. Messages
    /// may be queued behind a turn that waits.
    pub(super) fn is_done(&self) -> bool {
        let is_stored = self.view.sent.iter().all(|sent| sent.turn.is_some());
        !self.is_at_work() && is_stored && self.answered.is_empty()
    }

    pub(super) fn cancel(&mut self) {
        self.cancelling |= self.submit(Command::Cancel);
    }

    /// Cancels the turn and all messages that are queued: each when its turn begins, so that what was said stays said.
    fn cancel_all(&mut self) {
        self.cancel();
        self.unwanted = self.view.sent.len();
    }

    /// What a signal does. It returns how the program ends, if it ends now.
    pub(super) fn heard(&mut self, heard: Heard) -> Option<Exit> {
        if heard == Heard::Leave {
            // A question stays open: whoever closes the terminal has not answered it.
            if !self.is_at_work() {
                return Some(Exit::Cancelled);
            }
            self.cancel_all();
            self.leaving = Some(Leave::Exit(Exit::Cancelled));
            return None;
        }
        if std::mem::replace(&mut self.interrupted, true) {
            return Some(Exit::Cancelled);
        }
        if self.own.take().is_some() {
            self.view.say("", Tone::Dim, "stopped the command");
        } else if !self.rests() || !self.projection.pending.is_empty() {
            self.cancel_all();
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
            self.completion = None;
        }
        self.view.redraw();
        None
    }

    /// Ends the session. The caller restores the terminal.
    pub(super) async fn leave(mut self, leave: Leave, signals: &mut Signals) -> (Leave, Output) {
        let ended = async {
            while !self.is_done() || self.cancelling {
                tokio::select! {
                    told = self.tail.next() => self.told(told).await,
                    Some(report) = self.queue.outcomes.recv() => self.reported(report),
                }
            }
        };
        // What is not done by then stays in the store, for the next process that resumes the conversation.
        let _ = tokio::time::timeout(CLOSING, ended).await;
        self.view.remove_footer();
        let mut words = String::new();
        if self.hints.durable && !self.projection.events.is_empty() {
            // If it cannot be asked, the commands are printed: they say what is wrong.
            let left = self.conversations.left_turn(&self.id, self.scope.clone()).await.ok().flatten();
            if self.cancelling {
                words += "The turn is being cancelled: its end is written when the conversation is carried on.\n";
            }
            for pending in self.projection.pending.values().filter(|_| !self.cancelling) {
                let what_to_do = match &left {
                    Some(left) => format!("{left}; {}", self.hints.after_left(left)),
                    None => self.hints.what_to_do(pending),
                };
                words += &format!("It waits: {what_to_do}\n");
            }
            if matches!(leave, Leave::Exit(_)) {
                words += &format!("Go on: {}\n", self.hints.chat());
            }
        }
        self.view.output.out(clean(&words));
        if matches!(leave, Leave::Exit(_)) {
            tokio::select! {
                () = self.conversations.drain(BACKGROUND) => {}
                _ = signals.next() => {}
            }
        }
        (leave, self.view.output)
    }
}
