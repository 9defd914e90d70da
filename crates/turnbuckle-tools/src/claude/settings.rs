//! `.claude/settings.json` and its companions: which handlers there are, from which file. One bad entry never voids the rest.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::beside::{self, EnabledPlugin};
use super::event::{ClaudeEvent, NEVER_FIRED};
use super::handler::{ClaudeAction, ClaudeHandler, NoHandler, Place};
use super::matcher::Matcher;
use super::plugin::{ClaudePlugin, LoadedPlugin, PluginHooks};
use super::rule::glob;
use crate::read_file::{ReadError, read_file};

/// The largest settings file that is read.
const LARGEST: u64 = 4 << 20;
/// The most handlers of all files together.
const MOST_HANDLERS: usize = 1000;

/// Where settings are looked for.
#[derive(Clone, Debug)]
pub struct ClaudePlaces {
    /// The project's folder: its `.claude/settings.json` and `.claude/settings.local.json`, and where handlers run.
    pub project: PathBuf,
    /// Whether the settings of the project's folder are read.
    pub reads_project: bool,
    /// The home directory: its `.claude/settings.json`. `None`: the user's own settings are left out.
    pub home: Option<PathBuf>,
    /// The folder of the machine's `managed-settings.json` and `managed-settings.d`. `None`: they are left out.
    pub managed: Option<PathBuf>,
    /// Plugins, each a folder with a `hooks/hooks.json`.
    pub plugins: Vec<ClaudePlugin>,
}

/// What the files say.
#[derive(Clone, Debug, Default)]
pub struct ClaudeSettings {
    /// In the order in which their answers are merged.
    pub handlers: Vec<ClaudeHandler>,
    /// What was left out and does no harm: entries that make no sense, events that are never fired.
    pub warnings: Vec<String>,
    /// What people must know before each run, since a gate of theirs does not run: events that do not exist, handlers that are
    /// switched off.
    pub notices: Vec<String>,
    /// The file whose `disableAllHooks` switches off all handlers but managed ones, if one does.
    pub disabled_by: Option<PathBuf>,
    /// Plugins that `enabledPlugins` of a file switches on, and that are none of [`ClaudePlaces::plugins`]: their hooks do not run.
    pub enabled_plugins: Vec<EnabledPlugin>,
    /// The names of the plugins that were loaded.
    pub loaded_plugins: Vec<String>,
    /// What cannot be run here and could be a gate: who uses these settings is told to take it out or to leave it out.
    pub unsupported: Vec<Unsupported>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// A handler of a kind that is not run here, at an event where it could block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// `agent`; `entry` and `file` for what makes no sense.
    pub kind: String,
    /// Where, for people.
    pub place: String,
    /// The file that it stands in; `None` for what concerns no single file.
    pub file: Option<PathBuf>,
    /// Whether its file is the machine's: then no option says that it may be missing.
    pub is_managed: bool,
}

/// One file with its place in the order.
struct Layer {
    path: PathBuf,
    /// What it says, if that is not the file's own object.
    inline: Option<Map<String, Value>>,
    plugin: Option<Arc<LoadedPlugin>>,
    /// Nothing below can disable it.
    is_managed: bool,
}

