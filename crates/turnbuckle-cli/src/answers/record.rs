//! `turnbuckle answer`: records the answer to a call that waits. Nothing runs.

use serde::Serialize;
use turnbuckle::conversation::{RecordedFor, ResolveError};
use turnbuckle::event::Resolved;
use turnbuckle::message::Text;
use turnbuckle::scope::Author;
use turnbuckle::store::{StandingApproval, Store as _};
use turnbuckle::{CallId, ConversationId, TurnId};

use super::{GivenAnswer, agree_on_standing, refusal_at};
use crate::Stopped;
use crate::args::{Answer, Common};
use crate::exit::Exit;
use crate::inspect::{failed, print_all, unprintable};
use crate::output;
use crate::run::{ResolveHints, named, who_else};
use crate::show::{clean, json_line, name};
use crate::without_agent::WithoutAgent;

/// Records the answer, and says which agent carries the turn on.
pub(crate) async fn answer(args: Answer, common: &Common) -> Result<Exit, Stopped> {
    let (id, call) = (named(&args.given.id, common)?, CallId::from(args.given.call.as_str()));
    let given = GivenAnswer::read(&args.given)?;
    let (desk, options) = (WithoutAgent::existing(common)?, common.same_store());
    let digest = match given.digest_of_shown(&desk.conversations, (&id, &call), &desk.scope).await {
        Ok(digest) => digest,
        Err(error) => return Err(Stopped::failed(refusal_at(&desk, &error, &id, ("answer", common)).await?)),
    };
    let command = ("answer", &*options);
    let standing = agree_on_standing(&desk.conversations, (&id, &call), &given, &desk.scope, command).await?;
    let (decision, is_edited) = (given.decision(), given.is_edited());
    let answer = given.with_standing(standing.clone());
    let recorded = match desk.conversations.answer(&id, &call, answer, digest, desk.scope.clone()).await {
        Ok(recorded) => recorded,
        Err(error) => return Err(Stopped::failed(refusal_at(&desk, &error, &id, ("answer", common)).await?)),
    };
    let RecordedFor { turn, agent, is_stored_for_owner, needs_more, .. } = recorded;
    if args.json {
        let line = RecordedLine {
            conversation: &id,
            call: &call,
            turn: Some(&turn),
            agent: Some(&agent),
            decision,
            by: desk.scope.by(),
            open: needs_more,
            handed_over: is_stored_for_owner,
            standing: standing.as_ref(),
        };
        return print_all(&json_line(&line).map_err(unprintable)?);
    }
    let word = format!("{decision:?}").to_lowercase();
    let begun = desk.store.scratch(&id).await.map_err(failed)?;
    let hints = ResolveHints::for_turn_of(id.clone(), common, &desk, begun.as_ref()).await.map_err(failed)?;
    let next = match (is_stored_for_owner, needs_more) {
        (true, false) => "another process has the conversation and takes the answer up".to_owned(),
        (is_stored, true) => {
            let others = match who_else_must(&desk, &id, &call).await? {
                Some(others) => format!("others must approve it as well: {others}"),
                None => "others must approve it as well".to_owned(),
            };
            let owner = "another process has the conversation and takes the answer up; ";
            if is_stored { format!("{owner}{others}") } else { others }
        }
        (false, false) => hints.carried_on_by(&agent),
    };
    // The tool is not known here.
    let next = match is_edited {
        true => format!("whether the arguments fit is checked then, and asked again if they do not; {next}"),
        false => next,
    };
    let by = desk.scope.by();
    output::say(&clean(&format!("recorded: call {} is {word} by {by}; {next}", name(call.as_str()))));
    Ok(Exit::Completed)
}

/// What became of an answer that is recorded or handed over, for programs: `answer --json`, and `resolve --json` where nothing
/// is carried on.
#[derive(Serialize)]
pub(crate) struct RecordedLine<'a> {
    pub(crate) conversation: &'a ConversationId,
    pub(crate) call: &'a CallId,
    /// `None` if the turn was over before it was looked at.
    pub(crate) turn: Option<&'a TurnId>,
    pub(crate) agent: Option<&'a Text>,
    pub(crate) decision: Resolved,
    pub(crate) by: Author,
    /// Whether others must approve as well.
    pub(crate) open: bool,
    /// Whether it is stored for the process that has the conversation.
    pub(crate) handed_over: bool,
    pub(crate) standing: Option<&'a StandingApproval>,
}

/// Who must approve besides, if the question is still open.
pub(crate) async fn who_else_must(
    desk: &WithoutAgent,
    id: &ConversationId,
    call: &CallId,
) -> Result<Option<String>, Stopped> {
    match desk.conversations.question(id, call, &desk.scope).await {
        Ok(pending) => Ok(who_else(&pending, desk.scope.actor())),
        Err(ResolveError::Store(error)) => Err(failed(error)),
        // It is settled, by this answer or by one that came right after it.
        Err(_) => Ok(None),
    }
}
