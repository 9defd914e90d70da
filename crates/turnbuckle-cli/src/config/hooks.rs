//! `[[hooks]]`: `use` names a ready-made hook, the rest are its options and what every hook has.

use std::time::Duration;

use turnbuckle::hook::{OnFailure, Release};
use turnbuckle::hooks::{Redact, Strategy};
use turnbuckle_tools::{CommandLine, CommandPoint};

use super::Found;
use super::reader::Section;
use crate::problem::{Place, Problem, with_causes};

/// One `[[hooks]]` section.
#[derive(Clone, Debug)]
pub(crate) struct HookPart {
    pub(crate) place: Place,
    /// As given; without one the hook is called after its `use`.
    pub(crate) name: Option<Found<String>>,
    pub(crate) hook: HookUse,
    pub(crate) on_failure: Option<Found<OnFailure>>,
    pub(crate) timeout: Option<Found<Duration>>,
    pub(crate) tools: Option<Found<Vec<Found<String>>>>,
    pub(crate) main_agent_only: bool,
    /// `release = "on_accept"`: nothing is told until every guard has accepted.
    pub(crate) release: Option<Found<Release>>,
}

/// Which ready-made hook, with its own options.
#[derive(Clone, Debug)]
pub(crate) enum HookUse {
    Command { on: CommandPoint, run: CommandLine },
    Redact(Redact),
}

impl HookUse {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Command { .. } => "command",
            Self::Redact(_) => "redact",
        }
    }
}

#[derive(Clone, Copy)]
enum Use {
    Command,
    Redact,
}

const USES: &[(&str, Use)] = &[("command", Use::Command), ("redact", Use::Redact)];
const POLICIES: &[(&str, OnFailure)] = &[("block", OnFailure::Block), ("ignore", OnFailure::Ignore)];
/// The other one is how it is without the key.
const RELEASES: &[(&str, Release)] = &[("on_accept", Release::OnAccept)];
const STRATEGIES: &[(&str, Strategy)] = &[("replace", Strategy::Replace), ("mask", Strategy::Mask)];

pub(super) fn read(sections: Vec<Section<'_>>) -> Vec<HookPart> {
    sections.into_iter().filter_map(hook).collect()
}

fn hook(mut section: Section<'_>) -> Option<HookPart> {
    let place = section.place().clone();
    let name = section.string("name");
    let on_failure = section.word("on_failure", POLICIES);
    let timeout = section.duration("timeout");
    let tools = section.strings("tools");
    let main_agent_only = section.boolean("main_agent_only").is_some_and(|found| found.value);
    let release = section.word("release", RELEASES);
    let used = section.word("use", USES);
    // Without a `use` nobody knows the rest of its keys.
    let hook = match section.required("use", "\"command\"", used)?.value {
        Use::Command => command(&mut section),
        Use::Redact => redact(&mut section),
    };
    section.finish();
    Some(HookPart { place, name, hook: hook?, on_failure, timeout, tools, main_agent_only, release })
}

fn command(section: &mut Section<'_>) -> Option<HookUse> {
    let points: Vec<(&str, CommandPoint)> =
        CommandPoint::NAMES.iter().filter_map(|name| Some((*name, name.parse().ok()?))).collect();
    let on = section.word("on", &points);
    let on = section.required("on", "\"stop\"", on);
    let run = section.string_or_list("run");
    let run = section.required("run", "\"cargo check --quiet || exit 2\"", run)?;
    let empty = match &run.value {
        Ok(shell) => shell.trim().is_empty(),
        Err(argv) => argv.first().is_none_or(|program| program.trim().is_empty()),
    };
    if empty {
        let problem = Problem::error(format!("{} names no program", section.named("run"))).at(&run.place);
        section.source().tell(problem.hint("a string is given to `sh -c`, a list is the program and its arguments"));
        return None;
    }
    let run = run.value.map_or_else(CommandLine::Argv, CommandLine::Shell);
    Some(HookUse::Command { on: on?.value, run })
}

fn redact(section: &mut Section<'_>) -> Option<HookUse> {
    let mut on = |key| section.boolean(key).is_none_or(|found| found.value);
    let (emails, cards, keys) = (on("emails"), on("cards"), on("keys"));
    let strategy = section.word("strategy", STRATEGIES);
    let mut builder = Redact::builder();
    if emails {
        builder = builder.emails();
    }
    if cards {
        builder = builder.cards();
    }
    if keys {
        builder = builder.keys();
    }
    for mut pattern in section.sections("patterns").unwrap_or_default() {
        let (name, regex) = (pattern.string("name"), pattern.string("pattern"));
        let name = pattern.required("name", "\"ticket\"", name);
        let regex = pattern.required("pattern", "\"TCK-[0-9]{6}\"", regex);
        if let (Some(name), Some(regex)) = (name, regex) {
            builder = with_pattern(builder, &pattern, &name, &regex);
        }
        pattern.finish();
    }
    if let Some(strategy) = strategy {
        builder = builder.strategy(strategy.value);
    }
    match builder.build() {
        Ok(redact) => Some(HookUse::Redact(redact)),
        Err(error) => {
            section.source().tell(Problem::error(with_causes(&error)).at(section.place()));
            None
        }
    }
}

/// Each pattern is tried alone first: so a refusal has a line.
fn with_pattern(
    builder: turnbuckle::hooks::RedactBuilder,
    section: &Section<'_>,
    name: &Found<String>,
    regex: &Found<String>,
) -> turnbuckle::hooks::RedactBuilder {
    match Redact::builder().pattern(&name.value, &regex.value).build() {
        Ok(_) => builder.pattern(&name.value, &regex.value),
        Err(error) => {
            let problem = Problem::error(with_causes(&error)).at(&regex.place);
            section.source().tell(problem.hint("a pattern needs a longest match: `[0-9]{1,20}`, not `[0-9]+`"));
            builder
        }
    }
}
