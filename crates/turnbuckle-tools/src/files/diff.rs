//! The difference between two versions of a text, in the unified format.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

/// Unchanged lines that are shown around a change.
const CONTEXT: usize = 3;
/// What a result has of one diff.
const MOST_LINES: usize = 300;
const MOST_BYTES: usize = 16 * 1024;
/// Of a line: minified code is one line.
const WIDTH: usize = 500;
/// After this time the diff is still right, but no longer the shortest.
const SEARCHED: Duration = Duration::from_millis(500);

/// The hunks that make `new` of `old`; empty if they are the same. Only `\n` ends a line, as `patch` and `git` have it.
pub(super) fn hunks(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Instant::now().checked_add(SEARCHED));
    let mut text = String::new();
    for group in group_diff_ops(ops, CONTEXT) {
        hunk(&mut text, &group, &old, &new);
    }
    text
}

fn hunk(text: &mut String, group: &[DiffOp], old: &[&str], new: &[&str]) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let old_lines = first.old_range().start..last.old_range().end;
    let new_lines = first.new_range().start..last.new_range().end;
    // Writing to a string does not fail.
    let _ = writeln!(text, "@@ -{} +{} @@", range(&old_lines), range(&new_lines));
    for op in group {
        if op.tag() == DiffTag::Equal {
            lines(text, ' ', &old[op.old_range()]);
        } else {
            lines(text, '-', &old[op.old_range()]);
            lines(text, '+', &new[op.new_range()]);
        }
    }
}

/// Lines are counted from 1; a range without lines stands behind the line that it names.
fn range(lines: &std::ops::Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        len => format!("{},{len}", lines.start + 1),
    }
}

fn lines(text: &mut String, mark: char, lines: &[&str]) {
    for line in lines {
        text.push(mark);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// A file before and after a change, with a header. `None` stands for a file that is not there.
pub(super) fn whole_diff(path: &str, old: Option<&str>, new: Option<&str>) -> String {
    header(path, old, new) + &hunks(old.unwrap_or_default(), new.unwrap_or_default())
}

fn header(path: &str, old: Option<&str>, new: Option<&str>) -> String {
    let side = |there: Option<&str>, prefix: &str| match there {
        Some(_) => format!("{prefix}/{path}"),
        None => "/dev/null".to_owned(),
    };
    format!("--- {}\n+++ {}\n", side(old, "a"), side(new, "b"))
}

/// The same, cut if it is long.
pub(super) fn short_diff(path: &str, old: Option<&str>, new: Option<&str>) -> String {
    let hunks = hunks(old.unwrap_or_default(), new.unwrap_or_default());
    let mut shown = header(path, old, new);
    let (mut kept, total) = (0, hunks.lines().count());
    for line in hunks.split_inclusive('\n') {
        let end = line.floor_char_boundary(WIDTH);
        if kept == MOST_LINES || shown.len() + end > MOST_BYTES {
            let _ = writeln!(shown, "[{} more lines of this diff are not shown]", total - kept);
            break;
        }
        shown.push_str(&line[..end]);
        if end < line.len() {
            shown.push_str("…\n");
        }
        kept += 1;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_the_format_that_patch_reads() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n";
        assert_eq!(hunks(old, new), "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
        assert_eq!(hunks("", "a\n"), "@@ -0,0 +1 @@\n+a\n");
        assert_eq!(hunks("a\r\n", "a"), "@@ -1 +1 @@\n-a\r\n+a\n\\ No newline at end of file\n");
        assert_eq!(hunks(old, old), "");
    }

    #[test]
    fn a_long_diff_is_cut_and_says_so() {
        let new: String = (0..1000).map(|line| format!("{line}\n")).collect();
        let shown = short_diff("f", None, Some(&new));
        assert!(shown.starts_with("--- /dev/null\n+++ b/f\n@@ -0,0 +1,1000 @@\n+0\n"));
        assert!(shown.ends_with("[701 more lines of this diff are not shown]\n"), "{shown}");
        let wide = short_diff("f", None, Some(&"é".repeat(100_000)));
        assert!(wide.len() < 1000 && wide.contains("…\n"), "{wide}");
        assert_eq!(whole_diff("f", None, Some(&new)).lines().count(), 1003);
    }
}
