//! A page as text.

use reqwest::Url;

/// The columns that text is laid out in: wide, since a model needs no short lines, and tables stay tables.
const COLUMNS: usize = 120;
/// The deepest nesting of elements that is read.
const DEEPEST: usize = 512;
/// Elements that have no end, or mostly go without one.
const WITHOUT_END: [&str; 28] = [
    "area", "base", "br", "col", "colgroup", "dd", "dt", "embed", "hr", "img", "input", "li", "link", "meta",
    "optgroup", "option", "p", "param", "path", "rp", "rt", "source", "tbody", "td", "th", "tr", "track", "wbr",
];
/// How many bytes of a page are looked through for the encoding that it names itself.
const HEAD: usize = 1024;

/// What a server answered.
#[derive(Debug)]
pub(super) struct Page {
    /// Where it was found, after redirects.
    pub(super) url: Url,
    pub(super) status: u16,
    /// As the server names it.
    pub(super) kind: String,
    pub(super) body: Vec<u8>,
    /// Whether there was more than is read.
    pub(super) is_cut: bool,
}

/// Why a page has no text.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error("it is {kind:?}, {bytes} bytes; only text is fetched")]
    NotText { kind: String, bytes: usize },
    #[error("its HTML is nested more than {DEEPEST} deep")]
    TooDeep,
    #[error("its HTML cannot be read")]
    Html(#[source] html2text::Error),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Html,
    Text,
    Other,
}

impl Page {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Its text. Of HTML what a reader would see; a heading, a list and a link can still be told.
    pub(super) fn text(self) -> Result<String, PageError> {
        let kind = self.kind();
        if kind == Kind::Other {
            return Err(PageError::NotText { kind: self.kind, bytes: self.body.len() });
        }
        let text = self.decoded(kind);
        if kind == Kind::Html && depth(&text) > DEEPEST {
            return Err(PageError::TooDeep);
        }
        let mut text = match kind {
            Kind::Html => html2text::config::plain()
                .link_footnotes(false)
                .allow_width_overflow()
                .string_from_read(text.as_bytes(), COLUMNS)
                .map_err(PageError::Html)?,
            _ => text,
        };
        if self.is_cut {
            text.push_str(&format!("\n[only the first {} bytes of it were read]", self.body.len()));
        }
        Ok(text)
    }

    fn kind(&self) -> Kind {
        let media = self.kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_structured = |end: &str| media.ends_with(&format!("+{end}")) || media == format!("application/{end}");
        match media.as_str() {
            "text/html" | "application/xhtml+xml" => Kind::Html,
            "" => self.kind_by_look(),
            "application/javascript" | "application/ecmascript" | "application/x-sh" | "application/toml" => Kind::Text,
            "application/x-ndjson" | "application/sql" | "application/graphql" => Kind::Text,
            media if media.starts_with("text/") => Kind::Text,
            _ if is_structured("json") || is_structured("xml") || is_structured("yaml") => Kind::Text,
            _ => Kind::Other,
        }
    }

    /// For a server that does not say.
    fn kind_by_look(&self) -> Kind {
        let head = &self.body[..self.body.len().min(HEAD)];
        if head.contains(&0) {
            return Kind::Other;
        }
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        if head.contains("<html") || head.contains("<!doctype html") { Kind::Html } else { Kind::Text }
    }

    /// In the encoding that a mark at its beginning, the server or the page itself names; without any it is UTF-8.
    fn decoded(&self, kind: Kind) -> String {
        let of_header = charset(&self.kind);
        let head = String::from_utf8_lossy(&self.body[..self.body.len().min(HEAD)]);
        let named = of_header.or_else(|| (kind == Kind::Html).then(|| charset(&head)).flatten());
        let encoding = named.and_then(|name| encoding_rs::Encoding::for_label(name.as_bytes()));
        encoding.unwrap_or(encoding_rs::UTF_8).decode(&self.body).0.into_owned()
    }
}

/// How deep the elements are nested, at most, as far as that can be told without parsing. The time that parsers take grows with the
/// square of it.
fn depth(html: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for tag in html.split('<').skip(1) {
        let is_end = tag.starts_with('/');
        let name = tag.trim_start_matches('/');
        let end = name.find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '-').unwrap_or(name.len());
        let name = name[..end].to_ascii_lowercase();
        if name.is_empty() || WITHOUT_END.contains(&name.as_str()) {
            continue;
        }
        now = if is_end { now.saturating_sub(1) } else { now + 1 };
        most = most.max(now);
    }
    most
}

/// The name behind `charset=`.
fn charset(text: &str) -> Option<String> {
    let at = text.to_ascii_lowercase().find("charset=")? + "charset=".len();
    let rest = text.get(at..)?.trim_start_matches(['"', '\'', ' ']);
    let name: String = rest.chars().take_while(|sign| sign.is_ascii_alphanumeric() || "-_:.".contains(*sign)).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(kind: &str, body: &[u8]) -> Page {
        let url = Url::parse("https://docs.rs/").unwrap();
        Page { url, status: 200, kind: kind.to_owned(), body: body.to_vec(), is_cut: false }
    }

    #[test]
    fn html_becomes_what_a_reader_would_see() {
        let html = "<html><head><title>T</title><style>p { color: red }</style><script>alert(1)</script></head>\
                    <body><h1>Hello</h1><p>One &amp; two</p><ul><li>a</li><li>b</li></ul></body></html>";
        let text = page("text/html; charset=utf-8", html.as_bytes()).text().unwrap();
        assert!(text.contains("Hello") && text.contains("One & two") && text.contains("* a"), "{text}");
        assert!(!text.contains("alert") && !text.contains("color"), "{text}");
    }

    #[test]
    fn text_is_decoded_as_the_server_or_the_page_says() {
        assert_eq!(page("text/plain; charset=ISO-8859-1", b"caf\xe9").text().unwrap(), "caf\u{e9}");
        let html = b"<html><head><meta charset=\"windows-1252\"></head><body>caf\xe9</body></html>";
        assert!(page("text/html", html).text().unwrap().contains("caf\u{e9}"));
        assert_eq!(page("text/plain", b"\xff\xfeh\0i\0").text().unwrap(), "hi");
        assert_eq!(page("application/json", b"{\"a\":1}").text().unwrap(), "{\"a\":1}");
    }

    #[test]
    fn what_is_no_text_is_refused_by_its_kind() {
        for kind in ["image/png", "application/pdf", "application/octet-stream"] {
            assert!(matches!(page(kind, b"x").text(), Err(PageError::NotText { .. })), "{kind}");
        }
        assert!(matches!(page("", b"a\0b").text(), Err(PageError::NotText { .. })));
        assert_eq!(page("", b"plain").text().unwrap(), "plain");
    }

    #[test]
    fn html_made_to_break_a_parser_breaks_nothing() {
        for html in ["<div>".repeat(200_000), "<b><i>".repeat(20_000), "<table><tr><td>".repeat(5_000)] {
            assert!(matches!(page("text/html", html.as_bytes()).text(), Err(PageError::TooDeep)));
        }
        let wide = "<table><tr><td colspan=1000000000>a<td>b</table>";
        for html in
            ["<p>".repeat(20_000), "<".repeat(100_000), "<div>".repeat(500), "<li><p>".repeat(5_000), wide.to_owned()]
        {
            // An error is as good as a text; it must come to an end, and not by the end of the process.
            let _read = page("text/html", html.as_bytes()).text();
        }
    }
}
