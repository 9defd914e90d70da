//! Patterns of paths below the project.

use wildmatch::WildMatch;

use super::RuleError;

/// `src/**`, `docs/*.md`: names separated by `/`.
#[derive(Clone, Debug)]
pub(super) struct PathPattern(Vec<Name>);

#[derive(Clone, Debug)]
enum Name {
    /// `**`: any number of names, also none.
    Any,
    /// It stands in the pattern as it is.
    Same(String),
    One(WildMatch),
}

impl PathPattern {
    pub(super) fn new(pattern: &str) -> Result<Self, RuleError> {
        let refused = || RuleError::Path(pattern.to_owned());
        let name = |name: &str| match name {
            "" | "." | ".." => Err(refused()),
            "**" => Ok(Name::Any),
            // Within a name `**` would look as if it crossed folders, and `?` is a sign of the matcher alone.
            name if name.contains("**") || name.contains('?') => Err(refused()),
            name if !name.contains('*') => Ok(Name::Same(name.to_owned())),
            name => Ok(Name::One(WildMatch::new(name))),
        };
        Ok(Self(pattern.split('/').map(name).collect::<Result<_, _>>()?))
    }

    /// Whether the first names of the paths that match stand in the pattern as they are.
    pub(super) fn names_first(&self, count: usize) -> bool {
        self.0.get(..count).is_some_and(|names| names.iter().all(|name| matches!(name, Name::Same(_))))
    }

    /// Whether a path in its normal form matches. One that is not in normal form does not.
    pub(super) fn matches(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        let is_normal = |name: &&str| !matches!(*name, "" | "." | "..");
        names.iter().all(is_normal) && matches(&self.0, &names)
    }
}

fn matches(pattern: &[Name], names: &[&str]) -> bool {
    match (pattern, names) {
        ([], []) => true,
        // `src/**` is what is below src, not src itself.
        ([Name::Any], []) => false,
        ([Name::Any, rest @ ..], _) => {
            (rest.is_empty() && !names.is_empty())
                || (!rest.is_empty() && (0..=names.len()).any(|skipped| matches(rest, &names[skipped..])))
        }
        ([Name::Same(same), rest @ ..], [name, names @ ..]) => same == name && matches(rest, names),
        ([Name::One(one), rest @ ..], [name, names @ ..]) => one.matches(name) && matches(rest, names),
        _ => false,
    }
}
