//! `.claude/settings.json` and its companions: which handlers there are, from which file. One bad entry never voids the rest.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::event::{ClaudeEvent, NEVER_FIRED};
use super::matcher::Matcher;
use super::rule::Rule;
use crate::command::CommandLine;

/// The largest settings file that is read.
const LARGEST: u64 = 4 << 20;
/// The most handlers of all files together.
const MOST_HANDLERS: usize = 1000;

/// Where settings are looked for.
#[derive(Clone, Debug)]
pub struct ClaudePlaces {
    /// The project's folder: its `.claude/settings.json` and `.claude/settings.local.json`, and where handlers run.
    pub project: PathBuf,
    /// The home directory: its `.claude/settings.json`. `None`: the user's own settings are left out.
    pub home: Option<PathBuf>,
    /// The folder of the machine's `managed-settings.json` and `managed-settings.d`. `None`: they are left out.
    pub managed: Option<PathBuf>,
    /// Folders of plugins, each with a `hooks/hooks.json`.
    pub plugins: Vec<PathBuf>,
}

/// One handler: what runs, when, and where it was written.
#[derive(Clone, Debug)]
pub struct ClaudeHandler {
    /// At which event.
    pub event: ClaudeEvent,
    /// The group's matcher as written; empty: for everything.
    pub matcher: String,
    /// The handler's `if` as written.
    pub condition: Option<String>,
    /// What runs.
    pub command: CommandLine,
    /// How long it may.
    pub timeout: Duration,
    /// Whether its own failure blocks (`"onFailure": "block"`); otherwise the turn goes on without it.
    pub blocks_on_failure: bool,
    /// The file that it stands in.
    pub file: PathBuf,
    /// The folder of its plugin, if it is one's.
    pub plugin: Option<PathBuf>,
    pub(super) fits: Matcher,
    pub(super) rule: Option<Rule>,
}

/// What the files say.
#[derive(Clone, Debug, Default)]
pub struct ClaudeSettings {
    /// In the order in which their answers are merged.
    pub handlers: Vec<ClaudeHandler>,
    /// What was left out and does no harm: entries that make no sense, events that are never fired.
    pub warnings: Vec<String>,
    /// What cannot be run here and could be a gate: who uses these settings is told to take it out or to leave it out.
    pub unsupported: Vec<Unsupported>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// A handler of a kind that is not run here, at an event where it could block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// `http`, `prompt`, `mcp_tool`, `agent`, `async`.
    pub kind: String,
    /// Where, for people.
    pub place: String,
}

/// One file with its place in the order.
struct Layer {
    path: PathBuf,
    plugin: Option<PathBuf>,
    /// Nothing below can disable it.
    is_managed: bool,
}

impl ClaudePlaces {
    /// The files in the order of their handlers: user, project, local, plugins, managed. A file that is reached twice is read
    /// once.
    fn layers(&self) -> Vec<Layer> {
        let of = |path: PathBuf| Layer { path, plugin: None, is_managed: false };
        let mut layers: Vec<Layer> = self.home.iter().map(|home| of(home.join(".claude/settings.json"))).collect();
        layers.push(of(self.project.join(".claude/settings.json")));
        layers.push(of(self.project.join(".claude/settings.local.json")));
        for folder in &self.plugins {
            let folder = self.project.join(folder);
            layers.push(Layer { path: folder.join("hooks/hooks.json"), plugin: Some(folder), is_managed: false });
        }
        if let Some(folder) = &self.managed {
            let mut more: Vec<PathBuf> = std::fs::read_dir(folder.join("managed-settings.d"))
                .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
                .unwrap_or_default();
            more.retain(|path| path.extension().is_some_and(|end| end == "json"));
            more.sort();
            let files = std::iter::once(folder.join("managed-settings.json")).chain(more);
            layers.extend(files.map(|path| Layer { path, plugin: None, is_managed: true }));
        }
        let mut seen = HashSet::new();
        layers.retain(|layer| layer.path.canonicalize().is_ok_and(|real| seen.insert(real)));
        layers
    }
}

