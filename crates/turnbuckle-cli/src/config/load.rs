//! Which files are read, and how they come together.

use std::path::{Component, Path};

use serde_json::Value;
use toml::de::{DeTable, DeValue};
use turnbuckle::Scope;
use turnbuckle::hooks::ConfigHook as _;
use turnbuckle_tools::ClaudeHooks;

use super::access::AccessPart;
use super::claude_files;
use super::context::ContextPart;
use super::file::Source;
use super::reader::Section;
use super::scope::ScopePart;
use super::sections::{AgentPart, LimitsPart, StorePart, ToolsPart};
use super::serve::ServePart;
use super::settings::{Setting, settings};
use super::{Config, Loaded, Over, SideStores};
use super::{agents, hooks};
use crate::args::Common;
use crate::logging::CLI;
use crate::problem::Problem;
use crate::project::Project;
use crate::read_file::{CONFIGURATION, ReadError, read_file};
use crate::show::quoted;
use crate::store::{DEFAULT, StoreName};
use crate::trust::{self, Gate, Item, Judgement, ProjectFile, Standing, TrustOptions};
use crate::user_folders;

/// How a file's table becomes a configuration.
type Understand = for<'s> fn(&'s Source, DeTable<'s>) -> Config;

/// Reads the file of `--config` if it is given, else the user's file with the project's on top. What of the project's file was
/// not accepted takes effect only if `gate` judges it. Who is acting is said by the user's own file also with `--config`, unless
/// the file named there has a `[scope]` itself.
pub(crate) fn load(common: &Common, gate: Gate) -> Loaded {
    load_with(common, gate, understand)
}

/// For commands that run nothing: only where conversations are kept, who is acting and who may do what is judged. A hook
/// that lacks its key, say, keeps nobody from answering a call. Of `[agent]` the name and the model are read, for hints. What
/// was not accepted is left out.
pub(crate) fn load_without_agent(common: &Common) -> Loaded {
    load_with(common, Gate::LeftOut, understand_without_agent)
}

/// Like [`load_without_agent`], with what hooks keep of conversations beside the store.
pub(crate) fn load_to_delete(common: &Common, gate: Gate) -> Loaded {
    load_with(common, gate, understand_to_delete)
}

/// Only `[serve]`, for a server that runs.
pub(crate) fn load_serve(common: &Common, gate: Gate) -> Loaded {
    load_with(common, gate, understand_serve)
}

fn load_with(common: &Common, gate: Gate, understand: Understand) -> Loaded {
    // A command that goes on with what another one began leaves out what that one left out.
    let given = gate.options();
    let options = TrustOptions { ignore_project: given.ignore_project || common.trust.ignore_project, ..given };
    let (project, mut problems) = choose_project(options);
    project.tell();
    problems.extend(project.remarks());
    problems.extend(user_folders::remarks());
    problems.extend(project.too_wide());
    let (config, files, items) = (Config::default(), Vec::new(), Vec::new());
    let standing = Standing::NotRead;
    let (store_left_out, claude) = (false, Vec::new());
    let mut loaded = Loaded { config, files, problems, project, standing, items, store_left_out, claude };
    if let Some(path) = &common.config {
        loaded.read(path, (gate, options, Covered::IfAccepted), understand, |error| Some(unreadable(path, error)));
        loaded.read_own_scope();
        return loaded;
    }
    let users = user_folders::config_file();
    let covered = if options.ignore_project { Covered::IfAccepted } else { Covered::WithProject };
    let mut led_to = Vec::new();
    if let Some(path) = &users {
        let unread = |error: &ReadError| (!error.is_missing()).then(|| unreadable(path, error));
        led_to = loaded.read(path, (gate, options, covered), understand, unread);
    }
    let path = loaded.project.file();
    // Whoever stands in the folder of their own file has read it already.
    let is_users = || users.and_then(|users| users.canonicalize().ok()) == path.canonicalize().ok();
    if options.ignore_project || (path.exists() && is_users()) {
        return loaded;
    }
    loaded.read_project(&path, &led_to, (common, gate), understand);
    loaded
}

/// The project, and what stands in its way. One above the current folder that belongs to another user of the machine is used
/// only if it was accepted.
fn choose_project(options: TrustOptions) -> (Project, Vec<Problem>) {
    let project = match Project::discover() {
        Ok(project) => project,
        Err(problem) => return (Project::unknown(), vec![problem]),
    };
    match above_of_another(&project, options) {
        None => (project, Vec::new()),
        Some(_) if options.ignore_project => (project.here(), Vec::new()),
        Some(problem) => (project.here(), vec![problem]),
    }
}

