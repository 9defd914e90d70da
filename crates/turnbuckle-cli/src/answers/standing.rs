//! `--always`: the rule is shown before it is stored, and a person at a terminal is asked.

use turnbuckle::conversation::ResolveError;
use turnbuckle::event::Question;
use turnbuckle::store::{ArgumentMatch, StandingApproval};
use turnbuckle::{CallId, ConversationId, Conversations, Scope};
use turnbuckle_tools::Shell;
use turnbuckle_tools::rules::{self, Rule};

use super::{GivenAnswer, Like, refusal};
use crate::Stopped;
use crate::confirm;
use crate::output;
use crate::problem::Problem;
use crate::show::clean;

/// Shows what `--always` would mean, and asks if someone is there to be asked. Nothing is stored: that is done together with
/// the answer.
pub(crate) async fn agree_on_standing(
    conversations: &Conversations,
    (id, call): (&ConversationId, &CallId),
    given: &GivenAnswer,
    scope: &Scope,
    (command, options): (&str, &str),
) -> Result<Option<StandingApproval>, Stopped> {
    let Some(mut always) = given.always.clone() else { return Ok(None) };
    let refused = |error| Stopped::failed(refusal(&error, id, (command, options), scope));
    if let Some(like) = &given.like {
        let question = conversations.question(id, call, scope).await.map_err(refused)?.question;
        always.arguments = Some(like_shown(&question, like, call).map_err(refused)?);
    }
    let proposed = conversations.propose_standing(id, call, &always, scope).await.map_err(refused)?;
    output::say(&clean(&format!("always: {proposed}")));
    if let Some(remark) = rules::remark(&proposed.tool, &proposed.arguments) {
        output::say(&clean(&remark));
    }
    // Where nobody can be asked, the option says it.
    if confirm::is_possible() && !confirm::ask("", "Store it?") {
        let problem = Problem::error("nothing was answered, and nothing is approved from now on");
        return Err(Stopped::failed(problem.hint("without `--always` the approval is for this call only")));
    }
    Ok(Some(proposed))
}

/// What arguments must be like, if the call that is asked about is like that itself.
fn like_shown(question: &Question, like: &Like, call: &CallId) -> Result<Vec<ArgumentMatch>, ResolveError> {
    let unfit = |why: String| ResolveError::Unfit { call: call.clone(), why: why.into() };
    let Question::Approval { tool: Some(tool), arguments, .. } = question else {
        // What is wrong with it is said where the approval is made.
        return Ok(Vec::new());
    };
    match like {
        Like::Rule(rule) => {
            let parsed = rule.parse::<Rule>().map_err(|error| unfit(format!("`--like`: {error}")))?;
            match Rule::allow([&parsed], tool, arguments) {
                // Every call of a tool, which may have no rules of its own.
                true if *rule == **tool && **tool != *Shell::NAME => Ok(Vec::new()),
                true => Ok(vec![ArgumentMatch::allowed_by([rule.as_str()])]),
                false => Err(unfit(format!("`--like` does not cover this call itself: {rule} does not allow it"))),
            }
        }
        // Behind a pattern of its text, a command could have anything: `git *` is also `git status; rm -rf .`.
        Like::Pattern(_) if **tool == *Shell::NAME => Err(unfit(
            "a pattern of `--like` is not for commands: `--always` alone approves this very command, and a rule such as \
             `--like 'shell(cargo test *)'` what it says"
                .to_owned(),
        )),
        Like::Pattern(pattern) => ArgumentMatch::like_shown(arguments, pattern)
            .map_err(|error| unfit(format!("`--like` does not cover this call itself: {error}"))),
    }
}
