//! `turnbuckle hooks`: what runs at each point, in order, with its options and what its failure would mean.

mod test;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use turnbuckle::hook::{HookEntry, OnFailure, Point};
use turnbuckle::hooks::{ConfigHook as _, Retry};
use turnbuckle_models::without_password;
use turnbuckle_tools::claude::{ClaudeHandler, ClaudeSettings};
use turnbuckle_tools::{ClaudeHooks, ClaudeOptions};

use crate::Stopped;
use crate::args::{Common, Hooks, HooksCommand};
use crate::assemble::{Prepared, prepare};
use crate::catalogue::CATALOGUE;
use crate::config::HookPart;
use crate::exit::Exit;
use crate::inspect::unprintable;
use crate::output;
use crate::show::{clean, json_line};
use crate::trust::{Gate, not_accepted};

/// Prints the hooks of the configuration, or with `--available` those that could be in it; or tests them.
pub(crate) async fn hooks(args: &Hooks, common: &Common) -> Result<Exit, Stopped> {
    if let Some(HooksCommand::Test(options)) = &args.command {
        return test::test(options, args.json, common).await;
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
    let lines: Vec<Line<'_>> = Point::ALL.into_iter().flat_map(|point| at(&prepared, point)).collect();
    let text = match args.json {
        true => lines.iter().map(Line::json).collect::<Result<_, _>>()?,
        false => clean(&by_point(&lines)),
    };
    Ok(print(&text))
}

/// A closed stdout is not an error.
fn print(text: &str) -> Exit {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Exit::Completed
}

/// A hook at a point.
struct Line<'a> {
    point: Point,
    entry: &'a HookEntry,
    /// None for one that stands there without configuration.
    part: Option<&'a HookPart>,
    /// The project's folder.
    project: &'a Path,
}

/// The settings that a hook with `use = "claude"` reads.
pub(crate) fn claude_settings(part: &HookPart, project: &Path) -> ClaudeSettings {
    let options = part.options.iter().map(|(key, found)| (key.clone(), found.value.clone()));
    match serde_json::from_value::<ClaudeOptions>(Value::Object(options.collect())) {
        Ok(options) => ClaudeSettings::load(&options.places(project)),
        // Then there is no hook either.
        Err(_) => ClaudeSettings::default(),
    }
}

fn at(prepared: &Prepared, point: Point) -> impl Iterator<Item = Line<'_>> {
    let hooks = prepared.hooks.iter().enumerate();
    let runs = move |(_, entry): &(usize, &HookEntry)| entry.points().contains(point);
    hooks.filter(runs).map(move |(index, entry)| Line {
        point,
        entry,
        part: prepared.config.hooks.get(index),
        project: &prepared.project.folder,
    })
}

fn by_point(lines: &[Line<'_>]) -> String {
    let mut text = String::new();
    let width = lines.iter().map(|line| line.entry.name().chars().count()).max().unwrap_or(0);
    let mut last = None;
    for line in lines {
        // Writing to a String cannot fail.
        if last.replace(line.point) != Some(line.point) {
            let _ = writeln!(text, "{}", line.point);
        }
        let _ = writeln!(text, "  {:width$}  {}", line.entry.name(), line.options());
        let _ = writeln!(text, "  {:width$}  if it fails: {}", "", line.failure());
        for handler in line.handlers() {
            let _ = writeln!(text, "  {:width$}  - {}", "", told(&handler));
        }
    }
    if text.is_empty() { "no hooks\n".to_owned() } else { text }
}

/// A Claude-style handler as a line.
fn told(handler: &ClaudeHandler) -> String {
    let matcher = if handler.matcher.is_empty() { String::new() } else { format!(" {:?}", handler.matcher) };
    let condition = handler.condition.as_ref().map(|rule| format!(" if {rule}")).unwrap_or_default();
    let failure = if handler.blocks_on_failure { "blocks" } else { "is ignored" };
    let (event, command, file) = (handler.event.name(), &handler.command, handler.file.display());
    format!("{event}{matcher}{condition}: {command} ({file}; its failure {failure})")
}

impl Line<'_> {
    /// The handlers of Claude-style settings that run at the point, in order.
    fn handlers(&self) -> Vec<ClaudeHandler> {
        let Some(part) = self.part.filter(|part| part.used.name == ClaudeHooks::NAME) else { return Vec::new() };
        let mut handlers = claude_settings(part, self.project).handlers;
        handlers.retain(|handler| handler.event.point() == self.point);
        if self.entry.failure_policy(self.point) == OnFailure::Block && self.entry.settings().on_failure.is_some() {
            handlers.iter_mut().for_each(|handler| handler.blocks_on_failure = true);
        }
        handlers
    }

    /// Only the default `retry` stands there without configuration.
    fn used(&self) -> &'static str {
        self.part.map_or(Retry::NAME, |part| part.used.name)
    }

    /// As the file has them.
    fn options(&self) -> String {
        let mut shown = vec![format!("use = \"{}\"", self.used())];
        match self.part {
            Some(part) => shown
                .extend(part.options.iter().map(|(key, found)| format!("{key} = {}", disclosed(key, &found.value)))),
            None => shown.push("(added by default; `default_retry = false` in [agent] leaves it out)".to_owned()),
        }
        let settings = self.entry.settings();
        if !settings.tools.is_empty() {
            shown.push(format!("tools = {:?}", settings.tools));
        }
        if settings.main_agent_only {
            shown.push("main_agent_only = true".to_owned());
        }
        shown.join(", ")
    }

    fn failure(&self) -> &'static str {
        match (self.entry.failure_policy(self.point), self.point) {
            (_, Point::Background | Point::OnLogged) => "it is tried again, then parked",
            (OnFailure::Ignore, Point::OnStop) => "ignored: nobody judges in its place, and the turn may end",
            (OnFailure::Ignore, _) => "ignored: the turn goes on without it",
            (OnFailure::Block, Point::BeforeTool | Point::WrapToolCall | Point::AfterTool) => {
                "the call ends with an error result"
            }
            (OnFailure::Block, Point::OnEnded) => "it is told, and no more: the turn is over",
            (OnFailure::Block, _) => "the turn ends failed",
        }
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
            "on_failure": policy, "failure": self.failure(), "tools": settings.tools,
            "main_agent_only": settings.main_agent_only,
            "at": self.part.map(|part| part.place.to_string()),
        });
        let handlers: Vec<Value> = self.handlers().iter().map(|handler| json!({
            "event": handler.event.name(), "matcher": handler.matcher, "if": handler.condition,
            "command": handler.command.to_string(), "file": handler.file, "timeout": handler.timeout.as_secs_f64(),
            "on_failure": if handler.blocks_on_failure { "block" } else { "ignore" },
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
