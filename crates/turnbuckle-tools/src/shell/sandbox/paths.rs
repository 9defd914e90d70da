//! What builds need besides the project: the system, the toolchains in the home directory, and the caches of downloads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Everything that belongs to the system and not to its users. `/dev` is not in it: what is typed in other terminals of the user can be read in
/// `/dev/pts`.
const SYSTEM: [&str; 19] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/snap",
    "/proc",
    "/sys",
    "/var/lib",
    "/var/cache",
    "/run/systemd/resolve",
    "/run/current-system",
    "/System",
];

/// Devices that programs read and write. `/dev/stdin`, `/dev/stdout` and `/dev/stderr` are links to open files of the program itself.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/fd"];

/// Toolchains and their settings below the home directory. Not among them: whatever holds tokens, such as `.cargo/credentials.toml`,
/// `.npmrc`, `.netrc`, `.git-credentials`, `.ssh`, `.aws`.
const TOOLCHAINS: [&str; 27] = [
    ".rustup",
    ".nvm",
    ".volta",
    ".fnm",
    ".bun",
    ".deno",
    ".pyenv",
    ".rbenv",
    ".asdf",
    ".sdkman",
    ".jenv",
    ".ghcup",
    ".opam",
    ".elan",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/share/mise",
    ".local/share/uv",
    ".local/share/pnpm",
    ".local/share/fnm",
    ".local/pipx",
    "go",
    ".gitconfig",
    ".config/git/config",
    ".config/git/ignore",
    ".config/git/attributes",
];

/// What cargo reads of its own folder.
const CARGO: [&str; 7] = ["bin", "registry", "git", "config.toml", "config", "env", ".crates.toml"];
/// What cargo writes to there: downloads and the locks around them, no program and no setting.
const CARGO_CACHES: [&str; 5] = ["registry", "git", ".package-cache", ".package-cache-mutate", ".global-cache"];

/// What no variable of the environment opens: a folder that is or contains one of these is not one of programs or downloads, whatever a variable says.
pub(super) struct Closed {
    home: Option<PathBuf>,
    project: PathBuf,
    hidden: Vec<PathBuf>,
    links: Links,
}

impl Closed {
    pub(super) fn of(project: &Path, hidden: &[PathBuf]) -> Self {
        let links = Links::default();
        let hidden = hidden.iter().map(|path| links.without(path)).collect();
        Self { home: home().map(|home| links.without(&home)), project: links.without(project), hidden, links }
    }

    /// As the kernel sees it, if it exists.
    pub(super) fn existing(&self, path: &Path) -> Option<PathBuf> {
        let Looked { place, exists } = self.links.look(path);
        exists.then_some(place)
    }

    /// Whether it opens the home directory, or a folder of Turnbuckle's own.
    fn is_too_wide(&self, path: &Path) -> bool {
        let path = self.links.without(path);
        path.parent().is_none()
            || self.home.iter().chain(&self.hidden).any(|closed| closed.starts_with(&path))
            || self.hidden.iter().any(|hidden| path.starts_with(hidden))
    }

    /// The absolute path that an environment variable has.
    fn variable(&self, name: &str) -> Option<PathBuf> {
        variable(name).filter(|path| !self.is_too_wide(path))
    }

    fn named_or(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        self.variable(name).or_else(|| home().map(|home| home.join(below_home)))
    }

    /// Whether it opens the project, or what lies beside it. A folder that a variable names may: downloads of Go lie in the same one as its projects.
    fn holds_project(&self, path: &Path) -> bool {
        self.project.starts_with(self.links.without(path))
    }
}

/// Paths without links, each folder looked at once: the some sixty paths of a policy lie in a few folders, and to resolve each by itself looks at every
/// folder above it again. For one look at the machine only, never kept: links change.
#[derive(Default)]
struct Links(RefCell<BTreeMap<PathBuf, Looked>>);

/// What a path leads to.
#[derive(Clone)]
struct Looked {
    /// The same as [`without_links`].
    place: PathBuf,
    exists: bool,
}

impl Links {
    fn without(&self, path: &Path) -> PathBuf {
        self.look(path).place
    }

    fn look(&self, path: &Path) -> Looked {
        // One that is relative, or ends with `..`, does not follow from the folder above it.
        let (Some(above), Some(name), true) = (path.parent(), path.file_name(), path.is_absolute()) else {
            return Looked { place: without_links(path), exists: path.exists() };
        };
        if let Some(known) = self.0.borrow().get(path) {
            return known.clone();
        }
        let above = self.look(above);
        let place = above.place.join(name);
        // Nothing is in a folder that does not exist.
        let about = above.exists.then(|| fs::symlink_metadata(&place).ok()).flatten();
        let found = match about.as_ref().is_some_and(fs::Metadata::is_symlink).then(|| place.canonicalize()) {
            Some(Ok(target)) => Looked { place: target, exists: true },
            Some(Err(_)) => Looked { place, exists: false },
            None => Looked { place, exists: about.is_some() },
        };
        self.0.borrow_mut().insert(path.to_path_buf(), found.clone());
        found
    }
}

