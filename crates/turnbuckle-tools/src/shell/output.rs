//! What a command writes: its beginning and its end for the result, all of it in a file if that is too long.

use std::collections::VecDeque;
use std::io::Write as _;

use tokio::task::spawn_blocking;

use super::outputs::OutputFile;

/// Kept of the beginning, and of the end.
const HEAD: usize = 16 * 1024;
const TAIL: usize = 16 * 1024;
/// The most that is written into the file: a command may write for ever.
const MOST_IN_FILE: u64 = 64 * 1024 * 1024;

/// What was written so far.
pub(super) struct CommandOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    file: Spill,
}

/// Where all of it goes.
enum Spill {
    /// It still fits into the result; this makes the file.
    NotNeeded(Option<Box<dyn FnOnce() -> std::io::Result<OutputFile> + Send>>),
    /// Taken out while a write is under way.
    Open(Option<OutputFile>, String),
    /// It cannot be written.
    Failed(String),
}

impl CommandOutput {
    pub(super) fn new(file: Option<Box<dyn FnOnce() -> std::io::Result<OutputFile> + Send>>) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), total: 0, file: Spill::NotNeeded(file) }
    }

    pub(super) async fn add(&mut self, bytes: &[u8]) {
        let before = self.total;
        self.total += bytes.len() as u64;
        let for_head = bytes.len().min(HEAD - self.head.len());
        let is_long = self.total > (HEAD + TAIL) as u64;
        if is_long && let Spill::NotNeeded(make) = &mut self.file {
            // Nothing of what came before has been dropped yet.
            let mut first = self.head.clone();
            first.extend(&self.tail);
            first.extend_from_slice(bytes);
            self.file = match make.take() {
                Some(make) => opened(make).await,
                None => Spill::Failed("it is not kept".to_owned()),
            };
            self.write(first).await;
        } else if before < MOST_IN_FILE {
            self.write(bytes.to_vec()).await;
        }
        self.head.extend_from_slice(&bytes[..for_head]);
        self.tail.extend(&bytes[for_head..]);
        let over = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..over);
    }

    /// Beside the async threads: a full or slow disk must not hold up others.
    async fn write(&mut self, bytes: Vec<u8>) {
        let Spill::Open(file, _) = &mut self.file else { return };
        let Some(mut taken) = file.take() else { return };
        let written = spawn_blocking(move || taken.file.write_all(&bytes).map(|()| taken)).await;
        match written.map_err(std::io::Error::other).and_then(|written| written) {
            Ok(taken) => *file = Some(taken),
            Err(error) => self.file = Spill::Failed(format!("it could not be written: {error}")),
        }
    }

    /// The last line that is complete, for those who watch.
    pub(super) fn last_line(&self) -> Option<String> {
        let bytes: Vec<u8> = match self.tail.is_empty() {
            true => self.head.clone(),
            false => self.tail.iter().copied().collect(),
        };
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(1024)..]).into_owned();
        let complete = &text[..text.rfind('\n')?];
        complete.lines().rev().find(|line| !line.trim().is_empty()).map(|line| line.chars().take(200).collect())
    }

    /// What the model reads.
    pub(super) fn text(mut self) -> String {
        if self.total <= (HEAD + TAIL) as u64 {
            self.head.extend(&self.tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let where_is = match &self.file {
            Spill::Open(_, path) if self.total > MOST_IN_FILE => {
                format!("the first {} MiB are in {path}", MOST_IN_FILE / 1024 / 1024)
            }
            Spill::Open(_, path) => format!("all of it is in {path}"),
            Spill::Failed(why) => why.clone(),
            Spill::NotNeeded(_) => "it is not kept".to_owned(),
        };
        let missing = self.total - (self.head.len() + self.tail.len()) as u64;
        let (head, tail) = (String::from_utf8_lossy(&self.head), self.tail.make_contiguous());
        let tail = String::from_utf8_lossy(tail);
        format!("{head}\n[… {missing} of {} bytes left out; {where_is} …]\n{tail}", self.total)
    }
}

async fn opened(make: Box<dyn FnOnce() -> std::io::Result<OutputFile> + Send>) -> Spill {
    let made = spawn_blocking(make).await.map_err(std::io::Error::other).and_then(|made| made);
    match made {
        Ok(file) => {
            let path = file.path.clone();
            Spill::Open(Some(file), path)
        }
        Err(error) => Spill::Failed(format!("it could not be kept: {error}")),
    }
}
