//! From configuration and options to an agent, or to everything that stands in the way.

mod access;
mod blame;
mod hooks;
mod sub_agents;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnbuckle::hook::HookEntry;
use turnbuckle::tool::Tool;
use turnbuckle::{Agent, AgentBuilder};
use turnbuckle_models::{ModelOptions, without_password};
use turnbuckle_tools::Workspace;
use turnbuckle_tools::rules::Rule;

use crate::args::Common;
use crate::check::no_history;
use crate::config::{self, Config, Found, HookPart, Loaded, ModelSetting};
use crate::links;
use crate::logging::CLI;
use crate::mcp::{self, Desk, Offered, ServerLine, Unlisted};
use crate::model_name::{ModelName, SharedModel};
use crate::problem::Problem;
use crate::project::Project;
use crate::started_with::{StartedWith, model_in};
use crate::store::StoreName;
use crate::trust::{Gate, Item, Standing};
pub(crate) use hooks::instruction_files;
use sub_agents::Main;
pub(crate) use tools::{is_changing, unapproved};

/// The default name of the agent.
const NAME: &str = "turnbuckle";

/// Everything that is known before a turn runs.
pub(crate) struct Prepared {
    /// None exactly if there is an error among the problems.
    pub(crate) agent: Option<Agent>,
    /// Where conversations are kept.
    pub(crate) store: StoreName,
    pub(crate) config: Config,
    /// Those of `[[hooks]]`, in order, and behind them the default `retry`.
    pub(crate) hooks: Vec<HookEntry>,
    /// Whether `AGENTS.md` or `CLAUDE.md` is read although no `[[hooks]]` says so.
    pub(crate) reads_instructions: bool,
    /// Those of `[[agents.hooks]]`: for each of `[[agents]]`, in order.
    pub(crate) agent_hooks: Vec<Vec<HookEntry>>,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) problems: Vec<Problem>,
    /// The model's name, as given.
    pub(crate) model: String,
    /// Whether neither an option nor a file chose it.
    pub(crate) model_is_default: bool,
    /// Tools whose calls need approval.
    pub(crate) gated: Vec<String>,
    /// Sub-agents that the script has no replies for.
    pub(crate) without_replies: Vec<Found<String>>,
    pub(crate) project: Project,
    /// The MCP servers of the configuration.
    pub(crate) mcp: Vec<ServerLine>,
    /// Where they ask the person.
    pub(crate) desk: Desk,
    /// How the project's file stands.
    pub(crate) standing: Standing,
    /// What of the project's file needs acceptance.
    pub(crate) items: Vec<Item>,
    pub(crate) gate: Gate,
    /// The folder that the file tools work in, if there is an agent.
    pub(crate) workspace: Option<Workspace>,
}

/// What the configuration makes.
struct Built {
    agent: Agent,
    gated: Vec<String>,
    workspace: Workspace,
}

/// Reads the files, finds the model, builds the agent.
pub(crate) fn prepare(common: &Common, gate: Gate) -> Prepared {
    prepare_allowing(common, gate, Vec::new())
}

/// The same, with rules that allow calls for this run.
pub(crate) fn prepare_allowing(common: &Common, gate: Gate, allow: Vec<Rule>) -> Prepared {
    let Loaded { mut config, files, mut problems, project, standing, items, .. } = config::load(common, gate);
    config.tools.allow = allow.into_iter().chain(tools::allowed_hosts(&config)).collect();
    let store = StoreName::choose(common, &config, &project);
    let store = store.map_err(|problem| problems.push(problem)).unwrap_or_else(|()| StoreName::default_in(&project));
    let chosen = choose_model(common, &config);
    let provider_tools = config.tools.of_provider();
    problems.extend(config.agent.options.problems("[agent]", &chosen.name, provider_tools));
    let options = config.agent.options.options(provider_tools);
    let model = chosen.open(gate, &options).map_err(|problem| problems.push(problem)).ok();
    let mut prepared = Prepared {
        agent: None,
        store,
        files,
        problems,
        model_is_default: chosen.is_default(),
        model: chosen.name.clone(),
        gated: Vec::new(),
        without_replies: Vec::new(),
        hooks: Vec::new(),
        agent_hooks: Vec::new(),
        reads_instructions: false,
        mcp: Vec::new(),
        desk: Desk::default(),
        config,
        project,
        standing,
        items,
        gate,
        workspace: None,
    };
    links::hook_links().set_base(prepared.config.serve.base());
    let recorded = chosen.recorded(&prepared.project.folder);
    prepared.assemble(model, &chosen, &recorded, &StartedWith::of(common));
    prepared.problems.sort_by_key(|problem| problem.order(&prepared.files));
    prepared.log(chosen.by);
    prepared
}

