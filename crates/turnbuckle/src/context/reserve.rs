//! The injection reserve: what hooks may add to one model call, together.

use crate::message::{Injection, Text};

/// An injection that competes for room in the reserve, with what its hook said about leaving it out.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) injection: Injection,
    /// `Some(priority)` if it may be left out.
    pub(crate) sheddable: Option<i32>,
    /// Whether it is written to the log and rendered in its place ever after.
    pub(crate) durable: bool,
    /// The seq of the message that it stands behind, if that one steered the turn and did not open it.
    pub(crate) behind: Option<u64>,
}

/// A hook added more than the reserve allows, and nothing could be left out instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// The hook that crossed the line.
    pub(crate) hook: Text,
    /// What hooks added together, in tokens.
    pub(crate) size: u64,
    pub(crate) reserve: u64,
}

/// Leaves candidates out until the rest fits beside `other` tokens, lowest priority first. Returns what was
/// lost; nothing is cut silently. If that is not enough, the hook that crossed the line overflows.
pub(crate) fn fit(
    candidates: &mut Vec<Candidate>,
    other: u64,
    reserve: u64,
    crossing: &Text,
) -> Result<Vec<Injection>, Overflow> {
    let mut shed = Vec::new();
    let mut size = other + total(candidates);
    while size > reserve {
        let lowest = candidates
            .iter()
            .enumerate()
            .filter_map(|(index, each)| each.sheddable.map(|priority| (priority, std::cmp::Reverse(index))))
            .min();
        let Some((_, std::cmp::Reverse(index))) = lowest else {
            return Err(Overflow { hook: crossing.clone(), size, reserve });
        };
        let lost = candidates.remove(index).injection;
        size -= u64::from(lost.tokens);
        shed.push(lost);
    }
    Ok(shed)
}

/// What the candidates cost together.
pub(crate) fn total(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|each| u64::from(each.injection.tokens)).sum()
}
