//! One turn in one line: `agent.run("…")`.

use super::conversations::Conversations;
use super::error::{RunError, SendError};
use super::input::UserInput;
use super::read_back::open_turn;
use crate::agent::Agent;
use crate::report::{ReportOf, TurnReport};
use crate::scope::Scope;

impl Agent {
    /// One turn of a conversation of its own, in memory: a whole program in one line.
    ///
    /// Every outcome but `completed` is an error, so that `?` never lets a failed turn through as an empty answer:
    /// [`RunError::NotCompleted`] has the report. That is also what becomes of a turn that waits for a person; use
    /// [`Conversations`] to answer one, and for everything else that is more than one message.
    pub async fn run(&self, message: impl Into<UserInput>) -> Result<TurnReport, RunError> {
        let scope = Scope::local();
        let conversations = Conversations::in_memory(self.clone());
        match conversations.run(message, scope.clone()).await {
            Ok(report) if report.is_completed() => Ok(report),
            Ok(report) => Err(RunError::NotCompleted(Box::new(report))),
            Err(RunError::Waiting { conversation, pending }) => {
                let turn =
                    open_turn(&*conversations.runtime.services.store, &conversation).await.map_err(SendError::from)?;
                let of = ReportOf {
                    conversation,
                    turn: turn.unwrap_or_else(|| "t_1".into()),
                    agent: self.shared_name().clone(),
                    actor: scope.actor().clone(),
                    permission_mode: conversations.runtime.services.permission_mode,
                };
                Err(RunError::NotCompleted(Box::new(TurnReport::waiting(of, pending))))
            }
            Err(error) => Err(error),
        }
    }
}
