//! The demo's stop hook: lets no turn end while a file that it touched does not compile.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use turnbuckle::BoxError;
use turnbuckle::hook::{Hook, OnStop, OnStopContext};

/// What checks the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checker {
    Python,
    /// For machines without Python.
    Brackets,
}

impl Checker {
    /// Python, if it is there.
    pub(super) async fn find() -> Self {
        match python(Path::new("."), &["-c", ""]).await {
            Ok(output) if output.status.success() => Self::Python,
            _ => Self::Brackets,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Brackets => "a small bracket check (there is no python3 here)",
        }
    }

    /// What is wrong with the file.
    async fn complaint(self, folder: &Path, file: &str) -> Result<Option<String>, BoxError> {
        match self {
            Self::Python => {
                let output = python(folder, &["-m", "py_compile", file]).await?;
                let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
                Ok((!output.status.success()).then_some(said))
            }
            Self::Brackets => Ok(unbalanced(&std::fs::read_to_string(folder.join(file))?)),
        }
    }
}

async fn python(folder: &Path, arguments: &[&str]) -> std::io::Result<Output> {
    let mut command = Command::new("python3");
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    tokio::time::timeout(Duration::from_secs(10), command.output()).await?
}

/// Judges what the turn's tools touched.
pub(super) struct Syntax {
    folder: PathBuf,
    checker: Checker,
    /// So that one sees it at work.
    pause: Duration,
}

impl Syntax {
    pub(super) fn new(folder: &Path, checker: Checker, pause: Duration) -> Self {
        Self { folder: folder.to_path_buf(), checker, pause }
    }
}

impl Hook for Syntax {
    async fn on_stop(&self, turn: &OnStopContext) -> Result<OnStop, BoxError> {
        for file in turn.touched() {
            turn.progress(format!("checking {file} with {}…", self.checker.name()));
            tokio::time::sleep(self.pause).await;
            if let Some(complaint) = self.checker.complaint(&self.folder, &file).await? {
                return Ok(OnStop::Refuse(format!("{file} does not compile:\n{complaint}").into()));
            }
        }
        Ok(OnStop::Accept)
    }
}

/// The first bracket that has no partner. Strings and comments are passed over.
fn unbalanced(text: &str) -> Option<String> {
    let mut open: Vec<(char, usize)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut quote = None;
        for letter in line.chars() {
            match (quote, letter) {
                (Some(end), letter) if letter == end => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(letter),
                (None, '#') => break,
                (None, '(' | '[' | '{') => open.push((letter, number + 1)),
                (None, ')' | ']' | '}') => match open.pop() {
                    Some((opening, _)) if closes(opening, letter) => {}
                    _ => return Some(format!("line {}: '{letter}' closes nothing", number + 1)),
                },
                (None, _) => {}
            }
        }
    }
    open.pop().map(|(letter, line)| format!("line {line}: '{letter}' was never closed"))
}

fn closes(opening: char, closing: char) -> bool {
    matches!((opening, closing), ('(', ')') | ('[', ']') | ('{', '}'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle::models::Demo;

    #[test]
    fn brackets_need_partners() {
        assert_eq!(unbalanced("a(b[c]{})\n# (\n'('"), None);
        assert_eq!(unbalanced("a\nreturn sum(prices\n").as_deref(), Some("line 2: '(' was never closed"));
        assert_eq!(unbalanced("a]").as_deref(), Some("line 1: ']' closes nothing"));
        assert_eq!(unbalanced(Demo::story_end()), None);
    }

    #[tokio::test]
    async fn both_checkers_agree_on_the_story() {
        let folder = tempfile::tempdir().unwrap();
        for (text, fine) in [(Demo::story_end(), true), ("def f(:\n", false)] {
            std::fs::write(folder.path().join("a.py"), text).unwrap();
            for checker in [Checker::find().await, Checker::Brackets] {
                let complaint = checker.complaint(folder.path(), "a.py").await.unwrap();
                assert_eq!(complaint.is_none(), fine, "{checker:?}: {complaint:?}");
            }
        }
    }
}
