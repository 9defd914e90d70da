//! What `.gitignore` names: rules that are read through the folder as it is walked, and matched as ripgrep does.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::overrides::{Override, OverrideBuilder};

use super::closed::Closed;
use super::folder::Folder;
use super::refusal::Refusal;

/// The files with rules in a folder; later ones win.
const FILES: [&str; 2] = [".gitignore", ".ignore"];
/// Rules that hold for the whole repository and are not part of it.
const EXCLUDE: &str = ".git/info/exclude";
/// Of one such file. What is beyond is not read.
const MOST_BYTES: u64 = 256 * 1024;

/// The rules of one folder, and through `above` those of the folders above it.
pub(super) struct Rules {
    folder: PathBuf,
    rules: Gitignore,
    above: Option<Arc<Rules>>,
}

impl Rules {
    /// The rules that hold in a folder where a walk begins. If they name the folder itself, they do not hold: whoever asks for
    /// an ignored folder by its path wants to see it.
    pub(super) fn at(folder: &Folder, closed: &Closed, start: &Path) -> Option<Arc<Self>> {
        let exclude = read(folder, closed, &[Path::new(EXCLUDE).to_owned()]);
        let mut rules = exclude.map(|rules| Arc::new(Self { folder: PathBuf::new(), rules, above: None }));
        let mut path = PathBuf::new();
        for name in start {
            rules = Self::below(rules, folder, closed, &path);
            path.push(name);
            if is_ignored(rules.as_deref(), &path, true) {
                return None;
            }
        }
        rules
    }

    /// The rules in the folder `path`, given those above it.
    pub(super) fn below(above: Option<Arc<Self>>, folder: &Folder, closed: &Closed, path: &Path) -> Option<Arc<Self>> {
        match read(folder, closed, &FILES.map(|name| path.join(name))) {
            Some(rules) => Some(Arc::new(Self { folder: path.to_owned(), rules, above })),
            None => above,
        }
    }
}

/// Whether the rules say that a path is left out. Those of the nearest folder win.
pub(super) fn is_ignored(rules: Option<&Rules>, path: &Path, is_folder: bool) -> bool {
    let mut level = rules;
    while let Some(Rules { folder, rules, above }) = level {
        match rules.matched(path.strip_prefix(folder).unwrap_or(path), is_folder) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => level = above.as_deref(),
        }
    }
    false
}

/// The rules in some files; `None` if there are none. A line that is no rule is passed over, as git does.
fn read(folder: &Folder, closed: &Closed, files: &[PathBuf]) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    for path in files {
        let Ok((file, _)) = folder.read_unless(closed, path) else { continue };
        let mut bytes = Vec::new();
        if file.take(MOST_BYTES).read_to_end(&mut bytes).is_err() {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        for line in text.trim_start_matches('\u{FEFF}').lines() {
            // A line that cannot be parsed names nothing.
            let _ = builder.add_line(None, line);
        }
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

/// The argument `glob`: which files are meant. Absent: all.
pub(super) struct Chosen(Override);

impl Chosen {
    pub(super) fn by(glob: Option<&str>) -> Result<Self, Refusal> {
        let Some(glob) = glob else { return Ok(Self(Override::empty())) };
        let mut builder = OverrideBuilder::new("");
        let built = builder.add(glob).and_then(|builder| builder.build());
        built.map(Self).map_err(|error| Refusal::Glob(Box::new(error)))
    }

    pub(super) fn has(&self, path: &Path, is_folder: bool) -> bool {
        match self.0.matched(path, is_folder) {
            Match::Whitelist(_) => true,
            Match::Ignore(_) => false,
            Match::None => self.0.num_whitelists() == 0,
        }
    }

    /// Whether files in a folder may be meant: `!docs/` leaves a folder out as a whole.
    pub(super) fn may_be_below(&self, path: &Path) -> bool {
        !self.0.matched(path, true).is_ignore()
    }
}
