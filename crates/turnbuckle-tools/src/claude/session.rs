//! When a process takes a conversation up and lets it go: `SessionStart` and `SessionEnd`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;

use super::event::ClaudeEvent;
use super::fire::{Adapter, Audience, Occasion};

/// The most conversations of a process whose end is told. Beyond it a conversation that was evicted starts anew.
const MOST_SESSIONS: usize = 10_000;
/// How many are ended at the same time.
const AT_ONCE: usize = 8;
/// What all handlers of `SessionEnd` share at least, and at most.
const SHORTEST_END: Duration = Duration::from_millis(1500);
const LONGEST_END: Duration = Duration::from_secs(60);
/// Overrides it, in milliseconds.
const END_VARIABLE: &str = "CLAUDE_CODE_SESSIONEND_HOOKS_TIMEOUT_MS";

/// The conversations that this process took up, with the agent and the last turn of each.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Open>>);

#[derive(Clone, Debug)]
struct Open {
    agent: String,
    turn: String,
}

/// The adapters with open sessions. Written when the first session of one begins, read and emptied by [`end_sessions`].
static ADAPTERS: Mutex<Vec<Adapter>> = Mutex::new(Vec::new());

fn adapters() -> MutexGuard<'static, Vec<Adapter>> {
    ADAPTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Adapter {
    /// True the first time in this process.
    pub(super) fn begin_session(&self, id: &str, agent: &str, turn: &str) -> bool {
        {
            let mut open = self.sessions.lock();
            if open.contains_key(id) {
                return false;
            }
            if open.len() >= MOST_SESSIONS {
                return true;
            }
            open.insert(id.to_owned(), Open { agent: agent.to_owned(), turn: turn.to_owned() });
        }
        let mut all = adapters();
        if !all.iter().any(|one| Arc::ptr_eq(&one.sessions, &self.sessions)) {
            all.push(self.clone());
        }
        true
    }

    /// Forgets a session that ends now; false if it never began here.
    pub(super) fn forget_session(&self, id: &str) -> bool {
        self.sessions.lock().remove(id).is_some()
    }

    /// How long the handlers of `SessionEnd` may take together.
    pub(super) fn end_time(&self) -> Duration {
        let given = std::env::var(END_VARIABLE).ok().and_then(|text| text.parse().ok()).map(Duration::from_millis);
        let settings = self.handlers.iter().filter(|handler| handler.plugin.is_none());
        let longest =
            settings.filter(|handler| handler.event == ClaudeEvent::SessionEnd).map(|handler| handler.timeout);
        given.unwrap_or_else(|| longest.fold(SHORTEST_END, Duration::max).min(LONGEST_END))
    }

    async fn end_session(&self, id: &str, open: &Open, reason: &str) -> Vec<String> {
        let occasion = Occasion {
            event: ClaudeEvent::SessionEnd,
            conversation: id,
            turn_id: &open.turn,
            agent: &open.agent,
            is_sub_agent: false,
            audience: Audience::Nobody,
            subject: reason,
            call: None,
            files: Vec::new(),
            more: json!({ "reason": reason }),
        };
        match tokio::time::timeout(self.end_time(), self.fire(occasion)).await {
            Ok(Ok(merged)) => merged.messages,
            Ok(Err(error)) => vec![error.to_string()],
            Err(_) => vec![format!("the SessionEnd handlers of {id} took longer than {:?}", self.end_time())],
        }
    }
}

/// Fires `SessionEnd` for every conversation that Claude-style hooks of this process took up and that was not closed, and
/// returns what their handlers say to the user.
///
/// For a program that is about to exit. `reason` is one of the protocol's: `prompt_input_exit`, `other`.
pub async fn end_sessions(reason: &str) -> Vec<String> {
    let all = std::mem::take(&mut *adapters());
    let mut ending = Vec::new();
    for adapter in all {
        let open = std::mem::take(&mut *adapter.sessions.lock());
        if adapter.handlers.iter().any(|handler| handler.event == ClaudeEvent::SessionEnd) {
            ending.extend(open.into_iter().map(|(id, open)| (adapter.clone(), id, open)));
        }
    }
    let ended = futures_util::stream::iter(ending)
        .map(|(adapter, id, open)| async move { adapter.end_session(&id, &open, reason).await })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>();
    ended.await.into_iter().flatten().collect()
}
