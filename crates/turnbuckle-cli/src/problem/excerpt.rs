//! The line of a file that a problem is about, with a caret under what is meant.

use turnbuckle_models::without_password;

use super::{Place, Spot};
use crate::show::{columns, log_line};

/// The most characters of a line that are shown.
const LONGEST: usize = 100;
/// Of a longer line, how many characters stand before the caret.
const BEFORE: usize = 30;
/// What a key ends with whose value may be a secret, also with an `s` behind it. Only the key is shown then.
const SECRET: [&str; 7] = ["env", "header", "token", "secret", "password", "key", "authorization"];

/// Two lines, indented: the text and the caret. `None` if the file is not at hand.
pub(super) fn of(place: &Place) -> Option<String> {
    let Spot { text, offset } = place.at.as_ref()?;
    let begin = text.get(..*offset)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(begin..)?.lines().next()?;
    let shown = disclosed(line);
    let at = (offset - begin).min(shown.len());
    let at = shown.floor_char_boundary(at);
    let (before, marked) = (&shown[..at], marked(&shown[at..]));
    // Of a long line the part around the caret.
    let skipped = match shown.chars().count() > LONGEST {
        true => before.char_indices().rev().nth(BEFORE).map_or(0, |(start, _)| start),
        false => 0,
    };
    let dots = if skipped > 0 { "…" } else { "" };
    let window: String = shown[skipped..].chars().take(LONGEST).collect();
    let width = |text: &str| text.chars().map(|sign| if sign == '\t' { 1 } else { columns(sign) }).sum::<usize>();
    let number = place.line.to_string();
    let gap = " ".repeat(number.len());
    let pad = " ".repeat(width(dots) + width(&before[skipped.min(before.len())..]));
    let carets = "^".repeat(width(marked).max(1));
    let window = log_line(&window.replace('\t', " "));
    Some(format!("  {number} | {dots}{}\n  {gap} | {pad}{carets}", window.trim_end_matches('\n')))
}

/// The line without what may be a secret: it ends at the first key of which that is known.
fn disclosed(line: &str) -> String {
    let line = without_password(line).into_owned();
    match line.match_indices('=').find(|(at, _)| is_secret(&line[..*at], &line[at + 1..])) {
        Some((at, _)) => format!("{}= …", &line[..at]),
        None => line,
    }
}

/// Whether a value may be a secret, with what stands before its `=`.
fn is_secret(before: &str, value: &str) -> bool {
    let before = before.trim_end().trim_end_matches(['"', '\'']).to_ascii_lowercase();
    let is_amount = before.ends_with("tokens") && value.trim_start().starts_with(|sign: char| sign.is_ascii_digit());
    let word = before.strip_suffix('s').unwrap_or(&before);
    !is_amount && SECRET.iter().any(|secret| word.ends_with(secret))
}

/// What the caret stands under: a word, a string, or the head of a section.
fn marked(rest: &str) -> &str {
    let end = match rest.chars().next() {
        Some('[') if rest.starts_with("[[") => rest.find("]]").map(|end| end + 2),
        Some('[') => rest.find(']').map(|end| end + 1),
        Some('"') => rest[1..].find('"').map(|end| end + 2),
        Some('\'') => rest[1..].find('\'').map(|end| end + 2),
        _ => rest.find(|sign: char| !(sign.is_alphanumeric() || "_-.".contains(sign))),
    };
    &rest[..end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, offset: usize) -> String {
        let line = text[..offset].matches('\n').count() + 1;
        of(&Place { file: "f".into(), line, at: Some(Spot { text: text.into(), offset }) }).unwrap()
    }

    #[test]
    fn the_caret_stands_under_what_is_meant() {
        assert_eq!(shown("[agent]\nmodle = \"x\"\n", 8), "  2 | modle = \"x\"\n    | ^^^^^");
        assert_eq!(shown("a = [\"b\", \"cc\"]", 10), "  1 | a = [\"b\", \"cc\"]\n    |           ^^^^");
        assert_eq!(shown("[[hooks]]  # [x]", 0), "  1 | [[hooks]]  # [x]\n    | ^^^^^^^^^");
        assert_eq!(shown("\u{8a9e} = {}", 0), "  1 | \u{8a9e} = {}\n    | ^^");
        assert_eq!(shown("x", 1), "  1 | x\n    |  ^");
    }

    #[test]
    fn a_long_line_is_shown_around_the_caret_and_secrets_are_not_shown() {
        let long = format!("{}bad = 1{}", "x".repeat(500), "y".repeat(500));
        let text = shown(&long, 500);
        assert!(text.lines().all(|line| line.chars().count() < 120) && text.contains("bad = 1"), "{text}");
        assert!(!shown("api_key = \"sk-1\"", 0).contains("sk-1"));
        assert!(!shown("headers = { Authorization = \"Bearer t\" }", 0).contains("Bearer"));
        assert!(!shown("web = { name = \"x\", \"api_keys\" = [\"sk-1\"] }", 0).contains("sk-1"));
        assert!(!shown("tokens = [\"sk-1\"]", 0).contains("sk-1"));
        assert!(!shown("run = \"API_TOKEN=sk-1 ./x\"", 0).contains("sk-1"));
        assert!(!shown("token = 1234", 0).contains("1234"));
        assert_eq!(shown("max_output_tokens = 0", 20), "  1 | max_output_tokens = 0\n    |                     ^");
        assert_eq!(shown("keyboard = \"de\"", 0), "  1 | keyboard = \"de\"\n    | ^^^^^^^^");
        assert!(!shown("url = \"postgres://u:pw1234@h/d\"", 0).contains("pw1234"));
    }
}
