//! `write_file`.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::tool::{Effect, Output, Spec};

use super::Done;
use super::blocking::CancelFlag;
use super::diff::shown_diff;
use super::edit::text;
use super::folder::Folder;
use super::refusal::{Refusal, shown};

#[derive(Deserialize)]
struct Arguments {
    path: String,
    content: String,
}

pub(super) fn spec() -> Spec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "description": "The file, relative to the project's folder." },
            "content": { "type": "string", "description": "All that the file is to hold." },
        },
        "required": ["path", "content"],
        "additionalProperties": false,
    });
    let description = "Writes a text file: a new one, or in place of all that an old one holds. Folders on the way are \
                       made. To change a part of a file use edit_file.";
    // The same content in the same place: done twice is done once.
    Spec::server("write_file", description, parameters, Effect::Idempotent)
}

pub(super) fn run(folder: &Folder, arguments: Value, cancel: &CancelFlag) -> Result<Done, Refusal> {
    let Arguments { path, content } = serde_json::from_value(arguments)?;
    let path = folder.still_normal(&path)?;
    let _changing = folder.changing();
    let old = before(folder, &path);
    let created = folder.replace(&path, content.as_bytes(), cancel)?;
    let word = if created { "created" } else { "replaced" };
    let said = format!("{word} {} ({} bytes)", shown(&path), content.len());
    let output = Output::ok(match old {
        Some(old) if !created => format!("{said}\n{}", shown_diff(&shown(&path), Some(&old), Some(&content))),
        // The model has just written all of it.
        _ => said,
    });
    Ok(Done { output, touched: vec![path] })
}

/// What the file holds, if it is text of a size that can be compared.
fn before(folder: &Folder, path: &Path) -> Option<String> {
    text(folder, path).ok()
}
