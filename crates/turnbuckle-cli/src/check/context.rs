//! Whether contexts can be kept within their budget.

use turnbuckle::message::Usage;
use wildmatch::WildMatch;

use crate::assemble::Prepared;
use crate::problem::Problem;

/// Bytes of text that a token of English prose has, about: what a request of so many tokens can come to.
const BYTES_OF_TOKEN: u64 = 4;

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
    let agent = prepared.agent.as_ref()?;
    let (limits, fixed) = (agent.limits(), agent.fixed_tokens());
    let (context, reserve) = (limits.context_tokens, limits.injection_reserve);
    let room = context.saturating_sub(reserve);
    // With the tenth by which an estimate may be wrong.
    let fixed = fixed.saturating_mul(11) / 10;
    let place =
        prepared.config.limits.place("context_tokens").or_else(|| prepared.config.limits.place("injection_reserve"));
    let what = format!(
        "system prompt and tools have about {fixed} tokens, and {room} are left for a context (`context_tokens` {context} \
         without `injection_reserve` {reserve})"
    );
    let problem = match () {
        () if fixed >= context => Problem::error(format!("{what}: every turn would fail")),
        // The reserve is room that hooks may use. A turn in which they add little still fits.
        () if fixed >= room => Problem::warning(format!(
            "{what}: no call would have history, and turns fail in which hooks add as much as they may"
        )),
        () if fixed > room / 5 * 3 => Problem::warning(format!("{what}: no reducer can get a context down to 60 %")),
        () => return None,
    };
    let hint = "offer fewer tools, shorten the system prompt, or raise `context_tokens` in [limits]";
    Some(match place {
        Some(place) => problem.at(place).hint(hint),
        None => problem.hint(hint),
    })
}
