//! What Tab completes: slash commands, and files of the project behind an `@`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::sync::oneshot;

use super::commands::COMMANDS;
use crate::project::OWN_FOLDER;

/// How many files of the project are offered to choose from.
const MOST_FILES: usize = 20_000;
/// How many files are looked at for them.
const MOST_WALKED: usize = 200_000;
/// How many candidates are shown.
const SHOWN: usize = 6;

/// The project's files.
pub(super) struct Files {
    pub(super) names: Vec<String>,
    /// When they were listed.
    pub(super) at: Instant,
}

/// Whether the word that ends at the cursor names a file.
pub(super) fn names_file(before: &str) -> bool {
    last_word(before).starts_with('@')
}

fn last_word(before: &str) -> &str {
    before.rsplit(char::is_whitespace).next().unwrap_or(before)
}

/// Candidates for the word before the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// How many letters before the cursor are replaced.
    pub(super) replaces: usize,
    candidates: Vec<String>,
    chosen: Option<usize>,
}

impl Completion {
    /// What can be completed in a text that ends at the cursor.
    pub(super) fn of(before: &str, files: &[String]) -> Option<Self> {
        if let Some(word) = before.strip_prefix('/')
            && word.chars().all(|ch| ch.is_ascii_alphabetic())
        {
            let names = COMMANDS.iter().map(|command| format!("/{}", command.name));
            return Self::from_candidates(before, names.filter(|name| name.starts_with(before)).collect());
        }
        let word = last_word(before);
        let wanted = word.strip_prefix('@')?.to_lowercase();
        // Names that begin with it come first, then those that have it in their last part, then the others.
        let rank = |file: &str| {
            let (file, name) = (file.to_lowercase(), file.rsplit('/').next().unwrap_or(file).to_lowercase());
            match () {
                () if name.starts_with(&wanted) => Some(0),
                () if file.starts_with(&wanted) => Some(1),
                () if name.contains(&wanted) => Some(2),
                () if file.contains(&wanted) => Some(3),
                () => None,
            }
        };
        let mut found: Vec<(u8, &String)> = files.iter().filter_map(|file| Some((rank(file)?, file))).collect();
        found.sort_by_key(|(rank, file)| (*rank, file.len()));
        Self::from_candidates(word, found.into_iter().take(SHOWN * 4).map(|(_, file)| named(file)).collect())
    }

    fn from_candidates(word: &str, candidates: Vec<String>) -> Option<Self> {
        let is_complete = candidates.len() == 1 && candidates[0] == word;
        let replaces = word.chars().count();
        (!candidates.is_empty() && !is_complete).then_some(Self { replaces, candidates, chosen: None })
    }

    /// The next candidate, or with `-1` the one before.
    pub(super) fn choose(&mut self, step: isize) -> &str {
        let count = self.candidates.len();
        let next = match (self.chosen, step < 0) {
            (None, false) => 0,
            (None, true) => count - 1,
            (Some(place), false) => (place + 1) % count,
            (Some(place), true) => (place + count - 1) % count,
        };
        self.chosen = Some(next);
        &self.candidates[next]
    }

    /// Whether the person goes through the candidates.
    pub(super) fn is_under_way(&self) -> bool {
        self.chosen.is_some()
    }

    /// Whether there is nothing to choose between.
    pub(super) fn is_single(&self) -> bool {
        self.candidates.len() == 1
    }

    /// What is shown below the line being typed.
    pub(super) fn lines(&self) -> Vec<String> {
        let first = self.chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(SHOWN));
        let shown = self.candidates.iter().enumerate().skip(first).take(SHOWN);
        let mut lines: Vec<String> = shown
            .map(|(place, name)| {
                let mark = if self.chosen == Some(place) { '›' } else { ' ' };
                let about = COMMANDS.iter().find(|command| name.strip_prefix('/') == Some(command.name));
                let about = about.map(|command| format!("  {}", command.about)).unwrap_or_default();
                format!("{mark} {name}{about}")
            })
            .collect();
        if self.candidates.len() > first + SHOWN {
            lines.push(format!("  … {} more, Tab goes on", self.candidates.len() - first - SHOWN));
        }
        lines
    }
}

/// How a message names a file: in quotes if its name has blanks.
fn named(file: &str) -> String {
    if file.contains(char::is_whitespace) { format!("@\"{file}\"") } else { format!("@{file}") }
}

/// Lists the project's files beside the async threads, without those that `.gitignore` names.
pub(super) fn list_files(folder: PathBuf) -> oneshot::Receiver<Vec<String>> {
    let (tell, files) = oneshot::channel();
    // The thread ends with the list. If nobody wants it any more, it is dropped.
    let spawned = std::thread::Builder::new().name("files".to_owned()).spawn(move || drop(tell.send(walk(&folder))));
    if let Err(error) = spawned {
        tracing::debug!(target: crate::logging::CLI, %error, "the files were not listed");
    }
    files
}