impl ClaudePlaces {
    /// The files in the order of their handlers: user, project, local, plugins, managed. A settings file that is reached twice is
    /// read once, and as a managed one if it is one. What a plugin names is read for that plugin, whoever else names it.
    fn layers(&self, unread: &mut Vec<Unsupported>) -> Vec<Layer> {
        let of = |path: PathBuf| Layer { path, inline: None, plugin: None, is_managed: false };
        let mut layers: Vec<Layer> = self.home.iter().map(|home| of(home.join(".claude/settings.json"))).collect();
        if self.reads_project {
            layers.push(of(self.project.join(".claude/settings.json")));
            layers.push(of(self.project.join(".claude/settings.local.json")));
        }
        for plugin in &self.plugins {
            match plugin.load(&self.project) {
                Ok((plugin, hooks)) => {
                    let plugin = Arc::new(plugin);
                    layers.extend(hooks.into_iter().map(|PluginHooks { path, inline }| Layer {
                        path,
                        inline,
                        plugin: Some(plugin.clone()),
                        is_managed: false,
                    }));
                }
                Err(why) => unread.push(Unsupported::unread(why)),
            }
        }
        if let Some(folder) = &self.managed {
            let files = std::iter::once(folder.join("managed-settings.json")).chain(dropped_in(folder, unread));
            layers.extend(files.map(|path| Layer { path, inline: None, plugin: None, is_managed: true }));
        }
        // What a person or a project says reaches a file of the machine only through a link: then it stays the machine's.
        let mut seen: HashSet<PathBuf> =
            layers.iter().filter(|layer| layer.is_managed).filter_map(|layer| layer.path.canonicalize().ok()).collect();
        let mut seen_managed = HashSet::new();
        let mut seen_by_plugin: HashSet<(*const LoadedPlugin, PathBuf)> = HashSet::new();
        layers.retain(|layer| match (layer.path.canonicalize(), &layer.plugin) {
            // What cannot be found, though it is there, is told when it is read.
            (Err(_), _) => layer.is_there(),
            // Several objects may stand in one manifest.
            (Ok(_), _) if layer.inline.is_some() => true,
            // Two plugins may share a file, and one may be named twice with other options: each has handlers of its own.
            (Ok(real), Some(plugin)) => seen_by_plugin.insert((Arc::as_ptr(plugin), real)),
            (Ok(real), None) if layer.is_managed => seen_managed.insert(real),
            (Ok(real), None) => seen.insert(real),
        });
        layers
    }
}

impl ClaudePlaces {
    /// The files of agents and skills that have hooks of their own.
    fn files_with_hooks(&self) -> Vec<PathBuf> {
        let own = self.home.iter().map(|home| home.join(".claude"));
        let project = self.reads_project.then(|| self.project.join(".claude"));
        let folders: HashSet<PathBuf> = own.chain(project).collect();
        let mut files: Vec<PathBuf> = folders.iter().flat_map(|folder| beside::files_with_hooks(folder)).collect();
        files.sort();
        files
    }

    /// The settings files that are there.
    pub fn files(&self) -> Vec<SettingsFile> {
        let layers = self.layers(&mut Vec::new());
        let file = |layer: Layer| {
            let plugin = layer.plugin.map(|plugin| (*plugin).clone());
            Some(SettingsFile { path: layer.path.canonicalize().ok()?, plugin })
        };
        layers.into_iter().filter_map(file).collect()
    }
}

/// A settings file that is there. Two are the same if they have the same path, and are those of no plugin or of the same plugin
/// with the same options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    /// With its links resolved.
    pub path: PathBuf,
    /// Its plugin, if it is one's.
    pub plugin: Option<LoadedPlugin>,
}

/// Files that an administrator's packages drop into a folder, by name.
fn dropped_in(managed: &Path, unread: &mut Vec<Unsupported>) -> Vec<PathBuf> {
    let folder = managed.join("managed-settings.d");
    let listed = std::fs::read_dir(&folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut files: Vec<PathBuf> = match listed {
        Ok(files) => files,
        Err(_) if !is_there(&folder) => Vec::new(),
        Err(error) => {
            let place = format!("{} cannot be read: {error}", folder.display());
            unread.push(Unsupported { is_managed: true, ..Unsupported::unread(place) });
            Vec::new()
        }
    };
    files.retain(|path| path.extension().is_some_and(|end| end == "json"));
    files.sort();
    files
}

/// Whether something is there, be it in a folder that may not be searched, or a link, or below a link, that leads nowhere. Then reading
/// it says what is wrong.
pub(super) fn is_there(path: &Path) -> bool {
    let is_absent = |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) if !is_absent(&error) => true,
        // The nearest folder that is there: if it is a link whose end is missing, so may be what the path means.
        Err(_) => path
            .ancestors()
            .skip(1)
            .find(|folder| folder.symlink_metadata().is_ok())
            .is_some_and(|folder| folder.metadata().is_err()),
    }
}

