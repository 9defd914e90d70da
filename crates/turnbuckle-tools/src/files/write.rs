//! `write_file`.

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::tool::{Effect, Spec};

use super::change::{Before, Change, Plan};
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

pub(super) fn plan(folder: &Folder, arguments: Value) -> Result<Plan, Refusal> {
    let Arguments { path, content } = serde_json::from_value(arguments)?;
    let path = folder.still_normal(&path)?;
    let before = Before::of(folder, &path)?;
    let word = if matches!(before, Before::Missing) { "created" } else { "replaced" };
    let said = format!("{word} {} ({} bytes)", shown(&path), content.len());
    Ok(Plan { changes: vec![Change { path, before, after: Some(content), to: None }], said })
}
