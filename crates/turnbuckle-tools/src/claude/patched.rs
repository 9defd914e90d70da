//! A call of `apply_patch` as scripts know it: a `Write` or an `Edit` of each file of the patch. A gate for `Edit|Write` reads
//! `file_path`, and would find nothing in a patch.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::answer::{Answer, Permission};
use super::event::ClaudeEvent;
use super::fire::Unreadable;
use super::handler::ClaudeHandler;
use super::merge::Given;
use crate::files::{FileChange, PatchedFile, files_of_patch};

/// The tool whose calls change several files.
pub(super) const APPLY_PATCH: &str = "apply_patch";

/// The names under which handlers are for a file of a patch, whatever the patch does to it.
const NAMES: [&str; 3] = ["Edit", "Write", "MultiEdit"];

/// The most runs of handlers for the files of one patch: each is a process, and all run side by side.
const MOST_RUNS: usize = 256;

/// One file of a patch in the protocol's words.
pub(super) struct FileView {
    pub(super) name: &'static str,
    pub(super) input: Value,
}

/// The files of a call. Empty for every other tool, and for what is no patch: then the tool refuses it.
pub(super) fn files_of(tool: &str, input: &Value, project: &Path) -> Vec<FileView> {
    if tool != APPLY_PATCH {
        return Vec::new();
    }
    let files = input.get("patch").and_then(Value::as_str).and_then(files_of_patch).unwrap_or_default();
    let view = |PatchedFile { path, change }: PatchedFile| {
        let path = project.join(path);
        match change {
            FileChange::Written(content) => {
                FileView { name: "Write", input: json!({ "file_path": path, "content": content }) }
            }
            FileChange::Edited { old, new } => {
                let input = json!({ "file_path": path, "old_string": old, "new_string": new, "replace_all": false });
                FileView { name: "Edit", input }
            }
        }
    };
    files.into_iter().map(view).collect()
}

impl FileView {
    /// The names by which matchers and rules know it, its own first.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(NAMES.into_iter().filter(|name| *name != self.name))
    }

    /// The event of the whole call as one of this file.
    pub(super) fn event(&self, mut whole: Map<String, Value>) -> Map<String, Value> {
        whole.insert("tool_name".to_owned(), json!(self.name));
        if let Some(response) = whole.get_mut("tool_response") {
            *response = json!({ "filePath": self.input["file_path"], "success": true });
        }
        whole.insert("tool_input".to_owned(), self.input.clone());
        whole
    }

    /// Takes out of an answer what cannot be done to one file of a patch. A change that was asked for and is not made must not
    /// let the call run as it was.
    pub(super) fn limit(&self, event: ClaudeEvent, answer: &mut Answer) {
        let path = self.input["file_path"].as_str().unwrap_or_default();
        if answer.updated_input.take().is_some() {
            let why =
                format!("`updatedInput` cannot change one file of a patch ({path}); make this change with edit_file");
            answer.warnings.push(why.clone());
            if event.can_block() && answer.block.is_none() {
                answer.block = Some(Some(why));
            }
        }
        if answer.updated_output.take().is_some() {
            answer.warnings.push(format!("`updatedToolOutput` for one file of a patch ({path}) is not used"));
        }
    }
}

/// A handler that runs, and the file that it runs for: `None` is the call as it is.
pub(super) type Match<'a> = (&'a ClaudeHandler, Option<usize>);

/// What is left of the handlers for the files of a patch if there are too many of them, and the answer that then stands for them.
pub(super) fn within_limit<'a>(matching: Vec<Match<'a>>) -> (Vec<Match<'a>>, Option<Given>) {
    let (of_files, of_calls): (Vec<_>, Vec<_>) = matching.iter().copied().partition(|(_, file)| file.is_some());
    let Some((first, _)) = of_files.first().filter(|_| of_files.len() > MOST_RUNS) else { return (matching, None) };
    let why = "the patch has too many files for the handlers that judge each of them; make it in several calls";
    (of_calls, Some(Unreadable { handler: first, why }.given()))
}

/// A patch is allowed if the call is, or each of its files: otherwise who allowed one file would have allowed the others.
pub(super) fn limit_allowed(given: &mut [(Option<usize>, Given)], files: usize) {
    let allows = |given: &Given| matches!(given.answer.permission, Some((Permission::Allow, _)));
    let is_allowed = |file: Option<usize>| given.iter().any(|(of, given)| *of == file && allows(given));
    if is_allowed(None) || (0..files).all(|file| is_allowed(Some(file))) {
        return;
    }
    for (_, one) in given.iter_mut().filter(|(of, one)| of.is_some() && allows(one)) {
        one.answer.permission = None;
    }
}
