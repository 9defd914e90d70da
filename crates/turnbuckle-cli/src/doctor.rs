//! `turnbuckle doctor`: which keys and local servers are there, what would be used, and whether it answers.

mod here;

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnbuckle::Message;
use turnbuckle::model::{ModelError, Request, Retry, Sink};
use turnbuckle_models::{Environment, ProbeError, models_at, providers, without_password};

use crate::Stopped;
use crate::args::{Common, Doctor};
use crate::assemble::{ChosenBy, choose_model};
use crate::config;
use crate::exit::Exit;
use crate::inspect::unprintable;
use crate::model_name::{ModelName, open_provider};
use crate::model_trouble;
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::show::{clean, json_line};
use crate::trust::{Gate, Item};
use here::Here;

/// How long a server on this machine may take to say what it has.
const PROBE: Duration = Duration::from_millis(800);
/// How long the model may take for one token.
const ANSWER: Duration = Duration::from_secs(60);
/// How many models of a server are named.
const NAMED: usize = 5;

/// An environment variable that a provider reads.
struct Variable {
    name: &'static str,
    is_secret: bool,
}

/// Those of all providers.
fn variables() -> impl Iterator<Item = Variable> {
    providers().iter().flat_map(|provider| {
        let keys = provider.key_variables().iter().map(|name| Variable { name, is_secret: true });
        keys.chain(provider.base_variable().map(|name| Variable { name, is_secret: false }))
    })
}

/// A server on this machine, and which models it has.
struct Server {
    name: &'static str,
    url: String,
    found: Result<Vec<String>, ProbeError>,
}

/// What came of asking the model.
enum Health {
    /// There is nothing to ask: a script, or the demo.
    NotAsked,
    /// A project's file names it, and that file was not accepted.
    NotAllowed,
    Answers {
        took: Duration,
        input: u64,
        output: u64,
        cost: Option<f64>,
    },
    Fails(Problem),
}

/// Prints keys, local servers and the chosen model, and asks that model for one token.
pub(crate) async fn doctor(args: &Doctor, common: &Common) -> Result<Exit, Stopped> {
    let environment = Environment::process();
    let loaded = config::load(common, Gate::Judged);
    let chosen = choose_model(common, &loaded.config);
    let is_allowed = loaded.standing.is_accepted() || !names_model(&loaded.items) || chosen.by != ChosenBy::File;
    let asked = async {
        match is_allowed {
            true => health(&chosen.name).await,
            false => Health::NotAllowed,
        }
    };
    let (servers, health) = tokio::join!(servers(&environment), asked);
    output::report(&loaded.problems);
    let here = Here::of(&loaded, common);
    let text = match args.json {
        true => {
            let mut report = as_json(&environment, &servers, &chosen.name, chosen.by, &health);
            report["here"] = here.json();
            json_line(&report).map_err(unprintable)?
        }
        false => {
            let text = as_text(&environment, &servers, &chosen.name, chosen.by, &health);
            text + &clean(&(here.lines().join("\n") + "\n"))
        }
    };
    // A closed stdout is not an error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if let Health::Fails(problem) = &health {
        output::report(std::slice::from_ref(problem));
        return Ok(Exit::Failed);
    }
    Ok(if loaded.problems.iter().any(Problem::is_error) { Exit::Usage } else { Exit::Completed })
}

/// Whether the model of the project's file needs acceptance.
fn names_model(items: &[Item]) -> bool {
    items.iter().any(|item| item.section == "agent" && item.keys.iter().any(|key| key == "model"))
}

/// Those that people run, where they run by default.
async fn servers(environment: &Environment) -> Vec<Server> {
    let at = |name, url: String| async move {
        let found = models_at(&url, PROBE).await;
        Server { name, url, found }
    };
    let (ollama, llama, studio, vllm) = tokio::join!(
        at("Ollama", format!("{}/v1", environment.ollama())),
        at("llama.cpp", "http://127.0.0.1:8080/v1".to_owned()),
        at("LM Studio", "http://127.0.0.1:1234/v1".to_owned()),
        at("vLLM", "http://127.0.0.1:8000/v1".to_owned()),
    );
    vec![ollama, llama, studio, vllm]
}

/// Hears nothing.
struct Nowhere;

impl Sink for Nowhere {
    fn text(&mut self, _: &str) {}
    fn thinking(&mut self, _: &str) {}
}

