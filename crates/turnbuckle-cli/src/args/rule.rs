//! `--allow RULE`, with the tool that was meant if its name is misspelt.

use turnbuckle_tools::rules::{Rule, RuleError};

use crate::config::nearest;

/// Tools whose calls a pattern can tell apart.
const WITH_PATTERNS: [&str; 7] =
    ["shell", "fetch", "read_file", "list_files", "search_files", "write_file", "edit_file"];

/// A rule, or what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Rule, String> {
    text.parse::<Rule>().map_err(|error| match &error {
        RuleError::NoPattern(tool) => match nearest(tool, WITH_PATTERNS) {
            Some(near) => format!("`{tool}` is no tool that takes a pattern: did you mean `{near}`?"),
            None => error.to_string(),
        },
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_tool_with_a_pattern_is_answered_with_the_one_that_was_meant() {
        assert!(parse("shel(*)").unwrap_err().ends_with("did you mean `shell`?"));
        assert!(parse("Write_File(src/**)").unwrap_err().ends_with("did you mean `write_file`?"));
        assert!(parse("todo(x)").unwrap_err().contains("write `todo` alone"));
        assert!(parse("shell(cargo test *)").is_ok());
    }
}
