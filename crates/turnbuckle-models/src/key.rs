//! The key of a provider, kept out of logs and errors.

use std::fmt;
use std::sync::Arc;

/// A secret. It is written into the header that carries it and nowhere else: `Debug` does not show it, and it is removed from
/// the messages of errors.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<str>);

/// An environment variable that should hold a key is not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is not set")]
pub struct NoKey {
    /// The name of the variable.
    pub variable: String,
}

impl Key {
    /// A key. White space around it is removed: keys are often pasted.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().into())
    }

    /// The key in an environment variable. An empty one, or one that is not Unicode, counts as not set.
    pub fn from_env(variable: &str) -> Result<Self, NoKey> {
        let key = std::env::var(variable).ok().map(Self::new).filter(|key| !key.0.is_empty());
        key.ok_or_else(|| NoKey { variable: variable.to_owned() })
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` with the key replaced. Some providers repeat the key in their error messages.
    pub(crate) fn hidden_in(&self, text: &str) -> String {
        match self.0.is_empty() {
            true => text.to_owned(),
            false => text.replace(&*self.0, "[key]"),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}
