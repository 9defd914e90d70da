//! Memory: what is known about a user, over conversations. Three hooks that share one file.
//!
//! [`remember`] asks a model after a turn what to keep, [`recall`] finds what fits a new message, [`dream`] tidies up. They
//! share a SQLite file with a full-text index; every user has memories of their own. A memory knows the conversations that it
//! was made from: when one of them is deleted, the memory goes, unless it was also made from others alone. The file is for its
//! owner alone (mode 0600), and is not reached through a link. Where the program knows which databases its user made
//! ([`KnownDatabases`](turnbuckle::hooks::KnownDatabases)), a file that came with the project's folder is not used: the hook
//! fails. A file that an option names by an absolute path is used as it is.

mod connection;
pub mod dream;
mod erase;
mod memories;
pub mod recall;
pub mod remember;

use std::path::Path;

use turnbuckle::hooks::{HookBuildContext, OptionError};
use turnbuckle::message::Text;
use turnbuckle::scope::Scope;
use turnbuckle::store::PrivateFile;

use crate::auxiliary_model::AuxiliaryModel;

pub use memories::{Memories, Memory, MemoryError, MergedMemories};

/// The user whose memories are meant.
fn owner(scope: &Scope) -> Text {
    scope.user_id().cloned().unwrap_or_else(|| "system".into())
}

/// Those in the file of the options, or in the default one that all three hooks share. A file that is named by an absolute path
/// is the one that is meant; any other may have come with the project's folder.
fn memories(given: Option<&Path>, context: &HookBuildContext<'_>) -> Memories {
    let path = given.map_or_else(|| context.data.join("memories.db"), |file| context.folder.join(file));
    let memories = Memories::in_file(PrivateFile::below(context.folder, path));
    match &context.databases {
        Some(databases) if !given.is_some_and(Path::is_absolute) => memories.known_by(databases.clone()),
        _ => memories,
    }
}

/// The model that configuration names.
fn auxiliary_model(name: &str, context: &HookBuildContext<'_>) -> Result<AuxiliaryModel, OptionError> {
    if name.trim().is_empty() {
        return Err(OptionError::new("model", "must name the model that is asked"));
    }
    context.model("model", name).map(AuxiliaryModel::new)
}

/// The longest memory, in bytes: one sentence.
const LONGEST: usize = 500;

/// One line of plain text; `None` if it is empty or too long.
fn sentence(text: &str) -> Option<String> {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty() && line.len() <= LONGEST).then_some(line)
}
