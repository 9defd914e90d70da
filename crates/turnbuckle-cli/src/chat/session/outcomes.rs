//! What came of commands.

use turnbuckle::conversation::LeftTurn;
use turnbuckle::{ConversationId, TurnId};

use super::super::command_queue::CommandOutcome;
use super::super::notify::Waiting;
use super::super::view::{Sent, Steering};
use super::answers::Mode;
use super::{ELSEWHERE, Session};
use crate::run::guarded_appeared;
use crate::show::Tone;

impl Session {
    pub(super) fn reported(&mut self, report: CommandOutcome) {
        let problem = match report {
            CommandOutcome::Sent(turn) => {
                if let Some(sent) = self.view.sent.iter_mut().find(|sent| sent.turn.is_none()) {
                    sent.turn = Some(turn);
                }
                return;
            }
            CommandOutcome::Steering(turn) => {
                if let Some(steering) = self.view.steering.iter_mut().find(|steering| steering.id.is_none()) {
                    steering.id = Some(turn);
                }
                return;
            }
            CommandOutcome::NotSteered(problem) => {
                // They are stored in the order in which they were typed.
                let refused = self.view.steering.iter().position(|steering| steering.id.is_none());
                if let Some(refused) = refused.and_then(|place| self.view.steering.remove(place)) {
                    self.view.take_back(&refused.text);
                }
                problem
            }
            CommandOutcome::Steered(turn) => return drop(self.forget_steering(&turn)),
            CommandOutcome::TakenBack(turn, Ok(())) => {
                let text = self.forget_sent(&turn).map(|sent| sent.text);
                if let Some(text) = text.or_else(|| Some(self.forget_steering(&turn)?.text)) {
                    self.view.take_back(&text);
                }
                return;
            }
            CommandOutcome::TakenBack(_, Err(why)) => {
                return self.view.say("", Tone::Dim, &format!("it cannot be taken back: {why}"));
            }
            CommandOutcome::Redirected(queued, turn) => {
                if let Some(sent) = self.forget_sent(&queued) {
                    self.view.steering.push_back(Steering { text: sent.text, id: Some(turn) });
                }
                return;
            }
            CommandOutcome::Previewed(pending, preview) => {
                let is_wanted = self.previewing.take().is_some_and(|wanted| wanted == *pending);
                let still_asked =
                    self.projection.pending.get(&pending.call).is_some_and(|now| now.question == pending.question);
                if is_wanted && still_asked {
                    self.show_question(*pending, preview);
                }
                return;
            }
            CommandOutcome::Proposed(offered) => return self.propose(offered),
            CommandOutcome::Told(label, text) => return self.view.say(label, Tone::Plain, &text),
            CommandOutcome::Conversations(found) => return self.offer(found),
            CommandOutcome::NotSent(problem) => {
                // Messages are stored in the order in which they were sent.
                let refused = self.view.sent.iter().position(|sent| sent.turn.is_none());
                let refused = refused.and_then(|place| self.view.sent.remove(place));
                self.unwanted = self.unwanted.min(self.view.sent.len());
                match refused {
                    Some(refused) => return self.hold_refused(&refused.text, problem.without_severity()),
                    None => problem,
                }
            }
            CommandOutcome::NotAnswered(call, problem) => {
                self.answered.retain(|answered| *answered != call);
                problem
            }
            CommandOutcome::NotAnsweredNow(typed, left) => {
                self.answered.retain(|answered| *answered != typed.call);
                self.kept = left.can_insist().then_some(typed);
                return self.ask_to_insist(left);
            }
            CommandOutcome::Left(left) => return self.ask_to_insist(left),
            CommandOutcome::Recorded(left) => {
                return self.view.say("notice", Tone::Hook, &format!("the answer is recorded: {left}"));
            }
            CommandOutcome::NotCancelled(problem) => {
                self.cancelling = false;
                let Some(problem) = problem else { return };
                problem
            }
            CommandOutcome::Failed(problem) => problem,
            CommandOutcome::Remote => {
                self.view.sent.clear();
                self.unwanted = 0;
                return self.tell_elsewhere();
            }
            CommandOutcome::HandedOver(call) => {
                // If it is not there any more, the log has the answer already.
                if self.answered.contains(&call) {
                    self.answered.retain(|answered| *answered != call);
                    self.handed_over.push(call);
                }
                return self.tell_elsewhere();
            }
        };
        self.view.say("error", Tone::Bad, &problem.without_severity());
    }

    /// Says, once for each turn, that another process carries it on.
    pub(super) fn tell_elsewhere(&mut self) {
        if !std::mem::replace(&mut self.is_elsewhere, true) {
            self.view.say("notice", Tone::Hook, ELSEWHERE);
        }
    }

    /// Says which guarded files came after the last command had ended. While a turn runs, a command may be about to report them itself.
    pub(super) fn look_for_guarded(&mut self) {
        if let Some(problem) = self.rests().then(|| guarded_appeared(&self.guarded)).flatten() {
            self.view.say("warning", Tone::Bad, &problem.without_severity());
            self.view.ring(Waiting::ForAnswer);
        }
    }

    /// The open turn is not carried on here. If its agent has only changed, the person can insist.
    fn ask_to_insist(&mut self, left: LeftTurn) {
        if !left.can_insist() {
            let text = format!("the open turn is left: {left}\n{}", self.hints.after_left(&left));
            return self.view.say("notice", Tone::Hook, &text);
        }
        self.view.say("ask", Tone::Hook, &format!("{left}"));
        self.view.say("", Tone::Hook, "carry it on without? The log will say that you insisted");
        self.left = Some(left);
    }

    fn forget_sent(&mut self, turn: &TurnId) -> Option<Sent> {
        let place = self.view.sent.iter().position(|sent| sent.turn.as_ref() == Some(turn))?;
        self.unwanted = self.unwanted.min(self.view.sent.len() - 1);
        self.view.sent.remove(place)
    }

    fn forget_steering(&mut self, id: &TurnId) -> Option<Steering> {
        let place = self.view.steering.iter().position(|steering| steering.id.as_ref() == Some(id))?;
        self.view.steering.remove(place)
    }

    /// Conversations to choose from.
    fn offer(&mut self, found: Vec<(ConversationId, String)>) {
        if found.is_empty() {
            return self.view.say("", Tone::Dim, "there is no other conversation");
        }
        let lines = found.iter().zip(1..).map(|((id, said), number)| format!("{number:>3}  {id}  {said}"));
        let text: Vec<String> = lines.collect();
        self.view.say("resume", Tone::Plain, &text.join("\n"));
        self.mode = Mode::Pick(found.into_iter().map(|(id, _)| id).collect());
    }
}
