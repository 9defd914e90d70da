//! Hooks point by point, in words: `turnbuckle hooks` prints these lines, and the page of a turn shows them.

use maud::{Markup, html};
use turnbuckle::Agent;
use turnbuckle::hook::{HookEntry, Point, Record};

use super::safe::{Name, Shown};
use super::words;

/// A hook at a point, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookLine {
    /// Where it runs.
    pub point: Point,
    /// The sub-agent that has it; `None` for the main agent.
    pub agent: Option<String>,
    /// Its name.
    pub hook: String,
    /// What it is and how it is set, in the words of a configuration: `use = "lint", run = ["ruff"]`.
    pub settings: String,
    /// Where the configuration has it, and whether that is accepted.
    pub from: Option<String>,
    /// What its failure means, as a sentence.
    pub failure: String,
    /// The programs that it runs here, if they come from files of their own.
    pub handlers: Vec<String>,
}

impl HookLine {
    /// A hook of the main agent that no configuration has.
    pub fn new(point: Point, hook: impl Into<String>, settings: impl Into<String>, failure: impl Into<String>) -> Self {
        let (hook, settings, failure) = (hook.into(), settings.into(), failure.into());
        Self { point, agent: None, hook, settings, from: None, failure, handlers: Vec::new() }
    }

    /// The hooks of an agent at each point, in order, as far as the agent knows them.
    pub fn of_agent(agent: &Agent) -> Vec<Self> {
        let at = |point| agent.hooks().iter().filter(move |entry| entry.points().contains(point));
        Point::ALL.into_iter().flat_map(|point| at(point).map(move |entry| Self::of_entry(entry, point))).collect()
    }

    fn of_entry(entry: &HookEntry, point: Point) -> Self {
        let mut settings = match entry.configured_use() {
            Some(used) => vec![format!("use = {used:?}")],
            None => vec!["made by the program".to_owned()],
        };
        let set = entry.settings();
        if !set.tools.is_empty() {
            settings.push(format!("tools = {:?}", set.tools));
        }
        if set.main_agent_only {
            settings.push("main_agent_only = true".to_owned());
        }
        let failure = format!("if it fails: {}", entry.failure_in_words(point));
        Self::new(point, entry.name(), settings.join(", "), failure)
    }
}

/// The lines by point, with how often and how long each ran in a turn.
pub(super) fn table(lines: &[HookLine], records: &[Record]) -> Markup {
    html! {
        @if lines.is_empty() { p.soft { "The agent has no hooks." } } @else {
            div.wide tabindex="0" {
                table.points {
                    thead { tr { th scope="col" { "Point" } th scope="col" { "Hook" } th scope="col" { "How it is set" } th.right scope="col" { "Runs" } th.right scope="col" { "Time" } } }
                    tbody { @for line in lines { (row(line, records)) } }
                }
            }
        }
    }
}

fn row(line: &HookLine, records: &[Record]) -> Markup {
    // A sub-agent's turns are its own, with records of their own.
    let is_own = |record: &&Record| line.agent.is_none() && record.point == line.point && *record.hook == *line.hook;
    let (runs, took) = records
        .iter()
        .filter(is_own)
        .fold((0, 0.0), |(runs, took), record| (runs + 1, took + record.took.as_secs_f64() * 1_000.0));
    html! {
        tr {
            td { (line.point.name()) @if let Some(agent) = &line.agent { ", in " (Name(agent)) } }
            td { strong { (Name(&line.hook)) } }
            td {
                code { (Shown(&line.settings)) }
                @if let Some(from) = &line.from { p.soft { "from " (Shown(from)) } }
                p { (Shown(&line.failure)) }
                @if !line.handlers.is_empty() { ul { @for handler in &line.handlers { li { (Shown(handler)) } } } }
            }
            td.right { @if line.agent.is_none() { (runs) } }
            td.right { @if runs > 0 { (words::milliseconds(took)) } }
        }
    }
}