impl Layer {
    fn is_there(&self) -> bool {
        // What a manifest names is missed if it is not there.
        self.plugin.is_some() || is_there(&self.path)
    }
}

impl Unsupported {
    fn unread(place: String) -> Self {
        Self { kind: "file".to_owned(), place, file: None, is_managed: false }
    }

    fn entry(place: String, file: &Path, is_managed: bool) -> Self {
        Self { kind: "entry".to_owned(), place, file: Some(file.to_owned()), is_managed }
    }
}

impl ClaudeSettings {
    /// Reads the files that are there. One that cannot be read is an entry of `unsupported`: it could have held a gate.
    pub fn load(places: &ClaudePlaces) -> Self {
        let mut settings = Self::default();
        let (mut disabled_by, mut managed_only) = (None, false);
        let (mut read, mut unread, mut limits) = (Vec::new(), Vec::new(), HttpLimits::default());
        for mut layer in places.layers(&mut unread) {
            settings.files.push(layer.path.clone());
            match layer.inline.take().map_or_else(|| read_object(&layer.path), Ok) {
                Ok(object) => {
                    // A scalar: the last file that has it decides. A plugin has no say in it.
                    if let (None, Some(is_set)) =
                        (&layer.plugin, object.get("disableAllHooks").and_then(Value::as_bool))
                    {
                        disabled_by = is_set.then(|| layer.path.clone());
                    }
                    limits.add(&object, layer.is_managed);
                    managed_only |=
                        layer.is_managed && object.get("allowManagedHooksOnly").and_then(Value::as_bool) == Some(true);
                    read.push((layer, object));
                }
                Err(why) => {
                    let place = format!("{} cannot be read: {why}", layer.path.display());
                    let (file, is_managed) = (Some(layer.path), layer.is_managed);
                    settings.unsupported.push(Unsupported { file, is_managed, ..Unsupported::unread(place) });
                }
            }
        }
        settings.unsupported.append(&mut unread);
        let loaded = places.plugins.iter().filter_map(|plugin| plugin.load(&places.project).ok());
        settings.loaded_plugins = loaded.map(|(plugin, _)| plugin.name).collect();
        let (mut switched_off, mut enabled) = (Vec::new(), BTreeMap::new());
        for (layer, object) in read {
            if layer.is_managed || (disabled_by.is_none() && !managed_only) {
                if layer.plugin.is_none() {
                    beside::enable(&mut enabled, &object, &layer.path);
                }
                settings.add(&layer, &object, &places.project);
            } else if disabled_by.is_some() {
                let mut off = Self::default();
                off.add(&layer, &object, &places.project);
                switched_off.push((layer.path, off.handlers.len()));
            }
        }
        settings.notices.extend(disabled_by.as_deref().map(|by| told_off(by, &switched_off)));
        let not_loaded = enabled.into_iter().filter_map(|(name, file)| Some(EnabledPlugin { name, file: file? }));
        settings.enabled_plugins =
            not_loaded.filter(|plugin| !settings.loaded_plugins.iter().any(|name| plugin.is(name))).collect();
        if disabled_by.is_none() && !managed_only {
            settings.warnings.extend(places.files_with_hooks().iter().map(|file| {
                format!(
                    "{}: agents and skills of files are not loaded here, and the hooks in it do not run",
                    file.display()
                )
            }));
        }
        settings.disabled_by = disabled_by;
        settings.deduplicate();
        limits.apply(&mut settings.handlers);
        if settings.handlers.len() > MOST_HANDLERS {
            let place = format!("there are {} handlers, and {MOST_HANDLERS} are the most", settings.handlers.len());
            settings.unsupported.push(Unsupported::unread(place));
            settings.handlers.clear();
        }
        settings
    }

