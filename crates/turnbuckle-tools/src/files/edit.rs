//! `edit_file`, and how to find out after a crash whether an edit happened.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::message::ToolCall;
use turnbuckle::tool::{Effect, Output, Reconcile, Spec};
use turnbuckle::{BoxError, BoxFuture, Turn};

use super::Done;
use super::blocking::{CancelFlag, run_blocking};
use super::folder::Folder;
use super::refusal::{Refusal, shown};

/// The whole file is held in memory, twice.
const MOST: u64 = 8 * 1024 * 1024;

#[derive(Deserialize)]
struct Arguments {
    path: String,
    old: String,
    new: String,
}

pub(super) fn spec(folder: &Arc<Folder>) -> Spec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "description": "The file, relative to the project's folder." },
            "old": {
                "type": "string", "minLength": 1,
                "description": "The text to replace, exactly as the file has it. It must occur exactly once: give enough \
                                lines around the place.",
            },
            "new": { "type": "string", "description": "What stands there afterwards; empty to remove `old`." },
        },
        "required": ["path", "old", "new"],
        "additionalProperties": false,
    });
    let description = "Replaces one piece of a text file. `old` must occur exactly once; nothing is changed otherwise.";
    // Not idempotent: where `new` holds `old`, a second run would edit again.
    Spec::server("edit_file", description, parameters, Effect::Reconcile(Arc::new(Edits(folder.clone()))))
}

pub(super) fn run(folder: &Folder, arguments: Value, cancel: &CancelFlag) -> Result<Done, Refusal> {
    let Arguments { path, old, new } = serde_json::from_value(arguments)?;
    let path = folder.still_normal(&path)?;
    if old.is_empty() {
        return Err(Refusal::NothingToReplace);
    }
    if old == new {
        return Err(Refusal::NoChange);
    }
    let _changing = folder.changing();
    let text = text(folder, &path)?;
    let at = only(&text, &old, &path)?;
    let edited = [&text[..at], &new, &text[at + old.len()..]].concat();
    folder.replace(&path, edited.as_bytes(), cancel)?;
    let line = line(&text, at);
    let output = Output::ok(format!("edited {} at line {line}", shown(&path)));
    Ok(Done { output, touched: Some(path.to_string_lossy().into_owned()) })
}

fn text(folder: &Folder, path: &Path) -> Result<String, Refusal> {
    let (file, metadata) = folder.read(path)?;
    let too_large = |size| Refusal::TooLarge { path: shown(path), size, limit: MOST };
    if metadata.len() > MOST {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|source| Refusal::of("read", path, source))?;
    if bytes.len() as u64 > MOST {
        return Err(too_large(bytes.len() as u64));
    }
    String::from_utf8(bytes).map_err(|_| Refusal::NotText { path: shown(path) })
}

/// Where `old` is, if it is there exactly once; occurrences that overlap count, too.
fn only(text: &str, old: &str, path: &Path) -> Result<usize, Refusal> {
    match (text.find(old), text.rfind(old)) {
        (Some(first), Some(last)) if first == last => Ok(first),
        (Some(first), Some(last)) => {
            Err(Refusal::NotUnique { path: shown(path), first: line(text, first), last: line(text, last) })
        }
        _ => {
            let line_ends = text.contains("\r\n") && !old.contains("\r\n") && old.contains('\n');
            let hint = if line_ends { "; the lines of this file end in \\r\\n" } else { "" };
            Err(Refusal::NotFound { path: shown(path), hint })
        }
    }
}

fn line(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Asks the files.
struct Edits(Arc<Folder>);

impl Reconcile for Edits {
    fn reconcile<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Option<Output>, BoxError>> {
        Box::pin(async move {
            let (folder, arguments) = (self.0.clone(), (*call.arguments).clone());
            let Some(done) = run_blocking(move |_| happened(&folder, arguments)).await? else { return Ok(None) };
            if let Some(path) = done.touched {
                turn.touch(path);
            }
            Ok(Some(done.output))
        })
    }
}

/// `None`: it did not, or the file is no longer what it was; then the edit runs, and says what is wrong.
fn happened(folder: &Folder, arguments: Value) -> Option<Done> {
    let Arguments { path, old, new } = serde_json::from_value(arguments).ok()?;
    let path = folder.still_normal(&path).ok()?;
    let text = text(folder, &path).ok()?;
    let evidence = evidence(&text, &old, &new)?;
    let output = Output::ok(format!("edited {} before an interruption: {evidence}", shown(&path)));
    Some(Done { output, touched: Some(path.to_string_lossy().into_owned()) })
}

/// What in the text says that the edit happened.
fn evidence(text: &str, old: &str, new: &str) -> Option<&'static str> {
    match (text.contains(old), text.contains(new)) {
        (false, true) if new.is_empty() => Some("`old` is not there"),
        (false, true) => Some("`old` is gone and `new` is there"),
        // An insertion beside `old`. To insert it a second time is worse than to ask for a look.
        (true, true) if new.contains(old) => Some("`new` is there, which holds `old`; read the file to be sure"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_happened_if_old_is_gone_and_new_is_there() {
        assert!(evidence("a new c", "old", "new").is_some());
        assert!(evidence("a old c", "old", "new").is_none());
        assert!(evidence("a c", "old", "new").is_none());
    }

    #[test]
    fn an_insertion_is_never_made_twice() {
        assert!(evidence("use a;\nuse b;\n", "use a;\n", "use a;\nuse b;\n").is_some());
        assert!(evidence("use a;\n", "use a;\n", "use a;\nuse b;\n").is_none());
    }

    #[test]
    fn a_removal_happened_if_old_is_gone() {
        assert!(evidence("a c", "b", "").is_some());
        assert!(evidence("a b c", "b", "").is_none());
    }

    #[test]
    fn occurrences_that_overlap_are_not_one() {
        assert!(matches!(only("aaa", "aa", Path::new("f")), Err(Refusal::NotUnique { .. })));
        assert_eq!(only("baa", "aa", Path::new("f")).ok(), Some(1));
    }
}