impl Prepared {
    /// All hooks of the configuration, of the main agent and of sub-agents, each as it is written and as it runs.
    pub(crate) fn configured_hooks(&self) -> impl Iterator<Item = (&HookPart, &HookEntry)> {
        let agents = self.config.agents.iter().flatten().zip(&self.agent_hooks);
        let own = agents.flat_map(|(part, entries)| part.hooks.iter().zip(entries));
        self.config.hooks.iter().zip(&self.hooks).chain(own)
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.problems.iter().any(Problem::is_error)
    }

    fn log(&self, by: ChosenBy) {
        let files: Vec<String> = self.files.iter().map(|path| path.display().to_string()).collect();
        let errors = self.problems.iter().filter(|problem| problem.is_error()).count();
        let (hooks, warnings) = (self.hooks.len(), self.problems.len() - errors);
        tracing::info!(target: CLI, files = files.join(", "), hooks, errors, warnings, "configuration loaded");
        let model = without_password(&self.model);
        tracing::info!(target: CLI, model = &*model, by = by.name(), "model chosen");
    }

    /// Without a model everything else is still judged: a person wants all mistakes at once.
    fn assemble(
        &mut self,
        model: Option<SharedModel>,
        choice: &ModelChoice,
        recorded: &str,
        started_with: &StartedWith,
    ) {
        let stand_in = || ModelName::Demo.open(Path::new(""));
        let Some(model) = model.or_else(|| stand_in().ok()) else { return };
        let sub_agents = self.config.agents.iter().flatten().filter(|part| part.model.is_none()).map(|part| &part.name);
        self.without_replies = sub_agents.filter(|name| model.lacks_replies_for(&name.value)).cloned().collect();
        self.hooks = hooks::entries(&mut self.config.hooks);
        let instructions = hooks::default_instructions(&self.config, &self.project.folder);
        self.reads_instructions = instructions.is_some();
        self.hooks.extend(instructions);
        self.hooks.extend(hooks::default_retry(&self.config));
        let agents = self.config.agents.iter_mut().flatten();
        self.agent_hooks = agents.map(|part| hooks::entries(&mut part.hooks)).collect();
        let (chosen, place) = ((recorded, &model, choice), (self.project.folder.as_path(), &self.store, self.gate));
        let Offered { tools, servers, desk, unlisted } =
            mcp::offered(&self.config.tools.mcp, place.0, self.gate, &mut self.problems);
        (self.mcp, self.desk) = (servers, desk);
        match build(
            &self.config,
            (tools, &unlisted),
            place,
            (&self.hooks, &self.agent_hooks),
            chosen,
            started_with,
            &mut self.problems,
        ) {
            Ok(Built { agent, gated, workspace }) => {
                (self.gated, self.workspace) = (gated, Some(workspace));
                self.agent = (!self.has_errors()).then_some(agent);
            }
            Err(problem) => self.problems.extend(problem),
        }
    }
}

fn build(
    config: &Config,
    (mcp, unlisted): (Vec<Arc<dyn Tool>>, &Unlisted),
    (folder, store, gate): (&Path, &StoreName, Gate),
    (hooks, own_hooks): (&[HookEntry], &[Vec<HookEntry>]),
    (chosen, model, choice): (&str, &SharedModel, &ModelChoice),
    started_with: &StartedWith,
    problems: &mut Vec<Problem>,
) -> Result<Built, Option<Problem>> {
    let mut offer = tools::offer(config, folder, store, problems).ok_or(None)?;
    offer.tools.extend(mcp);
    offer.approve = tools::without_unlisted(offer.approve, config.tools.approve.as_ref(), unlisted, problems);
    let mut builder =
        Agent::builder(agent_name(config), model.clone()).limits(config.limits.limits()).approve(offer.approve.clone());
    builder = builder.started_with(started_with.words());
    if let Some(reducers) = config.context.reducers() {
        builder = builder.reducers(reducers);
    }
    builder = config.context.with_retention(builder);
    if let Some(found) = &config.context.summary_model {
        match open_summary_model(&found.value, gate) {
            Ok(model) => builder = builder.summary_model(model),
            Err(problem) => problems.push(problem.or_at(Some(&found.place))),
        }
    }
    if let Some(timeout) = &config.context.summary_timeout {
        builder = builder.summary_timeout(timeout.value);
    }
    if !config.tools.allow.is_empty() {
        builder = builder.allow(tools::allowed(config));
    }
    if !holds_a_secret(chosen) {
        builder = builder.model_choice(chosen);
    }
    if let Some(system) = &config.agent.system {
        builder = builder.system(system.value.as_str());
    }
    for tool in &offer.tools {
        builder = builder.shared_tool(tool.clone());
    }
    let main = Main { config, offer: &offer, unlisted, model, gate, choice, hooks };
    for (part, own) in config.agents.iter().flatten().zip(own_hooks) {
        builder = builder.tool(main.sub_agent(part, own.clone(), problems)?);
    }
    let agent = with_all(builder, hooks.to_vec()).build().map_err(|error| blame::problem(&error, config, None))?;
    problems.extend(beyond_window(config, &agent));
    if let Gate::Needed(_) = gate {
        // What a server says of its model may leave less than `check` could know.
        problems.extend(no_history(config, &agent));
    }
    problems.extend(access::problems(&config.access, &agent, unlisted));
    problems.extend(tools::rules_for_nothing(config, &agent));
    let (mut gated, workspace) = (offer.approve, offer.workspace);
    for tool in access::gated(&config.access, &agent) {
        if !gated.contains(&tool) {
            gated.push(tool);
        }
    }
    Ok(Built { agent, gated, workspace })
}

