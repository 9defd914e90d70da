//! `turnbuckle hooks test PreToolUse`: the Claude-style handlers that match an event from stdin, and what follows from what they
//! say.

use std::path::Path;

use serde_json::{Map, Value, json};
use turnbuckle::hook::OnFailure;
use turnbuckle::hooks::{ConfigHook as _, HookBuildContext};
use turnbuckle_tools::ClaudeHooks;
use turnbuckle_tools::claude::{ClaudeEvent, Trial, TrialRun};

use crate::Stopped;
use crate::assemble::Prepared;
use crate::config::{HookPart, open_model};
use crate::exit::Exit;
use crate::inspect;
use crate::links::hook_links;
use crate::mcp::hook_servers;
use crate::model_name::provider_variables;
use crate::problem::Problem;
use crate::project::OWN_FOLDER;
use crate::read_file::{PIPED, text};
use crate::show::{clean, json_line};

pub(super) async fn try_event(event: ClaudeEvent, prepared: Prepared, json: bool) -> Result<Exit, Stopped> {
    let payload = payload()?;
    if let Some(key) = event.subject().filter(|key| !payload.get(*key).is_some_and(Value::is_string)) {
        let what = format!("the event has no text {key:?}, which matchers of {} are compared with", event.name());
        return Err(Stopped::usage(Problem::error(what).hint("docs/bringing-your-hooks.md has the events")));
    }
    let mut trials = Vec::new();
    for part in prepared.config.hooks.iter().filter(|part| part.used.name == ClaudeHooks::NAME) {
        let Some(hooks) = hook_of(part, &prepared)? else { continue };
        let tried = hooks.try_event(event, payload.clone()).await;
        trials.push(tried.map_err(|error| Stopped::failed(Problem::error(format!("a handler may not run: {error}"))))?);
    }
    if trials.iter().all(|trial| trial.runs.is_empty()) {
        if let Some(unused) = super::unused_settings(&prepared) {
            crate::output::report(&[unused]);
        }
        return Err(Stopped::usage(
            Problem::error(format!("no handler runs at {} for this event", event.name()))
                .hint("`turnbuckle hooks` shows which run where; matchers are compared with `tool_name` and the like"),
        ));
    }
    super::print(&match json {
        true => trials.iter().map(|trial| line(event, trial)).collect::<Result<String, _>>()?,
        false => clean(&trials.iter().map(told).collect::<String>()),
    });
    let failed = trials.iter().flat_map(|trial| &trial.runs).find_map(|run| Some((run, run.failure.as_ref()?)));
    match failed {
        Some((run, why)) => {
            Err(Stopped::failed(Problem::error(format!("{} failed ({}): {why}", run.handler, run.outcome))))
        }
        None => Ok(Exit::Completed),
    }
}

/// The hook as a run would have it. The agent holds the one that was made for it, so it is made once more.
fn hook_of(part: &HookPart, prepared: &Prepared) -> Result<Option<ClaudeHooks>, Stopped> {
    let folder = &prepared.project.folder;
    let Some(options) = super::claude_options(part) else { return Ok(None) };
    let asks_agents_model = options.prompt_model.is_none();
    let (data, withheld_env) = (folder.join(OWN_FOLDER), provider_variables());
    let file = Path::new(&*part.place.file).parent().map(Path::to_owned).unwrap_or_default();
    let open_model = |name: &str| open_model(name, &file, prepared.gate);
    let context = HookBuildContext {
        folder,
        data: &data,
        withheld_env: &withheld_env,
        open_model: &open_model,
        // They were compared with what was accepted when the files were read, a moment ago.
        program_check: None,
        databases: None,
        tool_servers: Some(hook_servers()),
        link_maker: Some(hook_links()),
        ignores_project: prepared.gate.options().ignore_project,
        read_by_others: &part.read_by_others,
    };
    let mut hooks = ClaudeHooks::from_options(options, &context)
        .map_err(|error| Stopped::usage(Problem::error(error.to_string()).at(&part.place)))?;
    if let (true, Some(agent)) = (asks_agents_model, &prepared.agent) {
        hooks = hooks.prompt_model(agent.model().clone());
    }
    let blocks = part.settings.on_failure.as_ref().is_some_and(|found| found.value == OnFailure::Block);
    Ok(Some(if blocks { hooks.fail_closed() } else { hooks }))
}

/// What stands on stdin.
const WHAT_IS_READ: &str = "it is the JSON object that handlers read: {\"tool_name\": \"Bash\", \"tool_input\": {…}}";

/// The object that handlers read. Its keys are not judged: the protocol grows.
fn payload() -> Result<Map<String, Value>, Stopped> {
    let text = text(std::io::stdin().lock(), PIPED)
        .map_err(|error| Stopped::failed(Problem::error(format!("reading the event from stdin: {error}"))))?;
    if text.trim().is_empty() {
        let problem = Problem::error("stdin was empty, and the event is read from there");
        return Err(Stopped::usage(problem.hint(WHAT_IS_READ)));
    }
    serde_json::from_str(&text).map_err(|error| {
        Stopped::usage(Problem::error(format!("the event on stdin makes no sense: {error}")).hint(WHAT_IS_READ))
    })
}

fn told(trial: &Trial) -> String {
    let mut text = String::new();
    for TrialRun { handler, file, outcome, took, failure, said } in &trial.runs {
        let ms = took.as_secs_f64() * 1000.0;
        text.push_str(&format!("handler   {handler} ({}): {outcome}, {ms:.1} ms\n", file.display()));
        for sentence in said.iter().chain(failure) {
            text.push_str(&format!("          {}\n", sentence.replace('\n', "\n          ")));
        }
    }
    for (index, sentence) in trial.verdict.iter().enumerate() {
        let label = if index == 0 { "verdict" } else { "" };
        text.push_str(&format!("{label:9} {}\n", sentence.replace('\n', "\n          ")));
    }
    text
}

fn line(event: ClaudeEvent, trial: &Trial) -> Result<String, Stopped> {
    let run = |run: &TrialRun| {
        json!({
            "handler": run.handler, "file": run.file, "outcome": run.outcome, "ms": run.took.as_secs_f64() * 1000.0,
            "error": run.failure, "said": run.said,
        })
    };
    let runs: Vec<Value> = trial.runs.iter().map(run).collect();
    json_line(&json!({"event": event.name(), "handlers": runs, "verdict": trial.verdict})).map_err(inspect::unprintable)
}
