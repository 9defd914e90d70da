//! `turnbuckle hooks`: what runs at each point, in order, with its options and what its failure would mean.

mod conform;
mod import;
mod test;
mod try_event;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use turnbuckle::hook::{HookEntry, OnFailure, Point};
use turnbuckle::hooks::ConfigHook as _;
use turnbuckle_models::without_password;
use turnbuckle_server::page::HookLine;
use turnbuckle_tools::claude::{ClaudeEvent, ClaudeHandler, ClaudeSettings, Waiting};
use turnbuckle_tools::{ClaudeHooks, ClaudeOptions};

use crate::Stopped;
use crate::args::{Common, Hooks, HooksCommand};
use crate::assemble::{Prepared, prepare};
use crate::catalogue::CATALOGUE;
use crate::config::HookPart;
use crate::exit::Exit;
use crate::inspect::unprintable;
use crate::output;
use crate::problem::Problem;
use crate::read_file::{CONFIGURATION, read_file};
use crate::show::{clean, json_line};
use crate::trust::{Gate, not_accepted};

/// Prints the hooks of the configuration, or with `--available` those that could be in it; or tests them.
pub(crate) async fn hooks(args: &Hooks, common: &Common) -> Result<Exit, Stopped> {
    match &args.command {
        Some(HooksCommand::Test(options)) => return test::test(options, args.json, common).await,
        Some(HooksCommand::Import) => return import::import(common),
        Some(HooksCommand::Conform(options)) => return conform::conform(options, args.json).await,
        None => {}
    }
    if args.available {
        return Ok(print(&available(args.json)?));
    }
    let prepared = prepare(common, Gate::Judged);
    if prepared.has_errors() {
        return Err(Stopped { problems: prepared.problems, exit: Exit::Usage });
    }
    if !prepared.standing.is_accepted() {
        output::report(&[not_accepted(&prepared.project.file())]);
    }
    let parts = prepared.configured_hooks().map(|(part, _)| part);
    let not_run = claude_notices(parts, &prepared.project.folder).into_iter().chain(unused_settings(&prepared));
    output::report(&not_run.collect::<Vec<_>>());
    let text = match args.json {
        true => shown(&prepared).iter().map(Line::json).collect::<Result<_, _>>()?,
        false => clean(&by_point(&told_lines(&prepared))),
    };
    Ok(print(&text))
}

/// Settings in the project's folder that no hook runs. People who bring them along expect otherwise.
pub(crate) fn unused_settings(prepared: &Prepared) -> Option<Problem> {
    let settings = prepared.project.folder.join(".claude/settings.json");
    let is_used = prepared.config.hooks.iter().any(|part| part.used.name == ClaudeHooks::NAME);
    let names_hooks = || {
        let text = read_file(&settings, CONFIGURATION).ok()?;
        serde_json::from_str::<Value>(&text).ok()?.get("hooks").cloned()
    };
    (!is_used && names_hooks().is_some()).then(|| {
        Problem::warning(format!("the hooks of {} do not run", settings.display()))
            .hint("`[[hooks]]` with `use = \"claude\"` runs them; `turnbuckle hooks import` prints what to write")
    })
}

/// A closed stdout is not an error.
fn print(text: &str) -> Exit {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Exit::Completed
}

/// A hook at a point.
struct Line<'a> {
    point: Point,
    /// The sub-agent that has it; none for the main agent.
    agent: Option<&'a str>,
    entry: &'a HookEntry,
    /// None for one that stands there without configuration.
    part: Option<&'a HookPart>,
    /// The project's folder.
    project: &'a Path,
    /// The project's file, as places name it, and whether it is accepted.
    project_file: String,
    is_accepted: bool,
}

/// The options of a hook with `use = "claude"`; none if they make no sense: then there is no hook either.
pub(crate) fn claude_options(part: &HookPart) -> Option<ClaudeOptions> {
    let options = part.options.iter().map(|(key, found)| (key.clone(), found.value.clone()));
    serde_json::from_value(Value::Object(options.collect())).ok()
}

/// The settings that a hook with `use = "claude"` reads.
pub(crate) fn claude_settings(part: &HookPart, project: &Path) -> ClaudeSettings {
    let as_run = |options: ClaudeOptions| match part.ignores_project {
        true => options.without_project(project),
        false => options,
    };
    let mut settings = claude_options(part).map(|options| as_run(options).settings(project)).unwrap_or_default();
    settings.leave_to_others(&part.read_by_others);
    settings
}

/// Whether something of the user's runs at a point of a hook: where one with `use = "claude"` has no handler it only writes the
/// transcript down, or hands on what handlers said elsewhere.
pub(crate) fn runs_at(part: Option<&HookPart>, point: Point, project: &Path) -> bool {
    part.filter(|part| part.used.name == ClaudeHooks::NAME)
        .is_none_or(|part| claude_settings(part, project).handlers.iter().any(|handler| handler.event.point() == point))
}

