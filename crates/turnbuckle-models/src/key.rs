//! The key of a provider, kept out of logs and errors.

use std::fmt;
use std::sync::Arc;

use reqwest::Url;

/// A secret. It is written into the header that carries it and nowhere else: `Debug` does not show it, and it is removed from
/// the messages of errors.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<str>);

/// An environment variable that should hold a key is not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is not set")]
pub struct NoKey {
    /// The name of the variable.
    pub variable: String,
}

impl Key {
    /// A key. White space around it is removed: keys are often pasted.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().into())
    }

    /// The key in an environment variable. An empty one, or one that is not Unicode, counts as not set.
    pub fn from_env(variable: &str) -> Result<Self, NoKey> {
        let key = std::env::var(variable).ok().map(Self::new).filter(|key| !key.0.is_empty());
        key.ok_or_else(|| NoKey { variable: variable.to_owned() })
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// What no message of an error may show: the key, and what stands before the host of the address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets(Vec<Key>);

impl Secrets {
    /// The password of an address, as it is written there and as it is meant. Without a password the user is a token.
    pub(crate) fn of_url(url: &Url) -> Self {
        let secret = url.password().filter(|password| !password.is_empty()).unwrap_or(url.username());
        Self(vec![Key::new(secret), Key::new(unescaped(secret))])
    }

    pub(crate) fn add(&mut self, key: Key) {
        self.0.push(key);
    }

    /// `text` with the secrets replaced. Some servers repeat what they were sent in their error messages.
    pub(crate) fn hidden_in(&self, text: &str) -> String {
        let secrets = self.0.iter().filter(|secret| !secret.0.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(&*secret.0, "[key]"))
    }
}

/// `%20` is a blank.
fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        let hex = more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = hex.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}
