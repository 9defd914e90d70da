//! Which tools, or other names, a group of handlers is for.

use regress::Regex;

/// The `matcher` of a group.
#[derive(Clone, Debug)]
pub(super) enum Matcher {
    /// Absent, empty or `*`.
    All,
    /// Exact names.
    Names(Vec<String>),
    /// A JavaScript regular expression that may match anywhere in the name.
    Pattern(Box<Regex>),
    /// A regular expression that cannot be read. A gate with such a matcher blocks: it must not be gone in silence.
    Bad(String),
}

impl Matcher {
    /// `narrow`: only letters, digits, `_` and `|` make exact names.
    pub(super) fn parse(text: &str, narrow: bool) -> Self {
        let signs = if narrow { "_|" } else { "_- ,|" };
        let is_exact = |ch: char| ch.is_ascii_alphanumeric() || signs.contains(ch);
        match text {
            "" | "*" => Self::All,
            names if names.chars().all(is_exact) => {
                Self::Names(names.split(['|', ',']).map(str::trim).map(str::to_owned).collect())
            }
            pattern => match Regex::new(pattern) {
                Ok(regex) => Self::Pattern(Box::new(regex)),
                Err(error) => Self::Bad(format!("the matcher {pattern:?} cannot be read: {error}")),
            },
        }
    }

    /// Whether the group is for this name; an error if nobody can tell.
    pub(super) fn fits(&self, name: &str) -> Result<bool, &str> {
        match self {
            Self::All => Ok(true),
            Self::Names(names) => Ok(names.iter().any(|one| one == name)),
            Self::Pattern(regex) => Ok(regex.find(name).is_some()),
            Self::Bad(why) => Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact_and_everything_else_is_a_javascript_expression_that_matches_anywhere() {
        for (matcher, name, fits) in [
            ("", "Bash", true),
            ("*", "Bash", true),
            ("Bash", "Bash", true),
            ("Bash", "bash", false),
            ("Bash", "BashOutput", false),
            ("Edit|MultiEdit|Write", "Write", true),
            ("Bash, PowerShell", "PowerShell", true),
            ("code-reviewer", "my-code-reviewer", false),
            ("mcp__memory", "mcp__memory__get", false),
            ("mcp__memory__.*", "mcp__memory__get", true),
            ("^mcp__", "x_mcp__", false),
            (".*Edit", "MultiEdit", true),
            ("^(?!Read).*$", "Read", false),
            ("^(?!Read).*$", "Write", true),
            ("Edit.", "NotebookEdits", true),
        ] {
            assert_eq!(Matcher::parse(matcher, false).fits(name), Ok(fits), "{matcher:?} on {name:?}");
        }
        assert!(
            Matcher::parse("Bash(", false).fits("Bash").is_err(),
            "what cannot be read fits nothing and everything"
        );
        assert_eq!(Matcher::parse("rate_limit|overloaded", true).fits("overloaded"), Ok(true));
        assert_eq!(Matcher::parse("a-b", true).fits("xa-bx"), Ok(true), "a hyphen makes an expression there");
    }
}
