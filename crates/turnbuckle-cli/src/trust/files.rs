//! The files that a command names: every word of it that is a file of the project.
//!
//! What those files load in turn is not looked at, and `turnbuckle trust` says so.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::digest;

/// Where a file of the project leads, and what it holds. A link that is pointed somewhere else is a change, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Relative to the project's folder, or absolute if a link leads out of it.
    pub(crate) leads_to: PathBuf,
    pub(crate) digest: String,
}

/// Files by their path in the project, as a command names them.
pub(crate) type Files = BTreeMap<PathBuf, FileState>;

/// A file that cannot be accepted because it cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read: {source}", path.display())]
pub(crate) struct FileError {
    pub(crate) path: PathBuf,
    source: io::Error,
}

/// The files of the project in `folder` that are a word of `command`: a string for the shell, or a list of words.
pub(super) fn named_by(command: &Value, folder: &Path) -> Result<Files, FileError> {
    let words: Vec<String> = match command {
        Value::String(line) => shell_words(line),
        // One word of a list may be a whole line for a shell: `["sh", "-c", "./lint.sh --fix"]`.
        Value::Array(words) => words
            .iter()
            .filter_map(Value::as_str)
            .flat_map(|word| std::iter::once(word.to_owned()).chain(shell_words(word)))
            .collect(),
        _ => Vec::new(),
    };
    let paths: BTreeSet<PathBuf> =
        words.iter().flat_map(|word| candidates(word)).filter_map(|word| inside(word, folder)).collect();
    let mut files = Files::new();
    for path in paths {
        if let Some(state) = state(&folder.join(&path), folder)? {
            files.insert(path, state);
        }
    }
    Ok(files)
}

/// How the file at `path` is, if there is one. A folder is none.
pub(super) fn state(path: &Path, folder: &Path) -> Result<Option<FileState>, FileError> {
    // A name that is too long, or leads through a file, is no file either.
    let Ok(real) = path.canonicalize() else { return Ok(None) };
    if !real.is_file() {
        return Ok(None);
    }
    let digest = digest::of_file(&real).map_err(|source| FileError { path: path.to_owned(), source })?;
    let leads_to = real.strip_prefix(folder).map_or_else(|_| real.clone(), Path::to_path_buf);
    Ok(Some(FileState { leads_to, digest }))
}

/// The path in the project that a word spells; `None` if it leads out of it by its spelling.
fn inside(word: &str, folder: &Path) -> Option<PathBuf> {
    const VARIABLES: [&str; 2] = ["$CLAUDE_PROJECT_DIR", "${CLAUDE_PROJECT_DIR}"];
    let rest =
        VARIABLES.iter().find_map(|variable| word.strip_prefix(variable)).map(|rest| rest.trim_start_matches('/'));
    let word = rest.unwrap_or(word);
    let given = Path::new(word);
    let given = given.strip_prefix(folder).unwrap_or(given);
    let mut path = PathBuf::new();
    for part in given.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            _ => return None,
        }
    }
    (!path.as_os_str().is_empty()).then_some(path)
}

/// A word, and what stands behind a `=` in it: `--config=lint.toml`.
fn candidates(word: &str) -> impl Iterator<Item = &str> {
    std::iter::once(word).chain(word.split_once('=').map(|(_, value)| value))
}

/// The words of a line for the shell, without their quotes, and everything between signs that mean something to a shell: inside
/// `"$(…)"` stand words, too. Variables stay as they are written.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut quote, mut letters) = (None, line.chars());
    // What is only written to does not run: a log would change with every run.
    let (mut written, mut is_target) = (Vec::new(), false);
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (Some('\''), letter) => word.push(letter),
            (_, '\\') => word.extend(letters.next()),
            (None, letter) if letter.is_whitespace() || ";|&()<>`".contains(letter) => {
                if !word.is_empty() {
                    if is_target { &mut written } else { &mut words }.push(std::mem::take(&mut word));
                    is_target = false;
                }
                is_target |= letter == '>';
            }
            (_, letter) => word.push(letter),
        }
    }
    if is_target { &mut written } else { &mut words }.push(word);
    let pieces = line.split(|sign: char| sign.is_whitespace() || ";|&()<>`'\"${},".contains(sign));
    words.extend(pieces.filter(|piece| !written.iter().any(|word| word == piece)).map(str::to_owned));
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_word_that_is_a_file_of_the_project_is_found() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(folder.join("scripts/sub")).unwrap();
        for name in ["scripts/lint.sh", "scripts/two words.sh", "conf.toml", "x"] {
            std::fs::write(folder.join(name), name).unwrap();
        }
        let absolute = folder.join("x").display().to_string();
        let lint = "scripts/lint.sh";
        for (command, expected) in [
            (json!("scripts/lint.sh --fix"), vec![lint]),
            (json!("sh ./scripts/../scripts//lint.sh;ls"), vec![lint]),
            (json!("cat <conf.toml|sh scripts/lint.sh&&true"), vec!["conf.toml", lint]),
            (json!("\"$CLAUDE_PROJECT_DIR\"/scripts/lint.sh"), vec![lint]),
            (json!("${CLAUDE_PROJECT_DIR}/scripts/'two words.sh'"), vec!["scripts/two words.sh"]),
            (json!("scripts/two\\ words.sh"), vec!["scripts/two words.sh"]),
            (json!("sh -c 'exec scripts/lint.sh'"), vec![lint]),
            (json!("echo \"$(scripts/lint.sh)\" `x`"), vec![lint, "x"]),
            (json!("scripts/lint.sh >> x 2>conf.toml"), vec![lint]),
            (json!("echo > x; sh x"), vec!["x"]),
            (json!("tool --config=conf.toml"), vec!["conf.toml"]),
            (json!(["sh", "scripts/lint.sh", "scripts", "scripts/sub", "none"]), vec![lint]),
            (json!([absolute]), vec!["x"]),
            (json!(["scripts/two words.sh"]), vec!["scripts/two words.sh"]),
            (json!(["sh", "-c", "./scripts/lint.sh --fix; . conf.toml > x"]), vec!["conf.toml", lint]),
            (json!("cargo check --quiet || exit 2"), vec![]),
            (json!("cat /etc/hostname ../x"), vec![]),
            (json!(7), vec![]),
        ] {
            let found: Vec<PathBuf> = named_by(&command, &folder).unwrap().into_keys().collect();
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{command}");
        }
    }

    #[test]
    fn a_file_that_becomes_a_link_or_another_one_is_told_apart() {
        let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = place.path().canonicalize().unwrap();
        let script = folder.join("a.sh");
        let now = || named_by(&json!("sh a.sh"), &folder).unwrap();
        std::fs::write(&script, "one").unwrap();
        let first = now();
        std::fs::write(&script, "two").unwrap();
        assert_ne!(now(), first);
        // The same text by a link: what it leads to may change without a change in the project.
        std::fs::write(elsewhere.path().join("a.sh"), "one").unwrap();
        std::fs::remove_file(&script).unwrap();
        std::os::unix::fs::symlink(elsewhere.path().join("a.sh"), &script).unwrap();
        assert_ne!(now(), first);
        std::fs::remove_file(&script).unwrap();
        assert_ne!(now(), first);
        std::fs::write(&script, "one").unwrap();
        assert_eq!(now(), first);
    }
}
