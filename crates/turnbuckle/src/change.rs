//! What a run of a hook changed, as its record has it: text for people, cut to a length that a log can take for every run.

use serde::{Deserialize, Serialize};

use crate::message::{Content, Part, Reply, Text, ToolCall};

/// The longest text of a change, in bytes.
pub(crate) const MAX_TEXT: usize = 4 << 10;
/// The most texts that a record has of what its hook added.
pub(crate) const MAX_INJECTED: usize = 8;
/// Where two texts begin or end alike for longer than twice this, in bytes, only so much of it is kept, beside what differs.
const SURROUNDINGS: usize = 256;

/// What a run of a hook changed. The texts are for people: cut, and with what must not be stored taken out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// What it added to the context, or left for the next turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected: Vec<InjectedText>,
    /// What it put in the place of something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Edit>,
}

/// A text that a hook added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InjectedText {
    /// The text, at most 4 KiB of it. What is no text is named in brackets.
    pub text: Text,
    /// How long it stays in the context.
    #[serde(rename = "for")]
    pub lasts: InjectionSpan,
    /// Whether it was left out for lack of room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
}

/// How long something that a hook added stays in the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InjectionSpan {
    /// One model call.
    ThisCall,
    /// The turn.
    ThisTurn,
    /// It is in the log, and stays.
    Durable,
    /// It waits for the next turn, in the log.
    NextTurn,
}

/// What a hook put in the place of something else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Edit {
    /// What it changed.
    pub of: Edited,
    /// What is different, where the texts alone do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<Text>,
    /// What was there; at most 4 KiB of where the two differ. `None` if nothing was there, or if it is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Text>,
    /// What the hook made of it; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Text>,
    /// Whether a text is not kept, because a hook [hides](crate::hook::Settings::hides_changes) what it takes out, or because the
    /// reply was taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// What an [`Edit`] changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Edited {
    /// The user's message.
    Message,
    /// The messages of one model call.
    Context,
    /// The model's reply.
    Reply,
    /// The arguments of a call, as JSON.
    Arguments,
    /// The result of a call.
    Result,
    /// The result of the turn.
    TurnResult,
}

impl Edited {
    /// In words, behind "the".
    pub fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Context => "context of this call",
            Self::Reply => "reply",
            Self::Arguments => "arguments",
            Self::Result => "result",
            Self::TurnResult => "result of the turn",
        }
    }
}

impl InjectionSpan {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::ThisCall => "for this call",
            Self::ThisTurn => "for this turn",
            Self::Durable => "for good",
            Self::NextTurn => "for the next turn",
        }
    }
}

impl Edit {
    /// Drops its texts.
    pub(crate) fn hide(&mut self) {
        (self.before, self.after, self.hidden) = (None, None, true);
    }
}

/// The first bytes of a text, with a note of how much is missing.
pub(crate) fn cut(text: Text) -> Text {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let end = text.floor_char_boundary(MAX_TEXT);
    format!("{}… ({} bytes more)", &text[..end], text.len() - end).into()
}

/// Two texts without what they have in common at both ends, but for what surrounds the difference.
pub(crate) fn differing(before: Text, after: Text) -> (Text, Text) {
    let alike = before.bytes().zip(after.bytes()).take_while(|(one, other)| one == other).count();
    let front = before.floor_char_boundary(alike);
    let (one, other) = (&before[front..], &after[front..]);
    let alike = one.bytes().rev().zip(other.bytes().rev()).take_while(|(one, other)| one == other).count();
    let back = one.len() - one.ceil_char_boundary(one.len() - alike);
    let skipped = |alike: usize| if alike > 2 * SURROUNDINGS { alike - SURROUNDINGS } else { 0 };
    let (front, back) = (skipped(front), skipped(back));
    if front == 0 && back == 0 {
        return (before, after);
    }
    let shown = |text: &str| -> Text {
        let (from, to) = (text.floor_char_boundary(front), text.ceil_char_boundary(text.len() - back));
        let note = |bytes: usize| if bytes > 0 { format!("({bytes} bytes that are the same)") } else { String::new() };
        let (first, last) = (note(from), note(text.len() - to));
        let (first_gap, last_gap) = (if from > 0 { " …" } else { "" }, if to < text.len() { "… " } else { "" });
        format!("{first}{first_gap}{}{last_gap}{last}", &text[from..to]).into()
    };
    (shown(&before), shown(&after))
}

/// A content as text.
pub(crate) fn text_of(content: &Content) -> Text {
    if let [Part::Text { text }] = content.parts() {
        return text.clone();
    }
    let part = |part: &Part| match part {
        Part::Text { text } => text.to_string(),
        Part::Thinking(_) => "[thinking]".to_owned(),
        Part::Image(image) => format!("[image {}]", image.media_type),
        Part::File(file) => format!("[file {}]", file.name.as_ref().unwrap_or(&file.media_type)),
        Part::Provider(block) => format!("[a block of {}]", block.provider),
    };
    content.parts().iter().map(part).collect::<String>().into()
}

/// A reply as text: what it says, and with `calls` what it calls.
pub(crate) fn text_of_reply(reply: &Reply, calls: Option<&[ToolCall]>) -> Text {
    let said = text_of(&reply.content);
    let Some(calls) = calls.filter(|calls| !calls.is_empty()) else { return said };
    let calls = calls.iter().map(|call| format!("[call {}({})]", call.name, call.arguments));
    std::iter::once(said.to_string()).filter(|said| !said.is_empty()).chain(calls).collect::<Vec<_>>().join("\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_says_how_much_is_missing() {
        let text = "ä".repeat(MAX_TEXT);
        let shown = cut(format!("x{text}").into());
        assert!(shown.starts_with("xä") && shown.ends_with(&format!("ä… ({} bytes more)", MAX_TEXT + 2)), "{shown}");
        assert!(shown.len() < MAX_TEXT + 40);
        let short: Text = "x".repeat(MAX_TEXT).into();
        assert_eq!(cut(short.clone()), short);
    }

    #[test]
    fn of_two_long_texts_what_differs_is_shown_with_what_surrounds_it() {
        let (front, back) = ("é".repeat(5000), "ü".repeat(5000));
        let (before, after) =
            differing(format!("{front}old{back}").into(), format!("{front}something new{back}").into());
        for (text, middle) in [(&before, "old"), (&after, "something new")] {
            assert!(text.contains(&format!("é{middle}ü")) && text.len() < 2000, "{text}");
            assert!(text.starts_with("(9744 bytes that are the same) …é"), "{text}");
            assert!(text.ends_with("ü… (9744 bytes that are the same)"), "{text}");
        }
        let (before, after) = differing("ab".into(), "aab".into());
        assert_eq!((&*before, &*after), ("ab", "aab"));
    }

    #[test]
    fn texts_that_differ_inside_a_character_are_taken_apart_between_characters() {
        // Both characters begin with the same byte, or end with it.
        for (one, other) in [("é", "è"), ("¢", "â")] {
            let long = "ü".repeat(600);
            let (before, after) = differing(format!("{long}{one}{long}").into(), format!("{long}{other}{long}").into());
            assert!(before.contains(one) && after.contains(other), "{before} {after}");
        }
        let same: Text = "x".repeat(4000).into();
        let longer: Text = "x".repeat(4001).into();
        let (before, after) = differing(same, longer);
        assert!(before.len() < 1000 && after.len() < 1000, "{before} {after}");
    }
}
