//! The tools of `[tools]`: which are offered, and which need approval.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use turnbuckle::Agent;
use turnbuckle::message::Text;
use turnbuckle::tool::{AllowCalls, Tool};
use turnbuckle::tools::{SearchHistory, client, human};
use turnbuckle_tools::rules::Rule;
use turnbuckle_tools::{Fetch, PLAN_TOOL, Shell, ShellOptions, ShellOutputs, UndoFiles, Workspace, plan_tool};

use crate::config::{Config, Found, nearest};
use crate::mcp::Unlisted;
use crate::model_name::provider_variables;
use crate::problem::Problem;
use crate::project::OWN_FOLDER;
use crate::store::StoreName;
use crate::user_folders;

pub(super) const ASK_HUMAN: &str = "ask_human";

/// What an agent is given.
pub(super) struct Offer {
    pub(super) tools: Vec<Arc<dyn Tool>>,
    /// Those that sub-agents have, too: they change nothing and ask no question.
    pub(super) read_only: Vec<Arc<dyn Tool>>,
    pub(super) approve: Vec<String>,
    /// The folder that the file tools work in.
    pub(super) workspace: Workspace,
}

/// The offer; problems with single names are told, and only a folder that cannot be opened leaves nothing.
pub(super) fn offer(config: &Config, folder: &Path, store: &StoreName, problems: &mut Vec<Problem>) -> Option<Offer> {
    // In the user's own folders stands what was accepted, and what needs no acceptance.
    let closed = store.absolute_file().into_iter().chain(user_folders::all()).collect();
    let workspace = Workspace::open_without(folder, closed).map_err(|error| {
        problems.push(Problem::error(format!("the folder {}: {error}", folder.display())));
    });
    let workspace = workspace.ok()?;
    if store.is_durable() {
        workspace.keep_undo(UndoFiles::below(folder, OWN_FOLDER));
    }
    let names = names(config, problems);
    let approve = approve(config, &names);
    let (mut tools, mut read_only) = (Vec::new(), Vec::new());
    for name in &names {
        let Some(tool) = builtin(name, config, &workspace, approve.contains(name)) else { continue };
        if !is_changing(name) && Workspace::NAMES.contains(&name.as_str()) {
            read_only.push(tool.clone());
        }
        tools.push(tool);
    }
    tools.extend(asked(config));
    Some(Offer { tools, read_only, approve, workspace })
}

/// A tool that comes with the program; `None` if there is none of this name.
pub(super) fn builtin(name: &str, config: &Config, workspace: &Workspace, is_asked: bool) -> Option<Arc<dyn Tool>> {
    Some(match name {
        Shell::NAME => {
            let shell = Shell::new(shell_options(config, workspace.root()));
            Arc::new(if is_asked { shell } else { shell.without_approval() })
        }
        Fetch::NAME => {
            let fetch = Fetch::new(config.tools.fetch.options());
            Arc::new(if is_asked { fetch } else { fetch.without_approval() })
        }
        PLAN_TOOL => Arc::new(plan_tool()),
        SearchHistory::NAME => Arc::new(SearchHistory::default()),
        ASK_HUMAN => Arc::new(human(ASK_HUMAN, "Asks the person a question; the answer is the result.")),
        name => workspace.tool(name)?,
    })
}

/// The names of all tools that come with the program, but those that are off by default.
pub(super) fn all_builtin() -> impl Iterator<Item = &'static str> {
    Workspace::NAMES.into_iter().chain(REACHING).chain([PLAN_TOOL, ASK_HUMAN])
}

/// The tools of `[[tools.client]]` and `[[tools.human]]`.
fn asked(config: &Config) -> Vec<Arc<dyn Tool>> {
    let clients = config.tools.client.iter().flatten().map(|tool| {
        let parameters = tool.parameters.clone().unwrap_or_default();
        Arc::new(client(tool.name.value.as_str(), tool.description.as_str(), parameters)) as Arc<dyn Tool>
    });
    let people = config
        .tools
        .human
        .iter()
        .flatten()
        .map(|tool| Arc::new(human(tool.name.value.as_str(), tool.description.as_str())) as Arc<dyn Tool>);
    clients.chain(people).collect()
}

/// Tools that reach beyond the project's folder.
const REACHING: [&str; 2] = [Shell::NAME, Fetch::NAME];

/// Whether a tool changes something, so that it needs approval unless the configuration says otherwise. An address can carry what
/// the model read to whoever has the host, so `fetch` counts.
pub(crate) fn is_changing(tool: &str) -> bool {
    REACHING.contains(&tool) || Workspace::CHANGING.contains(&tool)
}

/// How commands run in this project.
pub(crate) fn shell_options(config: &Config, project: &Path) -> ShellOptions {
    let (part, mut options) = (&config.tools.shell, ShellOptions::in_folder(project));
    if let Some(sandbox) = &part.sandbox {
        options.sandbox = sandbox.value;
    }
    if let Some(timeout) = &part.timeout {
        options.timeout = timeout.value;
    }
    let paths =
        |found: &Option<Found<Vec<PathBuf>>>| found.as_ref().map(|found| found.value.clone()).unwrap_or_default();
    (options.policy.readable, options.policy.writable) = (paths(&part.readable), paths(&part.writable));
    if let Some(network) = &part.network {
        options.policy.network = network.value;
    }
    options.policy.hidden = user_folders::all();
    options.withheld_env = withheld_from_tools(config);
    options.pass_env = part.pass_env.iter().flat_map(|names| &names.value).map(|name| name.value.clone()).collect();
    options.outputs = Some(ShellOutputs::below(project, OWN_FOLDER));
    options
}

