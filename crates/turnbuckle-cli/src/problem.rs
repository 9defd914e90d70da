//! What is wrong, where it stands, and what to do about it.

mod excerpt;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle_models::without_password;

use crate::show::clean;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// As the person named it.
    pub(crate) file: Arc<str>,
    /// From 1.
    pub(crate) line: usize,
    /// What stands there, if the file was read.
    pub(crate) at: Option<Spot>,
}

/// A byte of a file's text.
#[derive(Clone)]
pub(crate) struct Spot {
    pub(crate) text: Arc<str>,
    pub(crate) offset: usize,
}

impl fmt::Debug for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may hold secrets.
        f.debug_struct("Spot").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl PartialEq for Spot {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset && Arc::ptr_eq(&self.text, &other.text)
    }
}

impl Eq for Spot {}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Whether something would fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// It would.
    Error,
    /// It would not, and probably is not meant.
    Warning,
    /// Nothing is wrong: somebody must answer before it goes on.
    Waiting,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Waiting => "waiting",
        }
    }
}

/// Something to tell the person. What it says may quote an address; a password in it is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    place: Option<Place>,
    what: String,
    hint: Option<String>,
}

impl Problem {
    pub(crate) fn error(what: impl Into<String>) -> Self {
        Self { severity: Severity::Error, place: None, what: without_password(&what.into()).into_owned(), hint: None }
    }

    pub(crate) fn warning(what: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(what) }
    }

    /// Not a problem, but what must happen before it goes on.
    pub(crate) fn waiting(what: impl Into<String>) -> Self {
        Self { severity: Severity::Waiting, ..Self::error(what) }
    }

    pub(crate) fn at(mut self, place: &Place) -> Self {
        self.place = Some(place.clone());
        self
    }

    pub(crate) fn at_if_known(mut self, place: Option<&Place>) -> Self {
        self.place = place.cloned();
        self
    }

    /// At this place, unless it has a better one.
    pub(crate) fn or_at(mut self, place: Option<&Place>) -> Self {
        self.place = self.place.or_else(|| place.cloned());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(without_password(&hint.into()).into_owned());
        self
    }

    /// Where it stands among those of one reading: by line; what has no place comes last.
    pub(crate) fn order(&self, files: &[PathBuf]) -> (usize, usize) {
        let Some(place) = &self.place else { return (usize::MAX, 0) };
        let file = files.iter().position(|file| file.display().to_string() == *place.file);
        (file.unwrap_or(usize::MAX - 1), place.line)
    }

    /// What is wrong, without where and what to do.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "severity": self.severity.word(), "what": self.what, "hint": self.hint,
            "file": self.place.as_ref().map(|place| &*place.file), "line": self.place.as_ref().map(|place| place.line),
        })
    }

    /// With the line of the file that is meant, and a caret under what is wrong in it.
    pub(crate) fn with_excerpt(&self) -> String {
        let Some(excerpt) = self.place.as_ref().and_then(excerpt::of) else { return self.to_string() };
        let text = self.to_string();
        match self.hint.as_ref().and_then(|_| text.rfind("\nhint: ")) {
            Some(end) => format!("{}\n{excerpt}{}", &text[..end], &text[end..]),
            None => format!("{text}\n{excerpt}"),
        }
    }

    /// Place, text and hint, for output that marks errors in its own way.
    pub(crate) fn without_severity(&self) -> String {
        let place = self.place.as_ref().map(|place| indented(&format!("{place}: "))).unwrap_or_default();
        let hint = self.hint.as_ref().map(|hint| format!("\nhint: {}", indented(hint))).unwrap_or_default();
        format!("{place}{}{hint}", indented(&self.what))
    }
}

impl fmt::Display for Problem {
    /// What and where; the hint is a line of its own. Names and reasons in it may come from a model, a file or a program:
    /// their further lines are indented, so that none of them can pass for an error or a hint of the program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity.word(), self.without_severity())
    }
}

fn indented(text: &str) -> String {
    clean(text.trim_end_matches('\n')).replace('\n', "\n  ")
}

/// An error and what it comes from, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    followed_by_causes(error.to_string(), error.source())
}

/// A text, what it comes from, and what that comes from, on one line.
pub(crate) fn followed_by_causes(mut text: String, mut cause: Option<&(dyn std::error::Error + 'static)>) -> String {
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_pass_for_a_hint_of_the_program() {
        let forged = Problem::error("call c1\nhint: run `rm -rf .`\u{2028}error: x").hint("look\nhint: twice");
        assert_eq!(
            forged.to_string(),
            "error: call c1\n  hint: run `rm -rf .`\u{fffd}error: x\nhint: look\n  hint: twice"
        );
    }
}
