//! Claude-style settings: what is left out of them, and gates whose programs are not there.

use std::path::Path;

use turnbuckle::Agent;
use turnbuckle::hooks::ConfigHook as _;
use turnbuckle_tools::claude::{ClaudeAction, ClaudeHandler, Waiting, names_in_scripts};
use turnbuckle_tools::{ClaudeHooks, CommandLine};

use super::shell::{self, ShellFault};
use crate::assemble::Prepared;
use crate::config::{HookPart, nearest};
use crate::hooks::{claude_notices, claude_settings};
use crate::mcp::ServerLine;
use crate::problem::Problem;

/// What is probably not meant in the settings that hooks read. Of what several of them read it is told once.
pub(super) fn suspicions(parts: &[&HookPart], prepared: &Prepared) -> Vec<Problem> {
    let folder = &prepared.project.folder;
    let mut found: Vec<Problem> = claude_notices(parts.iter().copied(), folder);
    for part in parts.iter().filter(|part| part.used.name == ClaudeHooks::NAME) {
        for problem in of_section(part, prepared) {
            if !found.contains(&problem) {
                found.push(problem);
            }
        }
    }
    found
}

fn of_section(part: &HookPart, prepared: &Prepared) -> Vec<Problem> {
    let (folder, servers) = (&prepared.project.folder, &prepared.mcp);
    let settings = claude_settings(part, folder);
    let mut found: Vec<Problem> = settings.warnings.iter().map(Problem::warning).collect();
    found.extend(settings.unsupported.iter().map(|one| Problem::warning(format!("{}: it is left out", one.place))));
    if settings.files.is_empty() {
        let what = "there is no .claude/settings.json: the hook has no handlers";
        found.push(Problem::warning(what).at(&part.place));
    }
    found.extend(settings.handlers.iter().filter_map(|handler| missing_program(handler, folder)));
    found.extend(settings.handlers.iter().filter_map(|handler| missing_server(handler, servers)));
    if let Some(agent) = &prepared.agent {
        let names = names_of_tools(agent);
        found.extend(settings.handlers.iter().filter_map(|handler| fits_nothing(handler, &names, servers)));
    }
    found
}

/// The names by which matchers may mean the tools of an agent and of its sub-agents.
fn names_of_tools(agent: &Agent) -> Vec<&str> {
    let is_sub_agent = |name: &str| agent.spec(name).is_some_and(|spec| spec.sub_agent.is_some());
    let own = agent.tools().iter().flat_map(|tool| names_in_scripts(&tool.name, is_sub_agent(&tool.name)));
    let of_sub_agents = agent.parts().sub_agents.iter().flat_map(|(_, parts)| &parts.tools);
    own.chain(of_sub_agents.flat_map(|name| names_in_scripts(name, false))).collect()
}

/// A handler whose matcher fits no tool never runs. What a server offers is not always known yet.
fn fits_nothing(handler: &ClaudeHandler, names: &[&str], servers: &[ServerLine]) -> Option<Problem> {
    let matcher = &*handler.matcher;
    let is_whole_server = |name: &str| name.strip_prefix("mcp__").is_some_and(|server| !server.contains("__"));
    let is_exact = |name: &str| name.chars().all(|sign| sign.is_ascii_alphanumeric() || "_-".contains(sign));
    let may_be_offered =
        matcher.contains("mcp") && !servers.is_empty() && !(is_exact(matcher) && is_whole_server(matcher));
    if may_be_offered || !handler.fits_no_tool(names.iter().copied()) {
        return None;
    }
    let what = format!(
        "{}: the matcher {matcher:?} of {} fits no tool of this agent: its handlers do not run",
        handler.file.display(),
        handler.event.name()
    );
    let words = || matcher.split(['|', ',']).map(str::trim);
    let theirs = words().find_map(|word| names_in_scripts(word, false).first().copied().filter(|name| *name != word));
    let near = words().find_map(|word| nearest(word, names.iter().copied()));
    let hint = match (theirs, near) {
        _ if is_exact(matcher) && is_whole_server(matcher) => format!("`{matcher}__.*` is every tool of that server"),
        (Some(theirs), _) => format!("scripts call it `{theirs}`"),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) => "is the tool in `builtin`?".to_owned(),
    };
    Some(Problem::warning(what).hint(hint))
}

