//! From configuration and options to an agent, or to everything that stands in the way.

mod access;
mod blame;
mod hooks;
mod tools;

use std::path::{Path, PathBuf};

use turnbuckle::hook::HookEntry;
use turnbuckle::tools::SubAgent;
use turnbuckle::{Agent, AgentBuilder};
use turnbuckle_models::without_password;
use turnbuckle_tools::rules::Rule;

use crate::args::Common;
use crate::config::{self, Config, Found, Loaded};
use crate::logging::CLI;
use crate::model_name::{ModelName, SharedModel};
use crate::problem::Problem;
use crate::project::Project;
use crate::started_with::{StartedWith, model_in};
use crate::store::StoreName;
use crate::trust::{Gate, Item, Standing};
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
    /// How the project's file stands.
    pub(crate) standing: Standing,
    /// What of the project's file needs acceptance.
    pub(crate) items: Vec<Item>,
    pub(crate) gate: Gate,
}

/// Reads the files, finds the model, builds the agent.
pub(crate) fn prepare(common: &Common, gate: Gate) -> Prepared {
    prepare_allowing(common, gate, Vec::new())
}

/// The same, with rules that allow calls for this run.
pub(crate) fn prepare_allowing(common: &Common, gate: Gate, allow: Vec<Rule>) -> Prepared {
    let Loaded { mut config, files, mut problems, project, standing, items, .. } = config::load(common, gate);
    config.tools.allow = allow;
    let store = StoreName::choose(common, &config, &project);
    let store = store.map_err(|problem| problems.push(problem)).unwrap_or_else(|()| StoreName::default_in(&project));
    let chosen = choose_model(common, &config);
    let model = chosen.open().map_err(|problem| problems.push(problem)).ok();
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
        config,
        project,
        standing,
        items,
        gate,
    };
    let recorded = chosen.recorded(&prepared.project.folder);
    prepared.assemble(model, &recorded, &StartedWith::of(common));
    prepared.problems.sort_by_key(|problem| problem.order(&prepared.files));
    prepared.log(chosen.by);
    prepared
}

impl Prepared {
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
    fn assemble(&mut self, model: Option<SharedModel>, recorded: &str, started_with: &StartedWith) {
        let stand_in = || ModelName::Demo.open(Path::new(""));
        let Some(model) = model.or_else(|| stand_in().ok()) else { return };
        let sub_agents = self.config.agents.iter().flatten().map(|part| &part.name);
        self.without_replies = sub_agents.filter(|name| model.lacks_replies_for(&name.value)).cloned().collect();
        self.hooks = hooks::entries(&mut self.config.hooks);
        self.hooks.extend(hooks::default_retry(&self.config));
        let (chosen, place) = ((recorded, &model), (self.project.folder.as_path(), &self.store));
        match build(&self.config, place, &self.hooks, chosen, started_with, &mut self.problems) {
            Ok((agent, gated)) => {
                self.gated = gated;
                self.agent = (!self.has_errors()).then_some(agent);
            }
            Err(problem) => self.problems.extend(problem),
        }
    }
}

fn build(
    config: &Config,
    (folder, store): (&Path, &StoreName),
    hooks: &[HookEntry],
    (chosen, model): (&str, &SharedModel),
    started_with: &StartedWith,
    problems: &mut Vec<Problem>,
) -> Result<(Agent, Vec<String>), Option<Problem>> {
    let offer = tools::offer(config, folder, store, problems).ok_or(None)?;
    let mut builder =
        Agent::builder(agent_name(config), model.clone()).limits(config.limits.limits()).approve(offer.approve.clone());
    builder = builder.started_with(started_with.words());
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
    for part in config.agents.iter().flatten() {
        let described = part.system.as_ref().map_or("", |system| &system.value);
        let name = part.name.value.as_str();
        let mut inner = Agent::builder(name, model.for_sub_agent(name)).limits(config.limits.limits());
        inner = inner.system(described).approve(offer.approved_in_sub_agents());
        if !config.tools.allow.is_empty() {
            inner = inner.allow(tools::allowed(config));
        }
        for tool in &offer.read_only {
            inner = inner.shared_tool(tool.clone());
        }
        inner = with_all(inner, hooks::for_tools(hooks, &offer.read_only));
        let agent = inner.build().map_err(|error| blame::problem(&error, config, Some(part)))?;
        builder = builder.tool(SubAgent::new(agent, description(described)));
    }
    let agent = with_all(builder, hooks.to_vec()).build().map_err(|error| blame::problem(&error, config, None))?;
    problems.extend(access::problems(&config.access, &agent));
    problems.extend(tools::rules_for_nothing(config, &agent));
    let mut gated = offer.approve;
    for tool in access::gated(&config.access, &agent) {
        if !gated.contains(&tool) {
            gated.push(tool);
        }
    }
    Ok((agent, gated))
}

/// The name of the agent.
pub(crate) fn agent_name(config: &Config) -> &str {
    config.agent.name.as_ref().map_or(NAME, |found| &found.value)
}

fn with_all(builder: AgentBuilder, hooks: Vec<HookEntry>) -> AgentBuilder {
    hooks.into_iter().fold(builder, AgentBuilder::hook)
}

/// What the parent's model is told a sub-agent is for: its own first line.
fn description(system: &str) -> String {
    match system.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => format!("Another agent that can read and search files. It was told: {line}"),
        None => "Another agent that can read and search files.".to_owned(),
    }
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

    fn open(&self) -> Result<SharedModel, Problem> {
        let name = ModelName::parse(&self.name).map_err(|problem| problem.or_at(self.place.as_ref()))?;
        name.open(&self.folder).map_err(|problem| problem.or_at(self.place.as_ref()))
    }
}
