//! `turnbuckle check`: judges the configuration. Nothing of it is run.

mod access;
mod claude;
mod context;
pub(crate) mod shell;

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use turnbuckle::hook::{HookEntry, OnFailure, Point};
use turnbuckle::scope::Actor;
use turnbuckle::{Agent, Scope};
use turnbuckle_models::without_password;
use turnbuckle_tools::Fetch;
use wildmatch::WildMatch;

use crate::Stopped;
use crate::args::{Check, Common};
use crate::assemble::{Prepared, is_changing, prepare};
use crate::config::{Found, HookPart, nearest};
use crate::erasure::retention;
use crate::exit::Exit;
use crate::hooks::{runs_at, unused_settings};
use crate::inspect::{print, unprintable};
use crate::model_name::{ModelName, provider_variables};
use crate::output;
use crate::problem::{Place, Problem};
use crate::show::json_line;
use crate::trust::{Gate, not_accepted};
pub(crate) use context::no_history;
use shell::ShellFault;

/// Prints what was found on stderr, and on stdout what would run if nothing fails; or all of it as JSON on stdout.
pub(crate) fn check(args: &Check, common: &Common) -> Result<Exit, Stopped> {
    let mut prepared = prepare(common, Gate::Judged);
    let more = suspicions(&prepared);
    prepared.problems.extend(more);
    let nothing_to_accept = prepared.items.is_empty() && prepared.has_errors(); // what cannot be read has nothing that `trust` could show
    if !prepared.standing.is_accepted() && !nothing_to_accept {
        prepared.problems.push(not_accepted(&prepared.project.file()));
    }
    let exit = if prepared.has_errors() { Exit::Usage } else { Exit::Completed };
    if args.json {
        return print(&json_line(&as_json(&prepared)).map_err(unprintable)?).map(|_| exit);
    }
    output::report_with_excerpts(&prepared.problems);
    if !prepared.has_errors() {
        print(&summary(&prepared))?;
    }
    Ok(exit)
}

/// What was found, and what would run. Without an agent, because something would fail, there are only the problems.
fn as_json(prepared: &Prepared) -> Value {
    let problems: Vec<Value> = prepared.problems.iter().map(Problem::json).collect();
    let mut found = json!({
        "ok": !prepared.has_errors(), "accepted": prepared.standing.is_accepted(), "files": prepared.files, "problems": problems,
    });
    let Some(agent) = &prepared.agent else { return found };
    let tools: Vec<&str> = agent.tools().iter().map(|tool| &*tool.name).collect();
    let hooks = |agent: Option<&str>, entries: &[HookEntry], parts: &[HookPart]| -> Vec<Value> {
        let at = |point| running_at(point, entries, parts, prepared).map(move |(_, hook)| (point, hook));
        let lines = Point::ALL.into_iter().flat_map(at);
        lines.map(|(point, hook)| json!({ "point": point, "hook": hook.name(), "agent": agent })).collect()
    };
    let mut all = hooks(None, &prepared.hooks, &prepared.config.hooks);
    for (part, own) in prepared.config.agents.iter().flatten().zip(&prepared.agent_hooks) {
        all.extend(hooks(Some(&part.name.value), own, &part.hooks));
    }
    found["agent"] = json!(agent.name());
    found["model"] = json!(without_password(&prepared.model));
    found["model_is_default"] = json!(prepared.model_is_default);
    found["store"] = json!(prepared.store.to_string());
    found["context_tokens"] = json!(agent.limits().context_tokens);
    found["tools"] = json!(tools);
    found["approve"] = json!(prepared.gated);
    found["hooks"] = Value::Array(all);
    found
}

/// The hooks that run something of the user's at a point, with their place in the list; those without configuration stand last.
fn running_at<'a>(
    point: Point,
    entries: &'a [HookEntry],
    parts: &'a [HookPart],
    prepared: &'a Prepared,
) -> impl Iterator<Item = (usize, &'a HookEntry)> {
    let at = entries.iter().enumerate().filter(move |(_, hook)| hook.points().contains(point));
    at.filter(move |(index, _)| runs_at(parts.get(*index), point, &prepared.project.folder))
}

