//! The configuration: what the user's file says with the project's on top, every value with the line it stands on.
//!
//! Nothing is dropped in silence: unknown keys, wrong types and values that mean nothing are problems with a place.

mod access;
mod agents;
mod asked_tools;
mod claude_files;
mod context;
mod fetch;
mod file;
mod hooks;
mod load;
mod mcp;
mod model_options;
mod nearest;
mod options;
mod reader;
mod scope;
mod sections;
mod serve;
mod settings;
mod shape;
mod shell;

pub(crate) use access::{AccessPart, ApprovePart};
pub(crate) use agents::{MOST_AGENTS, SubAgentPart};
pub(crate) use context::ContextPart;
pub(crate) use hooks::{HookPart, HookSettings, MOST_HOOKS, SideStores, open_model};
pub(crate) use load::{
    CannotTell, above_of_another, actor_named_in, load, load_serve, load_to_delete, load_without_agent,
};
pub(crate) use mcp::{MCP_JSON, McpEndpoint, McpPart, commands_of_json};
pub(crate) use nearest::nearest;
pub(crate) use scope::ScopePart;
pub(crate) use sections::{AgentPart, LimitsPart, ModelSetting, StorePart, ToolsPart};
pub(crate) use serve::{LISTEN, ServePart};
pub(crate) use settings::Setting;
pub(crate) use shape::json_schema;

use std::path::PathBuf;

use file::Source;

use crate::problem::{Place, Problem};
use crate::project::Project;
use crate::trust::{Item, Standing};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Found<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// All sections, merged. What is `None` was not said.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) agent: AgentPart,
    pub(crate) limits: LimitsPart,
    pub(crate) store: StorePart,
    pub(crate) context: ContextPart,
    pub(crate) scope: ScopePart,
    pub(crate) access: AccessPart,
    pub(crate) serve: ServePart,
    pub(crate) tools: ToolsPart,
    /// The project's, or else the user's: a list is one key.
    pub(crate) agents: Option<Vec<SubAgentPart>>,
    /// The user's first.
    pub(crate) hooks: Vec<HookPart>,
    /// What hooks keep beside the store. Only if the files were read to delete: then `hooks` is empty, none is made.
    pub(crate) side_stores: SideStores,
}

/// What came of reading the files.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// Those that were there, the user's first.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) project: Project,
    /// How the project's file stands.
    pub(crate) standing: Standing,
    /// What of the project's file needs acceptance.
    pub(crate) items: Vec<Item>,
    /// Whether the project's file says where conversations are kept, and that is not used because the file was not accepted or
    /// could not be judged: then another database than the one it names would be meant.
    pub(crate) store_left_out: bool,
    /// The sections with `use = "claude"` of the file that was read first.
    claude: Vec<Setting>,
}

impl Loaded {
    /// The user that the user's own file names: who accepts and revokes.
    pub(crate) fn user(&self) -> String {
        self.config.scope.user_name()
    }
}

/// Merging two files: a value of `self` wins over one of `base`.
pub(crate) trait Over {
    fn over(self, base: Self) -> Self;
}

impl<T> Over for Option<T> {
    fn over(self, base: Self) -> Self {
        self.or(base)
    }
}

impl Over for Config {
    fn over(self, base: Self) -> Self {
        let hooks = base.hooks.into_iter().chain(self.hooks).collect();
        let side_stores = SideStores(base.side_stores.0.into_iter().chain(self.side_stores.0).collect());
        Self {
            agent: self.agent.over(base.agent),
            limits: self.limits.over(base.limits),
            store: self.store.over(base.store),
            context: self.context.over(base.context),
            scope: self.scope.over(base.scope),
            access: self.access.over(base.access),
            serve: self.serve.over(base.serve),
            tools: self.tools.over(base.tools),
            agents: self.agents.over(base.agents),
            hooks,
            side_stores,
        }
    }
}