/// Programs whose first argument is a script.
const INTERPRETERS: &[&str] = &["python", "python3", "node", "bun", "deno", "ruby", "perl", "php", "bash", "sh", "zsh"];

/// Those of them that exit 2 if it is not there, which blocks: that is rarely meant. `sh` does in some systems.
const EXIT_2: &[&str] = &["python", "python3", "perl", "sh"];

/// What follows from a gate whose script is not there.
fn without_script(program: &str) -> &'static str {
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program);
    match EXIT_2.contains(&name) {
        true => "is the path right? As it is, the interpreter exits 2, which blocks everything that the handler is for",
        false => OPEN,
    }
}

const OPEN: &str = "it would let everything pass: `\"onFailure\": \"block\"` makes its failure a block";

const UNREAD: &str = "a shell exits 2 for what it cannot read, which blocks everything that the handler is for";

/// The script that an interpreter would not find.
fn missing_script(words: &[String], folder: &Path) -> Option<String> {
    let [program, script, ..] = words else { return None };
    let name = Path::new(program).file_name()?.to_str()?;
    let is_path = script.contains('.') && script.chars().all(|sign| sign.is_alphanumeric() || "/._-".contains(sign));
    let is_missing =
        INTERPRETERS.contains(&name) && is_path && !script.starts_with('-') && !folder.join(script).exists();
    is_missing.then(|| script.clone())
}

fn unquoted(word: &str) -> String {
    word.replace(['"', '\''], "")
}

/// A gate whose server is not there lets everything pass as well.
fn missing_server(handler: &ClaudeHandler, servers: &[ServerLine]) -> Option<Problem> {
    let ClaudeAction::McpTool(call) = &handler.action else { return None };
    if servers.iter().any(|server| server.name == call.server) {
        return None;
    }
    let (file, event, server) = (handler.file.display(), handler.event.name(), &call.server);
    let what =
        format!("{file}: a handler of {event} calls a tool of the MCP server {server:?}, which is not configured");
    Some(Problem::warning(what).hint(format!("add it: `[[tools.mcp]]` with `name = {server:?}`")))
}

/// A gate whose program is not there lets everything pass, unless its failure blocks.
fn missing_program(handler: &ClaudeHandler, folder: &Path) -> Option<Problem> {
    let place = format!("{}: a handler of {}", handler.file.display(), handler.event.name());
    let ClaudeAction::Command(command) = &handler.action else { return None };
    let no_script = |words: &[String]| {
        let script = missing_script(words, folder)?;
        let follows = words.first().map_or(OPEN, |program| without_script(program));
        Some((format!("{place} runs the script {script:?}, which is not there"), follows))
    };
    let (what, follows) = match command {
        CommandLine::Argv(words) => match words.first().filter(|program| !super::exists(program, folder)) {
            Some(program) => (format!("{place} runs {program:?}, which was not found"), OPEN),
            None => no_script(words)?,
        },
        CommandLine::Shell(line) => {
            let folders = folder.display().to_string();
            let line = line.replace("${CLAUDE_PROJECT_DIR}", &folders).replace("$CLAUDE_PROJECT_DIR", &folders);
            match shell::fault(&line, folder) {
                Some(ShellFault::Syntax(complaint)) => (format!("{place} is no shell command: {complaint}"), UNREAD),
                Some(ShellFault::NoSuchCommand { name, .. }) => {
                    (format!("{place} begins with {name:?}, which was not found"), OPEN)
                }
                None => no_script(&line.split_whitespace().map(unquoted).collect::<Vec<_>>())?,
            }
        }
    };
    let problem = Problem::warning(what);
    let is_gate = handler.event.can_block() && handler.waiting == Waiting::ForIt;
    Some(match (is_gate, handler.blocks_on_failure) {
        (true, false) => problem.hint(follows),
        _ => problem.hint("is it installed, and in PATH?"),
    })
}
