//! Deleting a conversation reaches its lines in the audit log.
//!
//! A line is overwritten where it stands, with one of the same length that says nothing: other processes may append to the file
//! meanwhile, and keep it open. So nothing needs a lock, and a crash in between leaves whole lines.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use turnbuckle::store::SideStore;
use turnbuckle::{BoxError, BoxFuture, ConversationId};

/// How often the files are read at most. While they are read, one may become another by rotation and be missed; then it is
/// found the next time.
const PASSES: usize = 5;
/// What a line becomes. Spaces fill it up to its length.
const ERASED: &[u8] = b"{\"type\":\"erased\"}";

/// The files of an audit log: the one that is written, and those that are full.
#[derive(Clone, Debug)]
pub struct AuditFiles {
    path: PathBuf,
}

impl AuditFiles {
    /// Those of the log that is written to `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// All of them that exist: `FILE`, and `FILE.1`, `FILE.2` and so on.
    fn existing(&self) -> io::Result<Vec<PathBuf>> {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else { return Ok(Vec::new()) };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let own = entry.file_name();
            let rest = own.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
            let is_log = rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(b".").is_some_and(is_number));
            // A link or a folder of this name is not a log.
            if is_log && entry.file_type()?.is_file() {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    fn erase_all(&self, conversation: &ConversationId) -> io::Result<()> {
        for _ in 0..PASSES {
            let mut erased = 0;
            for file in self.existing()? {
                erased += in_file(&file, conversation, Mode::Erase)?;
            }
            if erased == 0 {
                return Ok(());
            }
        }
        Err(io::Error::other("lines of the conversation are still being written"))
    }

    fn count_all(&self, conversation: &ConversationId) -> io::Result<u64> {
        self.existing()?.iter().map(|file| in_file(file, conversation, Mode::Count)).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Count,
    Erase,
}

/// Looks for the lines of a conversation in one file, and erases them if asked. Returns how many there were.
fn in_file(path: &Path, conversation: &ConversationId, mode: Mode) -> io::Result<u64> {
    let open = |options: &mut OpenOptions| options.open(path);
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let file = match open(OpenOptions::new().read(true)) {
        // It was removed by rotation.
        Err(error) if missing(&error) => return Ok(0),
        file => file?,
    };
    let mut out: Option<File> = None;
    let (mut lines, mut at, mut line, mut found) = (BufReader::new(file), 0, Vec::new(), 0);
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)? as u64;
        if length == 0 {
            break;
        }
        if is_of(&line, conversation) {
            found += 1;
            if mode == Mode::Erase {
                let out = match &mut out {
                    Some(out) => out,
                    none => match open(OpenOptions::new().write(true)) {
                        Err(error) if missing(&error) => return Ok(0),
                        opened => none.insert(opened?),
                    },
                };
                out.seek(SeekFrom::Start(at))?;
                out.write_all(&blank(&line))?;
            }
        }
        at += length;
    }
    if let Some(out) = out {
        out.sync_data()?;
    }
    Ok(found)
}

/// Whether the line is about this conversation or a sub-agent's of it. A line that a crash cut off is judged by its text.
fn is_of(line: &[u8], conversation: &ConversationId) -> bool {
    let Ok(text) = std::str::from_utf8(line) else { return false };
    if !text.contains(conversation.as_str()) {
        return false;
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value) => {
            let of = value.get("conversation").and_then(Value::as_str);
            of.is_some_and(|of| ConversationId::from(of).is_within(conversation))
        }
        Err(_) => ['"', '/'].iter().any(|end| text.contains(&format!("\"conversation\":\"{conversation}{end}"))),
    }
}

/// A line of the same length that says nothing.
fn blank(line: &[u8]) -> Vec<u8> {
    let (text, end) = match line.split_last() {
        Some((b'\n', text)) => (text.len(), &b"\n"[..]),
        _ => (line.len(), &b""[..]),
    };
    let mut blank = if text >= ERASED.len() { ERASED.to_vec() } else { Vec::new() };
    blank.resize(text, b' ');
    blank.extend_from_slice(end);
    blank
}

impl SideStore for AuditFiles {
    fn what(&self) -> &'static str {
        "audit log"
    }

    fn name(&self) -> String {
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        format!("{} in {}", self.what(), path.display())
    }

    fn files(&self) -> Vec<PathBuf> {
        // What cannot be listed has no size that could be told.
        self.existing().unwrap_or_default()
    }

    fn count<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>> {
        let (files, conversation) = (self.clone(), conversation.clone());
        Box::pin(async move { Ok(tokio::task::spawn_blocking(move || files.count_all(&conversation)).await??) })
    }

    fn erase<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>> {
        let (files, conversation) = (self.clone(), conversation.clone());
        Box::pin(async move { Ok(tokio::task::spawn_blocking(move || files.erase_all(&conversation)).await??) })
    }
}
