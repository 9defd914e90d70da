//! Addresses for people to read: without the password and the tokens in them.

use std::borrow::Cow;
use std::ops::Range;

/// The text without what may be secret in the URLs in it: what stands before the host (a user and a password, or a token), and the
/// values of the query. Scheme, host, port and path are shown: they say what is contacted.
///
/// ```
/// use turnbuckle_models::without_password;
///
/// assert_eq!(without_password("openai@http://ann:secret@localhost:8000/v1:m"), "openai@http://…@localhost:8000/v1:m");
/// assert_eq!(without_password("https://example.com/hook?token=secret&v=2"), "https://example.com/hook?token=…&v=…");
/// assert_eq!(without_password("openai@http://localhost:8000/v1:m"), "openai@http://localhost:8000/v1:m");
/// ```
pub fn without_password(text: &str) -> Cow<'_, str> {
    let mut shown: Option<String> = None;
    let mut done = 0;
    for run in runs(text) {
        let mut replace = |range: Range<usize>, by: &str| {
            let shown = shown.get_or_insert_default();
            shown.push_str(&text[done..range.start]);
            shown.push_str(by);
            done = range.end;
        };
        let whole = &text[run.clone()];
        let last_at = whole.rfind('@');
        let (mut from, mut query) = (0, None);
        if !whole.contains(SCHEME_END) {
            let Some(address) = mistyped(whole) else { continue };
            if let Some(last) = last_at.filter(|last| *last > address) {
                replace(run.start + address..run.start + last, "…");
                from = last;
            }
            query = Some(whole[from..].find(['?', '#']).map_or(whole.len(), |at| from + at));
        }
        // One address may hold others, in its path for instance. What is in its query is hidden with it.
        while let Some(at) = whole[from..].find(SCHEME_END).filter(|at| query.is_none_or(|query| from + at < query)) {
            from += at + SCHEME_END.len();
            if let Some(length) = secret_of(&whole[from..], last_at.and_then(|at| at.checked_sub(from))) {
                replace(run.start + from..run.start + from + length, "…");
                from += length;
            }
            // Looked for again only if the last one found was part of a password.
            if query.is_none_or(|query| query < from) {
                query = Some(whole[from..].find(['?', '#']).map_or(whole.len(), |at| from + at));
            }
        }
        let query = &whole[query.unwrap_or(whole.len())..];
        let hidden = without_values(query);
        if hidden != query {
            replace(run.end - query.len()..run.end, &hidden);
        }
    }
    match shown {
        None => Cow::Borrowed(text),
        Some(shown) => Cow::Owned(shown + &text[done..]),
    }
}

const SCHEME_END: &str = "://";

/// The parts of the text that may hold an address: it has no white space and no quotes.
fn runs(text: &str) -> impl Iterator<Item = Range<usize>> {
    let ends = |c: char| c.is_whitespace() || c.is_control() || ['"', '\'', '`', '<', '>'].contains(&c);
    let mut begin = 0;
    let cuts = text.match_indices(ends).map(|(at, cut)| (at, at + cut.len()));
    cuts.chain(std::iter::once((text.len(), text.len()))).map(move |(end, next)| {
        let run = begin..end;
        begin = next;
        run
    })
}

/// Where an address begins that was mistyped so that it is none: behind the provider in `openai@htp/ann:secret@localhost`, or
/// behind the scheme in `postgres:/ann:secret@localhost`. A path with an `@` in it begins otherwise.
fn mistyped(word: &str) -> Option<usize> {
    let end = word.find(|c: char| !c.is_ascii_lowercase()).filter(|end| *end > 0)?;
    let is_scheme = || ["http", "https", "postgres", "postgresql"].contains(&&word[..end]);
    match &word[end..] {
        rest if rest.starts_with('@') => Some(end + 1),
        rest if rest.starts_with(":/") && is_scheme() => Some(end + 1),
        _ => None,
    }
}

