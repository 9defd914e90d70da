//! Addresses for people to read: without the password in them.

use std::borrow::Cow;

/// The text without what stands before the host in the URLs in it: a user and a password, or a token.
///
/// ```
/// use turnbuckle_models::without_password;
///
/// assert_eq!(without_password("openai@http://ann:secret@localhost:8000/v1:m"), "openai@http://…@localhost:8000/v1:m");
/// assert_eq!(without_password("openai@http://localhost:8000/v1:m"), "openai@http://localhost:8000/v1:m");
/// ```
pub fn without_password(text: &str) -> Cow<'_, str> {
    let Some(at) = text.find("://") else { return Cow::Borrowed(text) };
    let (before, rest) = text.split_at(at + 3);
    // A URL has no white space and no quotes.
    let end = rest.find(|c: char| c.is_whitespace() || c.is_control() || ['"', '\'', '`', '<', '>'].contains(&c));
    let (url, after) = rest.split_at(end.unwrap_or(rest.len()));
    let shown = match secret_of(url) {
        Some(length) => Cow::Owned(format!("…{}", &url[length..])),
        None => Cow::Borrowed(url),
    };
    let after = without_password(after);
    match (shown, after) {
        (Cow::Borrowed(_), Cow::Borrowed(_)) => Cow::Borrowed(text),
        (shown, after) => Cow::Owned(format!("{before}{shown}{after}")),
    }
}

/// How long the part before the `@` of the host is. `url` is what follows `://`.
fn secret_of(url: &str) -> Option<usize> {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    if let Some(at) = authority.rfind('@') {
        return Some(at);
    }
    // A password with a slash in it should have been escaped. A host has at most a port behind a colon, so this is none.
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let is_host = port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()) || authority.ends_with(']'));
    if is_host { None } else { url.rfind('@') }
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
            ("sqlite:a.db", "sqlite:a.db"),
            ("://", "://"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }
}
