//! What keeps text of conversations beside the store.

use std::path::PathBuf;

use crate::id::ConversationId;
use crate::{BoxError, BoxFuture};

/// Keeps text of conversations beside the store: a file of memories, an audit log, transcripts.
///
/// Whatever writes text of a conversation anywhere else than into the store has one of these, so that deleting a
/// conversation reaches it. A hook gives it with [`Hook::side_store`](crate::hook::Hook::side_store); a program adds others
/// with [`ConversationsBuilder::side_store`](crate::conversation::ConversationsBuilder::side_store).
///
/// A deletion is stored before any side store is asked, with the names of those that are to be asked, and each name is removed
/// when its side store is done. So after a crash, or if one fails, the next deletion or
/// [`run_maintenance`](crate::Conversations::run_maintenance) asks it again: `erase` must be safe to repeat.
pub trait SideStore: Send + Sync + 'static {
    /// What it is, in a word or two: `memories`.
    fn what(&self) -> &'static str {
        "kept by a hook"
    }

    /// What it is and where, for people: `memories in /home/ann/.turnbuckle/memories.db`. Two that keep the same text have the
    /// same name, in every process.
    fn name(&self) -> String;

    /// Its files, to tell people how large they are. Some may not exist.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// How many pieces (memories, lines, files) it keeps of a conversation and of those of its sub-agents, whose ids begin
    /// with the conversation's and a `/`.
    fn count<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>>;

    /// Removes them, so that no byte of their text is left in its files.
    fn erase<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>>;

    /// Removes what it keeps about a user, but nothing that was made from one of the conversations in `kept`, or from those of
    /// their sub-agents: they are on hold, or could not be deleted.
    fn erase_user<'a>(&'a self, user: &'a str, kept: &'a [ConversationId]) -> BoxFuture<'a, Result<(), BoxError>> {
        let _ = (user, kept);
        Box::pin(std::future::ready(Ok(())))
    }
}
