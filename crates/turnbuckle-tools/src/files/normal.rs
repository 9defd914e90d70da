//! The normal form of a path: one spelling for every file.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use turnbuckle::tool::Normalize;
use turnbuckle::{BoxError, BoxFuture};

use super::blocking::run_blocking;
use super::folder::{Folder, is_own};
use super::refusal::Refusal;

/// The longest path that the system takes.
const LONGEST: usize = 4096;
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// A part of a path that is still to be resolved.
enum Step {
    Up,
    Name(OsString),
}

/// A path on its way to the normal form.
struct Resolving<'a> {
    folder: &'a Folder,
    given: &'a str,
    /// Link-free so far.
    done: PathBuf,
    /// What follows, and whether a link put it there.
    steps: VecDeque<(Step, bool)>,
    links: usize,
    /// Whether `done` is a folder, a file, or not there.
    at: At,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Folder,
    File,
    Nothing,
}

impl Folder {
    /// The normal form of a path that is relative to the folder: without `.`, `..`, doubled and trailing slashes, and with
    /// every link resolved. The folder itself is the empty path. The last names may be of files and folders that are not
    /// there yet; those before them are folders at this moment.
    pub(super) fn normal(&self, given: &str) -> Result<PathBuf, Refusal> {
        if given.contains('\0') {
            return Err(Refusal::NotBelow { path: given.to_owned() });
        }
        if given.len() > LONGEST {
            return Err(Refusal::TooLong { limit: LONGEST });
        }
        let mut resolving =
            Resolving { folder: self, given, done: PathBuf::new(), steps: VecDeque::new(), links: 0, at: At::Folder };
        resolving.enqueue(Path::new(given), false)?;
        while let Some((step, by_link)) = resolving.steps.pop_front() {
            match step {
                Step::Up => resolving.up(by_link)?,
                Step::Name(name) => resolving.name(name, by_link)?,
            }
        }
        let path = resolving.done;
        if self.closed_now().has(&path) {
            return Err(Refusal::Own { path: given.to_owned() });
        }
        Ok(path)
    }

    /// The path of a call that is about to run. It was brought to its normal form when the call was decided; if it is not the
    /// normal form any more, a link was put on the way since, and what was judged then is not what would be used now.
    pub(super) fn still_normal(&self, given: &str) -> Result<PathBuf, Refusal> {
        let path = self.normal(given)?;
        match text_of(&path) {
            Some(now) if now == given => Ok(path),
            now => Err(Refusal::Changed { path: given.to_owned(), now: now.unwrap_or_default().to_owned() }),
        }
    }
}

/// A path in its normal form as text; `None` if it is not Unicode.
fn text_of(path: &Path) -> Option<&str> {
    if path.as_os_str().is_empty() { Some(".") } else { path.to_str() }
}

impl Resolving<'_> {
    /// Puts the parts of a path before all others. An absolute one starts at the folder, if that is how it begins.
    fn enqueue(&mut self, path: &Path, by_link: bool) -> Result<(), Refusal> {
        let below = path.strip_prefix(&self.folder.root).ok();
        if below.is_some() {
            (self.done, self.at) = (PathBuf::new(), At::Folder);
        }
        let path = below.unwrap_or(path);
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.steps.push_front((Step::Name(name.to_owned()), by_link)),
                Component::ParentDir => self.steps.push_front((Step::Up, by_link)),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(self.outside(by_link)),
            }
        }
        Ok(())
    }

    fn outside(&self, by_link: bool) -> Refusal {
        let path = self.given.to_owned();
        if by_link { Refusal::Outside { path } } else { Refusal::NotBelow { path } }
    }

    fn up(&mut self, by_link: bool) -> Result<(), Refusal> {
        match self.at {
            At::Folder if self.done.pop() => Ok(()),
            At::Folder => Err(self.outside(by_link)),
            At::File => Err(Refusal::NotFolder { path: self.given.to_owned() }),
            // As the system has it: what is above a folder that is not there cannot be reached through it.
            At::Nothing => Err(Refusal::Missing { path: self.given.to_owned() }),
        }
    }

    fn name(&mut self, name: OsString, by_link: bool) -> Result<(), Refusal> {
        if is_own(&name) {
            return Err(Refusal::Own { path: self.given.to_owned() });
        }
        let next = self.done.join(name);
        if self.at == At::Nothing {
            self.done = next;
            return Ok(());
        }
        let metadata = match self.folder.dir.symlink_metadata(&next) {
            Ok(metadata) => metadata,
            Err(source) if source.kind() == io::ErrorKind::NotFound && by_link => {
                return Err(Refusal::DanglingLink { path: self.given.to_owned() });
            }
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                (self.done, self.at) = (next, At::Nothing);
                return Ok(());
            }
            Err(source) => return Err(Refusal::of("open", &next, source)),
        };
        if !metadata.is_symlink() {
            self.at = if metadata.is_dir() { At::Folder } else { At::File };
            self.done = next;
            return Ok(());
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Refusal::TooManyLinks { path: self.given.to_owned() });
        }
        let target = self.folder.dir.read_link_contents(&next);
        let target = target.map_err(|source| Refusal::of("follow", &next, source))?;
        self.enqueue(&target, true)
    }
}

/// Brings the argument `path` of the file tools to its normal form.
pub(super) struct NormalPath(pub(super) Arc<Folder>);

impl Normalize for NormalPath {
    fn normalize<'a>(&'a self, arguments: &'a Value) -> BoxFuture<'a, Result<Option<Value>, BoxError>> {
        Box::pin(async move {
            let given = arguments.get("path").and_then(Value::as_str).filter(|path| !path.is_empty());
            let Some(given) = given.map(str::to_owned) else { return Ok(None) };
            let (folder, path) = (self.0.clone(), given.clone());
            let normal = run_blocking(move |_| folder.normal(&path)).await?.map_err(|refusal| refusal.to_string())?;
            let Some(normal) = text_of(&normal) else {
                return Err(Refusal::NotUnicode { path: given }.to_string().into());
            };
            if normal == given {
                return Ok(None);
            }
            let mut arguments = arguments.clone();
            if let Some(path) = arguments.get_mut("path") {
                *path = normal.into();
            }
            Ok(Some(arguments))
        })
    }
}

#[cfg(test)]
mod tests;
