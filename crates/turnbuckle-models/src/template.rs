//! Events that differ in one text only: what stands around it is compared instead of parsed.
//!
//! A reply comes in thousands of events, each with the same envelope around a few letters. JSON with the same bytes before and
//! behind a string, and a string in between, has the same meaning but for that string. So an event whose envelope is that of an
//! event parsed before needs no parser; any other goes to it.

/// The envelope of an event that says one text and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Template {
    /// Up to the text, its quotation mark included; empty: nothing was learned.
    before: Vec<u8>,
    behind: Vec<u8>,
}

impl Template {
    /// Learns the envelope of `event`, of which `text` is a part and says all that the event says; whether it did. A text that
    /// was escaped lies elsewhere, and teaches nothing.
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

    /// The text of an event with the same envelope, if nothing in it is escaped.
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
