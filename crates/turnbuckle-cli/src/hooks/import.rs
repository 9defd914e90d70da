//! `turnbuckle hooks import`: the configuration that does what the project's Claude-style settings do.
//!
//! Handlers that check files when the model stops become `lint`. The rest reads the protocol's JSON on stdin, so it stays where
//! it is, and `use = "claude"` runs it.

use serde_json::{Value, json};
use turnbuckle_tools::CommandLine;
use turnbuckle_tools::claude::{ClaudeAction, ClaudeEvent, ClaudeHandler, ClaudePlaces, ClaudeSettings, Waiting};

use crate::Stopped;
use crate::args::Common;
use crate::config;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::read_file::{CONFIGURATION, read_file};
use crate::show::clean;

/// First words of commands that check files and say what is wrong by their exit code, whatever stands on stdin.
const CHECKERS: &[&str] = &[
    "cargo check",
    "cargo clippy",
    "cargo test",
    "cargo fmt --check",
    "cargo fmt --all --check",
    "eslint",
    "npx eslint",
    "npm run lint",
    "npm run typecheck",
    "npm run check",
    "npm test",
    "npm run test",
    "pnpm lint",
    "pnpm run lint",
    "pnpm test",
    "yarn lint",
    "yarn test",
    "tsc",
    "npx tsc",
    "biome check",
    "npx biome check",
    "prettier --check",
    "npx prettier --check",
    "ruff check",
    "uv run ruff check",
    "mypy",
    "uv run mypy",
    "pyright",
    "flake8",
    "pylint",
    "black --check",
    "pytest",
    "uv run pytest",
    "python -m pytest",
    "python3 -m pytest",
    "go vet",
    "go test",
    "golangci-lint",
    "shellcheck",
    "rubocop",
    "make lint",
    "make check",
    "make test",
    "just lint",
    "just check",
    "just test",
];

/// In what `lint` does not do the same as a handler: some of it makes a gate weaker.
const DIFFERENCES: &str = "\
# Here it runs only if files were touched in the turn. If it refuses a stop twice in the same words with nothing done in between,
# the second time is overruled; there it may refuse up to 8 times. If it cannot be run or takes too long the turn fails; there a
# check that takes too long is passed over.
";

/// The kind of handlers that do not run here.
const AGENT: &str = "agent";

pub(super) fn import(common: &Common) -> Result<Exit, Stopped> {
    let project = config::load_without_agent(common).project.folder;
    let places =
        ClaudePlaces { project: project.clone(), reads_project: true, home: None, managed: None, plugins: Vec::new() };
    let settings = ClaudeSettings::load(&places);
    if settings.files.is_empty() {
        return Err(Stopped::usage(
            Problem::error(format!("there is no .claude/settings.json in {}", project.display()))
                .hint("it is looked for in the project's folder"),
        ));
    }
    // What `use = "claude"` refuses must be mended first: nobody can say what would do the same.
    let broken: Vec<Problem> = settings
        .unsupported
        .iter()
        .filter(|one| one.kind != AGENT)
        .map(|one| Problem::error(&one.place).hint("mend it or take it out: a gate could be missing"))
        .collect();
    if !broken.is_empty() {
        return Err(Stopped { problems: broken, exit: Exit::Usage });
    }
    let mut notes: Vec<String> = settings.warnings.iter().chain(&settings.notices).cloned().collect();
    notes.extend(settings.plugins_not_run(&[]));
    notes.extend(settings.unsupported.iter().map(|one| one.place.clone()));
    for file in &settings.files {
        notes.extend(other_keys(file).into_iter().map(|key| format!("{}: `{key}` is not about hooks", file.display())));
    }
    super::print(&clean(&written(&settings, &notes)));
    Ok(Exit::Completed)
}

/// What else stands in the file.
fn other_keys(file: &std::path::Path) -> Vec<String> {
    let text = read_file(file, CONFIGURATION).unwrap_or_default();
    let object: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    let about_hooks = ["hooks", "disableAllHooks", "enabledPlugins", "$schema", "description"];
    object.keys().filter(|key| !about_hooks.contains(&key.as_str())).cloned().collect()
}

