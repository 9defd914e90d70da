//! Finds a model that repeats itself.

use std::collections::HashMap;

/// What stands in a text more often than this is a loop.
const MAX_REPEATED: usize = 8;
/// Shorter lines may be repeated.
const SHORT_LINE: usize = 20;
/// How many words are compared. Fewer may be a turn of phrase.
const PHRASE: usize = 12;
/// Words of at least so many bytes that are not ASCII are compared by their signs: not all scripts put spaces between words.
const LONG_WORD: usize = 40;

/// Whether a line or a phrase comes again and again.
pub(super) fn has_loop(text: &str) -> bool {
    let lines = text.lines().map(str::trim).filter(|line| line.len() > SHORT_LINE);
    let mut seen: HashMap<&str, usize> = HashMap::new();
    lines.into_iter().any(|line| is_too_often(seen.entry(line).or_default())) || has_phrase(&words(text))
}

fn is_too_often(times: &mut usize) -> bool {
    *times += 1;
    *times > MAX_REPEATED
}

fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        match word.len() >= LONG_WORD && !word.is_ascii() {
            true => words.extend(word.char_indices().map(|(at, sign)| &word[at..at + sign.len_utf8()])),
            false => words.push(word),
        }
    }
    words
}

fn has_phrase(words: &[&str]) -> bool {
    // How often each was found, and where the last one ends: those that overlap count once.
    let mut seen: HashMap<&[&str], (usize, usize)> = HashMap::new();
    words.windows(PHRASE).enumerate().any(|(at, phrase)| {
        let (times, end) = seen.entry(phrase).or_default();
        if at < *end {
            return false;
        }
        *end = at + PHRASE;
        is_too_often(times)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_that_comes_again_and_again_is_a_loop_and_a_list_is_none() {
        assert!(has_loop(&format!("## Goal\n{}", "the same words again ".repeat(80))));
        assert!(has_loop(&format!("## Goal\nFind it. {}", "再说一遍同样的话".repeat(60))));
        assert!(has_loop(&"and once more the same line\n".repeat(9)));
        let files: String =
            (0..200).map(|n| format!("- crates/a/src/{n}.rs was changed as the user wanted\n")).collect();
        assert!(!has_loop(&files));
        assert!(!has_loop(&format!("{}\n", "-".repeat(500))));
    }
}
