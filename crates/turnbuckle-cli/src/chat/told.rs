//! What slash commands tell of the agent.

use std::collections::BTreeMap;

use turnbuckle::Agent;
use turnbuckle::hook::Point;

use crate::mcp::ServerLine;
use crate::show::{name, opening};

/// What MCP tools are called: `mcp__SERVER__TOOL`.
const MCP: &str = "mcp__";

/// How much is shown of what a tool says of itself.
const DESCRIPTION: usize = 160;

/// What can stand behind `/permissions`.
pub(super) const PERMISSIONS: &str = "`/permissions` lists them, `/permissions revoke ID` ends one";

/// What runs at each point, in order.
pub(super) fn hooks(agent: &Agent) -> String {
    let mut lines = Vec::new();
    for point in Point::ALL {
        let here = agent.hooks().iter().filter(|entry| entry.points().contains(point));
        let names: Vec<String> = here.map(|entry| name(entry.name())).collect();
        if !names.is_empty() {
            lines.push(format!("{point}: {}", names.join(", ")));
        }
    }
    if lines.is_empty() { "no hooks".to_owned() } else { lines.join("\n") }
}

/// What the model can call, and what is asked first.
pub(super) fn tools(agent: &Agent) -> String {
    let line = |tool: &turnbuckle::tool::Definition| {
        let asks = if agent.needs_approval(&tool.name) { " (asks first)" } else { "" };
        format!("{}{asks}: {}", name(&tool.name), opening(&tool.description, DESCRIPTION))
    };
    let lines: Vec<String> = agent.tools().iter().map(line).collect();
    if lines.is_empty() { "no tools".to_owned() } else { lines.join("\n") }
}

/// MCP servers, their tools, and what those cost.
pub(super) fn mcp(agent: &Agent, servers: &[ServerLine]) -> String {
    let mut tools: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for tool in agent.tools().iter() {
        if let Some((server, tool)) = tool.name.strip_prefix(MCP).and_then(|rest| rest.split_once("__")) {
            tools.entry(server.to_owned()).or_default().push(name(tool));
        }
    }
    let line = |server: &ServerLine| {
        let names = tools.get(&server.name).map(|tools| format!("\n  {}", tools.join(", "))).unwrap_or_default();
        format!("{}: {}{names}", name(&server.name), server.cost())
    };
    let lines: Vec<String> = servers.iter().map(line).collect();
    match lines.is_empty() {
        true => "no MCP servers; `[[tools.mcp]]` in turnbuckle.toml adds one".to_owned(),
        false => lines.join("\n"),
    }
}
