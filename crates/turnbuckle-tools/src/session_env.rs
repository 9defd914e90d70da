//! What hooks put into the environment of a conversation's commands: lines of shell that run before each of them.
//!
//! Kept in memory alone. A file could be changed by a command in the sandbox, and would then run in front of one that a person
//! allowed outside of it. Whoever takes the conversation up again is asked for the lines anew.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most conversations, and bytes of each, that are kept.
const MOST_CONVERSATIONS: usize = 10_000;
const MOST_BYTES: usize = 64 * 1024;

/// By conversation. Written by hooks, read before each command; held only to look and to change.
static LINES: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);

fn lines() -> MutexGuard<'static, Option<HashMap<String, String>>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts these lines in the place of earlier ones; false if there are too many.
pub(crate) fn set(conversation: &str, text: String) -> bool {
    let mut lines = lines();
    let all = lines.get_or_insert_default();
    let is_full = all.len() >= MOST_CONVERSATIONS && !all.contains_key(conversation);
    if text.len() > MOST_BYTES || is_full {
        return false;
    }
    all.insert(conversation.to_owned(), text);
    true
}

/// The conversation is let go.
pub(crate) fn forget(conversation: &str) {
    if let Some(all) = &mut *lines() {
        all.remove(conversation);
    }
}

/// A command of the conversation with the lines before it.
pub(crate) fn with_lines(conversation: &str, command: &str) -> Option<String> {
    lines().as_ref()?.get(conversation).map(|text| format!("{}\n{command}", text.trim_end()))
}
