//! What a handler wrote to stderr, as far as it says why the handler failed.

/// The line that says what went wrong: the first, as the protocol has it, but the last where Python says where it stopped.
pub(super) fn telling_line(stderr: &str) -> &str {
    let mut lines = stderr.lines();
    match lines.next().unwrap_or_default() {
        first if first.starts_with("Traceback (most recent call last)") => lines.next_back().unwrap_or(first),
        first => first,
    }
}

/// Interpreters exit 2 for a script that is not there, and shells for a syntax error.
pub(super) fn looks_like_a_failed_interpreter(stderr: &str) -> bool {
    const SIGNS: &[&str] =
        &["can't open file", "No such file or directory", "Syntax error", "syntax error", "cannot open", "not found"];
    let last = stderr.lines().last().unwrap_or_default();
    stderr.lines().count() <= 3 && SIGNS.iter().any(|sign| last.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_python_is_told_by_its_last_line_and_others_by_their_first() {
        let traceback =
            "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nValueError: no such thing";
        assert_eq!(telling_line(traceback), "ValueError: no such thing");
        assert_eq!(telling_line("one\ntwo"), "one");
        assert_eq!(telling_line(""), "");
    }
}