impl ClaudeSettings {
    /// Reads the files that are there. One that cannot be read is an entry of `unsupported`: it could have held a gate.
    pub fn load(places: &ClaudePlaces) -> Self {
        let mut settings = Self::default();
        let (mut disabled, mut managed_only) = (false, false);
        let mut read = Vec::new();
        for layer in places.layers() {
            settings.files.push(layer.path.clone());
            match read_object(&layer.path) {
                Ok(object) => {
                    // A scalar: the last file that has it decides.
                    disabled = object.get("disableAllHooks").and_then(Value::as_bool).unwrap_or(disabled);
                    managed_only |=
                        layer.is_managed && object.get("allowManagedHooksOnly").and_then(Value::as_bool) == Some(true);
                    read.push((layer, object));
                }
                Err(why) => settings.unsupported.push(Unsupported {
                    kind: "file".to_owned(),
                    place: format!("{} cannot be read: {why}", layer.path.display()),
                }),
            }
        }
        if disabled {
            settings.warnings.push("`disableAllHooks` is set: only managed hooks run".to_owned());
        }
        for (layer, object) in read {
            if layer.is_managed || !(disabled || managed_only) {
                settings.add(&layer, &object, &places.project);
            }
        }
        settings.deduplicate();
        if settings.handlers.len() > MOST_HANDLERS {
            let place = format!("there are {} handlers, and {MOST_HANDLERS} are the most", settings.handlers.len());
            settings.unsupported.push(Unsupported { kind: "file".to_owned(), place });
            settings.handlers.clear();
        }
        settings
    }

    fn add(&mut self, layer: &Layer, object: &Map<String, Value>, project: &Path) {
        let file = layer.path.display();
        let Some(hooks) = object.get("hooks") else { return };
        let Some(events) = hooks.as_object() else {
            return self.warnings.push(format!("{file}: `hooks` is not an object, and is left out"));
        };
        for (name, groups) in events {
            let Some(event) = ClaudeEvent::named(name) else {
                self.warnings.push(match NEVER_FIRED.contains(&&**name) {
                    true => format!("{file}: {name} is never fired here; its handlers do not run"),
                    false => format!("{file}: there is no event {name:?}; its handlers do not run"),
                });
                continue;
            };
            let Some(groups) = groups.as_array() else {
                self.skip(event, format!("{file}: {name} is not a list of groups"));
                continue;
            };
            for group in groups {
                let handlers = group.get("hooks").and_then(Value::as_array);
                let matcher = group.get("matcher").map_or(Some(""), Value::as_str);
                let (Some(handlers), Some(matcher)) = (handlers, matcher) else {
                    self.skip(
                        event,
                        format!("{file}: a group of {name} has no list `hooks`, or a matcher that is no text"),
                    );
                    continue;
                };
                for handler in handlers {
                    self.add_handler(layer, event, matcher, handler, project);
                }
            }
        }
    }

    /// An entry that makes no sense. Where it could have been a gate, that is not only a warning.
    fn skip(&mut self, event: ClaudeEvent, what: String) {
        match event.can_block() {
            true => self.unsupported.push(Unsupported { kind: "entry".to_owned(), place: what }),
            false => self.warnings.push(format!("{what}; it is left out")),
        }
    }

