//! Trim: leaves out of a model call what it does not need.
//!
//! # What it does
//!
//! Looks at the assembled context before each model call and leaves out by rule what the call can do without: results that
//! stand there again further down, pictures and documents of long ago, the middle of long results of long ago. What is left
//! out is said in its place. The log stays as it is, and so does the order of messages: every call keeps its result.
//!
//! - The last `fresh` messages are never touched.
//! - What is left out changes where a message passes from fresh to old: from there on the provider's prompt cache has to
//!   begin anew. Trim when contexts are long, not as a matter of course.
//!
//! # Points
//!
//! `before_model`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `fresh` | 6 | messages at the end that stay as they are |
//! | `duplicates` | `true` | of equal results of one tool only the last stays |
//! | `attachments` | 2 | so many of the last pictures and documents stay |
//! | `max_result` | 4,000 | characters of an old result, beginning and end; at least 100 |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hooks::trim::{Trim, TrimOptions};
//!
//! let trim = Trim::new(TrimOptions { max_result: 1000, ..TrimOptions::default() })?;
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use std::collections::HashSet;

use serde::Deserialize;

use super::{ConfigHook, HookBuildContext, OptionError};
use crate::BoxError;
use crate::hook::{BeforeModel, BeforeModelContext, Hook};
use crate::message::{Content, Message, Part, Text};

const SAME: &str = "[the same result stands further down]";
const ATTACHMENT: &str = "[an attachment of long ago, left out]";

/// Leaves out of a model call what it does not need. See the [module](self) for options.
#[derive(Clone, Debug)]
pub struct Trim(TrimOptions);

/// Options of [`Trim`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrimOptions {
    /// How many messages at the end are never changed.
    pub fresh: usize,
    /// Whether of equal results of one tool only the last stays.
    pub duplicates: bool,
    /// How many of the last pictures and documents stay.
    pub attachments: usize,
    /// The most characters of an old result that stay.
    pub max_result: usize,
}

impl Default for TrimOptions {
    fn default() -> Self {
        Self { fresh: 6, duplicates: true, attachments: 2, max_result: 4000 }
    }
}

impl Trim {
    /// Checks the options.
    pub fn new(options: TrimOptions) -> Result<Self, OptionError> {
        if options.max_result < 100 {
            return Err(OptionError::new("max_result", "must be at least 100 characters"));
        }
        Ok(Self(options))
    }

    /// The messages that change, by index, with their new content. Walks from the last to the first, because the last
    /// of equal results and the last attachments stay.
    fn changes(&self, messages: &[Message]) -> Vec<(usize, Content)> {
        let old = messages.len().saturating_sub(self.0.fresh);
        let (mut seen, mut attachments) = (HashSet::<(Text, String)>::new(), 0);
        let mut changes = Vec::new();
        for (place, message) in messages.iter().enumerate().rev() {
            let content = message.content();
            let mut kept = self.with_attachments(content, place < old, &mut attachments);
            if let Message::Result { name, .. } = message {
                let plain = !content.parts().iter().any(is_attachment);
                let repeated = plain && !seen.insert((name.clone(), content.text()));
                if place < old && self.0.duplicates && repeated && content.text().len() > SAME.len() {
                    kept = SAME.into();
                } else if place < old {
                    kept = kept.parts().iter().map(|part| self.shortened(part)).collect();
                }
            }
            if kept != *content {
                changes.push((place, kept));
            }
        }
        changes
    }

    fn with_attachments(&self, content: &Content, old: bool, seen: &mut usize) -> Content {
        if !content.parts().iter().any(is_attachment) {
            return content.clone();
        }
        let keep = |part: &Part| {
            if is_attachment(part) {
                *seen += 1;
            }
            let gone = is_attachment(part) && old && *seen > self.0.attachments;
            if gone { Part::text(ATTACHMENT) } else { part.clone() }
        };
        let mut kept: Vec<Part> = content.parts().iter().rev().map(keep).collect();
        kept.reverse();
        kept.into()
    }

    fn shortened(&self, part: &Part) -> Part {
        let most = self.0.max_result;
        let Some(text) = part.as_text().filter(|text| text.chars().count() > most) else { return part.clone() };
        let head: String = text.chars().take(most * 3 / 4).collect();
        let tail_from = text.char_indices().rev().nth(most / 4 - 1).map_or(text.len(), |(at, _)| at);
        let missing = tail_from - head.len();
        Part::text(format!("{head}\n[… {missing} bytes of an old result left out …]\n{}", &text[tail_from..]))
    }
}

fn is_attachment(part: &Part) -> bool {
    matches!(part, Part::Image(_) | Part::File(_))
}

impl Hook for Trim {
    async fn before_model(&self, turn: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        let changes = turn.context().map(|request| self.changes(&request.messages)).unwrap_or_default();
        if changes.is_empty() {
            return Ok(BeforeModel::Continue);
        }
        let messages = turn.edit_context();
        for (place, kept) in changes {
            if let Some(message) = messages.get_mut(place) {
                match message {
                    Message::User(content) | Message::Note(content) => *content = kept,
                    Message::Assistant { content, .. } | Message::Result { content, .. } => *content = kept,
                }
            }
        }
        Ok(BeforeModel::Continue)
    }
}

impl ConfigHook for Trim {
    const NAME: &'static str = "trim";
    const SUMMARY: &'static str = "leaves duplicates, old pictures and long old results out of a model call";
    type Options = TrimOptions;

    fn from_options(options: TrimOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
