//! What would run, for a person who decides about it.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::changed_files;
use super::items::Item;
use super::records::AcceptedItem;
use crate::hooks::disclosed;
use crate::show::{clean, name};

/// The most characters of one item that are shown: a flood must not push the rest off the screen.
const LONGEST: usize = 4000;

/// A definition: of a table one line for each key.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let line = |(key, value): (&String, &Value)| match key.as_str() {
                // A command is shown as it is: what looks like the query of an address may be run by the shell.
                "run" | "command" => format!("{key} = {value}"),
                _ => format!("{key} = {}", disclosed(key, value)),
            };
            fields.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        other => disclosed("", other).to_string(),
    }
}

/// The items, in lines, and of each whether it was among those accepted before, or which of its files changed since.
pub(super) fn items(items: &[Item], known: &[AcceptedItem], folder: &Path) -> String {
    let mut text = String::new();
    for item in items {
        let place = item.place.as_ref().map(|place| format!("  ({place})")).unwrap_or_default();
        let before = known.iter().any(|known| known.digest == item.digest);
        let changed = changed_files(known, item, folder);
        let note = match (before, changed.is_empty()) {
            (true, _) => ", as accepted before".to_owned(),
            (false, true) => String::new(),
            (false, false) => format!(", {} changed since it was accepted", listed(&changed)),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}{place}{note}", name(&item.title));
        for line in cut(&item.shown.join("\n"), item).lines() {
            let _ = writeln!(text, "      {line}");
        }
    }
    text
}

/// Whole up to a bound, and beyond it with a note that says so.
fn cut(text: &str, item: &Item) -> String {
    let text = clean(text);
    match text.char_indices().nth(LONGEST) {
        None => text,
        Some((end, _)) => {
            let left = text[end..].chars().count();
            let place = item.place.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{}\n… and {left} more characters: read {place} before you accept this", &text[..end])
        }
    }
}

/// The names of the items on one line.
pub(super) fn titles(items: &[Item]) -> String {
    const MOST: usize = 4;
    let mut names: Vec<String> = items.iter().take(MOST).map(|item| name(&item.title)).collect();
    if items.len() > MOST {
        names.push(format!("{} more", items.len() - MOST));
    }
    names.join(", ")
}

/// Paths, one behind the other.
fn listed(paths: &[&Path]) -> String {
    paths.iter().map(|path| name(&path.display().to_string())).collect::<Vec<_>>().join(", ")
}

/// What an acceptance covers and what it does not.
pub(super) fn scope_of(items: &[Item], folder: &Path) -> String {
    let has_files = items.iter().any(|item| !item.files.is_empty());
    let runs = items.iter().any(|item| item.command.is_some());
    let files = match (has_files, runs) {
        (true, _) => {
            "The contents of the files named above are part of it: read them. What they load in turn is not, nor what other \
             programs read (a Makefile, a build script).\n"
        }
        (false, true) => "What its programs read in the project (a Makefile, a build script) is not part of it.\n",
        (false, false) => "",
    };
    format!("{files}It would be accepted for {}, until it changes.\n", folder.display())
}
