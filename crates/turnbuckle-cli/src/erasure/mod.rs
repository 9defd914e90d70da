//! `turnbuckle delete`, `hold`, `export` and `list --acts`: what becomes of conversations in the end, and who saw to it.

mod acts;
mod delete;
mod export;
mod hold;

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
use crate::config::{self, Config, DATA};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::store::{MADE_BY_RUN, StoreName};

/// What the configuration says about deleting conversations.
pub(crate) struct Erasure {
    side_stores: Vec<Arc<dyn SideStore>>,
    retain: Option<Duration>,
}

impl Erasure {
    /// What hooks of the configuration keep beside the store, and the files that they keep by default if those exist: the hook
    /// that wrote them may have been taken out of the configuration since.
    pub(crate) fn of(config: &Config) -> Self {
        let makers = config.hooks.iter().filter_map(|part| part.maker.as_ref());
        let mut side_stores: Vec<_> = makers.filter_map(|maker| maker.side_store().cloned()).collect();
        let is_file = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
        let memories = Path::new(DATA).join("memories.db");
        if is_file(&memories) {
            side_stores.push(Arc::new(Memories::in_file(memories)));
        }
        let audit = Path::new(DATA).join("audit.jsonl");
        if is_file(&audit) {
            side_stores.push(Arc::new(AuditFiles::new(audit)));
        }
        Self { side_stores, retain: config.store.retain.as_ref().map(|found| found.value) }
    }

    pub(crate) fn apply(&self, builder: ConversationsBuilder) -> ConversationsBuilder {
        let builder = self.side_stores.iter().cloned().fold(builder, ConversationsBuilder::side_store);
        match self.retain {
            Some(age) => builder.retain(age),
            None => builder,
        }
    }
}

/// The conversations of the chosen store, without an agent, and who is acting. The configuration must be readable: it says what
/// has text of conversations beside the store.
fn open(common: &Common) -> Result<(Conversations, Scope), Stopped> {
    let config::Loaded { config, mut problems, .. } = config::load(common.config.as_deref());
    problems.retain(Problem::is_error);
    let name = StoreName::choose(common, &config).map_err(|problem| problems.push(problem));
    let (Ok(name), true) = (name, problems.is_empty()) else { return Err(Stopped { problems, exit: Exit::Usage }) };
    let builder = Conversations::without_agent(name.existing(MADE_BY_RUN)?);
    Ok((Erasure::of(&config).apply(builder).build(), config.scope.scope()))
}
