//! The injection reserve: what hooks may add to one model call, together.

use crate::hook::{HookEntry, Injection};
use crate::message::Text;
use crate::turn::Verdict;

/// What came of an injection.
pub(crate) enum Room {
    /// It fits, once these are left out: receipts of who lost how much.
    Shed(Vec<(Text, u32)>),
    /// It does not, and the turn fails.
    Overflow(Verdict),
}

/// An injection with what the hook said about leaving it out.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) injection: Injection,
    /// `Some(priority)` if it may be left out.
    pub(crate) sheddable: Option<i32>,
    pub(crate) durable: bool,
}

impl Candidate {
    pub(crate) fn new(entry: &HookEntry, injection: Injection) -> Self {
        let settings = entry.settings();
        let sheddable = settings.max_tokens.map(|_| settings.priority);
        Self { injection, sheddable, durable: settings.durable }
    }
}

/// Makes room: nothing is cut in silence. What declared that it may be left out goes first, lowest priority first; if
/// that is not enough, the hook that crossed the line fails the turn.
pub(crate) fn make_room(candidates: &mut Vec<Candidate>, other: u64, reserve: u64, crossing: &Text) -> Room {
    let mut shed = Vec::new();
    loop {
        let size = other + candidates.iter().map(|each| u64::from(each.injection.tokens)).sum::<u64>();
        if size <= reserve {
            return Room::Shed(shed);
        }
        let lowest = candidates
            .iter()
            .enumerate()
            .filter_map(|(index, each)| each.sheddable.map(|priority| (priority, std::cmp::Reverse(index))))
            .min();
        let Some((_, std::cmp::Reverse(index))) = lowest else {
            return Room::Overflow(overflow(crossing, size, reserve));
        };
        let lost = candidates.remove(index).injection;
        shed.push((lost.hook, lost.tokens));
    }
}

/// The turn fails, loudly, naming the hook.
pub(crate) fn overflow(hook: &Text, size: u64, reserve: u64) -> Verdict {
    let by = crate::scope::Author::hook(hook);
    Verdict::failed(format!(
        "injection overflow: hook {hook} brings the injected content to {size} tokens, and the reserve is {reserve}"
    ))
    .by(by)
}
