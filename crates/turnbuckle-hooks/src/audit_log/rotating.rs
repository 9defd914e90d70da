//! A log file that is rotated when it is full.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use turnbuckle::BoxError;
use turnbuckle::store::{PrivateFile, PrivateFileError};

/// A file that is opened with the first line, and again after a failure.
pub(super) struct Rotating {
    file: PrivateFile,
    max_bytes: u64,
    keep: u32,
    open: Option<(File, u64)>,
}

impl Rotating {
    pub(super) fn new(file: PrivateFile, max_bytes: u64, keep: u32) -> Self {
        Self { file, max_bytes, keep, open: None }
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends a line. Lines are never split: one that is longer than `max_bytes` gets a file of its own.
    pub(super) fn write(&mut self, line: &[u8]) -> Result<(), BoxError> {
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

    fn reopen(&self) -> Result<(File, u64), PrivateFileError> {
        let file = self.file.append()?;
        let length = file.metadata().map(|about| about.len());
        let size = length.map_err(|source| PrivateFileError::Io { path: self.path().to_owned(), source })?;
        Ok((file, size))
    }

    /// Removes the oldest file and renames the others.
    fn rotate(&self) -> io::Result<()> {
        if self.keep == 0 {
            return fs::remove_file(self.path());
        }
        for number in (1..self.keep).rev() {
            let (from, to) = (self.numbered(number), self.numbered(number + 1));
            match fs::rename(from, to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(self.path(), self.numbered(1))
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path().as_os_str().to_owned();
        name.push(format!(".{number}"));
        name.into()
    }
}
