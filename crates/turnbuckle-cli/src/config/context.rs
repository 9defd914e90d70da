//! The section `[context]`: what makes contexts smaller that have become too large.

use std::sync::Arc;
use std::time::Duration;

use turnbuckle::AgentBuilder;
use turnbuckle::context::reducer::Reducer;
use turnbuckle::context::reducers::{Summaries, ToolResults, Window};
use turnbuckle::tool::Retention;

use super::nearest::instead;
use super::reader::Section;
use super::sections::ModelSetting;
use super::{Found, Over};
use crate::problem::Problem;

/// The shortest time that making a summary may be given.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// The section `[context]`.
#[derive(Debug, Default)]
pub(crate) struct ContextPart {
    pub(crate) reducers: Option<Found<Vec<Found<ReducerName>>>>,
    /// Which results and calls of tools `tool_results` may shorten.
    pub(crate) tool_results: Option<Found<RetentionPart>>,
    /// The model that makes summaries, if not the agent's own.
    pub(crate) summary_model: Option<Found<ModelSetting>>,
    /// How long making one may take.
    pub(crate) summary_timeout: Option<Found<Duration>>,
}

/// A reducer that a file can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReducerName {
    ToolResults,
    Window,
    Summary,
}

impl ReducerName {
    const ALL: [(&str, Self); 3] =
        [("tool_results", Self::ToolResults), ("window", Self::Window), ("summary", Self::Summary)];

    fn make(self) -> Arc<dyn Reducer> {
        match self {
            Self::ToolResults => Arc::new(ToolResults),
            Self::Window => Arc::new(Window),
            Self::Summary => Arc::new(Summaries),
        }
    }
}

impl ContextPart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let named = section.strings("reducers");
        let reducers = named.map(|Found { value, place }| {
            let value = value.into_iter().filter_map(|name| reducer(&section, name)).collect();
            let found = Found { value, place };
            tell_of_repetition(&section, &found);
            found
        });
        let tool_results = section.section("tool_results").map(|inner| {
            let place = inner.place().clone();
            Found { value: RetentionPart::read(inner), place }
        });
        let folder = section.source().folder().to_path_buf();
        let summary_model = ModelSetting::read_key(&mut section, "summary_model", &folder);
        let summary_timeout = section.duration("summary_timeout");
        if let Some(timeout) = summary_timeout.as_ref().filter(|timeout| timeout.value < LEAST_TIME) {
            let what = format!("{} is less than a second", section.named("summary_timeout"));
            let hint = "write `summary_timeout = \"2m\"`; without \"summary\" in `reducers` no summary is made";
            section.source().tell(Problem::error(what).at(&timeout.place).hint(hint));
        }
        section.finish();
        Self { reducers, tool_results, summary_model, summary_timeout }
    }

    /// An agent with what the section says of its tools' results.
    pub(crate) fn with_retention(&self, mut agent: AgentBuilder) -> AgentBuilder {
        let Some(Found { value: part, .. }) = &self.tool_results else { return agent };
        for (tools, retention) in &part.by_tool {
            agent = agent.retention(&tools.value, *retention);
        }
        match part.default {
            Some(retention) => agent.default_retention(retention),
            None => agent,
        }
    }

    /// The reducers, in order; `None`: the core's own.
    pub(crate) fn reducers(&self) -> Option<Vec<Arc<dyn Reducer>>> {
        let named = self.reducers.as_ref()?;
        Some(named.value.iter().map(|name| name.value.make()).collect())
    }

    /// What is probably not meant.
    pub(crate) fn suspicions(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        if let Some(kept) = self.tool_results.as_ref().filter(|part| part.value.default == Some(Retention::Keep)) {
            let what = "`keep = true` in [context.tool_results] keeps the results of most tools: a turn that reads more than a \
                        context holds fails";
            let hint = "keep those of single tools: `tools = [{ name = \"…\", keep = true }]`";
            found.push(Problem::warning(what).at(&kept.place).hint(hint));
        }
        let has_results = |named: &Found<Vec<Found<ReducerName>>>| {
            named.value.iter().any(|name| name.value == ReducerName::ToolResults)
        };
        if let (Some(part), false) = (&self.tool_results, self.reducers.as_ref().is_none_or(has_results)) {
            let what = "[context.tool_results] says nothing to anyone: `reducers` has no \"tool_results\"";
            found.push(Problem::warning(what).at(&part.place).hint("add \"tool_results\", or take the section out"));
        }
        let Some(named) = &self.reducers else { return found };
        let makes_none = !named.value.iter().any(|name| name.value == ReducerName::Summary);
        if let (Some(model), true) = (&self.summary_model, makes_none) {
            let what = "`summary_model` in [context] makes nothing: `reducers` has no \"summary\"";
            found.push(Problem::warning(what).at(&model.place).hint("add \"summary\", or take the line out"));
        }
        let place = |wanted| named.value.iter().position(|name| name.value == wanted);
        match (place(ReducerName::ToolResults), place(ReducerName::Window)) {
            (_, None) => {
                let what = "`reducers` in [context] cannot keep contexts small: nothing leaves old turns out, so a long \
                            conversation fails";
                found.push(Problem::warning(what).at(&named.place).hint("add \"window\""));
            }
            (None, Some(_)) => {
                let what = "`reducers` in [context] cannot make results smaller: a turn fails if those of one reply do not fit";
                found.push(Problem::warning(what).at(&named.place).hint("add \"tool_results\""));
            }
            (Some(results), Some(window)) if window < results => {
                let what = "`reducers` in [context] leaves whole turns out before it shortens old results";
                let hint = "cheap ones first: `reducers = [\"tool_results\", \"window\"]`";
                found.push(Problem::warning(what).at(&named.place).hint(hint));
            }
            _ => {}
        }
        found
    }
}

