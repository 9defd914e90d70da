//! Where a command reads a file that it writes itself: a log whose last line is shown, a report that is printed if something failed.
//! Such a file is another one after each run, and nobody could accept it. What it holds must not be run, so this is for commands of
//! which that can be told, and everything else is compared as ever.

use std::collections::BTreeSet;
use std::ops::Range;

use super::reader::{Reading, Token, tokens};
use super::{AT_MORE_SIGNS, AT_SIGNS, WordError, is_plain, is_shell, pieces};

/// Programs that do not run what they read from a pipe.
const FILTERS: [&str; 14] =
    ["cat", "cut", "egrep", "fgrep", "grep", "head", "jq", "sort", "tac", "tail", "tee", "tr", "uniq", "wc"];

/// The places of the line that name one of the files in `written`, and at which it is only read.
pub(super) fn read_back(line: &str, written: &[Token]) -> Result<Vec<Range<usize>>, WordError> {
    if written.is_empty() || hands_on(line) {
        return Ok(Vec::new());
    }
    // `2>&1` names no file.
    let is_number = |token: &Token| {
        line[..token.range.start].ends_with('&') && token.text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let files = written.iter().filter(|token| !is_number(token));
    let paths: BTreeSet<&str> = files.map(|token| path(&token.text)).collect();
    let words = tokens(line, 0, Reading::USUAL, &mut BTreeSet::new())?;
    let is_read_back =
        |token: &&Token| token.is_read && is_plain(&line[token.range.clone()]) && paths.contains(path(&token.text));
    let found: Vec<Range<usize>> = words.iter().filter(is_read_back).map(|token| token.range.clone()).collect();
    // What is written may be run under another name of the same file.
    let names: BTreeSet<&str> = paths.iter().map(|path| base(path)).collect();
    let is_left_out = |at: usize| {
        let targets = written.iter().map(|token| &token.range);
        targets.chain(&found).any(|range| range.contains(&at))
    };
    let is_used = |at: usize, text: &str| !is_left_out(at) && names.contains(base(text));
    let is_unknown = |token: &Token| token.is_computed && !token.is_target && !token.is_read;
    let mut spelt = pieces(line, AT_MORE_SIGNS).chain(pieces(line, AT_SIGNS));
    let is_doubtful = spelt.any(|(at, piece)| is_used(at, piece))
        || words.iter().any(|token| is_used(token.range.start, &token.text) || is_unknown(token));
    Ok(if is_doubtful { Vec::new() } else { found })
}

/// Whether something in the line may run what another command prints, or a text in quotes.
fn hands_on(line: &str) -> bool {
    let pipes = line.replace("||", "\n").replace(">|", ">");
    let is_filter = |piped: &str| {
        let piped = piped.trim_start_matches(|sign: char| sign == '&' || sign.is_whitespace());
        let end = piped.find(|sign: char| AT_SIGNS.contains(sign)).unwrap_or(piped.len());
        FILTERS.contains(&&piped[..end])
    };
    let mut words = pieces(line, AT_SIGNS).map(|(_, word)| word).filter(|word| !word.is_empty());
    let runs_text = words.any(is_shell) && words.any(|word| word.starts_with('-') && word.contains('c'));
    runs_text || ["<<", "<(", ">("].iter().any(|sign| line.contains(sign)) || !pipes.split('|').skip(1).all(is_filter)
}

/// A path that is spelt in two ways.
fn path(text: &str) -> &str {
    text.trim_start_matches("./")
}

fn base(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or(text)
}