    /// Leaves the handlers of these files, given with their links resolved, to another hook that reads the same files.
    pub fn leave_to_others(&mut self, files: &[PathBuf]) {
        let is_others = |file: &Path| file.canonicalize().is_ok_and(|file| files.contains(&file));
        self.handlers.retain(|handler| !is_others(&handler.file));
        self.unsupported.retain(|one| !one.file.as_deref().is_some_and(is_others));
        self.enabled_plugins.retain(|plugin| !is_others(&plugin.file));
    }

    /// What people must know before each run of plugins that are switched on and do not run. Those that another section loads do.
    pub fn plugins_not_run(&self, loaded_elsewhere: &[String]) -> Vec<String> {
        let runs = |plugin: &EnabledPlugin| loaded_elsewhere.iter().any(|name| plugin.is(name));
        let left: Vec<EnabledPlugin> = self.enabled_plugins.iter().filter(|plugin| !runs(plugin)).cloned().collect();
        beside::told(&left)
    }

    fn add(&mut self, layer: &Layer, object: &Map<String, Value>, project: &Path) {
        let file = layer.path.display();
        let Some(hooks) = object.get("hooks") else { return };
        let Some(events) = hooks.as_object() else {
            let place = format!("{file}: `hooks` is not an object");
            return self.unsupported.push(Unsupported::entry(place, &layer.path, layer.is_managed));
        };
        for (name, groups) in events {
            let Some(event) = ClaudeEvent::named(name) else {
                match NEVER_FIRED.contains(&&**name) {
                    true => self.warnings.push(format!("{file}: {name} is never fired here; its handlers do not run")),
                    false => self.notices.push(no_such_event(&layer.path, name)),
                }
                continue;
            };
            let Some(groups) = groups.as_array() else {
                self.skip(event, (&layer.path, layer.is_managed), format!("{file}: {name} is not a list of groups"));
                continue;
            };
            for group in groups {
                let handlers = group.get("hooks").and_then(Value::as_array);
                let matcher = group.get("matcher").map_or(Some(""), Value::as_str);
                let (Some(handlers), Some(matcher)) = (handlers, matcher) else {
                    self.skip(
                        event,
                        (&layer.path, layer.is_managed),
                        format!("{file}: a group of {name} has no list `hooks`, or a matcher that is no text"),
                    );
                    continue;
                };
                for handler in handlers {
                    let (file, plugin) = (&*layer.path, layer.plugin.as_ref());
                    let is_managed = layer.is_managed;
                    self.add_handler(handler, &Place { file, plugin, is_managed, event, matcher, project });
                }
            }
        }
    }

    /// An entry that makes no sense. Where it could have been a gate, that is not only a warning.
    fn skip(&mut self, event: ClaudeEvent, (file, is_managed): (&Path, bool), what: String) {
        match event.can_block() {
            true => self.unsupported.push(Unsupported::entry(what, file, is_managed)),
            false => self.warnings.push(format!("{what}; it is left out")),
        }
    }

    fn add_handler(&mut self, entry: &Value, place: &Place<'_>) {
        let event = place.event;
        let told = format!("{}: a handler of {}", place.file.display(), event.name());
        match ClaudeHandler::read(entry, place) {
            Ok(handler) => {
                if let Matcher::Bad(why) = &handler.fits {
                    self.warnings.push(format!("{told}: {why}"));
                }
                self.handlers.push(handler);
            }
            Err(NoHandler::Kind(kind)) => {
                let what = format!("{told} is of the kind {kind:?}, which is not run here");
                match event.can_block() {
                    true => {
                        let entry = Unsupported::entry(what, place.file, place.is_managed);
                        self.unsupported.push(Unsupported { kind, ..entry });
                    }
                    false => self.warnings.push(what),
                }
            }
            Err(NoHandler::Senseless(why)) => self.skip(event, (place.file, place.is_managed), format!("{told} {why}")),
            Err(NoHandler::Never(why)) => self.warnings.push(format!("{told} {why}")),
        }
    }