/// The section `[context.tool_results]`.
#[derive(Debug, Default)]
pub(crate) struct RetentionPart {
    /// Of tools that say nothing themselves.
    pub(crate) default: Option<Retention>,
    /// By the name of a tool, or a pattern. The first match counts.
    pub(crate) by_tool: Vec<(Found<String>, Retention)>,
}

impl RetentionPart {
    fn read(mut section: Section<'_>) -> Self {
        let default = retention(&mut section);
        let mut by_tool = Vec::new();
        for mut tool in section.sections("tools").unwrap_or_default() {
            let name = tool.string("name");
            let name = tool.required("name", "\"read_file\"", name);
            let said = retention(&mut tool);
            if said.is_none() {
                let what = format!("{} says nothing", tool.named("name"));
                let hint = "add one of `turns = 2`, `last = 3` and `keep = true`";
                tool.source().tell(Problem::error(what).at(tool.place()).hint(hint));
            }
            by_tool.extend(name.zip(said));
            tool.finish();
        }
        section.finish();
        Self { default, by_tool }
    }
}

/// One of `turns`, `last` and `keep`.
fn retention(section: &mut Section<'_>) -> Option<Retention> {
    let (turns, last, keep) = (section.small("turns"), section.small("last"), section.boolean("keep"));
    let keep = keep.filter(|keep| keep.value);
    if [turns.is_some(), last.is_some(), keep.is_some()].into_iter().filter(|is_set| *is_set).count() > 1 {
        let what = format!("{} stands beside another of `turns`, `last` and `keep`", section.named("keep"));
        let what = if keep.is_some() { what } else { what.replacen("`keep`", "`last`", 1) };
        section
            .source()
            .tell(Problem::error(what).at(section.place()).hint("only one of them can count: take the others out"));
    }
    let keep = keep.map(|_| Retention::Keep);
    keep.or(last.map(|last| Retention::Last(last.value))).or(turns.map(|turns| Retention::Turns(turns.value)))
}

fn reducer(section: &Section<'_>, name: Found<String>) -> Option<Found<ReducerName>> {
    let Found { value, place } = name;
    let names = ReducerName::ALL.map(|(name, _)| name);
    match ReducerName::ALL.iter().find(|(name, _)| *name == value) {
        Some((_, meant)) => Some(Found { value: *meant, place }),
        None => {
            let what = format!("{} has {value:?}, which is none of: {}", section.named("reducers"), names.join(", "));
            section.source().tell(Problem::error(what).at(&place).hint(instead(&value, &names)));
            None
        }
    }
}

fn tell_of_repetition(section: &Section<'_>, named: &Found<Vec<Found<ReducerName>>>) {
    for (index, name) in named.value.iter().enumerate() {
        if named.value[..index].iter().any(|before| before.value == name.value) {
            let what = format!("{} names a reducer twice", section.named("reducers"));
            section.source().tell(Problem::error(what).at(&name.place).hint("take it out"));
        }
    }
}

impl Over for ContextPart {
    fn over(self, base: Self) -> Self {
        Self {
            reducers: self.reducers.over(base.reducers),
            tool_results: self.tool_results.over(base.tool_results),
            summary_model: self.summary_model.over(base.summary_model),
            summary_timeout: self.summary_timeout.over(base.summary_timeout),
        }
    }
}
