//! A fast path for events that differ from an earlier one in one string only.
//!
//! A reply comes in thousands of events, each with the same JSON around a few letters of text. JSON with the same bytes before
//! and after a string has the same meaning except for that string. So an event whose bytes around the text equal those of an event
//! that was parsed before needs no parser; any other event is parsed. In a burst, where one read brings a hundred events, a chunk
//! costs a third to a half of what it costs with the parser alone. It does not help with OpenAI's own stream, whose chunks all
//! differ in a field of random letters.

/// The bytes around the text of an event that has text and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Template {
    /// The bytes up to the text, with its opening quotation mark; empty before an event was learned.
    before: Vec<u8>,
    /// The bytes after the text, from its closing quotation mark on.
    behind: Vec<u8>,
}

impl Template {
    /// Learns from an event that was parsed and has `text` and nothing else. Returns whether it could: `text` must be a slice of
    /// `event`, which it is only if no character of it is escaped. Where it is, follows from the addresses of the two.
    pub(crate) fn learn(&mut self, event: &str, text: &str) -> bool {
        let at = (text.as_ptr() as usize).wrapping_sub(event.as_ptr() as usize);
        let (Some(before), Some(behind)) =
            (event.get(..at), at.checked_add(text.len()).and_then(|end| event.get(end..)))
        else {
            return false;
        };
        if text.is_empty() || !before.ends_with('"') || !behind.starts_with('"') {
            return false;
        }
        self.before.clear();
        self.before.extend_from_slice(before.as_bytes());
        self.behind.clear();
        self.behind.extend_from_slice(behind.as_bytes());
        true
    }

    /// The text of an event with the same bytes around it; `None` if they differ, or if a character of the text is escaped.
    pub(crate) fn text<'e>(&self, event: &'e [u8]) -> Option<&'e str> {
        let text = event.strip_prefix(&*self.before)?.strip_suffix(&*self.behind)?;
        let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
        (!self.before.is_empty() && text.iter().all(is_plain)).then(|| std::str::from_utf8(text).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(event: &str, text: &str) -> Template {
        let mut template = Template::default();
        let at = event.find(text).unwrap();
        template.learn(event, &event[at..at + text.len()]);
        template
    }

    #[test]
    fn the_same_envelope_gives_its_text_and_every_other_none() {
        let template = learned(r#"{"t":"first","n":1}"#, "first");
        assert_eq!(template.text(r#"{"t":"né","n":1}"#.as_bytes()), Some("né"));
        assert_eq!(template.text(br#"{"t":"","n":1}"#), Some(""));
        for other in [
            r#"{"t":"a","n":2}"#,
            r#"{"u":"a","n":1}"#,
            r#"{"t":"a\n","n":1}"#,
            r#"{"t":"a","t":"b","n":1}"#,
            "{\"t\":\"a\nb\",\"n\":1}",
            r#"{"t":"a","n":1} "#,
            r#"{"t":"n":1}"#,
            "",
        ] {
            assert_eq!(template.text(other.as_bytes()), None, "{other}");
        }
        assert_eq!(template.text(b"{\"t\":\"\xff\",\"n\":1}"), None, "half a character is not text");
    }

    #[test]
    fn what_says_nothing_or_lies_elsewhere_teaches_nothing() {
        assert_eq!(Template::default().text(b""), None);
        assert_eq!(Template::default().text(b"x"), None);
        let mut template = Template::default();
        let event = r#"{"t":"a\nb"}"#;
        assert!(!template.learn(event, "a\nb"));
        assert!(!template.learn(event, ""));
        assert_eq!(template.text(event.as_bytes()), None);
        assert_eq!(learned("{\"n\":17}", "17").text(b"{\"n\":18}"), None, "only a string is one");
    }
}
