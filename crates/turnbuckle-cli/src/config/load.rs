//! Which files are read, and how they come together.

use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::access::AccessPart;
use super::file::Source;
use super::hooks;
use super::reader::Section;
use super::scope::ScopePart;
use super::sections::{AgentPart, LimitsPart, StorePart, ToolsPart, sub_agents};
use super::{Config, Loaded, Over};
use crate::logging::CLI;
use crate::problem::Problem;
use crate::read_file::{CONFIGURATION, ReadError, read_file};

/// The project's file.
const PROJECT: &str = "turnbuckle.toml";

/// Reads `only` if it is given, else the user's file with the project's on top.
pub(crate) fn load(only: Option<&Path>) -> Loaded {
    load_with(only, parse)
}

/// For commands that run nothing: only where conversations are kept, who is acting and who may do what is judged. A hook
/// that lacks its key, say, keeps nobody from answering a call. Of `[agent]` the name and the model are read, for hints.
pub(crate) fn load_without_agent(only: Option<&Path>) -> Loaded {
    load_with(only, parse_without_agent)
}

fn load_with(only: Option<&Path>, parse: fn(&Source) -> Config) -> Loaded {
    let mut loaded = Loaded { config: Config::default(), files: Vec::new(), problems: Vec::new() };
    match only {
        Some(path) => match read_file(path, CONFIGURATION) {
            Ok(text) => loaded.add(path, text, parse),
            Err(error) => loaded.problems.push(unreadable(path, &error)),
        },
        None => {
            for path in [user_file(), Some(PROJECT.into())].into_iter().flatten() {
                match read_file(&path, CONFIGURATION) {
                    Ok(text) => loaded.add(&path, text, parse),
                    Err(error) if error.is_missing() => {}
                    Err(error) => loaded.problems.push(unreadable(&path, &error)),
                }
            }
        }
    }
    loaded
}

impl Loaded {
    fn add(&mut self, path: &Path, text: String, parse: fn(&Source) -> Config) {
        let source = Source::new(path, text);
        let top = parse(&source);
        let (bytes, hooks) = (source.text().len(), top.hooks.len());
        tracing::debug!(target: CLI, file = %path.display(), bytes, hooks, "configuration file read");
        let base = std::mem::take(&mut self.config);
        self.config = top.over(base);
        self.files.push(path.to_path_buf());
        self.problems.extend(source.into_problems());
    }
}

fn unreadable(path: &Path, error: &ReadError) -> Problem {
    Problem::error(format!("{}: cannot be read: {error}", path.display())).hint(error.hint("is the path right?"))
}

/// `$XDG_CONFIG_HOME` counts only if it is absolute, as its specification has it.
fn user_file() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("turnbuckle").join(PROJECT))
}

/// The whole file as a table, if it is TOML.
fn root(source: &Source) -> Option<Section<'_>> {
    match DeTable::parse(source.text()) {
        Ok(root) => Some(Section::root(source, root.into_inner())),
        Err(error) => {
            let place = source.place(error.span().map_or(0, |span| span.start));
            source.tell(Problem::error(format!("not TOML: {}", error.message())).at(&place).hint("https://toml.io"));
            None
        }
    }
}

fn parse_without_agent(source: &Source) -> Config {
    let Some(mut root) = root(source) else { return Config::default() };
    Config {
        agent: root.section("agent").map(AgentPart::read_for_hints).unwrap_or_default(),
        store: root.section("store").map(StorePart::read).unwrap_or_default(),
        scope: root.section("scope").map(ScopePart::read).unwrap_or_default(),
        access: root.section("access").map(AccessPart::read).unwrap_or_default(),
        ..Config::default()
    }
}

fn parse(source: &Source) -> Config {
    let Some(mut root) = root(source) else { return Config::default() };
    let config = Config {
        agent: root.section("agent").map(AgentPart::read).unwrap_or_default(),
        limits: root.section("limits").map(LimitsPart::read).unwrap_or_default(),
        store: root.section("store").map(StorePart::read).unwrap_or_default(),
        scope: root.section("scope").map(ScopePart::read).unwrap_or_default(),
        access: root.section("access").map(AccessPart::read).unwrap_or_default(),
        tools: root.section("tools").map(ToolsPart::read).unwrap_or_default(),
        agents: root.sections("agents").map(sub_agents),
        hooks: root.sections("hooks").map(hooks::read).unwrap_or_default(),
    };
    root.finish();
    config
}
