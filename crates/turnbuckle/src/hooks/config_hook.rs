//! The trait of hooks that can be built from configuration: a name, options, and a check of the options.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::feed::projection::Pending;
use crate::hook::{HookEntry, HookExt};
use crate::id::ConversationId;
use crate::model::Model;
use crate::store::SideStore;
use crate::{BoxError, BoxFuture};

/// A hook that can be built from configuration.
///
/// `use = "retry"` in `turnbuckle.toml` selects the hook by its [`NAME`](Self::NAME); the rest of the section is read
/// as its [`Options`](Self::Options).
pub trait ConfigHook: Into<HookEntry> + Sized {
    /// The name that `use` selects it by.
    const NAME: &'static str;
    /// One line that says what the hook does, for lists of hooks.
    const SUMMARY: &'static str;
    /// Option names that were replaced, each with what to write instead. They are refused like every unknown name; a
    /// program that reads configuration shows the replacement as a hint.
    const RENAMED_OPTIONS: &'static [(&'static str, &'static str)] = &[];
    /// The options. Unknown keys must be refused (`#[serde(deny_unknown_fields)]`), and every option that has a sensible
    /// default should have one.
    type Options: DeserializeOwned;

    /// Checks the options and builds the hook.
    fn from_options(options: Self::Options, context: &HookBuildContext<'_>) -> Result<Self, OptionError>;

    /// Where a hook with these options keeps text of conversations beside the store, if it does. A program that only deletes
    /// conversations builds no hooks, and opens no models for them: it asks this instead.
    fn side_store_of(options: &Self::Options, context: &HookBuildContext<'_>) -> Option<Arc<dyn SideStore>> {
        let _ = (options, context);
        None
    }

    /// The hook as an agent holds it, under this name. Override it if the hook posts notices: they carry the hook's name,
    /// which [`HookExt::named`] does not change inside the hook.
    fn entry(self, name: String) -> HookEntry {
        self.named(name)
    }
}

/// What the program that builds a hook provides to it.
pub struct HookBuildContext<'a> {
    /// The project's folder. Relative paths in options start here.
    pub folder: &'a Path,
    /// The folder for files that hooks keep between runs of the program.
    pub data: &'a Path,
    /// Environment variables that hooks do not give to the programs they start, such as the keys of providers.
    pub withheld_env: &'a [&'a str],
    /// Opens a model by its name, for hooks that ask one themselves; see [`model`](Self::model).
    pub open_model: &'a OpenModel<'a>,
    /// Called before each start of a program: an error keeps it from starting, and blocks whatever `on_failure` says. `None`:
    /// programs start unchecked.
    pub program_check: Option<ProgramCheck>,
    /// Which databases of hooks are the user's own. `None`: every one that is there is used.
    pub databases: Option<Arc<dyn KnownDatabases>>,
    /// The servers whose tools hooks may call. `None`: there are none.
    pub tool_servers: Option<Arc<dyn ToolServers>>,
    /// What makes links that answer a call. `None`: there is no server that would take them.
    pub link_maker: Option<Arc<dyn LinkMaker>>,
    /// Whether hooks leave out what they would find in the project's folder: the user asked for a run without its files.
    pub ignores_project: bool,
    /// Files, with their links resolved, that another hook of the configuration reads for the same purpose: this one leaves them
    /// to it, so that nothing in them runs twice.
    pub read_by_others: &'a [PathBuf],
}

/// Makes links that answer a call, for hooks that tell people of it. Called from threads that may block.
pub trait LinkMaker: fmt::Debug + Send + Sync {
    /// The address of a page on which this user can answer what a call of the conversation asks, once. Without a user it can
    /// be denied there, and no more. Whoever has the address can use it: it is a secret.
    fn link(&self, conversation: &ConversationId, asked: &Pending, user: Option<&str>) -> Result<String, BoxError>;
}

/// Servers of tools, such as those of the Model Context Protocol, for hooks that call a tool themselves.
pub trait ToolServers: fmt::Debug + Send + Sync {
    /// Calls a tool. An error if the server is not there or cannot be asked.
    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        input: Map<String, Value>,
    ) -> BoxFuture<'a, Result<ToolAnswer, BoxError>>;
}

/// What a tool of a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAnswer {
    /// Its text, as the server wrote it: foreign text.
    pub text: String,
    /// Whether the server calls it an error.
    pub is_error: bool,
}

/// Knows the databases that hooks of this user made. What a hook finds in a project's folder may have come with the folder, and
/// would be taken for what the user once said; so a database has a random id, and id and path are noted where the project cannot
/// write. Called from threads that may block.
pub trait KnownDatabases: fmt::Debug + Send + Sync {
    /// Whether the database at `path`, with its links resolved, may be used. `id` is the one in it; a file of a version without
    /// ids has none.
    fn is_known(&self, path: &Path, id: Option<&str>) -> bool;

    /// Notes a database before it is made, or before it gets this id. What cannot be noted is reported by the program itself: the
    /// database is used now, and not known later.
    fn note(&self, path: &Path, id: &str);
}

/// Says whether a hook may start its program now, from a thread that may block.
pub type ProgramCheck = Arc<dyn Fn() -> Result<(), BoxError> + Send + Sync>;

/// Opens a model by its name, as configuration writes it.
pub type OpenModel<'a> = dyn Fn(&str) -> Result<Arc<dyn Model>, BoxError> + 'a;

impl HookBuildContext<'_> {
    /// Opens the model that `option` names; the error says which option and which name.
    pub fn model(&self, option: &'static str, name: &str) -> Result<Arc<dyn Model>, OptionError> {
        (self.open_model)(name).map_err(|error| OptionError::new(option, format!("names {name:?}")).because(error))
    }
}

impl fmt::Debug for HookBuildContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, data, .. } = self;
        f.debug_struct("HookBuildContext").field("folder", folder).field("data", data).finish_non_exhaustive()
    }
}

/// An option with a value that the hook cannot work with.
#[derive(Debug, thiserror::Error)]
#[error("{}{why}", named(option))]
pub struct OptionError {
    /// The name of the option; empty if what is wrong stands somewhere else.
    pub option: &'static str,
    /// The index of the bad item, from 0, if the option is a list.
    pub item: Option<usize>,
    /// What is wrong with the value, as the rest of a sentence that starts with the option's name: "must be at least 1". A whole
    /// sentence if there is no option.
    pub why: String,
    /// The error that caused this one.
    #[source]
    pub source: Option<BoxError>,
}

fn named(option: &str) -> String {
    if option.is_empty() { String::new() } else { format!("`{option}` ") }
}

impl OptionError {
    /// Says what is wrong with an option, as the rest of a sentence that starts with its name.
    pub fn new(option: &'static str, why: impl Into<String>) -> Self {
        Self { option, item: None, why: why.into(), source: None }
    }

    /// Says what is wrong with something that the options lead to, such as an entry of a file: that is what must be mended.
    pub fn elsewhere(why: impl Into<String>) -> Self {
        Self::new("", why)
    }

    /// Points to one item of an option that is a list, by its index from 0.
    #[must_use]
    pub fn item(mut self, item: usize) -> Self {
        self.item = Some(item);
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}
