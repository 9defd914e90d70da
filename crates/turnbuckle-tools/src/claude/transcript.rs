//! The file that scripts read a conversation from, and the files of long texts beside it. Deleting the conversation erases both.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use turnbuckle::message::{Content, Message, ToolCall};
use turnbuckle::store::{PrivateFile, SideStore};
use turnbuckle::{BoxError, BoxFuture, ConversationId, Turn};

/// The folder of all transcripts.
#[derive(Clone, Debug)]
pub(super) struct Transcripts {
    /// No folder below this one may be a link.
    pub(super) project: PathBuf,
    pub(super) folder: PathBuf,
}

/// Makes the names of new files unique in this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Transcripts {
    /// The transcript of a conversation.
    pub(super) fn path(&self, conversation: &str) -> PathBuf {
        self.folder.join(format!("{}.jsonl", encoded(conversation)))
    }

    /// A file for a long text of a conversation, which does not exist yet.
    pub(super) fn text_file(&self, conversation: &str) -> PathBuf {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{}-{number}.txt", encoded(conversation), std::process::id());
        self.folder.join(name)
    }

    /// Makes an empty transcript if there is none: a script may open it. Blocks.
    pub(super) fn make(&self, conversation: &str) -> io::Result<()> {
        let path = self.path(conversation);
        match path.exists() {
            true => Ok(()),
            false => PrivateFile::below(&self.project, &path).append().map(drop).map_err(io::Error::other),
        }
    }

    /// Removes the transcript of a conversation. Blocks.
    pub(super) fn remove(&self, conversation: &str) -> io::Result<()> {
        gone(&self.path(conversation))
    }

    /// A new file for what a handler puts into the environment of later commands. Blocks.
    pub(super) fn env_file(&self, conversation: &str) -> io::Result<PathBuf> {
        let path = self.text_file(conversation);
        PrivateFile::below(&self.project, &path).append().map_err(io::Error::other)?;
        Ok(path)
    }

    /// Writes what the model's context holds now. The file is exchanged whole: no script sees half of it. Blocks.
    pub(super) fn write(&self, conversation: &str, lines: &[Value]) -> io::Result<()> {
        let (path, new) = (self.path(conversation), self.text_file(conversation));
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        PrivateFile::below(&self.project, &new).append().map_err(io::Error::other)?.write_all(&text)?;
        std::fs::rename(new, path)
    }

    /// The files of a conversation and of its sub-agents.
    fn files_of(&self, conversation: &ConversationId) -> io::Result<Vec<PathBuf>> {
        let own = encoded(conversation.as_str());
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let rest = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(&own));
            // `.` ends an encoded id, and `%2f` is the `/` before the id of a sub-agent.
            if rest.is_some_and(|rest| rest.starts_with('.') || rest.starts_with("%2f")) {
                found.push(path);
            }
        }
        Ok(found)
    }
}

/// What a turn's model has seen, as scripts expect it: one line a message.
pub(super) fn lines(turn: &Turn, project: &Path) -> Vec<Value> {
    let used = |calls: &[ToolCall]| calls.iter().map(|call| used(turn, call, project)).collect();
    let mut lines: Vec<Value> = match turn.context() {
        Some(request) => request.messages.iter().map(|message| line(message, &used)).collect(),
        None => vec![said("user", turn.user_message(), Vec::new())],
    };
    if let Some(reply) = turn.assistant_message() {
        lines.push(said("assistant", &reply.content, used(&reply.calls)));
    }
    lines
}

fn line(message: &Message, used: &dyn Fn(&[ToolCall]) -> Vec<Value>) -> Value {
    match message {
        Message::Assistant { content, calls } => said("assistant", content, used(calls)),
        Message::Result { call, ok, content, .. } => {
            let result =
                json!({ "type": "tool_result", "tool_use_id": call, "is_error": !ok, "content": content.text() });
            json!({ "type": "user", "message": { "role": "user", "content": [result] } })
        }
        other => said("user", other.content(), Vec::new()),
    }
}

/// A call as handlers are told of it: by the names that scripts expect, that of a sub-agent as `Agent`.
fn used(turn: &Turn, call: &ToolCall, project: &Path) -> Value {
    let (name, input) = super::bridge::outward(turn, call, project);
    json!({ "type": "tool_use", "id": call.call, "name": name, "input": input })
}

fn said(role: &str, content: &Content, used: Vec<Value>) -> Value {
    let mut parts = vec![json!({ "type": "text", "text": content.text() })];
    parts.extend(used);
    json!({ "type": role, "message": { "role": role, "content": parts } })
}

/// An id as the name of a file: nothing of it leads out of the folder, and two ids never have the same name.
fn encoded(id: &str) -> String {
    let mut name = String::new();
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    name
}

impl SideStore for Transcripts {
    fn what(&self) -> &'static str {
        "transcripts for hooks"
    }
    fn name(&self) -> String {
        format!("transcripts for hooks in {}", self.folder.display())
    }
    fn count<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>> {
        Box::pin(async move { Ok(blocking(self, conversation, Self::files_of).await?.len() as u64) })
    }
    fn erase<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            blocking(self, conversation, |transcripts, id| {
                transcripts.files_of(id)?.iter().try_for_each(|file| gone(file))
            })
            .await
        })
    }
}

async fn blocking<T: Send + 'static>(
    transcripts: &Transcripts,
    conversation: &ConversationId,
    act: impl FnOnce(&Transcripts, &ConversationId) -> io::Result<T> + Send + 'static,
) -> Result<T, BoxError> {
    let (transcripts, conversation) = (transcripts.clone(), conversation.clone());
    Ok(tokio::task::spawn_blocking(move || act(&transcripts, &conversation)).await??)
}

/// Removes a file; another process may have been faster.
fn gone(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