/// What would run, and is probably not meant.
fn suspicions(prepared: &Prepared) -> Vec<Problem> {
    let hooks = || prepared.configured_hooks();
    let parts = || hooks().map(|(part, _)| part);
    let folder = &prepared.project.folder;
    let mut found: Vec<Problem> = hooks().filter_map(|hook| missing_program(hook, folder)).collect();
    found.extend(hooks().filter_map(|hook| broken_shell_string(hook, folder)));
    found.extend(parts().filter_map(counts_per_process));
    found.extend(hooks().filter_map(fails_open));
    found.extend(hooks().filter_map(stops_nothing));
    found.extend(hooks().filter_map(never_timed));
    found.extend(parts().filter_map(tries_once));
    found.extend(ignored_options(prepared));
    found.extend(parts().flat_map(|part| names_no_tool(part, prepared)));
    found.extend(parts().filter_map(|part| overfilled(part, prepared)));
    found.extend(parts().flat_map(passes_nothing));
    found.extend(parts().filter_map(leaves_replies));
    found.extend(parts().filter_map(breaks_cache));
    found.extend(unfilled(prepared));
    found.extend(claude::suspicions(&parts().collect::<Vec<_>>(), prepared));
    found.extend(unused_settings(prepared));
    found.extend(prepared.config.context.suspicions());
    found.extend(context::suspicions(prepared));
    found.extend(unprompted(prepared));
    found.extend(unguarded(prepared));
    found.extend(prepared.without_replies.iter().map(says_nothing));
    let refusals = prepared.config.limits.max_stop_refusals.as_ref().filter(|limit| limit.value == 0);
    if let (Some(limit), true) = (refusals, prepared.hooks.iter().any(|hook| hook.points().contains(Point::OnStop))) {
        let what = "`max_stop_refusals = 0`: every refusal of a stop hook is overruled";
        found.push(Problem::warning(what).at(&limit.place).hint("allow at least 1"));
    }
    if !prepared.gated.is_empty() && !prepared.store.is_durable() {
        let what = format!(
            "calls of {} need approval, and the store `memory:` forgets: such a call ends `run` with exit code 4 for good",
            prepared.gated.join(", ")
        );
        let place = prepared.config.tools.approve.as_ref().map(|found| &found.place);
        let hint = "keep conversations with `url = \"sqlite:PATH\"` in [store]; a `before_tool` hook can judge calls instead; \
                    `approve = []` in [tools] asks for no approval";
        found.push(Problem::warning(what).at_if_known(place).hint(hint));
    }
    found
}

/// A program that is not there is the hook's failure at its first run.
fn missing_program((part, entry): (&HookPart, &HookEntry), folder: &Path) -> Option<Problem> {
    let program = part.option("run").and_then(Value::as_array)?.first()?.as_str()?;
    if exists(program, folder) {
        return None;
    }
    let problem = would_fail(entry, format!("the program {program:?} was not found"));
    Some(problem.at(&part.place).hint("is it installed, and in PATH?"))
}

/// A hook that fails at its first run: an error if that ends a turn or a call.
fn would_fail(entry: &HookEntry, what: String) -> Problem {
    let blocks = entry.points().iter().any(|point| entry.failure_policy(point) == OnFailure::Block);
    match blocks {
        true => Problem::error(format!("{what}: the hook would fail, and a turn with it")),
        false => Problem::warning(format!("{what}: the hook would fail, and be ignored")),
    }
}

/// A shell string that the shell cannot parse, or whose first command is not there.
fn broken_shell_string((part, entry): (&HookPart, &HookEntry), folder: &Path) -> Option<Problem> {
    let line = part.option("run").and_then(Value::as_str)?;
    let place: &Place = part.option_place("run").unwrap_or(&part.place);
    let problem = match shell::fault(line, folder)? {
        ShellFault::Syntax(complaint) => would_fail(entry, format!("`run` is no shell command: {complaint}"))
            .hint("`sh -n` says the same; a list of words (`run = [\"lint\", \"--all\"]`) needs no shell"),
        ShellFault::NoSuchCommand { name, alone } => {
            let what = format!("`run` begins with {name:?}, which is no program and nothing that `sh` knows");
            let problem = match alone {
                true => would_fail(entry, what),
                // What follows it may be there for that case.
                false => Problem::warning(what),
            };
            problem.hint("is it installed, and in PATH?")
        }
    };
    Some(problem.at(place))
}

