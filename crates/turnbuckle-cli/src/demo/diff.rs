//! What changed in a small file, line by line.

use crate::show::Tone;

/// Lines with `-`, `+` or a space before them. For files of a few lines: it takes their product in time.
pub(super) fn lines(before: &str, after: &str) -> Vec<(Tone, String)> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    // common[i][j]: how many lines old[i..] and new[j..] have in common, in order.
    let mut common = vec![vec![0usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push((Tone::Dim, format!("  {}", old[i])));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            lines.push((Tone::Bad, format!("- {}", old[i])));
            i += 1;
        } else {
            lines.push((Tone::Good, format!("+ {}", new[j])));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_lines_stay_and_the_rest_is_marked() {
        let shown: Vec<String> = lines("a\nb\nc\n", "a\nx\nc\nd\n").into_iter().map(|(_, line)| line).collect();
        assert_eq!(shown, ["  a", "- b", "+ x", "  c", "+ d"]);
    }
}
