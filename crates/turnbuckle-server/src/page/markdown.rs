//! Markdown of models, tools and hooks as HTML. It is hostile: markup in it is shown as text, links lead only to the web or to mail,
//! and pictures are never loaded, since the address of one can carry away what the page shows.

use maud::{Markup, PreEscaped, Render as _};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::code;
use super::safe::{Shown, escape, is_unsafe};

/// How deep lists, quotes and tables may stand in each other. What is deeper is shown without them.
const DEEPEST: usize = 24;
/// The longest text that is read as Markdown. What is longer is shown as it is.
const LONGEST: usize = 256 * 1024;

/// The whole of a text.
pub(super) fn render(text: &str) -> Markup {
    if text.len() > LONGEST {
        return code::block("", text);
    }
    let mut writer = Writer::default();
    for event in parser(text) {
        writer.event(event);
    }
    PreEscaped(writer.out)
}

fn parser(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS)
}

/// Where the blocks of a text begin: paragraphs, lists, tables, code. The last one may go on when more text comes.
pub(super) fn block_starts(text: &str) -> Vec<usize> {
    let (mut starts, mut depth) = (Vec::new(), 0_usize);
    // Spaces before a block are part of it: those of indented code decide what it is.
    let mut begins = |at: usize| starts.push(text[..at].rfind('\n').map_or(0, |end| end + 1));
    for (event, range) in parser(text).into_offset_iter() {
        match event {
            Event::Start(_) => {
                if depth == 0 {
                    begins(range.start);
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Rule if depth == 0 => begins(range.start),
            _ => {}
        }
    }
    starts.dedup();
    starts
}

#[derive(Default)]
struct Writer {
    out: String,
    /// What ends the elements that are open; empty for one that was left out.
    open: Vec<&'static str>,
    /// The language and the text of the code block that is open.
    code: Option<(String, String)>,
    /// The address of the picture that is open.
    picture: Option<String>,
    columns: Vec<Alignment>,
    column: usize,
    in_head: bool,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(end),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(text) => {
                self.out.push_str("<code>");
                self.text(&text);
                self.out.push_str("</code>");
            }
            Event::SoftBreak => self.out.push('\n'),
            Event::HardBreak => self.out.push_str("<br>"),
            Event::Rule => self.out.push_str("<hr>"),
            Event::TaskListMarker(done) => self.out.push_str(if done { "☑ " } else { "☐ " }),
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => self.text(&text),
        }
    }

    fn text(&mut self, text: &str) {
        match &mut self.code {
            Some((_, code)) => code.push_str(text),
            None => escape(text, &mut self.out),
        }
    }

    fn element(&mut self, begin: &str, end: &'static str) {
        if self.open.len() >= DEEPEST {
            return self.open.push("");
        }
        self.out.push_str(begin);
        self.open.push(end);
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.element("<p>", "</p>"),
            // Not headings of the page: whoever goes from heading to heading goes from message to message.
            Tag::Heading { level, .. } => self.element(&format!("<p class=\"h{}\">", level as u8), "</p>"),
            Tag::BlockQuote(_) => self.element("<blockquote>", "</blockquote>"),
            Tag::CodeBlock(kind) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::HtmlBlock => self.element("<p class=\"raw\">", "</p>"),
            Tag::List(Some(first)) if first != 1 => self.element(&format!("<ol start=\"{first}\">"), "</ol>"),
            Tag::List(Some(_)) => self.element("<ol>", "</ol>"),
            Tag::List(None) => self.element("<ul>", "</ul>"),
            Tag::Item => self.element("<li>", "</li>"),
            Tag::Table(columns) => {
                self.columns = columns;
                self.element("<div class=\"wide\" tabindex=\"0\"><table>", "</tbody></table></div>");
            }
            Tag::TableHead => {
                (self.in_head, self.column) = (true, 0);
                self.element("<thead><tr>", "</tr></thead><tbody>");
            }
            Tag::TableRow => {
                self.column = 0;
                self.element("<tr>", "</tr>");
            }
            Tag::TableCell => self.cell(),
            Tag::Emphasis => self.element("<em>", "</em>"),
            Tag::Strong => self.element("<strong>", "</strong>"),
            Tag::Strikethrough => self.element("<del>", "</del>"),
            Tag::Link { dest_url, .. } => match is_harmless(&dest_url) {
                true => {
                    let begin = anchor(&dest_url);
                    self.element(&begin, "</a>");
                }
                false => self.element("<span class=\"nolink\">", "</span>"),
            },
            Tag::Image { dest_url, .. } => {
                self.picture = Some(dest_url.to_string());
                match is_harmless(&dest_url) {
                    // A picture in a link would be a link in a link.
                    true if !self.open.contains(&"</a>") => {
                        let begin = anchor(&dest_url) + "🖼 ";
                        self.element(&begin, "</a>");
                    }
                    _ => self.element("<span class=\"nolink\">🖼 ", "</span>"),
                }
            }
            // Not switched on.
            _ => self.element("<span>", "</span>"),
        }
    }

    fn cell(&mut self) {
        let class = match self.columns.get(self.column) {
            Some(Alignment::Right) => " class=\"right\"",
            Some(Alignment::Center) => " class=\"center\"",
            _ => "",
        };
        self.column += 1;
        match self.in_head {
            true => self.element(&format!("<th scope=\"col\"{class}>"), "</th>"),
            false => self.element(&format!("<td{class}>"), "</td>"),
        }
    }

    fn end(&mut self, end: TagEnd) {
        match end {
            TagEnd::CodeBlock => {
                if let Some((language, text)) = self.code.take() {
                    self.out.push_str(&code::block(&language, &text).0);
                }
                return;
            }
            TagEnd::Image => {
                // A picture without a text is shown by its address.
                if let Some(address) = self.picture.take().filter(|_| self.out.ends_with("🖼 ")) {
                    escape(&address.chars().take(80).collect::<String>(), &mut self.out);
                }
            }
            TagEnd::TableHead => self.in_head = false,
            _ => {}
        }
        if let Some(end) = self.open.pop() {
            self.out.push_str(end);
        }
    }
}

