//! What a hook of a project's file keeps that was not accepted. Nothing of it is opened: the file could name anything. It is
//! noted with the deletion, and erased by the first deletion after the file was accepted.

use turnbuckle::store::SideStore;
use turnbuckle::{BoxError, BoxFuture, ConversationId};

/// Has the name of the real one, under which that finds the note.
pub(super) struct Unreached {
    pub(super) name: String,
}

/// Why it is not reached.
#[derive(Debug, thiserror::Error)]
#[error("a hook names it that is not accepted; `turnbuckle trust` shows the hook, and asks")]
struct NotAccepted;

impl Unreached {
    fn refused<T: Send + 'static>() -> BoxFuture<'static, Result<T, BoxError>> {
        Box::pin(std::future::ready(Err(NotAccepted.into())))
    }
}

impl SideStore for Unreached {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn count<'a>(&'a self, _: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>> {
        Self::refused()
    }

    fn erase<'a>(&'a self, _: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>> {
        Self::refused()
    }

    fn erase_user<'a>(&'a self, _: &'a str, _: &'a [ConversationId]) -> BoxFuture<'a, Result<(), BoxError>> {
        Self::refused()
    }
}