/// What people must know of the Claude-style settings before each run: handlers that do not run, though someone meant them to.
pub(crate) fn claude_notices<'a>(parts: impl IntoIterator<Item = &'a HookPart>, project: &Path) -> Vec<Problem> {
    let parts = parts.into_iter().filter(|part| part.used.name == ClaudeHooks::NAME);
    let settings: Vec<ClaudeSettings> = parts.map(|part| claude_settings(part, project)).collect();
    let loaded: Vec<String> = settings.iter().flat_map(|settings| settings.loaded_plugins.clone()).collect();
    let mut notices: Vec<String> = Vec::new();
    for settings in settings {
        let plugins = settings.plugins_not_run(&loaded);
        // Several sections read the same files.
        for notice in settings.notices.into_iter().chain(plugins) {
            if !notices.contains(&notice) {
                notices.push(notice);
            }
        }
    }
    notices.into_iter().map(Problem::warning).collect()
}

/// The hooks of the main agent at a point, and behind all points those of sub-agents.
fn all(prepared: &Prepared) -> Vec<Line<'_>> {
    let main = at_points(prepared, None, &prepared.hooks, &prepared.config.hooks);
    let agents = prepared.config.agents.iter().flatten().zip(&prepared.agent_hooks);
    let own = agents.flat_map(|(part, entries)| at_points(prepared, Some(&part.name.value), entries, &part.hooks));
    main.into_iter().chain(own).collect()
}

/// Those of which something runs.
fn shown(prepared: &Prepared) -> Vec<Line<'_>> {
    let mut lines = all(prepared);
    lines.retain(|line| runs_at(line.part, line.point, line.project));
    lines
}

fn at_points<'a>(
    prepared: &'a Prepared,
    agent: Option<&'a str>,
    entries: &'a [HookEntry],
    parts: &'a [HookPart],
) -> Vec<Line<'a>> {
    let line = |point: Point, index: usize, entry: &'a HookEntry| Line {
        point,
        agent,
        entry,
        part: parts.get(index),
        project: &prepared.project.folder,
        project_file: prepared.project.file().display().to_string(),
        is_accepted: prepared.standing.is_accepted(),
    };
    let at = |point: Point| entries.iter().enumerate().filter(move |(_, entry)| entry.points().contains(point));
    Point::ALL.into_iter().flat_map(|point| at(point).map(move |(index, entry)| line(point, index, entry))).collect()
}

/// The same lines in words, for the page of a turn.
pub(crate) fn told_lines(prepared: &Prepared) -> Vec<HookLine> {
    shown(prepared).iter().map(Line::told).collect()
}

fn by_point(lines: &[HookLine]) -> String {
    let mut text = String::new();
    let width = lines.iter().map(|line| line.hook.chars().count()).max().unwrap_or(0);
    let mut last = None;
    for line in lines {
        // Writing to a String cannot fail.
        if last.replace((&line.agent, line.point)) != Some((&line.agent, line.point)) {
            let agent = line.agent.as_ref().map(|agent| format!(", in {agent}")).unwrap_or_default();
            let _ = writeln!(text, "{}{agent}", line.point);
        }
        let _ = writeln!(text, "  {:width$}  {}", line.hook, line.settings);
        if let Some(from) = &line.from {
            let _ = writeln!(text, "  {:width$}  from {from}", "");
        }
        let _ = writeln!(text, "  {:width$}  {}", "", line.failure);
        for handler in &line.handlers {
            let _ = writeln!(text, "  {:width$}  - {handler}", "");
        }
    }
    if text.is_empty() { "no hooks\n".to_owned() } else { text }
}

fn trusted(is_trusted: bool) -> &'static str {
    if is_trusted { "accepted" } else { "not accepted" }
}

/// A Claude-style handler as a line.
fn told(handler: &ClaudeHandler, is_trusted: bool) -> String {
    let matcher = if handler.matcher.is_empty() { String::new() } else { format!(" {:?}", handler.matcher) };
    let condition = handler.condition.as_ref().map(|rule| format!(" if {rule}")).unwrap_or_default();
    let failure = match (handler.waiting, handler.blocks_on_failure) {
        _ if handler.unreadable_matcher().is_some() && handler.event.can_block() => {
            "its matcher cannot be read: it blocks everything"
        }
        _ if handler.unreadable_matcher().is_some() => "its matcher cannot be read: it never runs",
        (Waiting::ForIt, true) if handler.event.can_block() => "its failure blocks",
        (Waiting::ForIt, _) => "its failure is ignored",
        _ => "async: nothing waits for it",
    };
    let (event, does, file) = (handler.event.name(), &handler.action, handler.file.display());
    format!("{event}{matcher}{condition}: {does} ({file}, {}; {failure})", trusted(is_trusted))
}