/// Variables that programs of tools do not get: those of providers, and those that hold the secrets of hooks.
pub(crate) fn withheld_from_tools(config: &Config) -> Vec<String> {
    let of_agents = config.agents.iter().flatten().flat_map(|agent| &agent.hooks);
    let secrets =
        config.hooks.iter().chain(of_agents).filter_map(|hook| hook.option("secret_env").and_then(Value::as_str));
    provider_variables().into_iter().chain(secrets).map(str::to_owned).collect()
}

/// The tools whose calls need approval.
fn approve(config: &Config, names: &[String]) -> Vec<String> {
    let Some(found) = &config.tools.approve else {
        return names.iter().filter(|name| is_changing(name)).cloned().collect();
    };
    let mut approve: Vec<String> = found.value.iter().map(|name| name.value.clone()).collect();
    let is_listed = |tool: &String| approve.contains(tool);
    // A list that was written when there was no shell, or no fetch, says nothing about it.
    let is_reaching = |name: &&String| config.tools.builtin.is_none() && REACHING.contains(&name.as_str());
    let unlisted: Vec<String> = names.iter().filter(is_reaching).filter(|name| !is_listed(name)).cloned().collect();
    approve.extend(unlisted);
    approve
}

/// The names without those of tools that servers may offer which have not been listed: those tools are not offered either.
pub(super) fn without_unlisted(
    mut names: Vec<String>,
    written: Option<&Found<Vec<Found<String>>>>,
    unlisted: &Unlisted,
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    for name in written.into_iter().flat_map(|list| &list.value) {
        problems.extend(unlisted.problem(&name.value).map(|problem| problem.at(&name.place)));
    }
    names.retain(|name| unlisted.server_of(name).is_none());
    names
}

/// Tools that change something and need no approval. Without `builtin` all are offered, without `approve` all of those are asked
/// about. The shell and fetch are asked about as well unless `builtin` names them.
pub(crate) fn unapproved(builtin: Option<&[String]>, approve: Option<&[String]>) -> Vec<&'static str> {
    let named = |names: &[String], tool: &str| names.iter().any(|name| name == tool);
    let is_free = |tool: &&str| {
        let is_offered = builtin.map_or(!REACHING.contains(tool), |names| named(names, tool));
        is_offered && approve.is_some_and(|names| !named(names, tool))
    };
    Workspace::CHANGING.into_iter().chain(REACHING).filter(is_free).collect()
}

/// The rules of `--allow`.
struct Allowed(Vec<Rule>);

impl AllowCalls for Allowed {
    fn allows(&self, tool: &str, arguments: &Value) -> Option<Text> {
        let rules = Rule::allowing(&self.0, tool, arguments)?;
        Some(rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ").into())
    }
}

pub(super) fn allowed(config: &Config) -> Arc<dyn AllowCalls> {
    Arc::new(Allowed(config.tools.allow.clone()))
}

/// What `[tools.fetch] allow` allows, if there is such a tool.
pub(super) fn allowed_hosts(config: &Config) -> Vec<Rule> {
    let is_offered =
        config.tools.builtin.as_ref().is_none_or(|names| names.value.iter().any(|name| name.value == Fetch::NAME));
    let hosts = config.tools.fetch.allow.as_ref().filter(|_| is_offered);
    hosts.map(|hosts| hosts.value.clone()).unwrap_or_default()
}

/// Rules of `--allow` for tools that the agent does not have: a slip of the pen, or of the configuration.
pub(super) fn rules_for_nothing(config: &Config, agent: &Agent) -> Vec<Problem> {
    let tools: Vec<String> = agent.tools().iter().map(|tool| tool.name.to_string()).collect();
    let unknown = config.tools.allow.iter().filter(|rule| !tools.iter().any(|tool| tool == rule.tool()));
    let problem = |rule: &Rule| {
        let near = nearest(rule.tool(), tools.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
        let hint = near.unwrap_or_else(|| format!("its tools: {}", tools.join(", ")));
        Problem::error(format!("`--allow` names {:?}, and the agent has no such tool", rule.tool())).hint(hint)
    };
    unknown.map(problem).collect()
}

/// Absent: all but those that are off by default.
fn names(config: &Config, problems: &mut Vec<Problem>) -> Vec<String> {
    let mut all: Vec<&str> = all_builtin().collect();
    let Some(given) = &config.tools.builtin else { return all.into_iter().map(str::to_owned).collect() };
    all.push(SearchHistory::NAME);
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    for name in &given.value {
        let text = name.value.as_str();
        let problem = if !all.contains(&text) {
            let near = nearest(text, all.iter().copied()).map(|near| format!("did you mean `{near}`?"));
            let hint = near.unwrap_or_else(|| format!("builtin tools: {}", all.join(", ")));
            Problem::error(format!("there is no builtin tool {text:?}")).hint(hint)
        } else if !seen.insert(text) {
            Problem::error(format!("tool {text:?} is named twice")).hint("take one of them out")
        } else {
            names.push(text.to_owned());
            continue;
        };
        problems.push(problem.at(&name.place));
    }
    names
}
