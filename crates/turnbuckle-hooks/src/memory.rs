//! Memory: what is worth knowing about a user, over conversations. Three hooks on one file.
//!
//! `remember` asks a model after a turn what to keep, `recall` finds what fits a new message, `dream` tidies up. They
//! share a SQLite file with a full-text index; every user has memories of their own.

mod answer;
mod dream;
mod memories;
mod recall;
mod remember;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnbuckle::hooks::{Adviser, OptionError, Surroundings};
use turnbuckle::message::Text;
use turnbuckle::scope::Scope;

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

fn adviser(name: &str, around: &Surroundings<'_>) -> Result<Adviser, OptionError> {
    if name.trim().is_empty() {
        return Err(OptionError::new("model", "must name the model that is asked"));
    }
    let model = (around.open_model)(name)
        .map_err(|error| OptionError::new("model", format!("names {name:?}, which cannot be opened")).because(error))?;
    Ok(Adviser::new(Arc::clone(&model)))
}