/// Why the project is not used: it is above the current folder, belongs to another user, and was not accepted.
pub(crate) fn above_of_another(project: &Project, options: TrustOptions) -> Option<Problem> {
    let foreign = project.foreign.as_ref().filter(|_| !options.trust_hooks && !trust::is_known(&project.folder))?;
    let what = format!("{} belongs to another user, and is above this folder", foreign.display());
    let cd = quoted(&project.folder.display().to_string());
    Some(Problem::error(what).hint(format!("`cd {cd} && turnbuckle trust` shows what that project has, and asks")))
}

/// Whether what hooks of a file run of the project may run. The file itself counts as accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covered {
    /// It is judged with the project's own file, which is read next.
    WithProject,
    /// If it was accepted before.
    IfAccepted,
}

/// The hooks of a file that may run what they find in the project's folder: its settings, or plugins in it.
fn leading_into_project(settings: Vec<Setting>) -> Vec<Setting> {
    let leads = |one: &Setting| {
        let is = |key: &str, value: Value| one.value.get(key) == Some(&value);
        let has_plugins = one.value.get("plugins").is_some();
        one.section == "hooks" && is("use", ClaudeHooks::NAME.into()) && (has_plugins || !is("project", false.into()))
    };
    settings.into_iter().filter(leads).collect()
}

impl Loaded {
    /// Reads a file that counts as accepted. `missing` decides what a failure to read it means. Returns the hooks that run
    /// what they find in the project.
    fn read(
        &mut self,
        path: &Path,
        (gate, options, covered): (Gate, TrustOptions, Covered),
        understand: Understand,
        missing: impl FnOnce(&ReadError) -> Option<Problem>,
    ) -> Vec<Setting> {
        let mut led_to = Vec::new();
        match read_file(path, CONFIGURATION) {
            Ok(text) => {
                let source = Source::new(path, &self.project.folder, text, options);
                if let Some(root) = parse(&source) {
                    let settings = settings(&source, &root);
                    if matches!(gate, Gate::Needed(_)) {
                        match trust::checks_from_now(path, &settings, &self.project.folder) {
                            Ok(checks) => source.set_checks(checks),
                            Err(problem) => self.problems.push(problem),
                        }
                    }
                    let own = claude_files::sections(&settings);
                    if !own.is_empty() {
                        let next =
                            if covered == Covered::WithProject { self.sections_of_project(path) } else { Vec::new() };
                        source.set_read_by_others(claude_files::read_by_others(&own, &next, &self.project.folder).0);
                    }
                    self.claude = own;
                    led_to = leading_into_project(settings);
                    let is_judged = covered == Covered::WithProject || matches!(gate, Gate::Judged);
                    if is_judged || trust::covers(&led_to, &self.project.folder) {
                        source.judged_with_project();
                    }
                    source.set_gate(gate);
                    self.add(path, &source, understand(&source, root));
                }
                self.problems.extend(source.into_problems());
            }
            Err(error) => self.problems.extend(missing(&error)),
        }
        led_to
    }

    /// The sections with `use = "claude"` of the project's file, which is read after the user's: whether it is accepted is judged
    /// then, and nothing runs if it is not.
    fn sections_of_project(&self, users: &Path) -> Vec<Setting> {
        let path = self.project.file();
        if users.canonicalize().ok() == path.canonicalize().ok() {
            return Vec::new();
        }
        let Ok(text) = read_file(&path, CONFIGURATION) else { return Vec::new() };
        // What is wrong with the file is told when it is read.
        let source = Source::new(&path, &self.project.folder, text, TrustOptions::default());
        parse(&source).map(|root| claude_files::sections(&settings(&source, &root))).unwrap_or_default()
    }

    /// The file of `--config` stands in the place of the user's own, which still says who is acting if the other does not. The
    /// section counts as a whole: the roles of one user do not go to another.
    fn read_own_scope(&mut self) {
        let Some(path) = user_folders::config_file().filter(|_| self.config.scope.place().is_none()) else { return };
        match scope_in(&path, &self.project.folder) {
            Ok((scope, problems)) => {
                self.config.scope = scope;
                self.problems.extend(problems);
            }
            Err(error) if error.is_missing() => {}
            Err(error) => self.problems.push(unreadable(&path, &error)),
        }
    }