/// Asks for one token.
async fn health(name: &str) -> Health {
    let name = match ModelName::parse(name) {
        Ok(ModelName::Provider(name)) => name,
        Ok(_) => return Health::NotAsked,
        Err(problem) => return Health::Fails(problem),
    };
    let model = match open_provider(&name, Some(1)) {
        Ok(model) => model,
        Err(problem) => return Health::Fails(problem),
    };
    let request = Request::of("doctor", vec![Message::User("Say hi.".into())], []);
    let began = Instant::now();
    match tokio::time::timeout(ANSWER, model.stream(&request, &mut Nowhere)).await {
        Err(_) => Health::Fails(Problem::error(format!("{name} said nothing for {} s", ANSWER.as_secs()))),
        // It thought, and one token was not enough to say anything: that is an answer. The provider has no code for this,
        // only these words.
        Ok(Err(ModelError::Status { status: 400, message, .. })) if message.contains("output limit was reached") => {
            Health::Answers { took: began.elapsed(), input: 0, output: 0, cost: None }
        }
        Ok(Err(error)) => {
            let hint = model_trouble::advice(error.status(), error.kind(), &error.to_string()).unwrap_or(
                match error.retry() {
                    Retry::Never => "is the key right, and does the provider know the model?",
                    Retry::Soon | Retry::After(_) => "it may be worth trying again",
                },
            );
            Health::Fails(Problem::error(clean(&with_causes(&error))).hint(hint))
        }
        Ok(Ok(reply)) => {
            let (took, usage) = (began.elapsed(), reply.usage);
            Health::Answers { took, input: usage.input, output: usage.output, cost: model.price(&usage) }
        }
    }
}

/// What a variable holds, if it may be shown: an address without the user and password in it.
fn shown(environment: &Environment, variable: &Variable) -> Option<String> {
    let value = environment.get(variable.name)?;
    if variable.is_secret {
        return Some("set".to_owned());
    }
    let (scheme, rest) = value.split_once("://").unwrap_or(("", &value));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let host = clean(host.split(['?', '#']).next().unwrap_or_default());
    Some(if scheme.is_empty() { host } else { format!("{scheme}://{host}") })
}

fn why(by: ChosenBy, name: &str) -> &'static str {
    match by {
        ChosenBy::Option => "--model",
        ChosenBy::File => "model in [agent]",
        ChosenBy::Nobody if name == "demo" => "no key was found",
        ChosenBy::Nobody => "the first key found",
    }
}

fn as_text(environment: &Environment, servers: &[Server], name: &str, by: ChosenBy, health: &Health) -> String {
    let mut lines = Vec::new();
    for variable in variables() {
        let value = shown(environment, &variable).unwrap_or_else(|| "not set".to_owned());
        lines.push(format!("{:<22}{value}", variable.name));
    }
    for server in servers {
        let found = match &server.found {
            Ok(models) if models.is_empty() => "answers, and has no model".to_owned(),
            Ok(models) => {
                let more = if models.len() > NAMED { ", …" } else { "" };
                let named: Vec<String> = models.iter().take(NAMED).map(|model| clean(model)).collect();
                format!(
                    "{} model{}: {}{more}",
                    models.len(),
                    if models.len() == 1 { "" } else { "s" },
                    named.join(", ")
                )
            }
            Err(error) => error.to_string(),
        };
        lines.push(format!("{:<22}{found} ({})", server.name, without_password(&server.url)));
    }
    lines.push(format!("{:<22}{} ({})", "would use", clean(&without_password(name)), why(by, name)));
    let health = match health {
        Health::NotAsked => "not asked: it needs no provider".to_owned(),
        Health::NotAllowed => "not asked: the project's file is not accepted".to_owned(),
        Health::Answers { took, input, output, cost } => {
            let cost = cost.map_or_else(|| "price unknown".to_owned(), |cost| format!("${cost:.6}"));
            format!("answers after {:.2} s ({input} tokens in, {output} out, {cost})", took.as_secs_f64())
        }
        Health::Fails(_) => "does not answer".to_owned(),
    };
    lines.push(format!("{:<22}{health}", "check"));
    lines.join("\n") + "\n"
}

fn as_json(environment: &Environment, servers: &[Server], name: &str, by: ChosenBy, health: &Health) -> Value {
    let environment: serde_json::Map<String, Value> =
        variables().map(|variable| (variable.name.to_owned(), shown(environment, &variable).into())).collect();
    let server = |server: &Server| {
        let error = server.found.as_ref().err().map(ToString::to_string);
        json!({ "name": server.name, "url": without_password(&server.url), "models": server.found.as_ref().ok(), "error": error })
    };
    let servers: Vec<Value> = servers.iter().map(server).collect();
    let health = match health {
        Health::NotAsked | Health::NotAllowed => json!({ "asked": false }),
        Health::Answers { took, input, output, cost } => {
            json!({ "asked": true, "ok": true, "ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                    "usage": { "input": input, "output": output }, "cost": cost })
        }
        Health::Fails(problem) => json!({ "asked": true, "ok": false, "error": problem.what() }),
    };
    json!({ "environment": environment, "servers": servers, "model": without_password(name), "because": why(by, name), "check": health })
}
