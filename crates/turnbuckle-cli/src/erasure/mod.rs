//! `turnbuckle delete`, `hold`, `export` and `list --acts`: what becomes of conversations in the end, and who saw to it.

mod acts;
mod delete;
mod export;
mod hold;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use turnbuckle::conversation::ConversationsBuilder;
use turnbuckle::store::SideStore;
use turnbuckle::{Conversations, Scope};
use turnbuckle_hooks::audit_log::AuditFiles;
use turnbuckle_hooks::memory::Memories;

pub(crate) use acts::acts;
pub(crate) use delete::delete;
pub(crate) use export::export;
pub(crate) use hold::hold;

use crate::Stopped;
use crate::args::Common;
use crate::config::{self, Config};
use crate::output;
use crate::problem::Problem;
use crate::project::{OWN_FOLDER, Project};
use crate::without_agent::WithoutAgent;

/// What the configuration says about deleting conversations.
pub(crate) struct Erasure {
    side_stores: Vec<Arc<dyn SideStore>>,
    retain: Option<Duration>,
}

impl Erasure {
    /// What hooks of the configuration keep beside the store, and the files that they keep by default if those exist: the hook
    /// that wrote them may have been taken out of the configuration since.
    pub(crate) fn of(config: &Config, project: &Project) -> Self {
        let makers = config.hooks.iter().filter_map(|part| part.maker.as_ref());
        let made = makers.filter_map(|maker| maker.side_store().cloned());
        let mut side_stores: Vec<_> = config.side_stores.0.iter().cloned().chain(made).collect();
        let is_file = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
        let memories = project.join(OWN_FOLDER).join("memories.db");
        if is_file(&memories) {
            side_stores.push(Arc::new(Memories::in_file(memories)));
        }
        let audit = project.join(OWN_FOLDER).join("audit.jsonl");
        if is_file(&audit) {
            side_stores.push(Arc::new(AuditFiles::new(audit)));
        }
        Self { side_stores, retain: config.store.retain.as_ref().map(|found| found.value) }
    }

    /// Each once, though several hooks may share one.
    pub(crate) fn side_stores(&self) -> Vec<&dyn SideStore> {
        let mut names = BTreeSet::new();
        self.side_stores.iter().map(|side| &**side).filter(|side| names.insert(side.name())).collect()
    }

    pub(crate) fn apply(&self, builder: ConversationsBuilder) -> ConversationsBuilder {
        let builder = self.side_stores.iter().cloned().fold(builder, ConversationsBuilder::side_store);
        match self.retain {
            Some(age) => builder.retain(age),
            None => builder,
        }
    }
}

/// The conversations of the chosen store to delete from, without an agent, and who is acting. `[[hooks]]` must be readable: they
/// say what has text of conversations beside the store. None is made, so none needs its secret. Of a project's file that was not accepted, hooks are left out, and a warning
/// says that what they keep is not reached.
fn open(common: &Common) -> Result<(Conversations, Scope), Stopped> {
    let loaded = config::load_to_delete(common);
    let has_hooks = loaded.items.iter().any(|item| item.section == "hooks");
    if has_hooks && !loaded.standing.is_accepted() {
        let what = format!("{}: its hooks were not accepted, and are not looked at", loaded.project.file().display());
        let hint = "what they keep outside .turnbuckle is not reached; `turnbuckle trust` shows them, and asks";
        output::report(&[Problem::warning(what).hint(hint)]);
    }
    let WithoutAgent { conversations, scope, .. } = WithoutAgent::deleting(loaded, common)?;
    Ok((conversations, scope))
}
