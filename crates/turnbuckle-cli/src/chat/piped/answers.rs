//! What a turn asks, answered by lines. A person has the same answers as on a screen that is drawn; a line of a program is a plain one.

use std::sync::Arc;
use std::time::Instant;

use turnbuckle::ConversationId;
use turnbuckle::event::Question;
use turnbuckle::projection::Pending;
use turnbuckle::store::{Answer, GivenAnswer, StandingApproval};
use turnbuckle_tools::rules;

use super::super::command_queue::{Command, CommandOutcome};
use super::super::question::{self, READ_FIRST};
use super::Piped;
use crate::problem::Problem;
use crate::show::clean;

/// What the next line is, if it is neither a message nor a plain answer.
#[derive(Debug)]
pub(super) enum Mode {
    Plain,
    /// Why a call is denied.
    Reason,
    /// Arguments in the place of those that were asked about.
    Arguments,
    /// The number of one of these standing approvals.
    Always(Vec<StandingApproval>),
    /// The number of one of these conversations.
    Pick(Vec<ConversationId>),
}

/// What can be typed while rules are offered.
const OFFERED: &str = "a number stores that rule and approves this call; an empty line goes back";

impl Piped<'_> {
    /// What can be typed.
    pub(super) fn label(&self, asked: &Pending) -> String {
        match &asked.question {
            question if self.is_watched && question::can_be_standing(question) => {
                "a approves, d denies, e edits the arguments, A approves always; any other text denies with that reason"
                    .to_owned()
            }
            Question::Approval { tool: Some(_), .. } if self.is_watched => {
                "a approves, d denies, e edits the arguments; any other text denies with that reason".to_owned()
            }
            Question::Approval { .. } | Question::Pause { .. } if self.is_watched => {
                "a approves, d denies; any other text denies with that reason".to_owned()
            }
            question => question::label(question).trim_end_matches(" › ").to_owned(),
        }
    }

    /// Whether a person typed a line before what it would answer could be read: nobody approves with a line that was meant for something
    /// else. Lines of a program come whenever they come.
    pub(super) fn is_too_early(&self, typed: Instant) -> bool {
        self.is_watched && self.asked_at.is_some_and(|asked| typed < asked + READ_FIRST)
    }

    pub(super) fn tell_too_early(&self, asked: &Pending, line: &str) {
        let line = clean(line.trim());
        self.watch.output.err(format!("typed before this was asked, so it is no answer and was not sent: {line}\n"));
        self.back_to(asked);
    }

    /// A line while something is asked.
    pub(super) async fn answer(&mut self, asked: &Pending, line: &str) {
        let text = line.trim();
        match std::mem::replace(&mut self.mode, Mode::Plain) {
            Mode::Reason => {
                let reason = (!text.is_empty()).then(|| text.into());
                self.give(asked, Answer::Deny(reason).into()).await;
            }
            Mode::Arguments if text.is_empty() => self.back_to(asked),
            Mode::Arguments => match serde_json::from_str(text) {
                Ok(arguments) => self.give(asked, Answer::ApproveWith(Arc::new(arguments)).into()).await,
                Err(error) => {
                    self.watch.output.err(format!("that is not JSON: {error}; an empty line goes back\n"));
                    self.mode = Mode::Arguments;
                }
            },
            Mode::Always(offered) => self.chosen(asked, offered, text).await,
            Mode::Plain | Mode::Pick(_) if self.is_watched && self.by_letter(asked, text).await => {}
            Mode::Plain | Mode::Pick(_) => match question::answer(&asked.question, line) {
                Err(why) => self.watch.output.err(format!("{why}\n")),
                Ok(answer) => self.give(asked, answer.into()).await,
            },
        }
    }

    /// Whether a line is one of the letters that answer.
    async fn by_letter(&mut self, asked: &Pending, letter: &str) -> bool {
        let is_tool = matches!(asked.question, Question::Approval { tool: Some(_), .. });
        let is_approval = is_tool || matches!(asked.question, Question::Approval { .. } | Question::Pause { .. });
        match letter {
            "a" if is_approval => self.give(asked, Answer::Approve.into()).await,
            "d" if is_approval => {
                self.watch.output.err("why not? An empty line denies without a reason\n");
                self.mode = Mode::Reason;
            }
            "e" if is_tool => self.edit(asked),
            "A" if question::can_be_standing(&asked.question) => self.offer_always(asked).await,
            _ => return false,
        }
        true
    }

    fn edit(&mut self, asked: &Pending) {
        let Question::Approval { arguments, redacted, .. } = &asked.question else { return };
        if *redacted {
            return self.watch.output.err("the arguments are redacted here, and cannot be edited\n");
        }
        let now = clean(&arguments.to_string());
        self.watch.output.err(format!("{now}\nthe next line is the arguments as JSON; an empty line goes back\n"));
        self.mode = Mode::Arguments;
    }

    async fn offer_always(&mut self, asked: &Pending) {
        match self.carry_out(Command::ProposeAlways(Box::new(asked.clone()))).await {
            Some(CommandOutcome::Proposed(offered)) if !offered.is_empty() => {
                for (approval, number) in offered.iter().zip(1..) {
                    let words = rules::in_words(&approval.tool, &approval.arguments);
                    let words = words.map_or_else(String::new, |words| format!("{words}: "));
                    self.watch.output.err(clean(&format!("{number}  {words}{approval}\n")));
                    let remark = rules::remark(&approval.tool, &approval.arguments);
                    remark.iter().for_each(|remark| self.watch.output.err(clean(&format!("   {remark}\n"))));
                }
                self.watch.output.err(format!("{OFFERED}\n"));
                self.mode = Mode::Always(offered);
                self.asked_at = Some(Instant::now());
            }
            other => self.tell(other),
        }
    }

    async fn chosen(&mut self, asked: &Pending, mut offered: Vec<StandingApproval>, text: &str) {
        let chosen = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        match chosen.filter(|place| *place < offered.len()) {
            Some(place) => {
                let approval = offered.swap_remove(place);
                self.watch.output.err(clean(&format!("always    {}: {approval}\n", approval.id)));
                self.give(asked, Answer::Approve.always(approval)).await;
            }
            None if text.is_empty() => {
                self.watch.output.err("nothing is stored\n");
                self.back_to(asked);
            }
            None => {
                self.watch.output.err("type the number of a rule; an empty line goes back\n");
                self.mode = Mode::Always(offered);
            }
        }
    }

    /// The question stands as before.
    fn back_to(&self, asked: &Pending) {
        let label = match self.mode {
            Mode::Always(_) => OFFERED.to_owned(),
            _ => self.label(asked),
        };
        self.watch.output.err(format!("{label}\n"));
    }

    async fn give(&mut self, asked: &Pending, answer: GivenAnswer) {
        let (id, scope) = (self.watch.id.clone(), self.watch.scope.clone());
        let digest = question::digest(&asked.question);
        match self.watch.conversations.resolve(&id, &asked.call, answer, digest, scope).await {
            Ok(handle) => self.follow(handle).await,
            Err(error) => {
                self.refused(&Problem::error(error.to_string()));
                self.look_what_is_asked().await;
            }
        }
    }
}
