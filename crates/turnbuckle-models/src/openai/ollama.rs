//! Ollama's models by name. It speaks chat completions, needs no key and costs nothing.

use std::sync::Arc;

use turnbuckle::model::Model;

use super::OpenAi;
use crate::named::{Environment, Form, Name, NameError, Provider, Settings, blame};
use crate::options::Api;

const HOST: &str = "OLLAMA_HOST";
const DEFAULT_HOST: &str = "http://127.0.0.1:11434";

pub(crate) static OLLAMA: Provider = Provider {
    title: "Ollama",
    prefix: "ollama",
    form: Form::Model { example: "ollama:MODEL" },
    key_variables: &[],
    base_variable: Some(HOST),
    default: None,
    open,
    api: Api::ChatCompletions,
};

fn open(name: &Name, environment: &Environment, settings: &Settings) -> Result<Arc<dyn Model>, NameError> {
    let client = OpenAi::ollama(&environment.ollama(), name.model());
    Ok(settings.apply(client.map_err(|cause| blame(cause, None, Some(HOST)))?))
}

impl Environment {
    /// The URL of Ollama. `OLLAMA_HOST` may hold a URL, a host, a host with a port, or a port alone, as Ollama itself takes it;
    /// `0.0.0.0`, on which a server listens for everybody, is asked on this machine.
    pub fn ollama(&self) -> String {
        let Some(given) = self.get(HOST) else { return DEFAULT_HOST.to_owned() };
        let (scheme, rest) = given.split_once("://").unwrap_or(("http", &given));
        let rest = rest.trim_end_matches('/');
        let rest = rest.strip_prefix("0.0.0.0").map_or_else(|| rest.to_owned(), |port| format!("127.0.0.1{port}"));
        let rest = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest };
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if has_port || scheme == "https" { format!("{scheme}://{rest}") } else { format!("{scheme}://{rest}:11434") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollamas_host_may_be_written_as_ollama_itself_takes_it() {
        let host = |value: &'static str| Environment::of(move |_| Some(value.to_owned())).ollama();
        assert_eq!(Environment::of(|_| None).ollama(), DEFAULT_HOST);
        assert_eq!(host("box"), "http://box:11434");
        assert_eq!(host("0.0.0.0:99"), "http://127.0.0.1:99");
        assert_eq!(host(":99"), "http://127.0.0.1:99");
        assert_eq!(host("http://box:1/"), "http://box:1");
        assert_eq!(host("https://box"), "https://box");
    }
}
