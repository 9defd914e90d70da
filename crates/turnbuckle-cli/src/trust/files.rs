//! The files that a command names: every word of it that is a file of the project.
//!
//! What those files load in turn is not looked at, and `turnbuckle trust` says so.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::digest;
use super::words::{self, WordError};

/// Where a file of the project leads, and what it holds. A link that is pointed somewhere else is a change, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Relative to the project's folder, or absolute if a link leads out of it.
    pub(crate) leads_to: PathBuf,
    pub(crate) digest: String,
}

/// Files by their path in the project, as a command names them.
pub(crate) type Files = BTreeMap<PathBuf, FileState>;

/// A command of a hook or a server.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// A string for the shell, or a list of words.
    pub(crate) line: Value,
    /// The folder of the plugin that it belongs to, with its links resolved. What it names there is looked for as well, wherever
    /// the folder is.
    pub(crate) plugin: Option<PathBuf>,
}

impl From<Value> for Command {
    fn from(line: Value) -> Self {
        Self { line, plugin: None }
    }
}

impl Command {
    /// Whether some names in it are known only when it runs.
    pub(super) fn computes_names(&self) -> bool {
        // The variable is a plugin's: for other commands nobody knows what it is.
        let is_unset = || self.plugin.is_none() && self.line.to_string().contains(words::PLUGIN_ROOT);
        words::computes_names(&self.line) || is_unset() || self.line.as_str().is_some_and(pipes_into_shell)
    }
}

/// Whether a shell runs what another program prints: nobody knows what that is.
fn pipes_into_shell(line: &str) -> bool {
    line.split('|').skip(1).any(|command| {
        let mut words = command.split_whitespace().skip_while(|word| matches!(*word, "sudo" | "env" | "exec" | "&"));
        words.next().is_some_and(words::is_shell)
            && words.all(|word| word.starts_with(['-', '<', '>', '&', ';', '2']) || word == "/dev/stdin")
    })
}

/// Why the files that a command names cannot be told, or not be accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is a database in use, which changes with every turn", path.display())]
    Database { path: PathBuf },
    #[error("the files that its hooks name have more than {} MiB together", digest::LARGEST >> 20)]
    TooLarge,
    #[error("the commands of its hooks name too many files: {MOST_LOOKUPS} possible names are the most")]
    TooMany,
    #[error(transparent)]
    Words(#[from] WordError),
}

/// The most names of possible files that are looked for, over all commands of one configuration.
const MOST_LOOKUPS: usize = 50_000;
/// The most folders in which the words of one command are looked for: those that the command itself names.
const MOST_FOLDERS: usize = 16;

/// Looks for files in a project. A file is read once, however many commands name it, and all of it is bounded: whoever reads the
/// configuration of a stranger does not wait long.
pub(super) struct FileReader<'a> {
    /// The project's folder, absolute, links resolved.
    folder: &'a Path,
    spent: RefCell<Spent>,
}

#[derive(Default)]
struct Spent {
    lookups: usize,
    bytes: u64,
    /// Paths with all links resolved, by what they were looked for as: commands of one section name much the same. By the text, because
    /// `a/` is equal to `a` as a path, and is no file.
    found: HashMap<OsString, Option<PathBuf>>,
    /// By the path that all links are resolved in.
    digests: HashMap<PathBuf, String>,
}

