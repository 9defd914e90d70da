//! `apply_patch`: several changes of several files, all or none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::tool::{Normalize, Output, Spec};
use turnbuckle::{BoxError, BoxFuture};

use super::blocking::run_blocking;
use super::change::{Before, Change, MOST, Plan};
use super::folder::Folder;
use super::patch::{Action, FilePatch, Patch, applied};
use super::refusal::{Refusal, shown};
use super::{AskFiles, Done};

#[derive(Deserialize)]
struct Arguments {
    patch: String,
}

pub(super) fn spec(folder: &Arc<Folder>) -> Spec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "patch": {
                "type": "string", "minLength": 1,
                "description": "In the unified format (`--- a/FILE`, `+++ b/FILE`, `@@ -1,3 +1,4 @@`), or between `*** Begin \
                                Patch` and `*** End Patch` with `*** Add File: `, `*** Update File: ` (and `*** Move to: `) and \
                                `*** Delete File: `. Paths are relative to the project's folder.",
            },
        },
        "required": ["patch"],
        "additionalProperties": false,
    });
    let description = "Adds, changes, renames and deletes text files by a patch. All its changes are made, or none. Context \
                       and removed lines must be exactly as the files have them. The result has the diff.";
    // A patch can be made twice if it adds lines.
    Spec::server("apply_patch", description, parameters, AskFiles::effect(folder, happened))
}

pub(super) fn plan(folder: &Folder, arguments: Value) -> Result<Plan, Refusal> {
    let Arguments { patch } = serde_json::from_value(arguments)?;
    let patch = Patch::parse(&patch)?;
    let changes = patch.files.iter().map(|file| change(folder, file)).collect::<Result<Vec<_>, _>>()?;
    let mut seen = BTreeSet::new();
    let paths = changes.iter().flat_map(|change| [Some(&change.path), change.to.as_ref()]).flatten();
    if let Some(twice) = paths.into_iter().find(|path| !seen.insert(*path)) {
        return Err(Refusal::Twice { path: shown(twice) });
    }
    let names: Vec<String> = changes.iter().map(said).collect();
    Ok(Plan { said: names.join("\n"), changes })
}

fn said(change: &Change) -> String {
    let name = shown(&change.path);
    match (&change.before, &change.after, &change.to) {
        (_, _, Some(to)) => format!("renamed {name} to {}", shown(to)),
        (Before::Missing, ..) => format!("created {name}"),
        (_, None, _) => format!("deleted {name}"),
        _ => format!("changed {name}"),
    }
}

/// What the patch makes of one file.
fn change(folder: &Folder, file: &FilePatch) -> Result<Change, Refusal> {
    let path = folder.still_normal(&file.path)?;
    let to = file.to.as_deref().map(|to| folder.still_normal(to)).transpose()?;
    let name = || shown(&path);
    let before = Before::of(folder, &path)?;
    let old = match (file.action, &before) {
        (Action::Add, Before::Missing) => "",
        (Action::Add, _) => return Err(Refusal::Exists { path: name() }),
        (_, Before::Text(text)) => text,
        (_, Before::Missing) => return Err(Refusal::Missing { path: name() }),
        (_, Before::Other) => return Err(Refusal::NotText { path: name() }),
    };
    if let Some(to) = &to
        && !matches!(Before::of(folder, to)?, Before::Missing)
    {
        return Err(Refusal::Exists { path: shown(to) });
    }
    let made = applied(old, &file.hunks).map_err(|source| Refusal::Hunk { path: name(), source })?;
    if made.len() as u64 > MOST {
        return Err(Refusal::TooLarge { path: name(), size: made.len() as u64, limit: MOST });
    }
    let after = match file.action {
        // The lines that a patch deletes must be all there are.
        Action::Delete if !file.hunks.is_empty() && !made.is_empty() => return Err(Refusal::NotAll { path: name() }),
        Action::Delete => None,
        Action::Update if made == *old && to.is_none() => return Err(Refusal::NoChange),
        Action::Add | Action::Update => Some(made),
    };
    Ok(Change { path, before, after, to })
}

/// Brings the paths in a patch to their normal form, and the patch with them.
pub(super) struct NormalPatch(pub(super) Arc<Folder>);

impl Normalize for NormalPatch {
    fn normalize<'a>(&'a self, arguments: &'a Value) -> BoxFuture<'a, Result<Option<Value>, BoxError>> {
        Box::pin(async move {
            let Some(given) = arguments.get("patch").and_then(Value::as_str).map(str::to_owned) else {
                return Ok(None);
            };
            let (folder, text) = (self.0.clone(), given.clone());
            let normal = run_blocking(move |_| normal(&folder, &text)).await?.map_err(|refusal| refusal.to_string())?;
            if normal == given {
                return Ok(None);
            }
            let mut arguments = arguments.clone();
            if let Some(patch) = arguments.get_mut("patch") {
                *patch = normal.into();
            }
            Ok(Some(arguments))
        })
    }
}

fn normal(folder: &Folder, text: &str) -> Result<String, Refusal> {
    let mut patch = Patch::parse(text)?;
    for file in &mut patch.files {
        file.path = normal_name(folder, &file.path)?;
        if let Some(to) = &mut file.to {
            *to = normal_name(folder, to)?;
        }
    }
    Ok(patch.to_string())
}

/// A name that stands in a line of a patch: what would read as something else there cannot be used.
fn normal_name(folder: &Folder, given: &str) -> Result<String, Refusal> {
    let path: PathBuf = folder.normal(given)?;
    let not_unicode = || Refusal::NotUnicode { path: given.to_owned() };
    let name = path.to_str().ok_or_else(not_unicode)?;
    if name.is_empty() {
        return Err(Refusal::IsFolder { path: shown(Path::new("")) });
    }
    let misread = name.contains(char::is_control) || name.trim() != name || name.starts_with('"');
    if misread { Err(Refusal::NotInPatch { path: shown(&path) }) } else { Ok(name.to_owned()) }
}

/// `None`: it did not, and can run; or the files are no longer what they were, and running says what is wrong.
fn happened(folder: &Folder, arguments: Value) -> Option<Done> {
    let Arguments { patch } = serde_json::from_value(arguments).ok()?;
    let patch = Patch::parse(&patch).ok()?;
    let (mut done, mut open, mut unclear) = (Vec::new(), 0, 0);
    for file in &patch.files {
        match (change(folder, file), change(folder, &file.inverse())) {
            (Err(_), Ok(back)) => done.extend([Some(back.path), back.to].into_iter().flatten()),
            (Ok(_), Err(_)) => open += 1,
            _ => unclear += 1,
        }
    }
    if done.is_empty() && unclear == 0 || done.is_empty() && open > 0 {
        return None;
    }
    let names: Vec<String> = done.iter().map(|path| shown(path)).collect();
    let output = match (open, unclear) {
        (0, 0) => Output::ok(format!("the patch was applied before an interruption: {}", names.join(", "))),
        _ if done.is_empty() => {
            Output::error("it is not known whether the patch was applied before an interruption; read the files")
        }
        _ => Output::error(format!(
            "the patch was interrupted: {} were changed, and others were not; read the files",
            names.join(", ")
        )),
    };
    Some(Done { output, touched: done })
}
