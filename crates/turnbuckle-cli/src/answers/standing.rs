//! `--always`: the rule is shown before it is stored, and a person at a terminal is asked.

use turnbuckle::conversation::Always;
use turnbuckle::store::StandingApproval;
use turnbuckle::{CallId, ConversationId, Conversations, Scope};

use super::refusal;
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
    always: &Always,
    scope: &Scope,
    (command, options): (&str, &str),
) -> Result<StandingApproval, Stopped> {
    let refused = |error| Stopped::failed(refusal(&error, id, (command, options)));
    let proposed = conversations.propose_standing(id, call, always, scope).await.map_err(refused)?;
    output::say(&clean(&format!("always: {proposed}")));
    // Where nobody can be asked, the option says it.
    if confirm::is_possible() && !confirm::ask("", "Store it?") {
        let problem = Problem::error("nothing was answered, and nothing is approved from now on");
        return Err(Stopped::failed(problem.hint("without `--always` the approval is for this call only")));
    }
    Ok(proposed)
}