/// A query or fragment with its sign: the names stay, the values do not. What has no name may be a token.
fn without_values(query: &str) -> String {
    let mut shown = String::new();
    for part in query.split_inclusive(['?', '#', '&', ';']) {
        let (pair, sign) = match part.char_indices().last() {
            Some((at, '?' | '#' | '&' | ';')) => part.split_at(at),
            _ => (part, ""),
        };
        match pair.split_once('=') {
            Some((name, value)) if !value.is_empty() => shown.extend([name, "=…", sign]),
            None if !pair.is_empty() => shown.extend(["…", sign]),
            _ => shown.push_str(part),
        }
    }
    shown
}

/// How long the part before the `@` of the host is. `url` is what follows `://`, and `last_at` where its last `@` stands. A
/// backslash ends the host like a slash, as it does for those who connect.
fn secret_of(url: &str, last_at: Option<usize>) -> Option<usize> {
    let authority = &url[..url.find(['/', '?', '#', '\\']).unwrap_or(url.len())];
    if let Some(at) = authority.rfind('@') {
        return Some(at);
    }
    // A password with a slash in it should have been escaped. A host has at most a port behind a colon, so this is none.
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let is_host = port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()) || authority.ends_with(']'));
    if is_host { None } else { last_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_host_is_not_shown() {
        for (text, shown) in [
            ("postgres://ann:pw@db/x", "postgres://…@db/x"),
            ("https://token@host", "https://…@host"),
            ("a http://u:p@h/ b http://v:q@i c", "a http://…@h/ b http://…@i c"),
            ("\"http://u:p@h\": no", "\"http://…@h\": no"),
            ("http://u:p@ss@h/v1:m", "http://…@h/v1:m"),
            ("http://u:p/w@h/v1:m", "http://…@h/v1:m"),
            ("http://[::1]:80/v1:m@x", "http://[::1]:80/v1:m@x"),
            ("http://h:80/v1:llama@q4", "http://h:80/v1:llama@q4"),
            ("http://evil\\@good/x", "http://evil\\@good/x"),
            ("http://h/http://u:p@i/x", "http://h/http://…@i/x"),
            ("http://h/p?token=t&v=2#f", "http://h/p?token=…&v=…#…"),
            ("a http://u:p@h/p?t b", "a http://…@h/p?… b"),
            ("http://h?u=http://u:p@i", "http://h?u=…"),
            ("is it http://h? Or \"http://h/?a=\"", "is it http://h? Or \"http://h/?a=\""),
            ("http://u:p?q@h/x", "http://…@h/x"),
            ("http://h/x#tok?en=1", "http://h/x#…?en=…"),
            ("what? http://h/?ä=ö;x", "what? http://h/?ä=…;…"),
            ("sqlite:a.db", "sqlite:a.db"),
            ("://", "://"),
            ("a@b", "a@b"),
            ("model \"openai@htp/ann:pw@h/v1:m\" is", "model \"openai@…@h/v1:m\" is"),
            ("openai@http:/ann:p@w@h:m and http://u:p@h", "openai@…@h:m and http://…@h"),
            ("a http://u:p@h then openai@x/u:p@h", "a http://…@h then openai@…@h"),
            ("openai@htp/h/v1?token=t:m", "openai@htp/h/v1?token=…"),
            ("openai@htp/u:p?w@h/v1?token=t:m", "openai@…@h/v1?token=…"),
            ("postgres:/u:p@h/d?password=p", "postgres:…@h/d?password=…"),
            ("openai:llama@q4", "openai:llama@q4"),
            ("sqlite:/home/a@b/c@d/x.db", "sqlite:/home/a@b/c@d/x.db"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }

    #[test]
    fn a_long_text_of_a_stranger_is_read_in_one_go() {
        // With a recursion for each address, or a search through the rest for each, this would overflow or take minutes.
        for one in ["http://u:p@h ", "://:x", "http://h/?a=b ", "://@", "?=&"] {
            let text = format!("x://{}", one.repeat(200_000));
            assert!(!without_password(&text).contains(":p@"));
        }
    }
}
