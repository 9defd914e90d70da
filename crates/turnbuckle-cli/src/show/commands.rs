//! Commands in a text: who copies one must get all of it, so no row of ours ends within one.

use super::wrap::columns;

/// What the text between two backticks begins with if it is a command.
const BEGINNINGS: [&str; 2] = ["`turnbuckle ", "`cd "];

/// A line in parts, each a row or more: each command, with its backticks, is a part of its own if the line is wider than the
/// room. The second value says that a part is a command.
pub(super) fn parts(line: &str, room: usize) -> Vec<(&str, bool)> {
    if line.chars().map(columns).sum::<usize>() <= room {
        return vec![(line, true)];
    }
    let (mut parts, mut rest) = (Vec::new(), line);
    while let Some((begin, end)) = next_command(rest) {
        parts.push((rest[..begin].trim(), false));
        parts.push((&rest[begin..end], true));
        rest = &rest[end..];
    }
    parts.push((rest.trim(), false));
    parts.retain(|(text, _)| !text.is_empty());
    parts
}

/// Where the next command begins and ends.
fn next_command(text: &str) -> Option<(usize, usize)> {
    let begin = BEGINNINGS.iter().filter_map(|beginning| text.find(beginning)).min()?;
    Some((begin, end_of_command(text, begin)))
}

/// Where the command that begins here ends: at a backtick outside of quotes, else with the text.
fn end_of_command(text: &str, begin: usize) -> usize {
    let inside = begin + 1;
    // What closes the quotes that are open, and whether a backslash escapes in them.
    let (mut quotes, mut before) = (None, ' ');
    let mut chars = text[inside..].char_indices();
    while let Some((at, ch)) = chars.next() {
        match (ch, quotes) {
            ('`', None) => return inside + at + 1,
            ('\\', None | Some(true)) => drop(chars.next()),
            ('\'', None) => quotes = Some(before == '$'),
            ('\'', Some(_)) => quotes = None,
            _ => {}
        }
        before = ch;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_part_of_its_own() {
        let line = "until then; `turnbuckle answer w c1 --approve` (or --deny), `x` and `cd /p && turnbuckle run`";
        let expected = [
            ("until then;", false),
            ("`turnbuckle answer w c1 --approve`", true),
            ("(or --deny), `x` and", false),
            ("`cd /p && turnbuckle run`", true),
        ];
        assert_eq!(parts(line, 40), expected);
        assert_eq!(parts(line, 200), [(line, true)], "what fits stays one line");
    }

    #[test]
    fn a_backtick_in_quotes_ends_no_command() {
        for command in [
            r"`turnbuckle answer w 'a`b' --approve`",
            r"`turnbuckle show 'a'\''`b'`",
            r"`turnbuckle show $'a\'`b\033'`",
        ] {
            assert_eq!(parts(&format!("{command} end"), 10), [(command, true), ("end", false)]);
        }
    }
}
