//! What handlers said for the model and is not in the log: kept in the turn, and lost if the process ends meanwhile.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use turnbuckle::Turn;
use turnbuckle::id::CallId;
use turnbuckle::message::Message;

use super::bridge;

/// The notes of one turn.
#[derive(Default)]
pub(super) struct Notes(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// What `PreToolUse` handlers said, until the call has its result.
    calls: HashMap<CallId, Vec<String>>,
    /// The last call of the last batch that `PostToolBatch` was fired for: an attempt at the same reply is no new batch.
    batch: Option<CallId>,
    /// With what the calls since the last batch ran: hooks may have changed what the model asked for.
    ran: HashMap<CallId, Value>,
    /// What stands at the tail of every further call of the model.
    turn: Vec<String>,
}

impl Notes {
    pub(super) fn of(turn: &Turn) -> Arc<Self> {
        // Calls of one reply are decided at the same time.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        turn.shared::<Self>().unwrap_or_else(|| {
            turn.share(Self::default());
            turn.shared::<Self>().unwrap_or_default()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, call: &CallId, notes: Vec<String>) {
        if !notes.is_empty() {
            self.lock().calls.entry(call.clone()).or_default().extend(notes);
        }
    }

    pub(super) fn take(&self, call: &CallId) -> Vec<String> {
        self.lock().calls.remove(call).unwrap_or_default()
    }

    pub(super) fn ran(&self, call: &CallId, input: Value) {
        self.lock().ran.insert(call.clone(), input);
    }

    pub(super) fn is_new_batch(&self, last: &CallId) -> bool {
        let mut kept = self.lock();
        kept.batch.as_ref() != Some(last) && {
            kept.batch = Some(last.clone());
            kept.ran.clear();
            true
        }
    }

    pub(super) fn add_to_turn(&self, notes: Vec<String>) {
        self.lock().turn.extend(notes);
    }

    pub(super) fn of_turn(&self) -> Vec<String> {
        self.lock().turn.clone()
    }
}

/// The calls of a reply with their results.
pub(super) struct Batch {
    pub(super) calls: Vec<Value>,
    pub(super) last: CallId,
}

/// The calls whose results the model is about to read, in the protocol's words.
pub(super) fn last_batch(turn: &Turn, notes: &Notes, project: &Path) -> Option<Batch> {
    let messages = &turn.context()?.messages;
    let asked = messages.iter().rposition(|message| matches!(message, Message::Assistant { .. }))?;
    let Message::Assistant { calls, .. } = &messages[asked] else { return None };
    let result = |id: &CallId| {
        messages[asked..].iter().find_map(|message| match message {
            Message::Result { call, content, .. } if call == id => Some(content.text()),
            _ => None,
        })
    };
    let mut batch = Vec::new();
    for call in calls {
        let response = result(&call.call)?;
        let (name, asked) = bridge::outward(turn, call, project);
        let input = notes.lock().ran.get(&call.call).cloned().unwrap_or(asked);
        batch.push(
            json!({ "tool_name": name, "tool_input": input, "tool_use_id": call.call, "tool_response": response }),
        );
    }
    Some(Batch { calls: batch, last: calls.last()?.call.clone() })
}