impl Line<'_> {
    /// Whether it may run. A file of the user's own, and one named with `--config`, counts as accepted.
    fn is_trusted(&self) -> bool {
        self.is_accepted || self.part.is_none_or(|part| *part.place.file != *self.project_file)
    }

    /// The same for a handler: what lies in the project's folder is accepted with the project.
    fn trusts(&self, handler: &ClaudeHandler) -> bool {
        self.is_accepted || !handler.file.starts_with(self.project)
    }

    /// The handlers of Claude-style settings that run at the point, in order.
    fn handlers(&self) -> Vec<ClaudeHandler> {
        let Some(part) = self.part.filter(|part| part.used.name == ClaudeHooks::NAME) else { return Vec::new() };
        let mut handlers = claude_settings(part, self.project).handlers;
        handlers.retain(|handler| handler.event.point() == self.point);
        // Of one event they stay in the order of the files.
        handlers.sort_by_key(|handler| ClaudeEvent::ALL.iter().position(|event| *event == handler.event));
        if self.entry.failure_policy(self.point) == OnFailure::Block && self.entry.settings().on_failure.is_some() {
            handlers.iter_mut().for_each(|handler| handler.blocks_on_failure = true);
        }
        handlers
    }

    /// What `use` says, also of one that stands there without configuration.
    fn used(&self) -> &str {
        self.entry.configured_use().map_or("code", |used| used)
    }

    /// As the file has them.
    fn settings(&self) -> String {
        let default = match self.part {
            Some(_) => String::new(),
            None => format!(" (added by default; `default_{} = false` in [agent] leaves it out)", self.used()),
        };
        let mut shown = vec![format!("use = \"{}\"{default}", self.used())];
        let options = self.part.into_iter().flat_map(|part| &part.options);
        shown.extend(options.map(|(key, found)| format!("{key} = {}", disclosed(key, &found.value))));
        let settings = self.entry.settings();
        if !settings.tools.is_empty() {
            shown.push(format!("tools = {:?}", settings.tools));
        }
        if settings.main_agent_only {
            shown.push("main_agent_only = true".to_owned());
        }
        if self.part.is_some_and(|part| part.settings.hides_changes) {
            shown.push("hides_changes = true".to_owned());
        }
        shown.join(", ")
    }

    /// What its failure means, as a sentence.
    fn failure(&self) -> String {
        match self.used() {
            // Each handler has a line of its own.
            ClaudeHooks::NAME => "if a handler is not what was accepted, it does not run, and that blocks".to_owned(),
            _ => format!("if it fails: {}", self.entry.failure_in_words(self.point)),
        }
    }

    /// In words: what is printed, and what the page of a turn shows.
    fn told(&self) -> HookLine {
        let mut line = HookLine::new(self.point, self.entry.name(), self.settings(), self.failure());
        line.agent = self.agent.map(str::to_owned);
        line.from = self.part.map(|part| format!("{}, {}", part.place, trusted(self.is_trusted())));
        line.handlers = self.handlers().iter().map(|handler| told(handler, self.trusts(handler))).collect();
        line
    }

    fn json(&self) -> Result<String, Stopped> {
        let options: Map<String, Value> = self
            .part
            .map(|part| part.options.iter().map(|(key, found)| (key.clone(), disclosed(key, &found.value))).collect())
            .unwrap_or_default();
        let policy = match self.entry.failure_policy(self.point) {
            OnFailure::Block => "block",
            OnFailure::Ignore => "ignore",
        };
        let settings = self.entry.settings();
        let mut line = json!({
            "point": self.point, "hook": self.entry.name(), "use": self.used(), "options": options,
            "on_failure": policy, "failure": self.entry.failure_in_words(self.point), "tools": settings.tools,
            "main_agent_only": settings.main_agent_only, "hides_changes": settings.hides_changes,
            "at": self.part.map(|part| part.place.to_string()), "trusted": self.is_trusted(),
        });
        if let Some(agent) = self.agent {
            line["agent"] = json!(agent);
        }
        let handlers: Vec<Value> = self.handlers().iter().map(|handler| json!({
            "event": handler.event.name(), "matcher": handler.matcher, "if": handler.condition,
            "type": handler.action.kind(), "command": handler.action.to_string(), "async": handler.waiting != Waiting::ForIt, "file": handler.file, "trusted": self.trusts(handler), "timeout": handler.timeout.as_secs_f64(),
            "on_failure": if handler.blocks_on_failure { "block" } else { "ignore" },
            "matcher_error": handler.unreadable_matcher(),
        })).collect();
        if !handlers.is_empty() {
            line["handlers"] = Value::Array(handlers);
        }
        json_line(&line).map_err(unprintable)
    }
}

/// The value of an option for display; of a secret only that it is set, and of an address neither its password nor the
/// values of its query.
pub(crate) fn disclosed(key: &str, value: &Value) -> Value {
    let secret = ["salt", "secret", "token", "password"].iter().any(|word| key.ends_with(word));
    match value {
        _ if secret => Value::from("…"),
        Value::String(text) => Value::from(without_password(text)),
        Value::Array(items) => items.iter().map(|item| disclosed(key, item)).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), disclosed(key, value))).collect(),
        other => other.clone(),
    }
}

/// What `use` can name.
fn available(json: bool) -> Result<String, Stopped> {
    let width = CATALOGUE.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let line = |row: &crate::catalogue::Row| match json {
        true => json_line(&json!({"use": row.name, "does": row.does})).map_err(unprintable),
        false => Ok(format!("{:width$}  {}\n", row.name, row.does)),
    };
    CATALOGUE.iter().map(line).collect()
}
