//! What was typed in earlier chats of this project, in a file of its owner's alone. Each line names its conversation, so that
//! deleting that reaches it.

use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use turnbuckle::ConversationId;
use turnbuckle::store::PrivateFile;

use super::draft::REMEMBERED;
use crate::logging::CLI;
use crate::project::OWN_FOLDER;

/// Its name in the project's own folder.
const FILE: &str = "history.jsonl";
/// How much of the end of the file is read.
const READ: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Entry {
    conversation: String,
    text: String,
}

/// Where it is, for a project's folder.
pub(crate) fn file(folder: &Path) -> PrivateFile {
    PrivateFile::below(folder, folder.join(OWN_FOLDER).join(FILE))
}

/// What was typed before, oldest first. What cannot be read is not missed.
pub(super) fn read(file: &PrivateFile) -> Vec<String> {
    let Ok(Some(mut opened)) = file.look() else { return Vec::new() };
    let length = opened.metadata().map_or(0, |about| about.len());
    let skips = length.saturating_sub(READ);
    if opened.seek(SeekFrom::Start(skips)).is_err() {
        return Vec::new();
    }
    let lines = BufReader::new(opened).lines().map_while(Result::ok);
    // The first line may have been cut.
    let entries = lines.skip(usize::from(skips > 0)).filter_map(|line| serde_json::from_str::<Entry>(&line).ok());
    let mut texts: Vec<String> = entries.map(|entry| entry.text).collect();
    texts.dedup();
    let first = texts.len().saturating_sub(REMEMBERED);
    texts.split_off(first)
}

/// Adds what was typed.
pub(super) fn add(file: &PrivateFile, conversation: &ConversationId, text: &str) {
    let entry = Entry { conversation: conversation.to_string(), text: text.to_owned() };
    let written = serde_json::to_string(&entry).map_err(|error| error.to_string()).and_then(|line| {
        let mut opened = file.append().map_err(|error| error.to_string())?;
        opened.write_all(format!("{line}\n").as_bytes()).map_err(|error| error.to_string())
    });
    if let Err(error) = written {
        tracing::debug!(target: CLI, %error, "the history was not written");
    }
}
