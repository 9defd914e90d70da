//! A provider's key, which nobody sees by accident.

use std::fmt;
use std::sync::Arc;

/// A secret. It is written into the header that carries it and nowhere else: `Debug` hides it, and errors are searched
/// for it before they leave.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<str>);

/// There is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is not set")]
pub struct NoKey {
    /// Where it was looked for.
    pub variable: String,
}

impl Key {
    /// This one. White space around it is not part of it: keys are pasted.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().into())
    }

    /// From an environment variable; an empty one counts as not set.
    pub fn from_env(variable: &str) -> Result<Self, NoKey> {
        let key = std::env::var(variable).ok().map(Self::new).filter(|key| !key.0.is_empty());
        key.ok_or_else(|| NoKey { variable: variable.to_owned() })
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` without the key: providers have been seen to echo it.
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
