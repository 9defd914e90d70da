//! What hooks add to a context: groups that run side by side, and the reserve that all additions share.

use std::pin::pin;

use futures_util::future::join_all;

use super::active::Interrupt;
use super::changes::{note_injected, note_left_out};
use super::context::TurnContext;
use super::state::Verdict;
use super::view::Turn;
use crate::change::InjectionSpan;
use crate::context::reserve::{Candidate, Overflow, fit};
use crate::context::tokens;
use crate::event::Cause;
use crate::hook::call::{HookCaller, blocked};
use crate::hook::decision::HookDecision;
use crate::hook::{Decision, HookEntry, OnFailure, Parallel, Point, Record};
use crate::message::{Content, Injection, Text};
use crate::scope::Author;

impl From<Overflow> for Interrupt {
    /// The turn fails and names the hook.
    fn from(overflow: Overflow) -> Self {
        let Overflow { hook, size, reserve } = overflow;
        let reason = format!(
            "injection overflow: hook {hook} brings the injected content to {size} tokens, and the reserve is {reserve}"
        );
        let by = Author::hook(&hook);
        Verdict::failed(reason, Cause::InjectionOverflow { hook, size, reserve }).by(by).into()
    }
}

/// Runs the members of a group side by side. Returns what they append, in declaration order. A member that fails
/// appends nothing, unless the group blocks on failure.
pub(super) async fn run_group(
    entry: &HookEntry,
    group: &Parallel,
    point: Point,
    turn: &Turn,
    records: &mut Vec<Record>,
) -> Result<Vec<(Text, Content)>, Interrupt> {
    let ctx = &*turn.ctx;
    let runs = group.members.iter().map(|member| {
        let append = (member.append)(turn.clone());
        async move {
            let mut caller = HookCaller::new(ctx, point);
            let run = caller.run_as(&member.name, entry.time_limit(), pin!(async { append.await.map(Appended) })).await;
            (caller, run)
        }
    });
    let mut contents = Vec::new();
    for (member, (caller, run)) in group.members.iter().zip(join_all(runs).await) {
        let mut run = run?;
        if let Ok(Appended(content)) = &run.result {
            run.tokens = cost_of(std::slice::from_ref(content));
        }
        match caller.record(&member.name, run, records) {
            Ok(Appended(content)) => contents.push((member.name.clone(), content)),
            Err(failure) if entry.settings().on_failure == Some(OnFailure::Block) => {
                return Err(blocked(&member.name, point, &failure));
            }
            Err(_) => {}
        }
    }
    Ok(contents)
}

/// What a member of a group decides: it can only append.
struct Appended(Content);

impl HookDecision for Appended {
    fn decision(&self) -> Decision {
        Decision::Continue
    }
}

/// What a hook wants to add.
pub(super) struct Addition<'a> {
    pub(super) entry: &'a HookEntry,
    /// The hook, or the member of a group.
    pub(super) hook: &'a Text,
    pub(super) contents: Vec<Content>,
    /// Tokens that hooks have added elsewhere.
    pub(super) other: u64,
    /// How long it stays, if it does not join the log.
    pub(super) lasts: InjectionSpan,
}

/// Adds contents of one hook to the candidates. What does not fit into the reserve beside `other` tokens is left out
/// which the hook's record says, or fails the turn.
pub(super) fn admit(
    ctx: &TurnContext,
    candidates: &mut Vec<Candidate>,
    records: &mut [Record],
    addition: Addition<'_>,
) -> Result<(), Interrupt> {
    let Addition { entry, hook, contents, other, lasts } = addition;
    let (settings, reserve) = (entry.settings(), ctx.limits.injection_reserve);
    let lasts = if settings.durable { InjectionSpan::Durable } else { lasts };
    let sheddable = settings.max_tokens.map(|_| settings.priority);
    let mut used = 0_u32;
    for content in contents {
        let tokens = u32::try_from(tokens::of_content(&content)).unwrap_or(u32::MAX);
        used = used.saturating_add(tokens);
        note_injected(ctx, records, hook, &content, lasts);
        if settings.max_tokens.is_some_and(|most| used > most) {
            note_shed(ctx, records, &Injection { hook: hook.clone(), content, tokens });
            continue;
        }
        let injection = Injection { hook: hook.clone(), content, tokens };
        candidates.push(Candidate { injection, sheddable, durable: settings.durable, behind: None });
        for lost in fit(candidates, other, reserve, hook)? {
            note_shed(ctx, records, &lost);
        }
    }
    Ok(())
}

/// What contents cost together.
pub(crate) fn cost_of(contents: &[Content]) -> u32 {
    u32::try_from(contents.iter().map(tokens::of_content).sum::<u64>()).unwrap_or(u32::MAX)
}

/// Notes in the last record of a hook that something it added was left out.
fn note_shed(ctx: &TurnContext, records: &mut [Record], lost: &Injection) {
    if let Some(record) = records.iter_mut().rfind(|record| record.hook == lost.hook) {
        record.shed(lost.tokens);
        note_left_out(ctx, record, &lost.content);
    }
}
