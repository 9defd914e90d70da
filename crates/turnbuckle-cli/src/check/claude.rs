//! Claude-style settings: what is left out of them, and gates whose programs are not there.

use std::path::Path;

use turnbuckle::hooks::ConfigHook as _;
use turnbuckle_tools::claude::ClaudeHandler;
use turnbuckle_tools::{ClaudeHooks, CommandLine};

use super::shell::{self, ShellFault};
use crate::config::HookPart;
use crate::hooks::claude_settings;
use crate::problem::Problem;

/// What is probably not meant in the settings that a hook reads.
pub(super) fn suspicions(part: &HookPart, folder: &Path) -> Vec<Problem> {
    if part.used.name != ClaudeHooks::NAME {
        return Vec::new();
    }
    let settings = claude_settings(part, folder);
    let mut found: Vec<Problem> = settings.warnings.iter().map(Problem::warning).collect();
    found.extend(settings.unsupported.iter().map(|one| Problem::warning(format!("{}: it is left out", one.place))));
    if settings.files.is_empty() {
        let what = "there is no .claude/settings.json: the hook has no handlers";
        found.push(Problem::warning(what).at(&part.place));
    }
    found.extend(settings.handlers.iter().filter_map(|handler| missing_program(handler, folder)));
    found
}

/// A gate whose program is not there lets everything pass, unless its failure blocks.
fn missing_program(handler: &ClaudeHandler, folder: &Path) -> Option<Problem> {
    let place = format!("{}: a handler of {}", handler.file.display(), handler.event.name());
    let what = match &handler.command {
        CommandLine::Argv(words) => {
            let program = words.first().filter(|program| !super::exists(program, folder))?;
            format!("{place} runs {program:?}, which was not found")
        }
        CommandLine::Shell(line) => {
            let folders = folder.display().to_string();
            let line = line.replace("${CLAUDE_PROJECT_DIR}", &folders).replace("$CLAUDE_PROJECT_DIR", &folders);
            match shell::fault(&line, folder)? {
                ShellFault::Syntax(complaint) => format!("{place} is no shell command: {complaint}"),
                ShellFault::NoSuchCommand { name, .. } => format!("{place} begins with {name:?}, which was not found"),
            }
        }
    };
    let problem = Problem::warning(what);
    Some(match (handler.event.can_block(), handler.blocks_on_failure) {
        (true, false) => {
            problem.hint("it would let everything pass: `\"onFailure\": \"block\"` makes its failure a block")
        }
        _ => problem.hint("is it installed, and in PATH?"),
    })
}
