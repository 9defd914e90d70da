//! How the verdicts of several critics become one decision.

use turnbuckle::BoxError;

use super::judge::{Judge, Verdict, VerdictKind, Vote};

/// When a reply is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Consensus {
    /// Every critic must approve.
    #[default]
    All,
    /// More than half of the critics that gave a verdict must approve.
    Majority,
    /// The critics that approve must have at least this share of the weight of all that gave a verdict.
    Weighted {
        /// The share, above 0 and at most 1.
        threshold: f64,
    },
}

/// The joint decision.
#[derive(Debug, PartialEq)]
pub(super) enum Sentence {
    Accept,
    Regenerate(String),
    Modify(String),
    Reject(String),
}

/// Combines the votes. Fails if too few critics gave a verdict.
pub(super) fn decide(judges: &[Judge], votes: Vec<Vote>, consensus: Consensus) -> Result<Sentence, BoxError> {
    let (mut judged, mut silent) = (Vec::new(), Vec::new());
    for (judge, vote) in judges.iter().zip(votes) {
        match vote.verdict {
            Ok(verdict) => judged.push((judge, verdict)),
            Err(why) => silent.push(format!("{}: {why}", judge.name)),
        }
    }
    if judged.is_empty() || (consensus == Consensus::All && !silent.is_empty()) {
        return Err(format!("no verdict: {}", silent.join("; ")).into());
    }
    if accepted(&judged, consensus) {
        return Ok(Sentence::Accept);
    }
    Ok(objection(&judged))
}

fn accepted(judged: &[(&Judge, Verdict)], consensus: Consensus) -> bool {
    let approving = || judged.iter().filter(|(_, verdict)| verdict.verdict == VerdictKind::Approve);
    let weight: f64 = judged.iter().map(|(judge, _)| judge.weight).sum();
    let approving_weight: f64 = approving().map(|(judge, _)| judge.weight).sum();
    match consensus {
        Consensus::All => approving().count() == judged.len(),
        Consensus::Majority => approving().count() * 2 > judged.len(),
        Consensus::Weighted { threshold } => approving_weight >= threshold * weight,
    }
}

/// The objection with the most weight; among equals regenerate before modify before reject.
fn objection(judged: &[(&Judge, Verdict)]) -> Sentence {
    let objecting: Vec<_> = judged.iter().filter(|(_, verdict)| verdict.verdict != VerdictKind::Approve).collect();
    let weight = |word: VerdictKind| -> f64 {
        objecting.iter().filter(|(_, verdict)| verdict.verdict == word).map(|(judge, _)| judge.weight).sum()
    };
    let said = |(judge, verdict): &&(&Judge, Verdict)| match verdict.critique.trim() {
        "" => format!("{}: (no reason given)", judge.name),
        critique => format!("{}: {critique}", judge.name),
    };
    let critique = objecting.iter().map(said).collect::<Vec<_>>().join("\n");
    // `max_by` returns the last of equals.
    let words = [VerdictKind::Reject, VerdictKind::Modify, VerdictKind::Regenerate];
    let heaviest = words.into_iter().max_by(|one, two| weight(*one).total_cmp(&weight(*two)));
    let corrected = objecting.iter().filter(|(_, verdict)| verdict.verdict == VerdictKind::Modify);
    let corrected = corrected.max_by(|(one, _), (two, _)| one.weight.total_cmp(&two.weight));
    match (heaviest, corrected.and_then(|(_, verdict)| verdict.text.clone())) {
        (Some(VerdictKind::Reject), _) => Sentence::Reject(critique),
        (Some(VerdictKind::Modify), Some(text)) => Sentence::Modify(text),
        _ => Sentence::Regenerate(critique),
    }
}
