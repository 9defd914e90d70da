//! What may be shown on a terminal. One function decides, for the page as well, and everything that comes from a model, a file or a program
//! goes through one of these before a person sees it.

use serde::Serialize;
use turnbuckle_server::page::is_unsafe;

/// The longest name or id that is shown whole. Ids of calls are chosen by the model and have no longest length.
const LONGEST_NAME: usize = 64;

/// Text of several lines: without unsafe characters but line ends and tabs.
pub(crate) fn clean(text: &str) -> String {
    let safe = |ch: char| match ch {
        '\n' | '\t' => ch,
        ch if is_unsafe(ch) => char::REPLACEMENT_CHARACTER,
        ch => ch,
    };
    text.chars().map(safe).collect()
}

/// A name or an id in the middle of a line: no line ends either, and cut if it is very long. For people to recognise; a
/// command that takes the id needs [`quoted`].
pub(crate) fn name(text: &str) -> String {
    let safe = |ch: char| if is_unsafe(ch) { char::REPLACEMENT_CHARACTER } else { ch };
    let mut shown: String = text.chars().take(LONGEST_NAME).map(safe).collect();
    if text.chars().nth(LONGEST_NAME).is_some() {
        shown.push('…');
    }
    shown
}

/// A line of the log, with its line end: whatever a field holds, it stays one line.
pub(crate) fn log_line(text: &str) -> String {
    let safe = |ch: char| if is_unsafe(ch) { char::REPLACEMENT_CHARACTER } else { ch };
    text.trim_end_matches('\n').chars().map(safe).chain(['\n']).collect()
}

/// One word of a shell command. Unsafe characters are written as octal bytes in `$'…'`, which bash, zsh and ksh understand,
/// so that a command can be copied from the screen whatever an id consists of.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |ch: char| ch.is_alphanumeric() || "_-./:@=+,".contains(ch);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.contains(is_unsafe) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut word = "$'".to_owned();
    for ch in text.chars() {
        match ch {
            '\\' | '\'' => word.extend(['\\', ch]),
            ch if is_unsafe(ch) => {
                let mut bytes = [0; 4];
                ch.encode_utf8(&mut bytes).bytes().for_each(|byte| word.push_str(&format!("\\{byte:03o}")));
            }
            ch => word.push(ch),
        }
    }
    word.push('\'');
    word
}

/// A value as one line of JSON, with a line end. JSON asks for escapes of the first 32 control characters only; the other
/// unsafe ones are escaped as well, since the line may be read on a terminal. Programs read the same value either way.
pub(crate) fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    let mut line = escaped(&serde_json::to_string(value)?);
    line.push('\n');
    Ok(line)
}

/// The same on several lines.
pub(crate) fn json_lines(value: &impl Serialize) -> serde_json::Result<String> {
    let mut lines = String::new();
    for line in serde_json::to_string_pretty(value)?.lines() {
        lines.push_str(&escaped(line));
        lines.push('\n');
    }
    Ok(lines)
}

/// Outside of strings JSON is plain ASCII: what is escaped stands inside one.
fn escaped(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for ch in json.chars() {
        match ch {
            ch if is_unsafe(ch) => {
                ch.encode_utf16(&mut [0; 2]).iter().for_each(|unit| line.push_str(&format!("\\u{unit:04x}")));
            }
            ch => line.push(ch),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSAFE: &str = "\u{1b}\u{7f}\u{9b}\u{61c}\u{200b}\u{200e}\u{202e}\u{2028}\u{2029}\u{2066}\u{feff}\u{e0041}";

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\u{7}\n\tc\r"), "a\u{fffd}[31mb\u{fffd}\n\tc\u{fffd}");
        assert!(clean(UNSAFE).chars().all(|ch| ch == '\u{fffd}'));
        let family = "👨\u{200d}👩\u{200d}👧 ❤\u{fe0f} نمی\u{200c}خواهم";
        assert_eq!(clean(family), family);
    }

    #[test]
    fn a_name_is_one_short_line() {
        assert_eq!(name("c1\nhint: run `rm`\t"), "c1\u{fffd}hint: run `rm`\u{fffd}");
        assert_eq!(name(&"x".repeat(5_000)).chars().count(), LONGEST_NAME + 1);
        assert_eq!(name("c1"), "c1");
    }

    #[test]
    fn json_keeps_the_value_and_shows_nothing_raw() {
        let line = json_line(&UNSAFE).unwrap();
        assert!(line.trim_end_matches('\n').bytes().all(|byte| byte.is_ascii_graphic()), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), UNSAFE);
        assert_eq!(json_line(&"日\u{200d}").unwrap(), "\"日\u{200d}\"\n");
    }

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        for word in ["c1", "it's", "a b", "", "$(x)`y`", "c1\nhint: x", "it's\u{9b}\\n\u{200b}1", UNSAFE] {
            let quoted = quoted(word);
            assert!(!quoted.contains(is_unsafe), "{quoted:?}");
            let script = format!("printf %s {quoted}");
            let Ok(ran) = std::process::Command::new("bash").args(["-c", &script]).output() else { return };
            assert_eq!(String::from_utf8_lossy(&ran.stdout), word, "{quoted}");
        }
    }
}
