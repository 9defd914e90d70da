//! A reply while it is streamed: blocks that are complete stay as they are, and only the last one is sent again, or just the text
//! that it grew by. So a long reply costs no more per piece than a short one, and nothing flickers.

use maud::{Markup, PreEscaped, html};

use super::markdown;
use super::safe::escape;

/// The longest block that is sent whole again. A longer one is cut at a line end, code within its fence. Tests cut sooner.
const LONGEST: usize = if cfg!(test) { 256 } else { 16 * 1024 };

/// How far the text of a reply has been shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    /// Everything before this byte is in blocks that are complete.
    done: usize,
    /// How many those are.
    blocks: usize,
    /// The opening line of the fence in which the rest stands, if a block of code was cut.
    fence: String,
    /// The last block as it was sent.
    open: String,
}

impl Draft {
    /// All of a text, and where it stands then.
    pub(super) fn whole(text: &str) -> (Self, Markup) {
        let mut draft = Self::default();
        let mut blocks = draft.complete(text);
        draft.open = draft.rest(text);
        blocks.push(draft.open.clone());
        let shown = html! { @for (number, block) in blocks.iter().enumerate() { (element(number, block)) } };
        (draft, shown)
    }

    /// What changes on the page now that the text is longer.
    pub(super) fn grow(&mut self, text: &str) -> String {
        let (first, mut out) = (self.blocks, String::new());
        let complete = self.complete(text);
        let rest = self.rest(text);
        if complete.is_empty() {
            match appended(&self.open, &rest) {
                Some((added, depth)) => {
                    let id = format!("s-{first}");
                    let added = PreEscaped(added);
                    out.push_str(&html! { div id=(id) data-append=(depth) { (added) } }.0);
                }
                None => out.push_str(&element(first, &rest).0),
            }
        } else {
            for (number, block) in complete.iter().chain([&rest]).enumerate() {
                out.push_str(&element(first + number, block).0);
            }
        }
        self.open = rest;
        out
    }

    /// Takes the blocks that are complete out of the rest. Where it cuts depends on the text alone and not on the pieces in which
    /// the text came.
    fn complete(&mut self, text: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        loop {
            let rest = &text[self.done..];
            let is_long = rest.len() > LONGEST;
            let within = &rest[..rest.floor_char_boundary(LONGEST)];
            // A line that is not complete may still become anything, unless it is too long to wait for.
            let window = match within.rfind('\n') {
                Some(end) => &within[..=end],
                None if is_long => within,
                None => return blocks,
            };
            let source = format!("{}{window}", self.fence);
            let starts = markdown::block_starts(&source);
            let starts: Vec<usize> =
                starts.iter().skip(1).map(|start| start.saturating_sub(self.fence.len())).collect();
            let mut from = 0;
            for start in starts {
                blocks.push(self.block(&window[from..start]));
                self.fence.clear();
                from = start;
            }
            if from == 0 && is_long {
                blocks.push(self.block(window));
                self.fence = open_fence(&source);
                from = window.len();
            }
            self.done += from;
            if !is_long {
                return blocks;
            }
        }
    }

    fn block(&mut self, text: &str) -> String {
        self.blocks += 1;
        markdown::render(&format!("{}{text}", self.fence)).0
    }

    fn rest(&self, text: &str) -> String {
        markdown::render(&format!("{}{}", self.fence, &text[self.done..])).0
    }
}

fn element(number: usize, block: &str) -> Markup {
    let (id, block) = (format!("s-{number}"), PreEscaped(block));
    html! { div.md id=(id) data-in="streaming-text" { (block) } }
}

/// The opening line of a block of code that is not closed.
fn open_fence(block: &str) -> String {
    let mut lines = block.lines();
    let line = lines.next().unwrap_or_default();
    let Some(mark) = line.trim_start().chars().next().filter(|mark| matches!(mark, '`' | '~')) else {
        return String::new();
    };
    let length = line.trim_start().chars().take_while(|ch| *ch == mark).count();
    let closes = |line: &str| line.trim().len() >= length && line.trim().chars().all(|ch| ch == mark);
    if length < 3 || lines.any(closes) { String::new() } else { format!("{line}\n") }
}

