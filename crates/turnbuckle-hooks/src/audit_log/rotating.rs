//! A log file that is rotated when it is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is opened with the first line, and again after a failure.
pub(super) struct Rotating {
    path: PathBuf,
    max_bytes: u64,
    keep: u32,
    open: Option<(File, u64)>,
}

impl Rotating {
    pub(super) fn new(path: &Path, max_bytes: u64, keep: u32) -> Self {
        Self { path: path.to_owned(), max_bytes, keep, open: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line. Lines are never split: one that is longer than `max_bytes` gets a file of its own.
    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let (mut file, mut size) = match self.open.take() {
            Some(open) => open,
            None => self.reopen()?,
        };
        let length = line.len() as u64;
        if size > 0 && size + length > self.max_bytes {
            drop(file);
            self.rotate()?;
            (file, size) = self.reopen()?;
        }
        // On failure the file stays closed, so that the next line reads its real size again.
        file.write_all(line)?;
        self.open = Some((file, size + length));
        Ok(())
    }

    fn reopen(&self) -> io::Result<(File, u64)> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&self.path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    }

    /// Removes the oldest file and renames the others.
    fn rotate(&self) -> io::Result<()> {
        if self.keep == 0 {
            return fs::remove_file(&self.path);
        }
        for number in (1..self.keep).rev() {
            let (from, to) = (self.numbered(number), self.numbered(number + 1));
            match fs::rename(from, to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.numbered(1))
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}
