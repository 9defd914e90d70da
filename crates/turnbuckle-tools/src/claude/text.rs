//! Text of handlers on its way to a model or a person: without terminal codes, and not too long.

use std::io::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;
use turnbuckle::store::PrivateFile;

/// Escape sequences of terminals: colours, cursor, titles.
static ESCAPES: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("\u{1b}(\\[[0-?]*[ -/]*[@-~]|\\][^\u{7}\u{1b}]*(\u{7}|\u{1b}\\\\)|[@-_])").ok());

/// Characters of a long text that stand beside the path of its file.
const PREVIEW: usize = 2000;

pub(super) fn plain(text: &str) -> String {
    let text = ESCAPES.as_ref().map_or_else(|| text.into(), |escapes| escapes.replace_all(text, ""));
    text.chars().filter(|ch| !ch.is_control() || matches!(ch, '\n' | '\t')).collect()
}

/// The text, or the path of a new file with it and a preview if it is longer than `most` characters. Blocks.
pub(super) fn short(text: &str, most: usize, project: &Path, file: &Path) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let preview: String = text.chars().take(PREVIEW).collect();
    let written = PrivateFile::below(project, file)
        .append()
        .map_err(|error| error.to_string())
        .and_then(|mut file| file.write_all(text.as_bytes()).map_err(|error| error.to_string()));
    match written {
        Ok(()) => format!("[{count} characters, all of them in {}]\n{preview}\n[…]", file.display()),
        Err(error) => format!("[{count} characters; they could not be kept: {error}]\n{preview}\n[…]"),
    }
}

/// As a reminder beside the user's words, which cannot be closed from inside.
pub(super) fn reminder(text: &str) -> String {
    let text = text.replace("<system-reminder", "‹system-reminder").replace("</system-reminder", "‹/system-reminder");
    format!("<system-reminder>\n{text}\n</system-reminder>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_codes_are_taken_out() {
        assert_eq!(plain("\u{1b}[1;31mred\u{1b}[0m\r\n\u{1b}]0;title\u{7}x"), "red\nx");
    }
}
