//! Reading files that other people may have written: configuration, settings, scripts, schemas, prompts.
//!
//! A project's folder may come from a stranger, and git carries links. So nothing but a regular file is read (a device has
//! no end, a pipe may never have a writer), and no more of it than a limit.

use std::fmt;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Why a file was not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// It cannot be opened or read.
    Io(io::Error),
    /// Not a regular file; what it is instead.
    NotAFile(&'static str),
    /// It has more bytes than are read.
    TooLarge {
        /// How many are read at most.
        limit: u64,
    },
    /// Not UTF-8.
    NotText {
        /// The first byte that is not.
        at: usize,
    },
}

impl ReadError {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
    }

    /// What to do about it; `otherwise` if only the caller knows.
    pub fn hint(&self, otherwise: &'static str) -> &'static str {
        match self {
            Self::Io(_) => otherwise,
            Self::NotAFile(_) => {
                "give a regular file: pipes, devices and folders are not read, also not through a link"
            }
            Self::TooLarge { .. } => "is it the right file?",
            Self::NotText { .. } => "convert it first, for example with iconv",
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotAFile(kind) => write!(f, "it is {kind}"),
            Self::TooLarge { limit } => write!(f, "it is larger than {} MiB", limit >> 20),
            Self::NotText { at } => write!(f, "it is not UTF-8 (at byte {at})"),
        }
    }
}

/// The text of a regular file of at most `limit` bytes.
pub fn read_file(path: &Path, limit: u64) -> Result<String, ReadError> {
    text(open(path)?, limit)
}

/// The text that `source` gives until its end, if that is at most `limit` bytes.
pub fn text(source: impl io::Read, limit: u64) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    // One byte more than may be is enough to know. The size that the system tells is not asked: it may change.
    source.take(limit + 1).read_to_end(&mut bytes).map_err(ReadError::Io)?;
    if bytes.len() as u64 > limit {
        return Err(ReadError::TooLarge { limit });
    }
    String::from_utf8(bytes).map_err(|error| ReadError::NotText { at: error.utf8_error().valid_up_to() })
}

/// Opens a regular file. It looks before it opens, because opening a device can do something; it opens without waiting for the
/// other end of a pipe; and it looks again at what it opened, because that is what is read.
pub fn open(path: &Path) -> Result<File, ReadError> {
    must_be_regular(std::fs::metadata(path).map_err(ReadError::Io)?.file_type())?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = file.map_err(ReadError::Io)?;
    must_be_regular(file.metadata().map_err(ReadError::Io)?.file_type())?;
    Ok(file)
}

fn must_be_regular(kind: FileType) -> Result<(), ReadError> {
    Err(ReadError::NotAFile(match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        for (path, kind) in [("/dev/zero", "a device"), ("/dev/tty", "a device"), ("/", "a folder")] {
            let refused = read_file(Path::new(path), 10);
            assert!(matches!(refused, Err(ReadError::NotAFile(is)) if is == kind), "{path}: {refused:?}");
        }
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_file(&path, 5).unwrap(), "12345");
        assert!(matches!(read_file(&path, 4), Err(ReadError::TooLarge { limit: 4 })));
        assert!(matches!(text(io::repeat(b'x'), 1_000), Err(ReadError::TooLarge { .. })));
        std::fs::write(&path, b"ab\xff").unwrap();
        assert!(matches!(read_file(&path, 5), Err(ReadError::NotText { at: 2 })));
        assert!(read_file(&folder.path().join("none"), 5).unwrap_err().is_missing());
    }
}