fn walk(folder: &Path) -> Vec<String> {
    // What is kept for git and for this program is nobody's file, at any depth: a project may hold repositories.
    let is_own = |entry: &ignore::DirEntry| {
        entry.depth() > 0 && [".git", OWN_FOLDER].iter().any(|own| entry.file_name() == *own)
    };
    // In a repository, files like `.github/workflows/ci.yml` are the project's as well. Elsewhere nothing tells them from caches and keys.
    let is_repository = folder.ancestors().any(|above| above.join(".git").exists());
    let walk = ignore::WalkBuilder::new(folder)
        .hidden(!is_repository)
        .follow_links(false)
        .filter_entry(move |entry| !is_own(entry))
        .build();
    let files = walk.filter_map(Result::ok).filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let names = files.filter_map(|entry| Some(entry.path().strip_prefix(folder).ok()?.to_str()?.to_owned()));
    // A name with a line end in it would be another text than the one that was chosen.
    let names = names.take(MOST_WALKED).filter(|name| !name.contains(char::is_control));
    chosen(names, MOST_FILES)
}

/// So many of these names, in order. Hidden files come in only as far as the others leave room.
fn chosen(names: impl Iterator<Item = String>, most: usize) -> Vec<String> {
    let (mut hidden, mut others) = (Vec::new(), Vec::new());
    for name in names {
        let kind = if name.split('/').any(|part| part.starts_with('.')) { &mut hidden } else { &mut others };
        if kind.len() < most {
            kind.push(name);
        }
        if others.len() >= most {
            break;
        }
    }
    hidden.truncate(most - others.len());
    others.append(&mut hidden);
    others.sort();
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<String> {
        ["src/main.rs", "src/lib.rs", "README.md", "docs/main.md"].map(str::to_owned).to_vec()
    }

    #[test]
    fn commands_and_files_are_completed() {
        let mut commands = Completion::of("/to", &[]).unwrap();
        assert_eq!((commands.replaces, commands.choose(1)), (3, "/tools"));
        assert_eq!(Completion::of("/tools", &[]), None, "it is complete");
        assert_eq!(Completion::of("/nonsense", &[]), None);
        let mut found = Completion::of("look at @main", &files()).unwrap();
        assert_eq!((found.replaces, found.choose(1).to_owned()), (5, "@src/main.rs".to_owned()));
        assert_eq!(found.choose(1), "@docs/main.md");
        assert_eq!(found.choose(1), "@src/main.rs");
        assert_eq!(Completion::of("mail@main", &files()), None, "a word begins with it");
        assert!(names_file("look at @ma") && !names_file("mail@main") && !names_file("@main it"));
        let mut quoted = Completion::of("@my", &["my shot.png".to_owned()]).unwrap();
        assert_eq!(quoted.choose(1), "@\"my shot.png\"");
        assert_eq!(Completion::of("no", &files()), None);
    }

    #[test]
    fn what_git_ignores_is_not_offered() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".git")).unwrap();
        std::fs::write(folder.path().join(".git/config"), "").unwrap();
        std::fs::create_dir(folder.path().join(".github")).unwrap();
        for (name, text) in
            [(".gitignore", "secret.txt\n"), ("secret.txt", ""), ("a.txt", ""), ("b\nc", ""), (".github/ci.yml", "")]
        {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(walk(folder.path()), [".github/ci.yml", ".gitignore", "a.txt"]);
        for inside in [".git", OWN_FOLDER] {
            std::fs::create_dir_all(folder.path().join("vendor").join(inside)).unwrap();
            std::fs::write(folder.path().join("vendor").join(inside).join("config"), "").unwrap();
        }
        std::fs::write(folder.path().join("vendor/b.txt"), "").unwrap();
        let offered = walk(folder.path());
        assert_eq!(
            offered,
            [".github/ci.yml", ".gitignore", "a.txt", "vendor/b.txt"],
            "insides of repositories are not"
        );
    }

    #[test]
    fn hidden_files_are_offered_in_a_repository_only_and_push_no_other_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".cache")).unwrap();
        for name in [".cache/page", ".netrc", "a.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(walk(folder.path()), ["a.txt"]);
        let names = [".cache/a", ".cache/b", "b/.c", "a.txt", "z.txt"].map(str::to_owned);
        assert_eq!(chosen(names.clone().into_iter(), 2), ["a.txt", "z.txt"]);
        assert_eq!(chosen(names.into_iter(), 3), [".cache/a", "a.txt", "z.txt"]);
    }
}
