//! The tools of `[tools]`: which are offered, and which need approval.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use turnbuckle::tool::Tool;
use turnbuckle::tools::human;
use turnbuckle_tools::Workspace;

use crate::config::{Config, nearest};
use crate::problem::Problem;
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
    let (mut tools, mut read_only) = (Vec::new(), Vec::new());
    for name in &names {
        match workspace.tool(name) {
            Some(tool) => {
                if !Workspace::CHANGING.contains(&name.as_str()) {
                    read_only.push(tool.clone());
                }
                tools.push(tool);
            }
            None => tools.push(Arc::new(human(ASK_HUMAN, "Asks the person a question; the answer is the result."))),
        }
    }
    let approve = match &config.tools.approve {
        Some(found) => found.value.iter().map(|name| name.value.clone()).collect(),
        None => names.into_iter().filter(|name| Workspace::CHANGING.contains(&name.as_str())).collect(),
    };
    Some(Offer { tools, read_only, approve })
}

/// Absent: all there are.
fn names(config: &Config, problems: &mut Vec<Problem>) -> Vec<String> {
    let all: Vec<&str> = Workspace::NAMES.into_iter().chain([ASK_HUMAN]).collect();
    let Some(given) = &config.tools.builtin else { return all.into_iter().map(str::to_owned).collect() };
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    for name in &given.value {
        let text = name.value.as_str();
        let problem = if text == "shell" {
            Problem::error("tool `shell` is not in this version").hint("take it out of `builtin`")
        } else if !all.contains(&text) {
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