impl<'a> FileReader<'a> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self { folder, spent: RefCell::default() }
    }

    /// The files of the project, and of the plugin that the command belongs to, that are a word of `command`.
    pub(super) fn named_by(&self, command: &Command) -> Result<Files, FileError> {
        let names = words::names(&command.line)?.used;
        let scripts = loaded_names(&command.line, names.iter().map(|name| without_variable(name)));
        let mut files = Files::new();
        let plugin = command.plugin.as_deref();
        // A command may go to a folder first: `cd scripts && ./lint.sh`.
        let mut folders: Vec<PathBuf> = std::iter::once(self.folder).chain(plugin).map(Path::to_owned).collect();
        let mut next = 0;
        while let Some(folder) = folders.get(next).cloned() {
            next += 1;
            for name in names.iter().map(|name| without_variable(name).to_owned()).chain(scripts.clone()) {
                let whole = folder.join(name);
                let Some(real) = self.find(&whole)? else { continue };
                let is_inside = real.starts_with(self.folder) || plugin.is_some_and(|root| real.starts_with(root));
                if real.is_dir() && is_inside && !folders.contains(&real) && folders.len() < MOST_FOLDERS {
                    folders.push(real);
                } else if let Some(path) = self.path_of(&whole, &real, plugin)
                    && let Some(state) = self.state_of(&real)?
                {
                    files.insert(path, state);
                    for main in mains_of(&whole, &real) {
                        if let Some(real) = self.find(&main)?
                            && let Some(path) = self.path_of(&main, &real, plugin)
                            && let Some(state) = self.state_of(&real)?
                        {
                            files.insert(path, state);
                        }
                    }
                }
            }
        }
        Ok(files)
    }

    /// Those of `files` that the command itself writes to: they are not the same after a run.
    pub(super) fn written_by(&self, command: &Command, files: &Files) -> Result<BTreeSet<PathBuf>, FileError> {
        let mut written = BTreeSet::new();
        for name in words::names(&command.line)?.written {
            let name = name.rsplit('\0').next().unwrap_or_default().trim_start_matches('/');
            if let Some(real) = self.find(&self.folder.join(name))? {
                let same = |(path, _): &(&PathBuf, _)| self.folder.join(path).canonicalize().is_ok_and(|it| it == real);
                written.extend(files.iter().filter(same).map(|(path, _)| path.clone()));
            }
        }
        Ok(written)
    }

    /// How the file at `path` is, if there is one. A folder is none.
    pub(super) fn state(&self, path: &Path) -> Result<Option<FileState>, FileError> {
        match self.find(path)? {
            Some(real) => self.state_of(&real),
            None => Ok(None),
        }
    }

    /// The path with all links resolved. A name that is too long, or leads through a file, is no file either.
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, FileError> {
        let mut spent = self.spent.borrow_mut();
        if let Some(known) = spent.found.get(path.as_os_str()) {
            return Ok(known.clone());
        }
        spent.lookups += 1;
        if spent.lookups > MOST_LOOKUPS {
            return Err(FileError::TooMany);
        }
        // Most names are of no file: one call says so, where resolving links asks about each folder above.
        let real = path.exists().then(|| path.canonicalize().ok()).flatten();
        spent.found.insert(path.as_os_str().to_owned(), real.clone());
        Ok(real)
    }

    fn state_of(&self, real: &Path) -> Result<Option<FileState>, FileError> {
        if !real.is_file() {
            return Ok(None);
        }
        // Closing a descriptor of a database would drop the locks that this process holds on it, if it is its own.
        if ["-wal", "-shm"].iter().any(|end| with_end(real, end).exists()) {
            return Err(FileError::Database { path: self.relative(real).unwrap_or_else(|| real.to_owned()) });
        }
        let known = self.spent.borrow().digests.get(real).cloned();
        let digest = match known {
            Some(digest) => digest,
            None => self.read(real)?,
        };
        Ok(Some(FileState { leads_to: self.relative(real).unwrap_or_else(|| real.to_owned()), digest }))
    }

    fn read(&self, real: &Path) -> Result<String, FileError> {
        let (digest, bytes) = digest::of_file(real).map_err(|source| {
            let path = self.relative(real).unwrap_or_else(|| real.to_owned());
            FileError::Unreadable { path, source }
        })?;
        let mut spent = self.spent.borrow_mut();
        spent.bytes += bytes;
        if spent.bytes > digest::LARGEST {
            return Err(FileError::TooLarge);
        }
        spent.digests.insert(real.to_owned(), digest.clone());
        Ok(digest)
    }

    fn relative(&self, real: &Path) -> Option<PathBuf> {
        real.strip_prefix(self.folder).ok().map(Path::to_path_buf)
    }

    /// The path in the project of the file at `whole`, or the whole path in the plugin; `None` if it is in neither.
    fn path_of(&self, whole: &Path, real: &Path, plugin: Option<&Path>) -> Option<PathBuf> {
        let of_plugin = || plugin.and_then(|root| Some(root.join(path_in(root, whole, real)?)));
        path_in(self.folder, whole, real).or_else(of_plugin)
    }
}