/// The text by which a block grew, escaped, and how deep the element stands that it belongs into, if nothing else changed.
fn appended<'a>(before: &str, after: &'a str) -> Option<(&'a str, usize)> {
    let same = before.bytes().zip(after.bytes()).take_while(|(one, other)| one == other).count();
    let end = before.get(same..)?;
    let added = after.get(same..)?.strip_suffix(end)?;
    let depth = closing_tags(end)?;
    (!added.is_empty() && !added.contains('<')).then_some((added, depth))
}

/// How many closing tags a piece of HTML consists of; none if it has anything else.
fn closing_tags(mut html: &str) -> Option<usize> {
    let mut count = 0;
    while !html.is_empty() {
        html = html.strip_prefix("</")?.split_once('>')?.1;
        count += 1;
    }
    (count > 0).then_some(count)
}

/// Thinking while it is streamed is shown as it is.
pub(super) fn thinking(text: &str) -> Markup {
    let mut shown = String::new();
    escape(text, &mut shown);
    PreEscaped(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// What the script does with what `grow` and `whole` give, for blocks.
    #[derive(Default, Debug, PartialEq)]
    struct Page(BTreeMap<usize, String>);

    impl Page {
        fn put(&mut self, html: &str) {
            for part in html.replace("<div class=\"wide\"", "<DIV").split("<div ").skip(1) {
                let number = part.split("id=\"s-").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
                let inner = part.split_once('>').unwrap().1;
                let inner = inner.strip_suffix("</div>").unwrap();
                let Some(depth) = part.split("data-append=\"").nth(1) else {
                    self.0.insert(number, inner.to_owned());
                    continue;
                };
                let depth: usize = depth.split('"').next().unwrap().parse().unwrap();
                let block = self.0.get_mut(&number).unwrap();
                let mut place = block.len();
                for _ in 0..depth {
                    place = block[..place].rfind("</").unwrap();
                }
                block.insert_str(place, inner);
            }
        }
    }

    const PIECES: &[&str] = &[
        "a",
        " b ",
        "\n",
        "\n\n",
        "*",
        "**",
        "`",
        "```",
        "```rust\nlet x",
        "- ",
        "1. ",
        "# ",
        "> ",
        "&am",
        "p;",
        "<b>",
        "é",
        "[x](http://a)",
        "---",
        "|a|b|\n",
        "|--|--|\n",
        "    code",
        "\t",
        "~~~\n",
        "word word word",
    ];

    proptest! {
        #[test]
        fn pieces_give_the_same_page_as_the_whole(
            pieces in prop::collection::vec(prop::sample::select(PIECES), 0..80), long in 0..3_usize
        ) {
            let (mut text, mut draft, mut page) = (String::new(), Draft::whole("").0, Page::default());
            page.put(&Draft::whole("").1.0);
            for (number, piece) in pieces.iter().enumerate() {
                text.push_str(piece);
                if number == 5 {
                    text.push_str(&"0123456789 abcde\n".repeat(long * 10));
                    text.push_str(&"z".repeat(long * 200));
                }
                page.put(&draft.grow(&text));
            }
            let mut whole = Page::default();
            whole.put(&Draft::whole(&text).1.0);
            prop_assert!(page == whole, "{text:?}\n{page:?}\n{whole:?}");
        }
    }

    #[test]
    fn a_word_more_is_sent_as_a_word() {
        let (mut draft, _) = Draft::whole("Hello **wor");
        assert_eq!(draft.grow("Hello **worl"), r#"<div id="s-0" data-append="1">l</div>"#);
        assert!(draft.grow("Hello **world**").contains("<strong>world</strong>"));
        assert_eq!(draft.grow("Hello **world** &"), r#"<div id="s-0" data-append="1"> &amp;</div>"#);
        let (mut draft, _) = Draft::whole("```\nlet a");
        assert_eq!(draft.grow("```\nlet ab"), r#"<div id="s-0" data-append="2">b</div>"#);
    }

    #[test]
    fn a_long_block_is_not_sent_again_and_again() {
        let (mut draft, mut text, mut most) = (Draft::whole("").0, "```rust\n".to_owned(), 0);
        for number in 0..2_000 {
            text.push_str(&format!("f({number}); // <b>\n"));
            most = most.max(draft.grow(&text).len());
        }
        assert!(draft.blocks > 100 && most < 20 * LONGEST, "{} {most}", draft.blocks);
    }
}
