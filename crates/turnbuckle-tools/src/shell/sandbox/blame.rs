//! Whether a command failed because of the sandbox. Only its own words tell: the kernel gives programs the same errors for other reasons, too.

/// What the C library and common programs say where the sandbox refuses something.
const REFUSED: [(&str, &str); 13] = [
    ("Read-only file system", "a file that commands may not change"),
    ("Permission denied", "a file outside what commands may read or change, or a socket"),
    ("EACCES", "a file outside what commands may read or change, or a socket"),
    ("EROFS", "a file that commands may not change"),
    ("Invalid cross-device link", "a file outside what commands may read or change"),
    ("Operation not permitted", "something that commands may not do"),
    ("Could not resolve host", "the network"),
    ("Temporary failure in name resolution", "the network"),
    ("Network is unreachable", "the network"),
    ("EAI_AGAIN", "the network"),
    ("Failed to establish a new connection", "the network"),
    ("failed to lookup address information", "the network"),
    ("error trying to connect", "the network"),
];

/// What the command may have been refused, by the end of its output.
pub(in crate::shell) fn blame(output: &str) -> Option<&'static str> {
    let end = &output[output.ceil_char_boundary(output.len().saturating_sub(8 * 1024))..];
    REFUSED.into_iter().find(|(words, _)| end.contains(words)).map(|(_, what)| what)
}