/// The path in `base` of the file at `whole`; `None` if it is not in it. A link that leads out of the folder is in it. The shell follows
/// a link before it goes up with `..`, so of a path with `..` the folder is resolved as well.
fn path_in(base: &Path, whole: &Path, real: &Path) -> Option<PathBuf> {
    let relative = |path: &Path| path.strip_prefix(base).ok().map(Path::to_path_buf);
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    match whole.strip_prefix(base).ok().filter(|path| path.components().all(is_plain)) {
        Some(path) => Some(path.components().filter(|part| *part != Component::CurDir).collect()),
        None => relative(real).or_else(|| {
            let folder = relative(&whole.parent()?.canonicalize().ok()?)?;
            Some(folder.join(whole.file_name()?))
        }),
    }
}

/// Interpreters that find a script without its ending, as a module, or by its folder.
const LOADERS: [&str; 6] = ["node", "bun", "deno", "python", "pypy", "ts"];
/// What they add to a name, also to that of a folder.
const ENDINGS: [&str; 11] = [
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".py",
    "/index.js",
    "/index.mjs",
    "/index.cjs",
    "/index.ts",
    "/package.json",
    "/__main__.py",
];

/// The files that an interpreter may load for the names in a command: `node hooks/gate`, `python3 -m hooks.gate`, `node ./hooks`.
fn loaded_names<'n>(line: &Value, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let text = line.to_string();
    if !LOADERS.iter().any(|loader| text.contains(loader)) {
        return Vec::new();
    }
    let loads_modules = text.contains("-m");
    let mut loaded = Vec::new();
    for name in names.filter(|name| !name.is_empty() && !name.starts_with('-')) {
        let name = name.trim_end_matches('/');
        loaded.extend(ENDINGS.iter().map(|ending| format!("{name}{ending}")));
        if loads_modules && name.split('.').all(|part| !part.is_empty() && !part.contains('/')) {
            let path = name.replace('.', "/");
            loaded.extend([".py", "/__main__.py", "/__init__.py"].map(|ending| format!("{path}{ending}")));
            // The packages around it are loaded first.
            let packages = path.match_indices('/').map(|(end, _)| format!("{}/__init__.py", &path[..end]));
            loaded.extend(packages);
        }
    }
    loaded
}

/// What the `package.json` of a folder says that the folder is loaded by, with what may be added to the name.
fn mains_of(whole: &Path, real: &Path) -> Vec<PathBuf> {
    if whole.file_name().is_none_or(|name| name != "package.json") {
        return Vec::new();
    }
    let (Some(folder), Ok(text)) = (whole.parent(), std::fs::read_to_string(real)) else { return Vec::new() };
    let package: Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(main) = package.get("main").and_then(Value::as_str) else { return Vec::new() };
    let names =
        ["", ".js", ".mjs", ".cjs", "/index.js"].map(|ending| format!("{}{ending}", main.trim_end_matches('/')));
    names.into_iter().map(|name| folder.join(name)).collect()
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn without_variable(name: &str) -> &str {
    const VARIABLES: [&str; 4] =
        ["$CLAUDE_PROJECT_DIR", "${CLAUDE_PROJECT_DIR}", "$CLAUDE_PLUGIN_ROOT", "${CLAUDE_PLUGIN_ROOT}"];
    let rest = VARIABLES.iter().find_map(|variable| name.strip_prefix(variable));
    rest.map_or(name, |rest| rest.trim_start_matches('/'))
}

#[cfg(test)]
mod tests;
