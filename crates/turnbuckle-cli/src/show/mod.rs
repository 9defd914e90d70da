//! What happens, as a person reads it: events are folded into lines, and a screen lays the lines out.

mod asked;
mod commands;
mod fold;
mod layout;
mod safe;
mod words;
mod wrap;

pub(crate) use asked::{AskedRow, GUTTER, asked_rows, asked_text, diff_rows, diff_text};
pub(crate) use fold::Fold;
pub(crate) use layout::{INDENT, Layout, Palette, terminal_width};
pub(crate) use safe::{clean, json_line, json_lines, log_line, name, quoted};
pub(crate) use words::{
    and_list, brief, called, count, few_lines, is_shown_whole, last_lines, opening, pending, result, title,
};
pub(crate) use wrap::columns;

/// What a line is about; the screen chooses the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Dim,
    Tool,
    Hook,
    Refusal,
    Good,
    Bad,
}

/// One thing that happened, under the word of its stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) label: &'static str,
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// What the fold makes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Line(Line),
    /// A piece of what the model says.
    Text(String),
    /// A piece of what it thinks.
    Thinking(String),
    /// It has said all of this reply.
    EndOfText,
    /// A whole reply that was not the last: for those who do not show pieces.
    Message(String),
}
