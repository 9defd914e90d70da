//! `--always`: the rule is shown before it is stored, and a person at a terminal is asked.

use turnbuckle::conversation::Always;
use turnbuckle::store::StandingApproval;
use turnbuckle::{CallId, ConversationId, Conversations, Scope};

use super::refusal;
use crate::Stopped;
use crate::confirm;
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::show::clean;

/// A standing approval that was made together with an answer. It is taken back if the answer is refused.
pub(crate) struct NewStanding {
    pub(crate) approval: StandingApproval,
    conversations: Conversations,
    scope: Scope,
}

impl NewStanding {
    /// Shows what it would mean, asks if someone is there to be asked, and stores it. The call itself is not answered yet: it
    /// is stored first, so that the turn that goes on finds it.
    pub(crate) async fn make(
        conversations: &Conversations,
        (id, call): (&ConversationId, &CallId),
        always: &Always,
        scope: &Scope,
        (command, options): (&str, &str),
    ) -> Result<Self, Stopped> {
        let refused = |error| Stopped::failed(refusal(&error, id, (command, options)));
        let proposed = conversations.propose_standing(id, call, always, scope).await.map_err(refused)?;
        output::say(&clean(&format!("always: {proposed}")));
        // Where nobody can be asked, the option says it.
        if confirm::is_possible() && !confirm::ask("", "Store it?") {
            let problem = Problem::error("nothing was answered, and nothing is approved from now on");
            return Err(Stopped::failed(problem.hint("without `--always` the approval is for this call only")));
        }
        conversations.store_standing(proposed.clone(), scope).await.map_err(refused)?;
        Ok(Self { approval: proposed, conversations: conversations.clone(), scope: scope.clone() })
    }

    /// The call was not approved after all.
    pub(crate) async fn take_back(self) {
        if let Err(error) = self.conversations.revoke_standing(&self.approval.id, &self.scope).await {
            let id = &self.approval.id;
            let problem =
                Problem::error(format!("the standing approval {id} could not be taken back: {}", with_causes(&error)));
            output::report(&[problem.hint(format!("`turnbuckle approvals revoke {id}` does"))]);
        }
    }
}
