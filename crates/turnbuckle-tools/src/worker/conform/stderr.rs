//! What the program under check writes to stderr: its beginning, for people.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Kept of what it writes in one check; it may write as much as it likes.
const MOST: usize = 16 * 1024;
/// How long the rest is waited for when a check is over and the program was ended. A process that it left behind may hold the pipe.
const PATIENCE: Duration = Duration::from_millis(500);

/// Collects the stderr of the programs that one check starts.
#[derive(Default)]
pub(super) struct Stderr {
    /// The lock is held for single steps, never across an await.
    said: Arc<Mutex<Said>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Said {
    kept: Vec<u8>,
    /// How much was written beyond it.
    beyond: usize,
}

impl Stderr {
    /// Reads to the end, so that the program is never held up.
    pub(super) fn read(&self, mut pipe: impl AsyncRead + Unpin + Send + 'static) {
        let said = self.said.clone();
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                let room = count.min(MOST - said.kept.len());
                said.kept.extend_from_slice(&buffer[..room]);
                said.beyond += count - room;
            }
        });
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
    }

    /// Its lines, when the programs have ended.
    pub(super) async fn lines(&self) -> Vec<String> {
        let readers = std::mem::take(&mut *self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        for mut reader in readers {
            if timeout(PATIENCE, &mut reader).await.is_err() {
                reader.abort();
            }
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines: Vec<String> = String::from_utf8_lossy(&said.kept).lines().map(str::to_owned).collect();
        if said.beyond > 0 {
            lines.push(format!("… and {} bytes more", said.beyond));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_beginning_of_much_is_kept_and_the_rest_is_counted() {
        let stderr = Stderr::default();
        stderr.read(std::io::Cursor::new(vec![b'x'; MOST + 7]));
        let lines = stderr.lines().await;
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].len(), &*lines[1]), (MOST, "… and 7 bytes more"));
    }
}