    fn read_project(
        &mut self,
        path: &Path,
        led_to: &[Setting],
        (common, gate): (&Common, Gate),
        understand: Understand,
    ) {
        let text = match read_file(path, CONFIGURATION) {
            Ok(text) => text,
            Err(error) if error.is_missing() => String::new(),
            Err(error) => {
                self.standing = Standing::NotAccepted;
                return self.problems.push(unreadable(path, &error));
            }
        };
        let source = Source::new(path, &self.project.folder, text, gate.options());
        source.judged_with_project();
        match parse(&source) {
            Some(root) => self.add_judged(path, &source, (root, led_to), (common, gate), understand),
            None => self.standing = Standing::NotAccepted,
        }
        self.problems.extend(source.into_problems());
    }

    fn add_judged<'s>(
        &mut self,
        path: &Path,
        source: &'s Source,
        (mut root, led_to): (DeTable<'s>, &[Setting]),
        (common, gate): (&Common, Gate),
        understand: Understand,
    ) {
        let settings = settings(source, &root);
        let own = claude_files::sections(&settings);
        source.set_read_by_others(claude_files::read_by_others(&self.claude, &own, &self.project.folder).1);
        let chosen_here = settings.iter().any(|one| one.section == "store" && one.key.as_deref() == Some("url"));
        let in_project = match &self.config.store.url {
            None => Some(Path::new(DEFAULT)),
            // A relative path of the user's own file is another database in every project.
            Some(found) => StoreName::path_in(&found.value).filter(|path| is_below(path)),
        };
        let file = ProjectFile {
            project: &self.project,
            path,
            settings: &settings,
            led_to,
            tools: &self.config.tools,
            default_store: in_project.filter(|_| common.store.is_none() && !chosen_here),
            by: &self.user(),
        };
        let Judgement { standing, items, problems, checks } = trust::judge(&file, gate);
        self.problems.extend(problems);
        if !standing.is_accepted() && !matches!(gate, Gate::Judged) {
            leave_out(&mut root, &items);
            self.store_left_out = chosen_here && !has_store_url(&root);
        }
        tracing::info!(target: CLI, file = %path.display(), standing = standing.told(), "project's file judged");
        (self.standing, self.items) = (standing, items);
        source.set_checks(checks);
        source.set_gate(gate);
        if path.exists() {
            self.add(path, source, understand(source, root));
        }
    }

    /// Puts what the file says on top.
    fn add(&mut self, path: &Path, source: &Source, mut top: Config) {
        if path == self.project.file() && self.standing != Standing::NotRead {
            top.scope = self.without_actor(top.scope);
        }
        let (bytes, hooks) = (source.text().len(), top.hooks.len());
        tracing::debug!(target: CLI, file = %path.display(), bytes, hooks, "configuration file read");
        let base = std::mem::take(&mut self.config);
        self.config = top.over(base);
        self.files.push(path.to_path_buf());
    }

    /// A project's file never says who is acting.
    fn without_actor(&mut self, scope: ScopePart) -> ScopePart {
        if let Some(place) = scope.place() {
            let own = user_folders::config_file().map_or_else(String::new, |path| format!(": {}", path.display()));
            let what = "`[scope]` of a project's file is not used: it does not say who you are";
            self.problems.push(Problem::warning(what).at(place).hint(format!("write it into your own file{own}")));
        }
        ScopePart::default()
    }
}

/// `[scope]` of a file, and what is wrong with it. The other sections are not judged.
fn scope_in(path: &Path, folder: &Path) -> Result<(ScopePart, Vec<Problem>), ReadError> {
    let source = Source::new(path, folder, read_file(path, CONFIGURATION)?, TrustOptions::default());
    let root = parse(&source).map(|root| Section::root(&source, root));
    let scope = root.and_then(|mut root| root.section("scope")).map(ScopePart::read).unwrap_or_default();
    Ok((scope, source.into_problems()))
}

/// Who would be acting with `--config` and this file, if it says so. An error if it cannot be read or has errors: then that is
/// not known.
pub(crate) fn actor_named_in(path: &Path) -> Result<Option<Scope>, CannotTell> {
    let (scope, problems) = scope_in(path, path.parent().unwrap_or(path)).map_err(|_| CannotTell)?;
    match problems.iter().any(Problem::is_error) {
        true => Err(CannotTell),
        false => Ok(scope.place().map(|_| scope.scope())),
    }
}

