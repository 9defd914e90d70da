//! Digests: SHA-256, as hexadecimal digits.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use turnbuckle_tools::read_file::{ReadError, open};

/// The most bytes that are hashed, of one file and of all that a configuration names: hooks' scripts are smaller, and each start of
/// a hook hashes them again.
pub(super) const LARGEST: u64 = 64 << 20;

pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Of a path, for the name of a file about it.
pub(super) fn of_path(path: &Path) -> String {
    of_bytes(path.as_os_str().as_bytes())
}

/// Of what a file holds, and how many bytes that are; an error if it is larger than [`LARGEST`].
pub(super) fn of_file(path: &Path) -> io::Result<(String, u64)> {
    let file = open(path).map_err(|error| match error {
        ReadError::Io(error) => error,
        other => io::Error::other(other),
    })?;
    let mut file = file.take(LARGEST + 1);
    let (mut hash, mut room, mut length) = (Sha256::new(), vec![0; 64 << 10], 0);
    loop {
        let count = file.read(&mut room)?;
        length += count as u64;
        if length > LARGEST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {} MiB", LARGEST >> 20)));
        }
        if count == 0 {
            return Ok((hex(&hash.finalize()), length));
        }
        hash.update(&room[..count]);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
