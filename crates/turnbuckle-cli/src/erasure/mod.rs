//! `turnbuckle delete`, `hold`, `export` and `list --acts`: what becomes of conversations in the end, and who saw to it.

mod acts;
mod delete;
mod export;
mod hold;
mod unreached;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use turnbuckle::conversation::ConversationsBuilder;
use turnbuckle::store::{PrivateFile, SideStore};
use turnbuckle_hooks::audit_log::AuditFiles;
use turnbuckle_tools::{ShellOutputs, UndoFiles};

pub(crate) use acts::acts;
pub(crate) use delete::delete;
pub(crate) use export::export;
pub(crate) use hold::hold;

use crate::chat;
use crate::config::Config;
use crate::project::{OWN_FOLDER, Project};
use crate::trust::default_memories;
use unreached::Unreached;

/// What the configuration says about deleting conversations.
pub(crate) struct Erasure {
    side_stores: Vec<Arc<dyn SideStore>>,
    retain: Option<Duration>,
}

impl Erasure {
    /// What hooks of the configuration keep beside the store, and the files that they keep by default if those exist: the hook
    /// that wrote them may have been taken out of the configuration since.
    pub(crate) fn of(config: &Config, project: &Project) -> Self {
        let mut side_stores = side_stores(config);
        // Also what is no file: whoever erases says that it could not be reached.
        let is_there = |path: &Path| std::fs::symlink_metadata(path).is_ok();
        let own = project.folder.join(OWN_FOLDER);
        if is_there(&own.join("memories.db")) {
            side_stores.push(Arc::new(default_memories(&project.folder)));
        }
        let audit = own.join("audit.jsonl");
        if is_there(&audit) {
            side_stores.push(Arc::new(AuditFiles::new(PrivateFile::below(&project.folder, audit))));
        }
        let history = chat::history::file(&project.folder);
        if is_there(history.path()) {
            side_stores.push(Arc::new(AuditFiles::new(history)));
        }
        side_stores.push(Arc::new(ShellOutputs::below(&project.folder, OWN_FOLDER)));
        side_stores.push(Arc::new(UndoFiles::below(&project.folder, OWN_FOLDER)));
        Self { side_stores, retain: config.store.retain.as_ref().map(|found| found.value) }
    }

    /// Each once, though several hooks may share one.
    pub(crate) fn side_stores(&self) -> Vec<&dyn SideStore> {
        let mut names = BTreeSet::new();
        self.side_stores.iter().map(|side| &**side).filter(|side| names.insert(side.name())).collect()
    }

    /// Adds what hooks of the project's file keep although that file is not used, because it was not accepted or is left out:
    /// a deletion notes it as not erased. `judged` is the configuration as if the file were accepted.
    pub(crate) fn note_unreached(&mut self, judged: &Config) {
        for side in side_stores(judged) {
            let name = side.name();
            if !self.side_stores.iter().any(|known| known.name() == name) {
                self.side_stores.push(Arc::new(Unreached { name }));
            }
        }
    }

    /// What is deleted by itself, in words.
    pub(crate) fn retention(&self) -> Option<String> {
        self.retain.map(retention)
    }

    pub(crate) fn apply(&self, builder: ConversationsBuilder) -> ConversationsBuilder {
        let builder = self.side_stores.iter().cloned().fold(builder, ConversationsBuilder::side_store);
        match self.retain {
            Some(age) => builder.retain(age),
            None => builder,
        }
    }
}

/// What `retain` does, in words.
pub(crate) fn retention(age: Duration) -> String {
    let seconds = age.as_secs();
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let (length, unit) = units.into_iter().find(|(length, _)| seconds.is_multiple_of(*length)).unwrap_or((1, "second"));
    let count = seconds / length;
    let plural = if count == 1 { "" } else { "s" };
    format!("conversations that were not used for {count} {unit}{plural} are deleted while a chat runs")
}

/// What hooks of the configuration keep beside the store.
fn side_stores(config: &Config) -> Vec<Arc<dyn SideStore>> {
    let of_agents = config.agents.iter().flatten().flat_map(|agent| &agent.hooks);
    let makers = config.hooks.iter().chain(of_agents).filter_map(|part| part.maker.as_ref());
    let made = makers.filter_map(|maker| maker.side_store().cloned());
    config.side_stores.0.iter().cloned().chain(made).collect()
}
