//! Text of models, tools and hooks as people may see it: what steers a screen, reverses the order of letters or hides itself is
//! replaced by a sign that is seen. The terminal and the page have one table for it.

use maud::Render;

/// The longest name or id that is shown whole. Ids of calls are chosen by the model and have no longest length.
const LONGEST_NAME: usize = 64;

/// Whether a character can steer a terminal, break a line, reverse the order of letters or hide that it is there. Joiners
/// (U+200C, U+200D) and variation selectors stay: some scripts and most emoji need them.
pub fn is_unsafe(ch: char) -> bool {
    match ch {
        ch if ch.is_control() => true,
        // Marks, embeddings, overrides and isolates that change the direction of text.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        // Line and paragraph separators.
        '\u{2028}' | '\u{2029}' => true,
        // Of no width: they make two names look the same.
        '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{feff}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        '\u{34f}' | '\u{17b4}' | '\u{17b5}' | '\u{1d173}'..='\u{1d17a}' => true,
        // Fillers of Hangul, which look like blanks and are letters to a program.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => true,
        _ => false,
    }
}

/// Text of any length and of several lines. In markup it is escaped.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl Render for Shown<'_> {
    fn render_to(&self, out: &mut String) {
        escape(self.0, out);
    }
}

/// A name or an id in the middle of a line: no line ends either, and cut if it is very long.
pub(crate) struct Name<'a>(pub(crate) &'a str);

impl Render for Name<'_> {
    fn render_to(&self, out: &mut String) {
        let mut chars = self.0.chars();
        for ch in chars.by_ref().take(LONGEST_NAME) {
            escape_char(if is_unsafe(ch) { char::REPLACEMENT_CHARACTER } else { ch }, out);
        }
        if chars.next().is_some() {
            out.push('…');
        }
    }
}

/// Appends text as HTML, in an element or in a quoted attribute.
pub(crate) fn escape(text: &str, out: &mut String) {
    out.reserve(text.len());
    for ch in text.chars() {
        match ch {
            '\n' | '\t' => out.push(ch),
            // Line ends of other systems are line ends.
            '\r' => {}
            ch if is_unsafe(ch) => out.push(char::REPLACEMENT_CHARACTER),
            ch => escape_char(ch, out),
        }
    }
}

fn escape_char(ch: char, out: &mut String) {
    match ch {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#39;"),
        ch => out.push(ch),
    }
}

/// JSON in which what is not seen is written as an escape, so that it is seen and stays the same value.
pub(crate) fn visible_json(value: &serde_json::Value) -> String {
    let json = serde_json::to_string_pretty(value).unwrap_or_default();
    let mut visible = String::with_capacity(json.len());
    for ch in json.chars() {
        match ch {
            // Outside of strings JSON is plain ASCII, and inside of them serde escapes line ends.
            ch if ch != '\n' && is_unsafe(ch) => {
                ch.encode_utf16(&mut [0; 2]).iter().for_each(|unit| visible.push_str(&format!("\\u{unit:04x}")));
            }
            ch => visible.push(ch),
        }
    }
    visible
}

/// One segment of a path: whatever an id consists of, it stays inside its segment.
pub(crate) fn segment(text: &str) -> String {
    let mut path = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => path.push(char::from(byte)),
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_place_in_the_markup() {
        let hostile = "<b a=\"1\" c='2'>&\u{202e}\u{0}\u{200b}\n\tx\r";
        assert_eq!(Shown(hostile).render().0, "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;���\n\tx");
        assert_eq!(Name("a\nb<").render().0, "a�b&lt;");
        assert_eq!(Name(&"x".repeat(5_000)).render().0.chars().count(), LONGEST_NAME + 1);
        let family = "👨\u{200d}👩\u{200d}👧 ❤\u{fe0f} نمی\u{200c}خواهم";
        assert_eq!(Shown(family).render().0, family);
    }

    #[test]
    fn an_id_stays_inside_its_segment() {
        assert_eq!(segment("c_1"), "c_1");
        assert_eq!(segment("../a b?x#é"), "%2E%2E%2Fa%20b%3Fx%23%C3%A9");
    }
}
