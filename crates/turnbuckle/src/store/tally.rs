//! Which answers to a question count. Every store takes or refuses an answer by this rule.

use super::{Answer, InboxItem, InboxKind};
use crate::access::AnswerRule;
use crate::clock::Timestamp;
use crate::event::{EventKind, Question};
use crate::message::Text;
use crate::scope::Author;

/// The answers to a question so far: approvals that the log has, then answers that wait in the inbox, in the order in which
/// they were stored. A store folds both, and asks [`count`](Self::count) whether one more answer counts.
///
/// The first answer settles a question. One that several people must approve is settled by as many plain approvals of
/// different people as its rule wants, or by one denial. Changed arguments void earlier approvals. Someone who approved cannot
/// approve the same arguments again, and may still deny or change them.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerTally {
    /// How many people must approve.
    needed: usize,
    /// Who approved what is asked now.
    approved: Vec<Author>,
    /// Of what is asked now, as far as the log tells.
    digest: Option<Text>,
    /// Whether changed arguments wait in the inbox. Nobody was shown them: the writer brings them into their normal form when
    /// it takes them up.
    is_changing: bool,
    is_settled: bool,
    expires: Timestamp,
}

/// Why an answer does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleAnswer {
    /// The question had expired when the answer was given.
    Expired,
    /// The question is settled, or the same person has approved it.
    AlreadyAnswered,
    /// It is about other arguments than those that are asked about now.
    OtherArguments,
}

impl AnswerTally {
    /// A question that lapses at `expires`, and that `approved` have approved so far.
    pub fn new(rule: Option<&AnswerRule>, question: &Question, approved: Vec<Author>, expires: Timestamp) -> Self {
        let (needed, digest) = (rule.map_or(1, |rule| rule.n.max(1) as usize), question.digest().cloned());
        Self { needed, approved, digest, is_changing: false, is_settled: false, expires }
    }

    /// The question that an event asks; `None` for every event but a suspension.
    pub fn of_event(kind: &EventKind) -> Option<Self> {
        match kind {
            EventKind::Suspension { question, rule, expires, .. } => {
                Some(Self::new(rule.as_deref(), question, Vec::new(), *expires))
            }
            _ => None,
        }
    }

    /// Takes in a resolution of the question from the log. One that does not leave it open settles it.
    pub fn note(&mut self, resolution: &EventKind) {
        let EventKind::Resolution { by, evidence, .. } = resolution else { return };
        if !evidence.open {
            self.is_settled = true;
            return;
        }
        if evidence.arguments.is_some() {
            self.approved.clear();
            self.digest = evidence.digest.clone().or(self.digest.take());
        }
        self.approved.push(by.clone());
    }

    /// Whether several people must approve.
    pub fn needs_several(&self) -> bool {
        self.needed > 1
    }

    /// Whether no further answer counts.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether this person has approved what is asked now.
    pub fn is_approved_by(&self, person: &Author) -> bool {
        self.approved.contains(person)
    }

    /// Counts an answer, or says why it does not count and leaves everything as it was. Items that are no answers do not
    /// count and are no error.
    pub fn count(&mut self, item: &InboxItem) -> Result<(), StaleAnswer> {
        let InboxKind::Answer { answer, digest, .. } = &item.kind else { return Ok(()) };
        let by = item.from.author();
        if self.is_settled {
            return Err(StaleAnswer::AlreadyAnswered);
        }
        if item.at >= self.expires {
            return Err(StaleAnswer::Expired);
        }
        if *answer == Answer::Approve && self.is_approved_by(&by) {
            return Err(StaleAnswer::AlreadyAnswered);
        }
        let is_of_others = digest.is_some() && (self.is_changing || *digest != self.digest);
        // Even without a digest: whoever approves says yes to what they saw.
        if is_of_others || (self.is_changing && *answer == Answer::Approve) {
            return Err(StaleAnswer::OtherArguments);
        }
        match answer {
            Answer::Approve => self.approved.push(by),
            Answer::ApproveWith(_) => {
                self.approved = vec![by];
                self.is_changing = true;
            }
            Answer::Deny(_) | Answer::Result(_) | Answer::Error(_) => self.is_settled = true,
        }
        self.is_settled |= self.approved.len() >= self.needed;
        Ok(())
    }

    /// Counts the answers to this question that wait in an inbox, oldest first. One that does not count is refused by the
    /// writer, too.
    pub fn count_waiting<'a>(&mut self, items: impl IntoIterator<Item = &'a InboxItem>) {
        for item in items {
            if let Err(stale) = self.count(item) {
                tracing::debug!(item = %item.id, ?stale, "an answer in the inbox does not count");
            }
        }
    }
}
