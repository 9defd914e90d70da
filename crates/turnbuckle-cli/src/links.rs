//! Links that answer a call: signed with the keys of the user's own folder, so that every server of this user takes them.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use turnbuckle::hooks::LinkMaker;
use turnbuckle::projection::Pending;
use turnbuckle::{BoxError, ConversationId};
use turnbuckle_server::{AnswerLinks, Keys};

use crate::user_folders;

/// Hooks are made while the files are read, and where the server is reached is known only when all of them were. So they are given
/// this, and it is filled later.
#[derive(Debug, Default)]
pub(crate) struct HookLinks {
    base: Mutex<Option<String>>,
    /// Made with the first link. A failure is tried again with the next one.
    keys: Mutex<Option<Keys>>,
}

static LINKS: LazyLock<Arc<HookLinks>> = LazyLock::new(Arc::default);

/// The links of this process.
pub(crate) fn hook_links() -> Arc<HookLinks> {
    LINKS.clone()
}

/// The keys that sessions and links are signed with. Their folder is made if it is not there, for its owner alone.
pub(crate) fn keys() -> Result<Keys, BoxError> {
    let folder = user_folders::state().ok_or("neither XDG_STATE_HOME nor HOME names a folder to keep keys in")?;
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(Keys::in_folder(&folder)?)
}

impl HookLinks {
    /// From now on links begin with this address.
    pub(crate) fn set_base(&self, base: String) {
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) = Some(base);
    }

    fn keys(&self) -> Result<Keys, BoxError> {
        let mut known = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = &*known {
            return Ok(keys.clone());
        }
        let made = keys()?;
        *known = Some(made.clone());
        Ok(made)
    }
}

impl LinkMaker for HookLinks {
    fn link(&self, conversation: &ConversationId, asked: &Pending, user: Option<&str>) -> Result<String, BoxError> {
        let base = self.base.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let base = base.ok_or("it is not known where the server is reached")?;
        Ok(AnswerLinks::new(self.keys()?, &base).link(conversation, asked, user)?)
    }
}
