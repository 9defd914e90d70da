//! One block of Markdown into rows.

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::super::highlight::Highlighter;
use super::super::styled::{Row, coloured, fold, wrap};
use super::table;

/// Deeper than this, quotes and lists are not set further to the right.
const DEEPEST: usize = 12;

pub(super) fn rows(text: &str, width: usize) -> Vec<Row> {
    let mut options = Options::empty();
    options.insert(Options::ENABLE_TABLES);
    options.insert(Options::ENABLE_STRIKETHROUGH);
    options.insert(Options::ENABLE_TASKLISTS);
    let mut writer = Writer::new(width);
    for event in Parser::new_ext(text, options) {
        writer.event(event);
    }
    writer.end_line();
    writer.rows
}

struct Writer {
    width: usize,
    rows: Vec<Row>,
    /// The line that is being written.
    line: Row,
    styles: Vec<Style>,
    /// Numbers of the next items, outermost list first; `None` where items have no number.
    lists: Vec<Option<u64>>,
    quotes: usize,
    /// What stands before the first row of the present item.
    marker: Option<String>,
    /// The addresses of open links.
    links: Vec<(String, String)>,
    code: Option<Highlighter>,
    table: Vec<Vec<Row>>,
    in_table: bool,
}

impl Writer {
    fn new(width: usize) -> Self {
        Self {
            width,
            rows: Vec::new(),
            line: Row::default(),
            styles: Vec::new(),
            lists: Vec::new(),
            quotes: 0,
            marker: None,
            links: Vec::new(),
            code: None,
            table: Vec::new(),
            in_table: false,
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => {
                self.note_link_text(&code);
                let style = self.style().fg_color(coloured(AnsiColor::Cyan).get_fg_color());
                self.line.push(&code, style);
            }
            Event::Html(text) | Event::InlineHtml(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.text(&text);
            }
            Event::FootnoteReference(name) => self.line.push(&format!("[{name}]"), self.style()),
            Event::SoftBreak => self.line.push(" ", self.style()),
            Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.end_line();
                let room = self.room().min(40);
                self.line.push(&"─".repeat(room), Style::new().dimmed());
                self.end_line();
            }
            Event::TaskListMarker(done) => self.line.push(if done { "☑ " } else { "☐ " }, self.style()),
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(highlighter) = &mut self.code {
            let rows: Vec<Row> = text.lines().map(|line| highlighter.line(line)).collect();
            let room = self.room().saturating_sub(2);
            for row in rows.iter().flat_map(|row| fold(row, room)) {
                let row = row.behind(Row::plain("  "));
                self.out(row);
            }
            return;
        }
        self.note_link_text(text);
        self.line.push(text, self.style());
    }

    fn note_link_text(&mut self, text: &str) {
        if let Some((_, shown)) = self.links.last_mut() {
            shown.push_str(text);
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let style = self.style();
        match tag {
            Tag::Heading { level, .. } => {
                self.end_line();
                let bold = Style::new().bold();
                self.styles.push(if level == HeadingLevel::H1 { bold.underline() } else { bold });
            }
            Tag::BlockQuote(_) => {
                self.end_line();
                self.quotes += 1;
            }
            Tag::List(number) => {
                self.end_line();
                self.lists.push(number);
            }
            Tag::Item => {
                self.end_line();
                self.marker = Some(match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let marker = format!("{number}. ");
                        *number += 1;
                        marker
                    }
                    _ => "• ".to_owned(),
                });
            }
            Tag::CodeBlock(kind) => {
                self.end_line();
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some(Highlighter::of(&language));
            }
            Tag::Emphasis => self.styles.push(style.italic()),
            Tag::Strong => self.styles.push(style.bold()),
            Tag::Strikethrough => self.styles.push(style.strikethrough()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.to_string(), String::new()));
                self.styles.push(style.underline());
            }
            Tag::Table(_) => {
                self.end_line();
                self.in_table = true;
            }
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            Tag::TableCell => {
                let is_head = self.table.len() == 1;
                self.styles.push(if is_head { style.bold() } else { style });
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.end_line(),
            TagEnd::Heading(_) => {
                self.end_line();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_line();
                self.quotes = self.quotes.saturating_sub(1);
            }
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
            }
            TagEnd::Item => {
                self.end_line();
                self.marker = None;
            }
            TagEnd::CodeBlock => self.code = None,
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => drop(self.styles.pop()),
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                if let Some((address, shown)) = self.links.pop()
                    && address != shown
                    && !address.is_empty()
                {
                    self.line.push(&format!(" ({address})"), Style::new().dimmed());
                }
            }
            TagEnd::TableCell => {
                self.styles.pop();
                let cell = std::mem::take(&mut self.line);
                if let Some(line) = self.table.last_mut() {
                    line.push(cell);
                }
            }
            TagEnd::Table => {
                self.in_table = false;
                let table = std::mem::take(&mut self.table);
                for row in table::rows(&table, self.room()) {
                    self.out(row);
                }
            }
            _ => {}
        }
    }

    fn end_line(&mut self) {
        if self.in_table || self.line.is_empty() {
            return;
        }
        let line = std::mem::take(&mut self.line);
        for row in wrap(&line, self.room(), 0) {
            self.out(row);
        }
    }

    /// How far to the right the present item stands, its marker included.
    fn indent(&self) -> usize {
        let depth = self.lists.len().min(DEEPEST);
        let marker = |number: &Option<u64>| number.map_or(2, |number| format!("{number}. ").len().min(5));
        self.lists.iter().take(depth).map(marker).sum()
    }

    fn room(&self) -> usize {
        self.width.saturating_sub(self.indent() + 2 * self.quotes.min(DEEPEST)).max(2)
    }

    fn out(&mut self, row: Row) {
        let mut prefix = Row::default();
        for _ in 0..self.quotes.min(DEEPEST) {
            prefix.push("│ ", Style::new().dimmed());
        }
        let indent = self.indent();
        match self.marker.take() {
            Some(marker) => {
                let before = indent.saturating_sub(marker.chars().count());
                prefix.push(&" ".repeat(before), Style::new());
                prefix.push(&marker, coloured(AnsiColor::Yellow));
            }
            None => prefix.push(&" ".repeat(indent), Style::new()),
        }
        self.rows.push(row.behind(prefix).cut(self.width));
    }
}