fn anchor(address: &str) -> String {
    let address = Shown(address).render().0;
    format!("<a href=\"{address}\" title=\"{address}\" rel=\"noopener noreferrer nofollow\" target=\"_blank\">")
}

/// Whether an address leads to the web or to mail. Characters that are not seen would hide where it leads.
pub(super) fn is_harmless(address: &str) -> bool {
    let has_scheme = |scheme: &str| address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    !address.contains(|ch: char| is_unsafe(ch) || ch.is_whitespace())
        && ["https://", "http://", "mailto:"].into_iter().any(has_scheme)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn markdown_becomes_html() {
        let text = "# Plan\n\nSee **this** and `a < b`:\n\n1. one\n2. [two](https://example.org/?a=1&b=2)\n\n```rust\nlet x = 1;\n```\n\n| a | b |\n|---|--:|\n| 1 | ~~2~~ |\n";
        expect![[r#"
            <p class="h1">Plan</p>
            <p>See <strong>this</strong> and <code>a &lt; b</code>:</p>
            <ol>
            <li>one</li>
            <li><a href="https://example.org/?a=1&amp;b=2" title="https://example.org/?a=1&amp;b=2" rel="noopener noreferrer nofollow" target="_blank">two</a></li></ol>
            <pre class="code lang-rust" tabindex="0"><code><span class="t-keyword">let</span> x = <span class="t-number">1</span>;</code></pre>
            <div class="wide" tabindex="0">
            <table><thead>
            <tr><th scope="col">a</th><th scope="col" class="right">b</th></tr></thead><tbody>
            <tr><td>1</td><td class="right"><del>2</del></td></tr></tbody></table></div>"#]]
        .assert_eq(&lines(&render(text).0));
    }

    /// Each block on a line of its own, to be read in a test.
    fn lines(html: &str) -> String {
        let mut html = html.to_owned();
        for tag in ["<p>", "<ol>", "<ul>", "<li>", "<pre ", "<div ", "<table>", "<tr>"] {
            html = html.replace(tag, &format!("\n{tag}"));
        }
        html
    }

    #[test]
    fn markup_is_text_and_links_lead_to_the_web_only() {
        let text = "<script>alert(1)</script>\n\na <img src=x onerror=alert(1)> b [x](javascript:alert(1)) <javascript:alert(1)> \
                    [y](JaVaScRiPt:alert(1)) [z](data:text/html,x) ![alt](https://evil.example/p.png?secret) ![](x) [bidi](https://a\u{202e}b)";
        expect![[r#"
            <p class="raw">&lt;script&gt;alert(1)&lt;/script&gt;
            </p>
            <p>a &lt;img src=x onerror=alert(1)&gt; b <span class="nolink">x</span> <span class="nolink">javascript:alert(1)</span> <span class="nolink">y</span> <span class="nolink">z</span> <a href="https://evil.example/p.png?secret" title="https://evil.example/p.png?secret" rel="noopener noreferrer nofollow" target="_blank">🖼 alt</a> <span class="nolink">🖼 x</span> <span class="nolink">bidi</span></p>"#]]
        .assert_eq(&lines(&render(text).0));
    }

    #[test]
    fn deep_and_long_texts_stay_small() {
        let html = render(&"> ".repeat(5_000)).0;
        assert!(html.matches("<blockquote>").count() <= DEEPEST, "{}", html.len());
        let line = "a".repeat(1 << 20);
        assert_eq!(render(&line).0.len(), line.len() + r#"<pre class="code" tabindex="0"><code></code></pre>"#.len());
        let fenced = format!("```rust\n{}\n```", "x(1);".repeat(20_000));
        assert!(render(&fenced).0.len() < fenced.len() + 200);
    }

    #[test]
    fn blocks_begin_where_they_can_be_cut() {
        let text = "one\ntwo\n\n- a\n- b\n\n---\n\n```\nx\n\ny\n```\n\nend";
        let starts = block_starts(text);
        let begins: Vec<&str> = starts.iter().map(|start| &text[*start..*start + 3]).collect();
        assert_eq!(begins, ["one", "- a", "---", "```", "end"]);
    }
}