/// As the kernel sees it. Of a path that does not exist the part that does.
fn without_links(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(found), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return found.join(rest);
        }
    }
    path.to_path_buf()
}

fn home() -> Option<PathBuf> {
    variable("HOME")
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Whether it is one of the system's folders, or in one.
pub(super) fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|folder| path.starts_with(folder))
}

pub(super) fn system() -> Vec<PathBuf> {
    SYSTEM.iter().map(PathBuf::from).collect()
}

pub(super) fn devices() -> Vec<PathBuf> {
    DEVICES.iter().map(PathBuf::from).collect()
}

/// What is read and executed to build: known toolchains, and the folders in which programs are looked for.
pub(super) fn toolchains(closed: &Closed) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = home().iter().flat_map(|home| TOOLCHAINS.map(|name| home.join(name))).collect();
    found.extend(closed.named_or("CARGO_HOME", ".cargo").iter().flat_map(|cargo| CARGO.map(|name| cargo.join(name))));
    let named = ["RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR", "VOLTA_HOME", "JAVA_HOME", "GOROOT", "GOPATH", "VIRTUAL_ENV"];
    let named = named.into_iter().filter_map(|name| closed.variable(name));
    let searched = env::var_os("PATH").unwrap_or_default();
    let searched = env::split_paths(&searched).filter(|path| path.is_absolute() && !closed.is_too_wide(path));
    found.extend(named.chain(searched).filter(|path| !closed.holds_project(path)));
    found
}

/// Caches of downloads, and of what was built from them.
pub(super) fn caches(closed: &Closed) -> Vec<PathBuf> {
    let cache = closed.named_or("XDG_CACHE_HOME", ".cache");
    let mut found = Vec::new();
    let cargo = closed.named_or("CARGO_HOME", ".cargo");
    found.extend(cargo.iter().flat_map(|cargo| CARGO_CACHES.map(|name| cargo.join(name))));
    let npm = closed.named_or("npm_config_cache", ".npm");
    found.extend(npm.iter().flat_map(|npm| ["_cacache", "_logs"].map(|name| npm.join(name))));
    found.extend(closed.variable("PIP_CACHE_DIR").or_else(|| cache.as_ref().map(|cache| cache.join("pip"))));
    found.extend(closed.variable("GOCACHE").or_else(|| cache.as_ref().map(|cache| cache.join("go-build"))));
    let modules = || closed.named_or("GOPATH", "go").map(|go| go.join("pkg").join("mod"));
    found.extend(closed.variable("GOMODCACHE").or_else(modules));
    // Also if a link leads there.
    found.retain(|path| !closed.is_too_wide(path) && !closed.holds_project(path));
    found
}

/// Where the repository of a project lies whose `.git` is a file: a work tree of its own, or a submodule. It can be read, so that
/// `git status` and `git log` work.
pub(super) fn git_folders(project: &Path) -> Vec<PathBuf> {
    let Some(folder) = pointed_to(&project.join(".git"), "gitdir: ", project) else { return Vec::new() };
    let common = pointed_to(&folder.join("commondir"), "", &folder);
    [Some(folder), common].into_iter().flatten().collect()
}

/// The path in the first line of a small file.
fn pointed_to(file: &Path, prefix: &str, relative_to: &Path) -> Option<PathBuf> {
    let about = fs::symlink_metadata(file).ok().filter(|about| about.is_file() && about.len() < 4096)?;
    debug_assert!(about.is_file());
    let text = fs::read_to_string(file).ok()?;
    let path = text.lines().next()?.strip_prefix(prefix)?.trim_end();
    // The project's own file must not open a folder that is no repository.
    let path = relative_to.join(path).canonicalize().ok()?;
    let is_repository = path.join("HEAD").is_file();
    is_repository.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn looking_at_each_folder_once_finds_the_same_as_resolving_each_path() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        fs::create_dir_all(base.join("real/deep")).unwrap();
        fs::write(base.join("file"), "").unwrap();
        symlink("real", base.join("link")).unwrap();
        symlink("link/deep", base.join("second")).unwrap();
        symlink("nowhere", base.join("dangling")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let links = Links::default();
        let names = [
            "",
            "real",
            "link",
            "link/deep",
            "link/missing/x",
            "second",
            "second/x",
            "second/..",
            "second/../x",
            "dangling",
            "dangling/x",
            "dangling/../x",
            "loop",
            "loop/x",
            "file/x",
            "missing/../real",
            ".",
            "link/.",
        ];
        for name in names {
            let path = base.join(name);
            assert_eq!(links.without(&path), without_links(&path), "{name}");
            assert_eq!(links.without(&path), without_links(&path), "{name}, a second time");
            assert_eq!(links.look(&path).exists, path.exists(), "{name}");
        }
        for path in ["/", ".", "src", "nothing/here"] {
            assert_eq!(links.without(Path::new(path)), without_links(Path::new(path)), "{path}");
            assert_eq!(links.look(Path::new(path)).exists, Path::new(path).exists(), "{path}");
        }
    }
}