/// A file does not say who would be acting with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CannotTell;

fn unreadable(path: &Path, error: &ReadError) -> Problem {
    Problem::error(format!("{}: cannot be read: {error}", path.display())).hint(error.hint("is the path right?"))
}

fn parse(source: &Source) -> Option<DeTable<'_>> {
    match DeTable::parse(source.text()) {
        Ok(root) => Some(root.into_inner()),
        Err(error) => {
            let place = source.place(error.span().map_or(0, |span| span.start));
            source.tell(Problem::error(format!("not TOML: {}", error.message())).at(&place).hint("https://toml.io"));
            None
        }
    }
}

/// Takes out what was not accepted: everything, if it could not be judged.
fn leave_out(root: &mut DeTable<'_>, items: &[Item]) {
    if items.is_empty() {
        *root = DeTable::default();
    }
    for item in items {
        let nested = item.section.split_once('.');
        if let (Some((above, key)), true) = (nested, item.keys.is_empty()) {
            if let Some(DeValue::Table(table)) = root.get_mut(above).map(|value| value.get_mut()) {
                table.remove(key);
            }
        } else if item.keys.is_empty() {
            root.remove(item.section.as_str());
        } else if let Some(DeValue::Table(table)) = root.get_mut(item.section.as_str()).map(|value| value.get_mut()) {
            item.keys.iter().for_each(|key| drop(table.remove(key.as_str())));
        }
    }
}

fn has_store_url(root: &DeTable<'_>) -> bool {
    match root.get("store").map(|value| value.get_ref()) {
        Some(DeValue::Table(table)) => table.contains_key("url"),
        _ => false,
    }
}

/// Whether a path leads nowhere but down, as it is written.
fn is_below(path: &Path) -> bool {
    path.components().all(|step| matches!(step, Component::Normal(_) | Component::CurDir))
}

fn understand_to_delete(source: &Source, root: DeTable<'_>) -> Config {
    let mut root = Section::root(source, root);
    let mut side_stores = root.sections("hooks").map(hooks::side_stores).unwrap_or_default();
    side_stores.0.extend(root.sections("agents").map(agents::side_stores).unwrap_or_default().0);
    Config { side_stores, ..without_agent(root) }
}

fn understand_without_agent(source: &Source, root: DeTable<'_>) -> Config {
    without_agent(Section::root(source, root))
}

fn understand_serve(source: &Source, root: DeTable<'_>) -> Config {
    let mut root = Section::root(source, root);
    Config { serve: root.section("serve").map(ServePart::read).unwrap_or_default(), ..Config::default() }
}

fn without_agent(mut root: Section<'_>) -> Config {
    Config {
        agent: root.section("agent").map(AgentPart::read_for_hints).unwrap_or_default(),
        store: root.section("store").map(StorePart::read).unwrap_or_default(),
        scope: root.section("scope").map(ScopePart::read).unwrap_or_default(),
        access: root.section("access").map(AccessPart::read).unwrap_or_default(),
        ..Config::default()
    }
}

fn understand(source: &Source, root: DeTable<'_>) -> Config {
    understand_section(Section::root(source, root))
}

/// All sections. It also serves to find out what a file may have: see [`shape`](super::shape).
pub(super) fn understand_section(mut root: Section<'_>) -> Config {
    let config = Config {
        agent: root.section("agent").map(AgentPart::read).unwrap_or_default(),
        limits: root.section("limits").map(LimitsPart::read).unwrap_or_default(),
        store: root.section("store").map(StorePart::read).unwrap_or_default(),
        scope: root.section("scope").map(ScopePart::read).unwrap_or_default(),
        access: root.section("access").map(AccessPart::read).unwrap_or_default(),
        serve: root.section("serve").map(ServePart::read).unwrap_or_default(),
        context: root.section("context").map(ContextPart::read).unwrap_or_default(),
        tools: root.section("tools").map(ToolsPart::read).unwrap_or_default(),
        agents: root.sections("agents").map(agents::read),
        hooks: root.sections("hooks").map(hooks::read).unwrap_or_default(),
        side_stores: SideStores::default(),
    };
    root.finish();
    config
}
