//! The rules of `[access]` against the tools that the agent has: a rule that guards nothing, or that nobody could satisfy, is
//! refused before anything runs.

use turnbuckle::Agent;
use turnbuckle::access::{ApproveRule, RoleAccess};
use turnbuckle::agent::AgentParts;
use wildmatch::WildMatch;

use super::tools::ASK_HUMAN;
use crate::config::{AccessPart, ApprovePart, nearest};
use crate::mcp::Unlisted;
use crate::problem::Problem;

/// The names of all tools that a call could be of, those of sub-agents as well.
fn tools(agent: &Agent) -> Vec<String> {
    fn add(parts: &AgentParts, names: &mut Vec<String>) {
        // Those of MCP servers are recorded apart.
        names.extend(parts.tools.iter().chain(&parts.offered).map(|name| name.to_string()));
        parts.sub_agents.iter().for_each(|(_, parts)| add(parts, names));
    }
    let mut names = Vec::new();
    add(agent.parts(), &mut names);
    names.sort_unstable();
    names.dedup();
    names
}

fn covers(rule: &ApproveRule, tool: &str) -> bool {
    WildMatch::new(&rule.tool).matches(tool)
}

/// Tools of the agent whose calls need approval because a rule names them.
pub(super) fn gated(access: &AccessPart, agent: &Agent) -> Vec<String> {
    let rules = access.rules().approve;
    // What a person answers anyway is not gated.
    let own = agent.tools().iter().map(|tool| tool.name.to_string()).filter(|tool| tool != ASK_HUMAN);
    own.filter(|tool| rules.iter().any(|rule| covers(rule, tool))).collect()
}

/// What is wrong with the rules.
pub(super) fn problems(access: &AccessPart, agent: &Agent, unlisted: &Unlisted) -> Vec<Problem> {
    let (tools, rules) = (tools(agent), access.rules());
    let parts = access.approve.as_deref().unwrap_or_default();
    let mut problems = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        problems.extend(names_nothing(part, &tools, unlisted));
        problems.extend(nobody_could(part, &rules));
        problems.extend(never_counts(part, &rules.approve[..index], &tools));
    }
    problems
}

fn names_nothing(part: &ApprovePart, tools: &[String], unlisted: &Unlisted) -> Option<Problem> {
    let (rule, name) = (part.rule(), &part.tool.value);
    let refused = |what: String, hint: String| Some(Problem::error(what).at(&part.tool.place).hint(hint));
    if name == ASK_HUMAN {
        let what = format!("`approve` in [access] names {name:?}, whose calls a person answers anyway");
        return refused(what, "`answer` in [access] says who may answer".to_owned());
    }
    if tools.iter().any(|tool| covers(&rule, tool)) {
        return None;
    }
    if let Some(problem) = unlisted.problem(name) {
        return Some(problem.at(&part.tool.place));
    }
    let near = nearest(name, tools.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
    let hint = near.unwrap_or_else(|| format!("its tools are {}", tools.join(", ")));
    refused(format!("`approve` in [access] names {name:?}, and the agent has no such tool"), hint)
}

/// Without `by` those may approve who may answer: the owner, and the roles of `answer`.
fn nobody_could(part: &ApprovePart, rules: &RoleAccess) -> Option<Problem> {
    let rule = part.rule();
    if !rule.by.is_empty() || !rules.answer.is_empty() {
        return None;
    }
    let why = if rule.n > 1 {
        format!("{} people must approve", rule.n)
    } else if rule.not_requester && rules.say.is_empty() {
        "the one who asked may not approve".to_owned()
    } else {
        return None;
    };
    let what = format!(
        "`approve` in [access]: nobody could approve {}: {why}, and only the owner of the conversation may",
        part.tool.value
    );
    Some(Problem::error(what).at(&part.place).hint("name roles with `by`, or in `answer` of [access]"))
}

/// The first rule that names a tool counts.
fn never_counts(part: &ApprovePart, before: &[ApproveRule], tools: &[String]) -> Option<Problem> {
    let rule = part.rule();
    let mut own = tools.iter().filter(|tool| covers(&rule, tool)).peekable();
    own.peek()?;
    let is_idle = own.all(|tool| before.iter().any(|other| covers(other, tool)));
    let what = format!("this rule of `approve` in [access] never counts: a rule before it names {}", part.tool.value);
    is_idle
        .then(|| Problem::warning(what).at(&part.place).hint("the first rule that names a tool counts: put it first"))
}