    fn add_handler(&mut self, layer: &Layer, event: ClaudeEvent, matcher: &str, entry: &Value, project: &Path) {
        let place = format!("{}: a handler of {}", layer.path.display(), event.name());
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let is_set = |key: &str| entry.get(key).and_then(Value::as_bool) == Some(true);
        let kind = text("type").unwrap_or("command");
        let kind = if is_set("async") || is_set("asyncRewake") { "async" } else { kind };
        match kind {
            "command" => {}
            "http" | "prompt" | "mcp_tool" | "agent" | "async" => {
                let place = format!("{place} is of the kind {kind:?}, which is not run here");
                return match event.can_block() {
                    true => self.unsupported.push(Unsupported { kind: kind.to_owned(), place }),
                    false => self.warnings.push(place),
                };
            }
            other => return self.skip(event, format!("{place} has the unknown type {other:?}")),
        }
        let Some(command) = text("command").filter(|command| !command.trim().is_empty()) else {
            return self.skip(event, format!("{place} has no `command`"));
        };
        let line = match entry.get("args") {
            None => CommandLine::Shell(command.to_owned()),
            Some(Value::Array(words)) if words.iter().all(Value::is_string) => {
                let words = std::iter::once(command).chain(words.iter().filter_map(Value::as_str));
                CommandLine::Argv(words.map(|word| substituted(word, project, layer.plugin.as_deref())).collect())
            }
            Some(_) => return self.skip(event, format!("{place} has `args` that are not a list of texts")),
        };
        let timeout = match entry.get("timeout") {
            None => event.default_timeout(),
            Some(given) => match given.as_f64().and_then(|given| Duration::try_from_secs_f64(given).ok()) {
                Some(time) if !time.is_zero() => time.min(Duration::from_secs(24 * 60 * 60)),
                _ => return self.skip(event, format!("{place} has a `timeout` that is no number of seconds above 0")),
            },
        };
        let blocks_on_failure = match text("onFailure").or(text("on_failure")) {
            None | Some("ignore") => false,
            Some("block") => true,
            Some(other) => {
                return self.skip(event, format!("{place} has `onFailure` {other:?}: \"block\" or \"ignore\""));
            }
        };
        let condition = text("if").map(str::to_owned);
        let rule = match &condition {
            None => None,
            Some(_) if !event.is_about_a_tool() => {
                return self
                    .warnings
                    .push(format!("{place} has an `if`, which only events of tools have: it never runs"));
            }
            Some(text) => match Rule::parse(text) {
                Some(rule) => Some(rule),
                None => return self.skip(event, format!("{place} has an `if` that is no rule: {text:?}")),
            },
        };
        let fits = if event.has_matcher() { Matcher::parse(matcher) } else { Matcher::All };
        if let Matcher::Bad(why) = &fits {
            self.warnings.push(format!("{place}: {why}"));
        }
        let (file, plugin) = (layer.path.clone(), layer.plugin.clone());
        let matcher = matcher.to_owned();
        let handler = ClaudeHandler {
            event,
            matcher,
            condition,
            command: line,
            timeout,
            blocks_on_failure,
            file,
            plugin,
            fits,
            rule,
        };
        self.handlers.push(handler);
    }

    /// The same handler in several settings files runs once. One of a plugin is never the same as another's. If one of them
    /// blocks on failure, the one that stays does.
    fn deduplicate(&mut self) {
        let mut kept: Vec<ClaudeHandler> = Vec::new();
        for handler in std::mem::take(&mut self.handlers) {
            let same = kept.iter_mut().find(|one| {
                one.plugin.is_none()
                    && handler.plugin.is_none()
                    && one.file != handler.file
                    && (one.event, &one.matcher, &one.condition, &one.command)
                        == (handler.event, &handler.matcher, &handler.condition, &handler.command)
            });
            match same {
                Some(one) => one.blocks_on_failure |= handler.blocks_on_failure,
                None => kept.push(handler),
            }
        }
        self.handlers = kept;
    }
}

fn read_object(path: &Path) -> Result<Map<String, Value>, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("it is larger than {} MiB", LARGEST >> 20));
    }
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| error.to_string())
}

/// The placeholders of the exec form; a shell expands them itself.
fn substituted(word: &str, project: &Path, plugin: Option<&Path>) -> String {
    let word = word.replace("${CLAUDE_PROJECT_DIR}", &project.to_string_lossy());
    match plugin {
        Some(root) => word.replace("${CLAUDE_PLUGIN_ROOT}", &root.to_string_lossy()),
        None => word,
    }
}
