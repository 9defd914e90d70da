//! `edit_file`, and how to find out after a crash whether an edit happened.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::tool::{Output, Spec};

use super::change::{Before, Change, MOST, Plan, text};
use super::folder::Folder;
use super::refusal::{Refusal, shown};
use super::{AskFiles, Done};

/// Of one call.
const MOST_EDITS: usize = 100;

/// One edit stands beside `path`, several in `edits`.
#[derive(Deserialize)]
struct Arguments {
    path: String,
    old: Option<String>,
    new: Option<String>,
    #[serde(default)]
    all: bool,
    edits: Option<Vec<Edit>>,
}

#[derive(Deserialize)]
struct Edit {
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

impl Arguments {
    fn into_edits(self) -> Result<(String, Vec<Edit>), Refusal> {
        let edits = match (self.old, self.new, self.edits) {
            (Some(old), Some(new), None) => vec![Edit { old, new, all: self.all }],
            (None, None, Some(edits)) if !self.all => edits,
            _ => return Err(Refusal::OneEditOrSeveral),
        };
        for edit in &edits {
            if edit.old.is_empty() {
                return Err(Refusal::NothingToReplace);
            }
            if edit.old == edit.new {
                return Err(Refusal::NoChange);
            }
        }
        Ok((self.path, edits))
    }
}

pub(super) fn spec(folder: &Arc<Folder>) -> Spec {
    let old = json!({
        "type": "string", "minLength": 1,
        "description": "The text to replace, exactly as the file has it. It must occur exactly once unless `all` is true: \
                        give enough lines around the place.",
    });
    let new = json!({ "type": "string", "description": "What stands there afterwards; empty to remove `old`." });
    let all = json!({ "type": "boolean", "description": "Replace every occurrence. Default: false." });
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "description": "The file, relative to the project's folder." },
            "old": old, "new": new, "all": all,
            "edits": {
                "type": "array", "minItems": 1, "maxItems": MOST_EDITS,
                "description": "Several edits of this file, instead of `old` and `new`. Each one is made in the text that \
                                those before it left. All are made, or none.",
                "items": {
                    "type": "object",
                    "properties": { "old": old, "new": new, "all": all },
                    "required": ["old", "new"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let description = "Replaces pieces of a text file: give `old` and `new`, or several of them in `edits`. Each `old` must \
                       occur exactly once, unless `all` is true; nothing is changed otherwise. The result has the diff.";
    // Not idempotent: where `new` holds `old`, a second run would edit again.
    Spec::server("edit_file", description, parameters, AskFiles::effect(folder, happened))
}

pub(super) fn plan(folder: &Folder, arguments: Value) -> Result<Plan, Refusal> {
    let (path, edits) = serde_json::from_value::<Arguments>(arguments)?.into_edits()?;
    let path = folder.still_normal(&path)?;
    let text = text(folder, &path)?;
    let Edited { text: edited, line, places } = edited(&text, &edits, &path)?;
    let said = match places {
        1 => format!("edited {} at line {line}", shown(&path)),
        places => format!("edited {} in {places} places", shown(&path)),
    };
    let change = Change { path, before: Before::Text(text), after: Some(edited), to: None };
    Ok(Plan { changes: vec![change], said })
}

/// What the edits made of a text.
struct Edited {
    text: String,
    /// Where the first change is.
    line: usize,
    /// How many pieces were replaced.
    places: usize,
}

fn edited(text: &str, edits: &[Edit], path: &Path) -> Result<Edited, Refusal> {
    let crlf = is_crlf(text);
    let mut now = Edited { text: text.to_owned(), line: 0, places: 0 };
    for (index, edit) in edits.iter().enumerate() {
        let made = replaced(&now.text, edit, crlf, path);
        let (made, at, count) = made.map_err(|refusal| match edits.len() {
            1 => refusal,
            of => Refusal::Edit { number: index + 1, of, refusal: Box::new(refusal) },
        })?;
        if index == 0 {
            now.line = line(&now.text, at);
        }
        (now.text, now.places) = (made, now.places + count);
    }
    if now.text == text {
        return Err(Refusal::NoChange);
    }
    Ok(now)
}

/// One edit: the new text, where the first change is, and how many there are. In a file whose lines all end in `\r\n`, an edit
/// that is written with `\n` is made with `\r\n`, so that the file's line ends stay as they are.
fn replaced(text: &str, edit: &Edit, crlf: bool, path: &Path) -> Result<(String, usize, usize), Refusal> {
    let (old, new) = (with_line_ends(&edit.old, crlf), with_line_ends(&edit.new, crlf));
    let (at, count) = match edit.all {
        true => (text.find(&old).ok_or_else(|| not_found(text, &old, path))?, text.matches(&old).count()),
        false => (only(text, &old, path)?, 1),
    };
    // Before it is made: a long text in a million places would not fit in memory.
    let size = (text.len() - count * old.len()) as u64 + (count as u64).saturating_mul(new.len() as u64);
    if size > MOST {
        return Err(Refusal::TooLarge { path: shown(path), size, limit: MOST });
    }
    let made = if edit.all { text.replace(&old, &new) } else { text.replacen(&old, &new, 1) };
    Ok((made, at, count))
}

/// An edit written with `\n`, with the line ends of a file whose lines all end in `\r\n`.
fn with_line_ends(part: &str, crlf: bool) -> String {
    if crlf && !part.contains('\r') { part.replace('\n', "\r\n") } else { part.to_owned() }
}

/// Whether every line ends in `\r\n`.
pub(super) fn is_crlf(text: &str) -> bool {
    let mut ends = text.match_indices('\n').peekable();
    ends.peek().is_some() && ends.all(|(at, _)| text[..at].ends_with('\r'))
}

/// Where `old` is, if it is there exactly once; occurrences that overlap count, too.
fn only(text: &str, old: &str, path: &Path) -> Result<usize, Refusal> {
    match (text.find(old), text.rfind(old)) {
        (Some(first), Some(last)) if first == last => Ok(first),
        (Some(first), Some(last)) => {
            Err(Refusal::NotUnique { path: shown(path), first: line(text, first), last: line(text, last) })
        }
        _ => Err(not_found(text, old, path)),
    }
}

fn not_found(text: &str, old: &str, path: &Path) -> Refusal {
    let line_ends = text.contains("\r\n") && !old.contains("\r\n") && old.contains('\n');
    let hint = if line_ends { "; some lines of this file end in \\r\\n" } else { "" };
    Refusal::NotFound { path: shown(path), hint }
}

fn line(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// `None`: it did not, or the file is no longer what it was; then the edit runs, and says what is wrong.
fn happened(folder: &Folder, arguments: Value) -> Option<Done> {
    let (path, edits) = serde_json::from_value::<Arguments>(arguments).ok()?.into_edits().ok()?;
    let path = folder.still_normal(&path).ok()?;
    let text = text(folder, &path).ok()?;
    let name = shown(&path);
    if let Some(evidence) = evidence_of_all(&text, &edits) {
        let output = Output::ok(format!("edited {name} before an interruption: {evidence}"));
        return Some(Done { output, touched: vec![path] });
    }
    // The edits can be made, and they can be taken back: they exchange texts, for instance.
    is_ambiguous(&text, &edits, &path).then(|| {
        let text = format!("it is not known whether {name} was edited before an interruption; read the file");
        Done { output: Output::error(text), touched: vec![path] }
    })
}

/// What in the text says that the edits happened. A file is replaced in one step, so all of them happened or none.
fn evidence_of_all(text: &str, edits: &[Edit]) -> Option<&'static str> {
    let (crlf, mut found) = (is_crlf(text), None);
    for edit in edits {
        let said = evidence(text, &with_line_ends(&edit.old, crlf), &with_line_ends(&edit.new, crlf))?;
        found = found.or(Some(said));
    }
    found
}

fn is_ambiguous(text: &str, edits: &[Edit], path: &Path) -> bool {
    let inverse = |edit: &Edit| Edit { old: edit.new.clone(), new: edit.old.clone(), all: edit.all };
    let back: Vec<Edit> = edits.iter().rev().map(inverse).collect();
    let can_be_made = edited(text, edits, path).is_ok();
    can_be_made
        && back.iter().all(|edit| !edit.old.is_empty())
        && edited(text, &back, path)
            .is_ok_and(|before| edited(&before.text, edits, path).is_ok_and(|after| after.text == text))
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

    fn edit(old: &str, new: &str) -> Edit {
        Edit { old: old.to_owned(), new: new.to_owned(), all: false }
    }

    #[test]
    fn edits_that_could_be_made_twice_are_not() {
        let swap = [edit("a", "x"), edit("b", "a"), edit("x", "b")];
        assert!(is_ambiguous("b a", &swap, Path::new("f")));
        assert!(!is_ambiguous("a c", &[edit("a", "x")], Path::new("f")));
        assert!(!is_ambiguous("a b", &[edit("a", "x"), edit("b", "y")], Path::new("f")));
    }
}