/// Hooks that keep what they know in the memory of their process.
const PER_PROCESS: &[&str] = &["quota", "cache", "rate_limit", "concurrency", "circuit_breaker", "monitor"];

/// `run` and `resolve` are a process for each turn, so such a hook never sees two turns there.
fn counts_per_process(part: &HookPart) -> Option<Problem> {
    let name = PER_PROCESS.iter().find(|name| **name == part.used.name)?;
    let what = format!(
        "`{name}` works within one process, and `turnbuckle run` is a process for each turn: there it works within one \
         turn only"
    );
    Some(Problem::warning(what).at(&part.place).hint("in a chat and in `serve` it works over all turns"))
}

/// Whether a hook in `folder` would find the program.
fn exists(program: &str, folder: &Path) -> bool {
    if program.contains('/') {
        return folder.join(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A gate whose failure means yes.
fn fails_open((part, entry): (&HookPart, &HookEntry)) -> Option<Problem> {
    let ignored = part.settings.on_failure.as_ref().filter(|found| found.value == OnFailure::Ignore)?;
    let points = entry.points();
    let what = if points.iter().eq([Point::Stream]) {
        "`on_failure = \"ignore\"` changes nothing: on the stream a failure always blocks"
    } else if points.contains(Point::BeforeTool) {
        "this gate fails open: if the hook breaks, the call runs"
    } else if points.contains(Point::AfterModel) {
        "this guard fails open: if the hook breaks, the reply passes"
    } else {
        return None;
    };
    Some(Problem::warning(what).at(&ignored.place).hint("take the line out"))
}

/// A transformer of the stream never waits, so its time is not taken.
fn never_timed((part, entry): (&HookPart, &HookEntry)) -> Option<Problem> {
    let timeout = part.settings.timeout.as_ref().filter(|_| entry.points().iter().eq([Point::Stream]))?;
    let what = "`timeout` changes nothing: what works on the stream is not timed";
    Some(Problem::warning(what).at(&timeout.place).hint("take the line out"))
}

/// `on` says all places at which `redact` works: without the stream, what the model says is not among them.
fn leaves_replies(part: &HookPart) -> Option<Problem> {
    let on = part.option("on").filter(|_| part.used.name == "redact")?.as_array()?;
    let says = on.iter().any(|place| place == "stream");
    let what = "`on` of `redact` does not name \"stream\": what the model says itself is not redacted";
    let hint = "`on` replaces the default; add \"stream\", unless another `redact` has it";
    (!says).then(|| Problem::warning(what).at(part.option_place("on").unwrap_or(&part.place)).hint(hint))
}

/// `trim` changes what lies behind its last fresh messages, and so the beginning of the next request.
fn breaks_cache(part: &HookPart) -> Option<Problem> {
    let what = "`trim` leaves something else out as the conversation goes on: each time, the provider's prompt cache breaks \
                there, and what follows is paid for in full";
    let hint = "the reducers of [context] shorten old results only when a context is full; `turnbuckle why` tells what \
                the breaks cost";
    (part.used.name == "trim").then(|| Problem::warning(what).at(&part.place).hint(hint))
}

/// A system prompt with a placeholder: it is sent as it is. Were it filled in, a time in it would break the provider's prompt
/// cache with every call.
fn unfilled(prepared: &Prepared) -> Vec<Problem> {
    let own = prepared.config.agent.system.as_ref();
    let others = prepared.config.agents.iter().flatten().filter_map(|part| part.system.as_ref());
    let places = ["{time}", "{date}", "{user}", "{agent}", "{folder}"];
    let found = own.into_iter().chain(others).filter_map(|system| {
        let place = places.iter().find(|place| system.value.contains(**place))?;
        let what = format!(
            "the system prompt has {place}, which is not filled in there: a system prompt is the same in every call, or the \
             provider's prompt cache breaks with each"
        );
        let hint = "write it into `text` of an `instructions` hook, which stands behind the user's message";
        Some(Problem::warning(what).at(&system.place).hint(hint))
    });
    found.collect()
}

fn tries_once(part: &HookPart) -> Option<Problem> {
    let once = part.used.name == "retry" && part.option("max_attempts").and_then(Value::as_u64) == Some(1);
    let what = "`max_attempts = 1` in [[hooks]]: nothing is tried again";
    once.then(|| Problem::warning(what).at(&part.place).hint("take the hook out, or allow at least 2"))
}

/// A name that no tool has permits, forbids and gates nothing: most often a slip.
fn names_no_tool(part: &HookPart, prepared: &Prepared) -> Vec<Problem> {
    let judges = ["permit", "approval"].contains(&part.used.name);
    let Some(agent) = prepared.agent.as_ref().filter(|_| judges) else { return Vec::new() };
    let rules = part.option("rules").and_then(Value::as_array).into_iter().flatten();
    let named = rules.flat_map(|rule| ["allow", "deny", "tool"].map(|key| rule.get(key))).flatten();
    let one_or_many = |named| Value::as_array(named).map_or(std::slice::from_ref(named), Vec::as_slice);
    let globs = named.flat_map(one_or_many).filter_map(Value::as_str);
    let of_sub_agents = agent.parts().sub_agents.iter().flat_map(|(_, parts)| &parts.tools);
    let tools: Vec<&str> =
        agent.tools().iter().map(|tool| &*tool.name).chain(of_sub_agents.map(|name| &**name)).collect();
    let idle = globs.filter(|glob| !tools.iter().any(|tool| WildMatch::new(glob).matches(tool)));
    let problem = |glob: &str| {
        let what = format!("`rules` in [[hooks]] name {glob:?}, and the agent has no such tool");
        Problem::warning(what).at(&part.place).hint("is it spelt right, and in `builtin`?")
    };
    idle.map(problem).collect()
}

/// Only what is withheld can be let through: another name is most often a slip.
fn passes_nothing(part: &HookPart) -> Vec<Problem> {
    let withheld = provider_variables();
    let named = part.option("pass_env").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let problem = |name: &str| {
        let what = format!("`pass_env` names {name:?}, which is not withheld from programs");
        let near = nearest(name, withheld.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        let hint = near.unwrap_or_else(|| format!("withheld are {}; take the name out", withheld.join(", ")));
        Problem::warning(what).at(part.option_place("pass_env").unwrap_or(&part.place)).hint(hint)
    };
    named.filter(|name| !withheld.contains(name)).map(problem).collect()
}

/// What does not fit into the reserve fails the turn.
fn overfilled(part: &HookPart, prepared: &Prepared) -> Option<Problem> {
    let share = part.option("share").and_then(Value::as_u64).filter(|_| part.used.name == "instructions")?;
    let reserve = prepared.config.limits.limits().injection_reserve;
    let what =
        format!("`share = {share}` in [[hooks]], and `injection_reserve` is {reserve}: more than that fails the turn");
    let place = part.option_place("share").unwrap_or(&part.place);
    (share > reserve)
        .then(|| Problem::warning(what).at(place).hint("lower it, or raise `injection_reserve` in [limits]"))
}

/// Model options that no model takes.
fn ignored_options(prepared: &Prepared) -> Option<Problem> {
    let place = prepared.config.agent.options.first_place()?;
    let is_own = matches!(ModelName::parse(&prepared.model), Ok(ModelName::Script(_) | ModelName::Demo));
    let what = format!("model options in [agent] change nothing: `{}` takes none", prepared.model);
    is_own.then(|| Problem::warning(what).at(place).hint("they are for the models of providers"))
}

/// An empty system prompt is probably a mistake.
fn unprompted(prepared: &Prepared) -> Vec<Problem> {
    let blank = |found: &&Found<String>| found.value.trim().is_empty();
    let own = prepared.config.agent.system.as_ref().filter(blank).map(|found| {
        let what = "the system prompt is empty: the model is told nothing of what it is for";
        Problem::warning(what).at(&found.place).hint("write one, or take the line out")
    });
    let parts = prepared.config.agents.iter().flatten();
    let unbriefed = parts.filter(|part| part.system.as_ref().is_none_or(|system| blank(&system))).map(|part| {
        let what = format!("the sub-agent `{}` has no `system` prompt: nobody is told what it is for", part.name.value);
        Problem::warning(what).at(&part.name.place).hint("its first line is what the model that calls it reads")
    });
    own.into_iter().chain(unbriefed).collect()
}

/// Most programs say no with another exit code than 2, and that is a failure.
fn stops_nothing((part, entry): (&HookPart, &HookEntry)) -> Option<Problem> {
    let stops = ["command", "lint"].contains(&part.used.name) && entry.points().contains(Point::OnStop);
    if !stops || part.settings.on_failure.is_some() {
        return None;
    }
    let what = "a stop hook without `on_failure`: its failure is ignored: a broken program lets every turn end";
    if part.used.name == "lint" {
        let hint = "write `on_failure = \"block\"`, or \"ignore\" if that is meant";
        return Some(Problem::warning(what).at(&part.place).hint(hint));
    }
    let hint = "exit 2 refuses (`cargo check || exit 2`), every other exit code but 0 is a failure; write `on_failure = \
                \"block\"`, or \"ignore\" if that is meant";
    Some(Problem::warning(what).at(&part.place).hint(hint))
}

/// A model that may write files without approval can write `turnbuckle.toml`, and so configure programs that run as hooks.
fn unguarded(prepared: &Prepared) -> Option<Problem> {
    let agent = prepared.agent.as_ref()?;
    let offered = agent.tools().iter().map(|tool| &*tool.name).filter(|name| is_changing(name) && *name != Fetch::NAME);
    let free: Vec<&str> = offered.filter(|name| !prepared.gated.iter().any(|gated| gated == name)).collect();
    let free: Vec<&str> =
        free.into_iter().filter(|name| !prepared.hooks.iter().any(|hook| judges(hook, name))).collect();
    if free.is_empty() {
        return None;
    }
    let what = format!(
        "{} without approval: the model could configure commands for itself, in turnbuckle.toml or .git/hooks",
        crate::show::and_list(&free)
    );
    let place = prepared.config.tools.approve.as_ref().map(|found| &found.place);
    let hint = "name them in `approve`, let a `before_tool` hook judge them, or take them out of `builtin`";
    Some(Problem::warning(what).at_if_known(place).hint(hint))
}

fn judges(hook: &HookEntry, tool: &str) -> bool {
    let globs = &hook.settings().tools;
    let minds = globs.is_empty() || globs.iter().any(|glob| WildMatch::new(glob).matches(tool));
    hook.points().contains(Point::BeforeTool) && minds
}

/// A sub-agent that the script does not know.
fn says_nothing(name: &Found<String>) -> Problem {
    let what = format!("the script has no replies for the sub-agent `{}`: its first model call would fail", name.value);
    Problem::warning(what)
        .at(&name.place)
        .hint(format!("write `\"agents\": {{ \"{}\": [ … ] }}` in the script", name.value))
}

/// Which of the tools that need approval sub-agents have: it is needed there as well.
fn also_in_sub_agents(prepared: &Prepared, agent: &Agent) -> String {
    let sub_agents = &agent.parts().sub_agents;
    let has = |name: &str| sub_agents.iter().any(|(_, parts)| parts.tools.iter().any(|tool| **tool == *name));
    let mut names: Vec<&str> = prepared.gated.iter().map(String::as_str).filter(|name| has(name)).collect();
    // A sub-agent may have tools, and gates, that the main agent does not have.
    for name in sub_agents.iter().flat_map(|(_, parts)| parts.approve.iter().flatten()) {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    if names.is_empty() { String::new() } else { format!("; in sub-agents, too: {}", names.join(", ")) }
}

/// The hooks of sub-agents: those of their own, and whether the main agent's stand before them.
fn of_sub_agents(prepared: &Prepared) -> String {
    let mut text = String::new();
    for (part, own) in prepared.config.agents.iter().flatten().zip(&prepared.agent_hooks) {
        let agent = &part.name.value;
        if !part.inherit_hooks {
            let _ = writeln!(text, "hooks     in {agent}: without those of the main agent");
        }
        for point in Point::ALL {
            let at: Vec<&str> = own.iter().filter(|hook| hook.points().contains(point)).map(HookEntry::name).collect();
            if !at.is_empty() {
                let _ = writeln!(text, "hooks     in {agent}, {point}: {}", at.join(", "));
            }
        }
    }
    text
}

/// What would run, in the order of a turn.
fn summary(prepared: &Prepared) -> String {
    let mut text = String::new();
    let Some(agent) = &prepared.agent else { return text };
    let files: Vec<String> = prepared.files.iter().map(|path| path.display().to_string()).collect();
    let files = if files.is_empty() { "none: the defaults".to_owned() } else { files.join(", ") };
    let tools: Vec<&str> = agent.tools().iter().map(|tool| &*tool.name).collect();
    let or_none = |names: String| if names.is_empty() { "none".to_owned() } else { names };
    let chosen = if prepared.model_is_default { " (nobody chose one)" } else { "" };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "files     {files}");
    let _ = writeln!(text, "agent     {}, model {}{chosen}", agent.name(), without_password(&prepared.model));
    let _ = writeln!(text, "store     {}", prepared.store);
    if let Some(retain) = &prepared.config.store.retain {
        let _ = writeln!(text, "retain    {}", retention(retain.value));
    }
    if let Ok(Some(audit)) = crate::audit::options(&prepared.config) {
        let ttl = humantime::format_duration(audit.limits.ttl);
        let _ = writeln!(text, "audit     what models are sent is recorded for {ttl}, secrets taken out");
    }
    let (limits, reducers) = (agent.limits(), agent.reducers().map(|reducer| reducer.name()).collect::<Vec<_>>());
    let _ = writeln!(text, "context   {} tokens, then {}", limits.context_tokens, or_none(reducers.join(", ")));
    if !prepared.items.is_empty() {
        let _ = writeln!(text, "trust     {}", prepared.standing.told());
    }
    let scope = prepared.config.scope.scope();
    if scope.actor() != Scope::local().actor()
        && let Actor::User { id, roles } = scope.actor()
    {
        let roles: Vec<&str> = roles.iter().map(|role| &**role).collect();
        let _ = writeln!(text, "scope     {id}, roles {}", or_none(roles.join(", ")));
    }
    let _ = writeln!(text, "tools     {}", or_none(tools.join(", ")));
    for server in &prepared.mcp {
        let _ = writeln!(text, "mcp       {}: {}", server.name, server.cost());
    }
    let _ = writeln!(text, "approve   {}{}", or_none(prepared.gated.join(", ")), also_in_sub_agents(prepared, agent));
    text += &access::lines(&prepared.config.access.rules());
    for point in Point::ALL {
        let at = running_at(point, agent.hooks(), &prepared.config.hooks, prepared);
        let configured = prepared.config.hooks.len();
        let shown = |(index, hook): (usize, &HookEntry)| match index < configured {
            true => hook.name().to_owned(),
            false => format!("{} (added by default)", hook.name()),
        };
        let names: Vec<String> = at.map(shown).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "hooks     {point}: {}", names.join(", "));
        }
    }
    text += &of_sub_agents(prepared);
    let found = match prepared.problems.iter().filter(|problem| !problem.is_error()).count() {
        0 => "no errors".to_owned(),
        1 => "no errors, 1 warning".to_owned(),
        warnings => format!("no errors, {warnings} warnings"),
    };
    let _ = match prepared.standing.is_accepted() {
        true => writeln!(text, "ok        {found}"),
        false => {
            let file = prepared.project.file();
            writeln!(text, "not accepted  {found}; `turnbuckle trust` shows {} and accepts it", file.display())
        }
    };
    text
}
