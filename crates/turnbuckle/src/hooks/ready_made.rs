//! What makes a hook ready-made: a name that configuration uses, options that are checked when it is built.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::BoxError;
use crate::hook::{HookEntry, HookExt};
use crate::model::Model;

/// A hook that configuration can name: `use = "retry"`, and the rest of the section is its [`Options`](Self::Options).
pub trait ReadyMade: Into<HookEntry> + Sized {
    /// What `use` calls it.
    const USE: &'static str;
    /// What it does, in one line.
    const DOES: &'static str;
    /// What a person may set. Unknown keys are refused (`#[serde(deny_unknown_fields)]`), and whatever has a sensible
    /// value has it as its default.
    type Options: DeserializeOwned;

    /// Checks the options, and makes the hook.
    fn from_options(options: Self::Options, around: &Surroundings<'_>) -> Result<Self, OptionError>;

    /// The hook as an agent holds it, under this name; one that needs settings of its own gives itself these. A hook that
    /// tells notices tells them in this name, too, which [`HookExt::named`] cannot see to.
    fn entry(self, name: String) -> HookEntry {
        self.named(name)
    }
}

/// What a hook may need of the program that builds it.
pub struct Surroundings<'a> {
    /// The project's folder: relative paths begin here.
    pub folder: &'a Path,
    /// Where hooks keep what must outlive the process.
    pub data: &'a Path,
    /// Opens a model by its name, for hooks that ask one themselves.
    pub open_model: &'a OpenModel<'a>,
}

impl Surroundings<'_> {
    /// Opens the model that `option` names; the error says which option and which name.
    pub fn model(&self, option: &'static str, name: &str) -> Result<Arc<dyn Model>, OptionError> {
        (self.open_model)(name).map_err(|error| OptionError::new(option, format!("names {name:?}")).because(error))
    }
}

/// From a model's name, as configuration writes it, to the model.
pub type OpenModel<'a> = dyn Fn(&str) -> Result<Arc<dyn Model>, BoxError> + 'a;

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, data, open_model: _ } = self;
        f.debug_struct("Surroundings").field("folder", folder).field("data", data).finish_non_exhaustive()
    }
}

/// An option that a hook cannot work with.
#[derive(Debug, thiserror::Error)]
#[error("`{option}` {why}")]
pub struct OptionError {
    /// Which option.
    pub option: &'static str,
    /// Of an option that is a list: which item, from 0.
    pub item: Option<usize>,
    /// What is wrong with it, as the rest of a sentence: "must be at least 1".
    pub why: String,
    /// The cause.
    #[source]
    pub source: Option<BoxError>,
}

impl OptionError {
    /// An option, and what is wrong with it as the rest of a sentence.
    pub fn new(option: &'static str, why: impl Into<String>) -> Self {
        Self { option, item: None, why: why.into(), source: None }
    }

    /// Of a list, this item, from 0.
    #[must_use]
    pub fn item(mut self, item: usize) -> Self {
        self.item = Some(item);
        self
    }

    /// With its cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}
