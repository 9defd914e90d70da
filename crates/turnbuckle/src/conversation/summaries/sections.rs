//! Notes that are too long, shortened so that every section keeps its beginning.

use super::kept::fitting;
use super::prompt::is_heading;
use crate::context::tokens;

/// What the note about missing lines takes, in tokens.
const NOTE: u64 = 8;

/// Shortens notes to about `most` tokens. The sections share the room: those that need less leave the rest to the others. One that is
/// too long loses its last lines, and says how many. So the last sections, files and facts, do not go first.
pub(super) fn shortened(text: &str, most: u64) -> String {
    let sections = sections(text);
    let sizes: Vec<u64> = sections.iter().map(|section| tokens::of_text(section) + 1).collect();
    let mut by_size: Vec<usize> = (0..sections.len()).collect();
    by_size.sort_by_key(|place| sizes[*place]);
    let (mut room, mut left) = (most, sections.len() as u64);
    let mut shares = vec![0; sections.len()];
    for place in by_size {
        let share = sizes[place].min(room / left.max(1));
        (shares[place], room, left) = (share, room - share, left.saturating_sub(1));
    }
    let parts: Vec<String> = sections
        .iter()
        .zip(sizes.iter().zip(shares))
        .map(
            |(section, (size, share))| {
                if *size <= share { section.trim_end().to_owned() } else { first_lines(section, share) }
            },
        )
        .filter(|section| !section.is_empty())
        .collect();
    parts.join("\n")
}

/// The parts of a text that begin with a heading, and what stands before the first one.
fn sections(text: &str) -> Vec<&str> {
    let (mut found, mut begin, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        if is_heading(line) && at > begin {
            found.push(&text[begin..at]);
            begin = at;
        }
        at += line.len();
    }
    found.push(&text[begin..]);
    found
}

/// The first lines of a section that fit; of the first of them that does not, the beginning, if nothing else of the section would be
/// left.
fn first_lines(section: &str, most: u64) -> String {
    let room = most.saturating_sub(NOTE);
    let lines: Vec<&str> = section.lines().collect();
    let (mut kept, mut size) = (0, 0);
    for line in &lines {
        let more = tokens::of_text(line) + 1;
        if size + more > room {
            break;
        }
        (kept, size) = (kept + 1, size + more);
    }
    let mut text = lines[..kept].join("\n");
    let has_words = lines[..kept].iter().any(|line| !is_heading(line) && !line.trim().is_empty());
    if let (Some(line), false) = (lines.get(kept), has_words) {
        let end = fitting(line, room.saturating_sub(size));
        if end > 0 {
            text = [text.as_str(), &line[..end]].join(if kept > 0 { "\n" } else { "" });
            text.push('…');
        }
        kept += 1;
    }
    match lines.len().saturating_sub(kept) {
        0 => text,
        1 => text + "\n[1 more line cut off]",
        more => format!("{text}\n[{more} more lines cut off]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_of_notes_that_are_too_long_keeps_its_beginning_and_small_ones_stay_whole() {
        let done: String = (0..300).map(|n| format!("- step {n} was done as planned\n")).collect();
        let facts: String = (0..200).map(|n| format!("- fact {n}: heron {n}\n")).collect();
        let notes = format!("## Goal\nFind the heron.\n## Done\n{done}## Files\n- src/heron.rs\n## Facts\n{facts}");
        for most in [120, 300, 1_000] {
            let short = shortened(&notes, most);
            assert!(tokens::of_text(&short) <= most, "{} of {most}", tokens::of_text(&short));
            for kept in [
                "## Goal\nFind the heron.\n",
                "- step 0 ",
                "## Files\n- src/heron.rs\n",
                "- fact 0: ",
                "more lines cut off]",
            ] {
                assert!(short.contains(kept), "{kept}: {short}");
            }
        }
        assert_eq!(shortened(&notes, 100_000), notes.trim_end());
    }

    #[test]
    fn notes_without_lines_are_cut_where_the_room_ends() {
        let notes = format!("## Facts\n{}", "word ".repeat(2_000));
        let short = shortened(&notes, 200);
        assert!((150..=200).contains(&tokens::of_text(&short)), "{short}");
        assert!(short.starts_with("## Facts\nword word") && short.ends_with('…'));
        for most in 0..40 {
            let short = shortened(&notes, most);
            assert!(tokens::of_text(&short) <= most.max(NOTE) + NOTE, "{most}: {short}");
        }
    }
}