fn written(settings: &ClaudeSettings, notes: &[String]) -> String {
    let (mut text, mut replaced) = (String::new(), Vec::new());
    for handler in &settings.handlers {
        let Some((command, run)) = checker(handler) else { continue };
        if replaced.contains(&command) {
            continue;
        }
        // There a program that cannot be run refuses the stop as well, so here its failure blocks. The event is the main agent's.
        let fixed = "pass_files = false\nmain_agent_only = true\non_failure = \"block\"";
        text.push_str(&format!(
            "# {}: {}\n{DIFFERENCES}[[hooks]]\nuse = \"lint\"\nname = {}\nrun = {}\n{fixed}\ntimeout = \"{}\"\n\n",
            handler.event.name(),
            one_line(&command),
            quoted(&format!("lint-{}", replaced.len() + 1)),
            quoted(&run),
            humantime::format_duration(handler.timeout),
        ));
        replaced.push(command);
    }
    let rest = settings.handlers.iter().filter(|handler| checker(handler).is_none());
    let rest: Vec<String> = rest
        .map(|handler| format!("#   {}: {}\n", handler.event.name(), one_line(&handler.action.to_string())))
        .collect();
    if !rest.is_empty() {
        text.push_str("# These stay in .claude/settings.json and run from there, as they do now:\n");
        text.push_str(&rest.concat());
        text.push_str("[[hooks]]\nuse = \"claude\"\n");
        if settings.unsupported.iter().any(|one| one.kind == AGENT) {
            text.push_str(
                "# Without this line the file is refused: these handlers could block something, and do not run here.\n",
            );
            text.push_str(&format!("leave_out = [\"{AGENT}\"]\n"));
        }
        let one = |command: &String| format!("    {{ event = \"Stop\", command = {} }},\n", quoted(command));
        if !replaced.is_empty() {
            text.push_str(&format!("replaced = [\n{}]\n", replaced.iter().map(one).collect::<String>()));
        }
        text.push('\n');
    }
    if !notes.is_empty() {
        text.push_str("# Not carried over:\n");
        text.extend(notes.iter().map(|note| format!("#   {}\n", one_line(note))));
    }
    if text.is_empty() { "# The settings have no hooks.\n".to_owned() } else { text }
}

/// As a string of TOML: that of JSON, which leaves one sign as it is that TOML does not take.
fn quoted(text: &str) -> String {
    json!(text).to_string().replace('\u{7f}', "\\u007F")
}

/// A comment ends at its line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The command of a handler that `lint` can take over, as written and as `lint` runs it: any exit code but 0 is a complaint
/// there, and what is printed is read from both pipes.
fn checker(handler: &ClaudeHandler) -> Option<(String, String)> {
    let ClaudeAction::Command(CommandLine::Shell(line)) = &handler.action else { return None };
    let is_stop = handler.event == ClaudeEvent::Stop && handler.waiting == Waiting::ForIt;
    let mut run = line.trim().replace("cd \"$CLAUDE_PROJECT_DIR\" && ", "").replace("cd $CLAUDE_PROJECT_DIR && ", "");
    loop {
        let shorter = ["|| exit 2", "|| (exit 2)", "|| { exit 2; }", "1>&2", ">&2", "2>&1"]
            .iter()
            .find_map(|end| run.trim_end().strip_suffix(end).map(|rest| rest.trim_end().to_owned()));
        match shorter {
            Some(shorter) => run = shorter,
            None => break,
        }
    }
    // More than one command, or input that it reads: what its exit code means is not known.
    let is_simple = !run.contains(['|', ';', '&', '<', '>', '`', '\n']) && !run.contains("$(");
    let is_known = CHECKERS.iter().any(|known| run == *known || run.starts_with(&format!("{known} ")));
    // A check that only exits 1 blocks nothing there, so it would do more here than it does now.
    let blocks = line.contains("exit 2");
    (is_stop && is_simple && is_known && blocks).then(|| (line.clone(), run))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(command: &str) -> (tempfile::TempDir, ClaudeSettings) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".claude")).unwrap();
        let text = json!({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}});
        std::fs::write(folder.path().join(".claude/settings.json"), text.to_string()).unwrap();
        let project = folder.path().to_owned();
        let places = ClaudePlaces { project, reads_project: true, home: None, managed: None, plugins: Vec::new() };
        let settings = ClaudeSettings::load(&places);
        (folder, settings)
    }

    #[test]
    fn a_linter_at_stop_becomes_lint_and_nothing_else_does() {
        for (command, run) in [
            ("npm run lint >&2 || exit 2", Some("npm run lint")),
            (
                "cd \"$CLAUDE_PROJECT_DIR\" && cargo clippy -- -D warnings 1>&2 || exit 2",
                Some("cargo clippy -- -D warnings"),
            ),
            ("ruff check . || exit 2", Some("ruff check .")),
            ("npm run lint", None),
            ("npm run lint; exit 2", None),
            ("jq .x | eslint || exit 2", None),
            ("eslintrc-check || exit 2", None),
            ("./check.sh || exit 2", None),
        ] {
            let (_folder, settings) = settings(command);
            let text = written(&settings, &[]);
            assert!(!text.contains("ms\""), "{text}");
            assert_eq!(
                run.is_some(),
                text.contains("twice in the same words") && text.contains("turn fails"),
                "{text}"
            );
            assert_eq!(checker(&settings.handlers[0]).map(|(_, run)| run).as_deref(), run, "{command}");
        }
    }
}
