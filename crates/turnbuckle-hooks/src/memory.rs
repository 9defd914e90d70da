//! Memory: what is worth knowing about a user, over conversations. Three hooks on one file.
//!
//! `remember` asks a model after a turn what to keep, `recall` finds what fits a new message, `dream` tidies up. They
//! share a SQLite file with a full-text index; every user has memories of their own.

mod dream;
mod memories;
mod recall;
mod remember;

use std::path::{Path, PathBuf};

use turnbuckle::hooks::{OptionError, Surroundings};
use turnbuckle::message::Text;
use turnbuckle::scope::Scope;

use crate::auxiliary_model::AuxiliaryModel;

pub use dream::{Dream, DreamOptions};
pub use memories::{Memories, Memory, MemoryError};
pub use recall::{Recall, RecallOptions};
pub use remember::{Remember, RememberOptions};

/// Whose memories.
fn owner(scope: &Scope) -> Text {
    scope.user_id().cloned().unwrap_or_else(|| "system".into())
}

/// The file that configuration means: all three hooks the same, unless told otherwise.
fn file(given: Option<&Path>, around: &Surroundings<'_>) -> PathBuf {
    given.map_or_else(|| around.data.join("memories.db"), |file| around.folder.join(file))
}

/// The model that configuration names.
fn auxiliary_model(name: &str, around: &Surroundings<'_>) -> Result<AuxiliaryModel, OptionError> {
    if name.trim().is_empty() {
        return Err(OptionError::new("model", "must name the model that is asked"));
    }
    around.model("model", name).map(AuxiliaryModel::new)
}

/// The longest memory, in bytes: one sentence.
const LONGEST: usize = 500;

/// One line of plain text; `None` if it is empty or too long.
fn sentence(text: &str) -> Option<String> {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty() && line.len() <= LONGEST).then_some(line)
}