    /// The same handler in several settings files runs once. The one that stays is as strict as any of them: it blocks on failure
    /// if one does, and it may take the longest time, so that no file can make the gate of another fail.
    fn deduplicate(&mut self) {
        let mut kept: Vec<ClaudeHandler> = Vec::new();
        for handler in std::mem::take(&mut self.handlers) {
            let same = kept.iter_mut().find(|one| one.repeats(&handler));
            match same {
                Some(one) => {
                    one.blocks_on_failure |= handler.blocks_on_failure;
                    one.timeout = one.timeout.max(handler.timeout);
                }
                None => kept.push(handler),
            }
        }
        self.handlers = kept;
    }
}

/// What `disableAllHooks` switches off, for people. Where it stands in a project's file it concerns the user's own handlers as well.
fn told_off(by: &Path, off: &[(PathBuf, usize)]) -> String {
    let counted = off.iter().filter(|(_, count)| *count > 0);
    let files: Vec<String> = counted
        .map(|(file, count)| format!("{count} handler{} of {}", if *count == 1 { "" } else { "s" }, file.display()))
        .collect();
    let what = if files.is_empty() { "handlers".to_owned() } else { files.join(", ") };
    format!("`disableAllHooks` in {} switches off {what}; only managed ones run", by.display())
}

/// A misspelt event, for people, with the one that is probably meant.
fn no_such_event(file: &Path, name: &str) -> String {
    let known = ClaudeEvent::ALL.into_iter().map(ClaudeEvent::name).chain(NEVER_FIRED.iter().copied());
    // A third of the letters wrong is a slip; more is another word.
    let is_slip = |(distance, known): &(usize, &str)| {
        *distance <= 3 && *distance <= name.chars().count().max(known.chars().count()) / 3
    };
    let near = known.map(|known| (distance(name, known), known)).min().filter(is_slip);
    let meant = near.map(|(_, known)| format!(" (did you mean {known}?)")).unwrap_or_default();
    format!("{}: there is no event {name:?}{meant}; its handlers do not run", file.display())
}

/// How many letters have to be changed, added or taken out, whether they are capitals or not.
fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    // A name this long is none of ours.
    for (at, letter) in one.chars().take(64).enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (place, known) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *known);
            before = row[place + 1];
            row[place + 1] = changed.min(row[place] + 1).min(before + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// What settings allow `http` handlers. Each file that says something about it narrows it; for managed handlers only managed files
/// do, or a project could switch them off.
#[derive(Default)]
struct HttpLimits {
    urls: Vec<Limit>,
    variables: Vec<Limit>,
}

/// What one file allows.
struct Limit {
    allowed: Vec<String>,
    is_managed: bool,
}

impl Limit {
    fn concerns(&self, handler_is_managed: bool) -> bool {
        self.is_managed || !handler_is_managed
    }
}

impl HttpLimits {
    fn add(&mut self, object: &Map<String, Value>, is_managed: bool) {
        // What is no list of texts allows nothing.
        let list = |value: &Value| {
            let allowed = value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
            Limit { allowed, is_managed }
        };
        self.urls.extend(object.get("allowedHttpHookUrls").map(list));
        self.variables.extend(object.get("httpHookAllowedEnvVars").map(list));
    }

    fn apply(&self, handlers: &mut [ClaudeHandler]) {
        for handler in handlers {
            let is_managed = handler.is_managed;
            let ClaudeAction::Http(http) = &mut handler.action else { continue };
            let mut urls = self.urls.iter().filter(|limit| limit.concerns(is_managed));
            http.is_forbidden = urls.any(|limit| !limit.allowed.iter().any(|pattern| glob(pattern, &http.url)));
            let allows = |name: &String| {
                let mut limits = self.variables.iter().filter(|limit| limit.concerns(is_managed));
                limits.all(|limit| limit.allowed.contains(name))
            };
            http.allowed_env.retain(allows);
        }
    }
}

/// The object in a file. Of what a stranger's folder holds only regular files are read, and none without end.
pub(super) fn read_object(path: &Path) -> Result<Map<String, Value>, String> {
    let text = read_file(path, LARGEST).map_err(|error: ReadError| error.to_string())?;
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| error.to_string())
}