/// Its server is asked how many tokens it takes, as that of the agent's model is: what it reads must fit.
fn open_summary_model(setting: &ModelSetting, gate: Gate) -> Result<SharedModel, Problem> {
    ModelName::parse(&setting.name)?.open_for(gate, &setting.folder, &ModelOptions::default())
}

/// `context_tokens` that the model does not take: less is used.
fn beyond_window(config: &Config, agent: &Agent) -> Option<Problem> {
    let (asked, used) = (config.limits.context_tokens.as_ref()?, agent.limits().context_tokens);
    let what = format!(
        "`context_tokens = {}` in [limits] is more than 75 % of what the model takes: {used} is used",
        asked.value
    );
    let hint =
        "the rest is for the reply, and for what estimates are wrong by; take the line out, or choose another model";
    (asked.value > used).then(|| Problem::warning(what).at(&asked.place).hint(hint))
}

/// The name of the agent.
pub(crate) fn agent_name(config: &Config) -> &str {
    config.agent.name.as_ref().map_or(NAME, |found| &found.value)
}

fn with_all(builder: AgentBuilder, hooks: Vec<HookEntry>) -> AgentBuilder {
    hooks.into_iter().fold(builder, AgentBuilder::hook)
}

/// The model that would answer.
pub(crate) struct ModelChoice {
    pub(crate) name: String,
    folder: PathBuf,
    place: Option<crate::problem::Place>,
    pub(crate) by: ChosenBy,
}

/// Who chose it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChosenBy {
    Option,
    File,
    Nobody,
}

impl ChosenBy {
    fn name(self) -> &'static str {
        match self {
            Self::Option => "option",
            Self::File => "file",
            Self::Nobody => "default",
        }
    }
}

/// Whether the address in a model's name has a password: then the name is neither kept nor shown.
pub(crate) fn holds_a_secret(model: &str) -> bool {
    without_password(model) != model
}

pub(crate) fn choose_model(common: &Common, config: &Config) -> ModelChoice {
    match (&common.model, &config.agent.model) {
        (Some(name), _) => {
            ModelChoice { name: name.clone(), folder: PathBuf::new(), place: None, by: ChosenBy::Option }
        }
        (None, Some(found)) => {
            let (name, folder) = (found.value.name.clone(), found.value.folder.clone());
            ModelChoice { name, folder, place: Some(found.place.clone()), by: ChosenBy::File }
        }
        (None, None) => {
            ModelChoice { name: ModelName::first_found(), folder: PathBuf::new(), place: None, by: ChosenBy::Nobody }
        }
    }
}

impl ModelChoice {
    /// Its name as it is recorded with turns of this project.
    pub(crate) fn recorded(&self, project: &Path) -> String {
        model_in(project, &self.name, &self.folder)
    }

    fn is_default(&self) -> bool {
        self.by == ChosenBy::Nobody
    }

    fn open(&self, gate: Gate, options: &ModelOptions) -> Result<SharedModel, Problem> {
        let opened = ModelName::parse(&self.name).and_then(|name| name.open_for(gate, &self.folder, options));
        opened.map_err(|problem| problem.or_at(self.place.as_ref()))
    }
}
