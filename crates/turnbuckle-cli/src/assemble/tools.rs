//! The tools of `[tools]`: which are offered, and which need approval.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use turnbuckle::Agent;
use turnbuckle::tool::{AllowCalls, Tool};
use turnbuckle::tools::human;
use turnbuckle_tools::rules::Rule;
use turnbuckle_tools::{Shell, ShellOptions, ShellOutputs, Workspace};

use crate::config::{Config, nearest};
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
}

impl Offer {
    /// Those that sub-agents have and whose calls need approval: whoever calls a tool, it is asked about.
    pub(super) fn approved_in_sub_agents(&self) -> Vec<String> {
        let has = |name: &String| self.read_only.iter().any(|tool| *tool.spec().definition.name == **name);
        self.approve.iter().filter(|name| has(name)).cloned().collect()
    }
}

/// The offer; problems with single names are told, and only a folder that cannot be opened leaves nothing.
pub(super) fn offer(config: &Config, folder: &Path, store: &StoreName, problems: &mut Vec<Problem>) -> Option<Offer> {
    // In the user's own folders stands what was accepted, and what needs no acceptance.
    let closed = store.absolute_file().into_iter().chain(user_folders::all()).collect();
    let workspace = Workspace::open_without(folder, closed).map_err(|error| {
        problems.push(Problem::error(format!("the folder {}: {error}", folder.display())));
    });
    let workspace = workspace.ok()?;
    let names = names(config, problems);
    let approve = approve(config, &names);
    let (mut tools, mut read_only) = (Vec::new(), Vec::new());
    for name in &names {
        match workspace.tool(name) {
            Some(tool) => {
                if !is_changing(name) {
                    read_only.push(tool.clone());
                }
                tools.push(tool);
            }
            None if name == Shell::NAME => {
                let shell = Shell::new(shell_options(config, workspace.root()));
                let is_asked = approve.iter().any(|tool| tool == Shell::NAME);
                tools.push(Arc::new(if is_asked { shell } else { shell.without_approval() }));
            }
            None => tools.push(Arc::new(human(ASK_HUMAN, "Asks the person a question; the answer is the result."))),
        }
    }
    Some(Offer { tools, read_only, approve })
}

/// Whether a tool changes something, so that it needs approval unless the configuration says otherwise.
pub(crate) fn is_changing(tool: &str) -> bool {
    tool == Shell::NAME || Workspace::CHANGING.contains(&tool)
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
    options.withheld_env = provider_variables().into_iter().map(str::to_owned).collect();
    options.pass_env = part.pass_env.iter().flat_map(|names| &names.value).map(|name| name.value.clone()).collect();
    options.outputs = Some(ShellOutputs::below(project, OWN_FOLDER));
    options
}

/// The tools whose calls need approval.
fn approve(config: &Config, names: &[String]) -> Vec<String> {
    let Some(found) = &config.tools.approve else {
        return names.iter().filter(|name| is_changing(name)).cloned().collect();
    };
    let mut approve: Vec<String> = found.value.iter().map(|name| name.value.clone()).collect();
    let is_listed = |tool: &String| approve.contains(tool);
    // A list that was written when there was no shell says nothing about it.
    let shell = names.iter().find(|name| *name == Shell::NAME).filter(|_| config.tools.builtin.is_none());
    if let Some(shell) = shell.filter(|shell| !is_listed(shell)) {
        approve.push(shell.clone());
    }
    approve
}

/// Tools that change something and need no approval. Without `builtin` all are offered, without `approve` all of those are asked
/// about. The shell is asked about as well unless `builtin` names it.
pub(crate) fn unapproved(builtin: Option<&[String]>, approve: Option<&[String]>) -> Vec<&'static str> {
    let named = |names: &[String], tool: &str| names.iter().any(|name| name == tool);
    let is_free = |tool: &&str| {
        let is_offered = builtin.map_or(*tool != Shell::NAME, |names| named(names, tool));
        is_offered && approve.is_some_and(|names| !named(names, tool))
    };
    Workspace::CHANGING.into_iter().chain([Shell::NAME]).filter(is_free).collect()
}

/// The rules of `--allow`.
struct Allowed(Vec<Rule>);

impl AllowCalls for Allowed {
    fn allows(&self, tool: &str, arguments: &Value) -> bool {
        Rule::allow(&self.0, tool, arguments)
    }
}

pub(super) fn allowed(config: &Config) -> Arc<dyn AllowCalls> {
    Arc::new(Allowed(config.tools.allow.clone()))
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

/// Absent: all there are.
fn names(config: &Config, problems: &mut Vec<Problem>) -> Vec<String> {
    let all: Vec<&str> = Workspace::NAMES.into_iter().chain([Shell::NAME, ASK_HUMAN]).collect();
    let Some(given) = &config.tools.builtin else { return all.into_iter().map(str::to_owned).collect() };
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
