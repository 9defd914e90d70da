//! Where keys and addresses come from.

use std::fmt;
use std::sync::Arc;

use crate::key::Key;

const OLLAMA: &str = "http://127.0.0.1:11434";

/// Where keys and addresses come from.
#[derive(Clone)]
pub struct Environment(Arc<Look>);

type Look = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Environment {
    /// The process's own.
    pub fn process() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// Another.
    pub fn of(look: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look))
    }

    /// A variable; an empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<String> {
        self.0(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    pub(super) fn key(&self, name: &str) -> Option<Key> {
        self.get(name).map(Key::new)
    }

    /// Where Ollama is: `OLLAMA_HOST` may be a URL, a host, a host with a port, and the address it listens on everywhere.
    pub fn ollama(&self) -> String {
        let Some(given) = self.get("OLLAMA_HOST") else { return OLLAMA.to_owned() };
        let (scheme, rest) = given.split_once("://").unwrap_or(("http", &given));
        let rest = rest.trim_end_matches('/');
        let rest = rest.strip_prefix("0.0.0.0").map_or_else(|| rest.to_owned(), |port| format!("127.0.0.1{port}"));
        let rest = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest };
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if has_port || scheme == "https" { format!("{scheme}://{rest}") } else { format!("{scheme}://{rest}:11434") }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollamas_host_may_be_written_as_ollama_itself_takes_it() {
        let host = |value: &'static str| Environment::of(move |_| Some(value.to_owned())).ollama();
        assert_eq!(Environment::of(|_| None).ollama(), OLLAMA);
        assert_eq!(host("box"), "http://box:11434");
        assert_eq!(host("0.0.0.0:99"), "http://127.0.0.1:99");
        assert_eq!(host(":99"), "http://127.0.0.1:99");
        assert_eq!(host("http://box:1/"), "http://box:1");
        assert_eq!(host("https://box"), "https://box");
    }
}
