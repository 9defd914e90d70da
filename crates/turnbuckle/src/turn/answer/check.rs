//! Whether an answer can be taken: what it is about, and whether it fits. The same checks are made where an answer is given, by whatever
//! process, and again where it is written.

use crate::agent::Agent;
use crate::clock::Timestamp;
use crate::digest;
use crate::event::{Question, Resolved};
use crate::id::{CallId, ConversationId};
use crate::json_schema::JsonSchema;
use crate::message::Text;
use crate::scope::Actor;
use crate::store::{Answer, Scratch, StandingApproval, StandingRequest};
use crate::turn::host::AnswerError;
use crate::turn::redaction;

/// What an answer comes to, if it is one to this question and about the arguments that were shown.
pub(crate) fn check(question: &Question, answer: &Answer, digest: Option<&Text>) -> Result<Resolved, AnswerError> {
    if digest.is_some() && digest != question.digest() {
        return Err(AnswerError::Stale("it was shown with other arguments".into()));
    }
    match (question, answer) {
        (Question::Approval { .. } | Question::Pause { .. }, Answer::Approve) => Ok(Resolved::Approved),
        (Question::Approval { tool: Some(_), again: false, .. }, Answer::ApproveWith(arguments)) => {
            match arguments.is_object() {
                true => Ok(Resolved::Approved),
                false => Err(AnswerError::Unfit("the arguments of a call are a JSON object".into())),
            }
        }
        (_, Answer::ApproveWith(_)) => {
            Err(AnswerError::Unfit("there are no arguments here that can be changed".into()))
        }
        (_, Answer::Deny(_)) => Ok(Resolved::Denied),
        (Question::Elicitation { schema: Some(schema), .. }, Answer::Result(value)) => {
            // The schema may be the model's own. Every question was checked to have a usable one before it was asked.
            let schema = JsonSchema::compile(schema).map_err(|error| AnswerError::Unfit(error.to_string().into()))?;
            match schema.complaint(value) {
                None => Ok(Resolved::Answered),
                Some(complaint) => {
                    Err(AnswerError::Unfit(format!("the answer does not fit the schema: {complaint}").into()))
                }
            }
        }
        (Question::Elicitation { .. } | Question::ClientExec { .. }, Answer::Result(_) | Answer::Error(_)) => {
            Ok(Resolved::Answered)
        }
        (Question::Approval { .. } | Question::Pause { .. }, _) => {
            Err(AnswerError::Unfit("this call wants to be approved or denied".into()))
        }
        (_, Answer::Approve) => Err(AnswerError::Unfit("this call wants an answer".into())),
    }
}

/// A call whose question is answered.
#[derive(Clone, Copy)]
pub(crate) struct AnsweredCall<'a> {
    pub(crate) conversation: &'a ConversationId,
    pub(crate) call: &'a CallId,
    pub(crate) question: &'a Question,
}

/// Whether a standing approval can begin with an answer: who answers gives it, of this call, as it is asked about now. `given`
/// is the answer, who gives it, and when.
pub(crate) fn check_standing(
    standing: &StandingApproval,
    of: AnsweredCall<'_>,
    scratch: &Scratch,
    (answer, from, at): (&Answer, &Actor, Timestamp),
) -> Result<(), AnswerError> {
    let unfit = |why: &str| Err(AnswerError::Unfit(why.into()));
    if *answer != Answer::Approve {
        return unfit("only a plain approval can hold for more than one call");
    }
    let Question::Approval { tool: Some(tool), arguments, standing: basis, redacted, .. } = of.question else {
        return unfit("only the approval of a tool can be a standing one");
    };
    let (Some(basis), false) = (basis, *redacted) else {
        return unfit("this call must be asked about each time");
    };
    let Some(requester) = scratch.actor.user_id() else { return unfit("no user asked for it") };
    let request = StandingRequest {
        agent: basis.agent.as_ref().unwrap_or(&scratch.agent),
        tool,
        definition: &basis.definition,
        arguments,
        project: &scratch.project,
        requester,
        now: at,
    };
    let is_of_this_call = standing.from.0 == *of.conversation && standing.from.1 == *of.call;
    match is_of_this_call && standing.by == *from && standing.could_cover(request) {
        true => Ok(()),
        false => Err(AnswerError::Stale("what is to hold from now on is no approval of this call".into())),
    }
}

/// What an approval is about, if whoever gives it does not say so: what is asked at that moment. Another approver may
/// change the arguments before it is written, and then it is no approval of those, and no change of those either.
pub(crate) fn digest_of_approved(question: &Question, answer: &Answer) -> Option<Text> {
    let is_approval = matches!(answer, Answer::Approve | Answer::ApproveWith(_));
    question.digest().filter(|_| is_approval).cloned()
}

/// Whether edited arguments can stand, as far as it can be told without the turn: they repeat no placeholder and, if `agent` is
/// the one that asks, fit its tool. What the tool makes of them is seen when the turn takes them up.
pub(crate) fn check_edit(
    of: AnsweredCall<'_>,
    answer: &Answer,
    scratch: &Scratch,
    agent: &Agent,
) -> Result<(), AnswerError> {
    let (Answer::ApproveWith(edited), Question::Approval { tool: Some(tool), arguments: shown, digest, .. }) =
        (answer, of.question)
    else {
        return Ok(());
    };
    let effective = redaction::effective(scratch.effective.as_deref(), of.call);
    if let Some(place) = effective.and_then(|effective| redaction::copied_placeholder(shown, effective, edited)) {
        return Err(copied(&place));
    }
    let runs_with = effective.unwrap_or(shown);
    let is_own = scratch.agent == *agent.shared_name() && *digest == digest::of_call(tool, runs_with, of.conversation);
    let compiled = agent.tool(tool).filter(|_| is_own);
    match compiled.and_then(|compiled| compiled.complaint(edited)) {
        Some(complaint) => Err(AnswerError::Unfit(complaint.into())),
        None => Ok(()),
    }
}

pub(super) fn copied(place: &str) -> AnswerError {
    let why = format!("`{place}` is the redacted form that was shown: the call would run with it as it stands");
    AnswerError::Unfit(why.into())
}
