//! Environment variables, or what stands in for them in a test.

use std::fmt;
use std::sync::Arc;

use crate::key::Key;

/// Where keys and addresses are looked up: the environment of the process, or a function instead.
#[derive(Clone)]
pub struct Environment(Arc<Lookup>);

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Environment {
    /// The environment of this process. A value that is not Unicode can be neither a key nor an address, and counts as not
    /// set.
    pub fn process() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// Looks variables up with a function.
    pub fn of(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    /// The value of a variable, without white space around it. An empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<String> {
        self.0(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    pub(crate) fn key(&self, name: &str) -> Option<Key> {
        self.get(name).map(Key::new)
    }
}

impl fmt::Debug for Environment {
    /// Shows no value: some are keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}
