//! Whether contexts can be kept within their budget.

use std::fmt;

use turnbuckle::Agent;
use turnbuckle::message::Usage;
use wildmatch::WildMatch;

use crate::assemble::Prepared;
use crate::config::Config;
use crate::problem::{Place, Problem};

/// Bytes of text that a token of English prose has, about: what a request of so many tokens can come to.
const BYTES_OF_TOKEN: u64 = 4;

/// Contexts with room for fewer tokens of history have none: not even a question and its answer.
const LEAST_HISTORY: u64 = 100;

/// System prompt and tools that leave no room, an audit that cannot hold a request, a budget without prices, and retention of tools that there are not.
pub(super) fn suspicions(prepared: &Prepared) -> Vec<Problem> {
    let Some(agent) = &prepared.agent else { return Vec::new() };
    let problems = [no_room(prepared), small_audit(prepared), no_prices(prepared)];
    let mut found: Vec<Problem> = problems.into_iter().flatten().collect();
    let retentions = prepared.config.context.tool_results.iter().flat_map(|part| &part.value.by_tool);
    for (tools, _) in retentions {
        let pattern = WildMatch::new(&tools.value);
        if !agent.tools().iter().any(|tool| pattern.matches(&tool.name)) {
            let what = format!("[context.tool_results] names {:?}, and the agent has no such tool", tools.value);
            found.push(Problem::warning(what).at(&tools.place).hint("`turnbuckle check` lists its tools"));
        }
    }
    found
}

/// What a model costs whose prices nobody knows is counted as nothing.
fn no_prices(prepared: &Prepared) -> Option<Problem> {
    let most = prepared.config.limits.max_cost.as_ref().filter(|most| most.value > 0.0)?;
    let usage = Usage { input: 1_000, output: 1_000, ..Usage::default() };
    if prepared.agent.as_ref()?.model().price(&usage).is_some() {
        return None;
    }
    let what =
        "`max_cost` in [limits] bounds nothing: the prices of the model are not known, so its calls count as free";
    Some(Problem::warning(what).at(&most.place).hint("add it to the file of TURNBUCKLE_PRICES, or set `max_tokens`"))
}

/// An audit that is smaller than one request has lost a part of it by the time that it is recorded.
fn small_audit(prepared: &Prepared) -> Option<Problem> {
    let store = &prepared.config.store;
    let bytes = store.audit_bytes.as_ref().filter(|_| store.audit.as_ref().is_some_and(|audit| audit.value))?;
    let context = prepared.agent.as_ref()?.limits().context_tokens;
    let request = context.saturating_mul(BYTES_OF_TOKEN);
    // 0 is refused where the file is read.
    if bytes.value == 0 || bytes.value >= request {
        return None;
    }
    let what = format!(
        "[store] audit_bytes is {}, and one request can have {request} bytes (`context_tokens` {context}): the audit could not \
         hold it whole",
        bytes.value
    );
    Some(Problem::warning(what).at(&bytes.place).hint("raise `audit_bytes`, or lower `context_tokens` in [limits]"))
}

/// What every call has must leave room for history: reducers aim at 60 % of a context.
fn no_room(prepared: &Prepared) -> Option<Problem> {
    let room = Room::of(&prepared.config, prepared.agent.as_ref()?);
    if room.fixed >= room.context {
        return Some(room.placed(Problem::error(format!("{room}: every turn would fail"))));
    }
    let no_target = || Problem::warning(format!("{room}: no reducer can get a context down to 60 %"));
    room.no_history().or_else(|| (room.fixed > room.left / 5 * 3).then(|| room.placed(no_target())))
}

/// Contexts that have no history. A server may say that its model takes less than was known to `check`.
pub(crate) fn no_history(config: &Config, agent: &Agent) -> Option<Problem> {
    Room::of(config, agent).no_history()
}

/// How much of a context system prompt and tools take.
struct Room<'c> {
    /// With the tenth by which an estimate may be wrong.
    fixed: u64,
    context: u64,
    reserve: u64,
    /// The context without the reserve.
    left: u64,
    place: Option<&'c Place>,
}

impl<'c> Room<'c> {
    fn of(config: &'c Config, agent: &Agent) -> Self {
        let (limits, fixed) = (agent.limits(), agent.fixed_tokens().saturating_mul(11) / 10);
        let (context, reserve) = (limits.context_tokens, limits.injection_reserve);
        let place = config.limits.place("context_tokens").or_else(|| config.limits.place("injection_reserve"));
        Self { fixed, context, reserve, left: context.saturating_sub(reserve), place }
    }

    /// The reserve is room that hooks may use. A turn in which they add little still fits.
    fn no_history(&self) -> Option<Problem> {
        let problem = || {
            Problem::warning(format!(
                "{self}: no call would have history, and turns fail in which hooks add as much as they may"
            ))
        };
        (self.fixed.saturating_add(LEAST_HISTORY) > self.left).then(|| self.placed(problem()))
    }

    fn placed(&self, problem: Problem) -> Problem {
        let hint = "offer fewer tools, shorten the system prompt, or raise `context_tokens` in [limits]";
        match self.place {
            Some(place) => problem.at(place).hint(hint),
            None => problem.hint(hint),
        }
    }
}

impl fmt::Display for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fixed, context, reserve, left, .. } = self;
        write!(
            f,
            "system prompt and tools have about {fixed} tokens, and {left} are left for a context (`context_tokens` {context} \
             without `injection_reserve` {reserve})"
        )
    }
}
