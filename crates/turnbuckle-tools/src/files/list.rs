//! `list_files`.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::tool::{Effect, Output, Spec};

use super::Done;
use super::blocking::CancelFlag;
use super::folder::Folder;
use super::ignored::Chosen;
use super::refusal::{Refusal, shown};
use super::walk::{Kind, Walk};

const MOST: usize = 1000;

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    path: String,
    glob: Option<String>,
}

pub(super) fn spec() -> Spec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "The folder to list, relative to the project's folder. Default: the project's folder.",
            },
            "glob": glob(),
        },
        "additionalProperties": false,
    });
    let description = "Lists the files below a folder, also in its subfolders, sorted; a folder ends in `/`. At most 1000 \
                       entries, those nearest to the top. What `.gitignore` names is left out; `.git`, `node_modules` and \
                       caches are named, not opened.";
    Spec::server("list_files", description, parameters, Effect::Pure)
}

pub(super) fn run(folder: &Folder, arguments: Value, cancel: &CancelFlag) -> Result<Done, Refusal> {
    let Arguments { path, glob } = serde_json::from_value(arguments)?;
    let chosen = Chosen::by(glob.as_deref())?;
    let mut walk = Walk::from(folder, &start(folder, &path)?, &chosen, cancel)?;
    let mut found = Vec::new();
    let mut more = false;
    while let Some(entry) = walk.next()? {
        if found.len() == MOST {
            more = true;
            break;
        }
        found.push(entry);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let mut lines: Vec<String> = found.iter().map(|entry| shown(&entry.path) + mark(entry.kind)).collect();
    if lines.is_empty() {
        lines.push(if glob.is_some() { "[no file matches]" } else { "[the folder is empty]" }.to_owned());
    }
    if more {
        lines
            .push(format!("[cut at {MOST} entries, those nearest to the top; list a subfolder to see the rest of it]"));
    }
    lines.extend(notes(&walk));
    Ok(Output::ok(lines.join("\n")).into())
}

/// The schema of the argument `glob`.
pub(super) fn glob() -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": "Which files, as in .gitignore: `*.rs` anywhere, `src/**/*.rs` from the project's folder; `!*.md` leaves \
                        files out.",
    })
}

/// Where a walk begins. Without a path: at the folder itself.
pub(super) fn start(folder: &Folder, path: &str) -> Result<PathBuf, Refusal> {
    if path.is_empty() { Ok(PathBuf::new()) } else { folder.still_normal(path) }
}

fn mark(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "",
        Kind::Folder => "/",
        Kind::Link => " (symbolic link)",
        Kind::Special => " (not a regular file)",
    }
}

/// What a walk left out.
pub(super) fn notes(walk: &Walk<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let [first, more @ ..] = &*walk.closed {
        let others = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        notes.push(format!("[not opened: {}/{others}; give it as `path` to look inside]", shown(first)));
    }
    if let Some((first, count)) = &walk.ignored {
        let others = if *count == 1 { String::new() } else { format!(" and {} more", count - 1) };
        let name = shown(&first.path) + mark(first.kind);
        notes.push(format!("[left out by .gitignore: {name}{others}; give it as `path` to look inside]"));
    }
    if let Some(own) = &walk.own {
        notes.push(format!("[not opened: {}/, which is closed to tools]", shown(own)));
    }
    if walk.unread > 0 {
        notes.push(format!("[{} folders could not be read]", walk.unread));
    }
    notes
}
