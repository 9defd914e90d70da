//! How the verdicts of several critics become one decision.

use turnbuckle::BoxError;

use super::judge::{Judge, Verdict, Vote, Word};

/// When work is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Consensus {
    /// When every critic approves.
    #[default]
    All,
    /// When more than half of those that judged approve.
    Majority,
    /// When those that approve have at least this share of the weight of those that judged.
    Weighted {
        /// Above 0, at most 1.
        threshold: f64,
    },
}

/// What a panel decides.
#[derive(Debug, PartialEq)]
pub(super) enum Sentence {
    Accept,
    Regenerate(String),
    Modify(String),
    Reject(String),
}

/// Fails if too few judged.
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
    let approving = || judged.iter().filter(|(_, verdict)| verdict.verdict == Word::Approve);
    let weight: f64 = judged.iter().map(|(judge, _)| judge.weight).sum();
    let approving_weight: f64 = approving().map(|(judge, _)| judge.weight).sum();
    match consensus {
        Consensus::All => approving().count() == judged.len(),
        Consensus::Majority => approving().count() * 2 > judged.len(),
        Consensus::Weighted { threshold } => approving_weight >= threshold * weight,
    }
}

/// The objection with the most weight; of equals the one that helps the author most.
fn objection(judged: &[(&Judge, Verdict)]) -> Sentence {
    let objecting: Vec<_> = judged.iter().filter(|(_, verdict)| verdict.verdict != Word::Approve).collect();
    let weight = |word: Word| -> f64 {
        objecting.iter().filter(|(_, verdict)| verdict.verdict == word).map(|(judge, _)| judge.weight).sum()
    };
    let said = |(judge, verdict): &&(&Judge, Verdict)| match verdict.critique.trim() {
        "" => format!("{}: (no reason given)", judge.name),
        critique => format!("{}: {critique}", judge.name),
    };
    let critique = objecting.iter().map(said).collect::<Vec<_>>().join("\n");
    // The last of equals wins.
    let words = [Word::Reject, Word::Modify, Word::Regenerate];
    let heaviest = words.into_iter().max_by(|one, two| weight(*one).total_cmp(&weight(*two)));
    let corrected = objecting.iter().filter(|(_, verdict)| verdict.verdict == Word::Modify);
    let corrected = corrected.max_by(|(one, _), (two, _)| one.weight.total_cmp(&two.weight));
    match (heaviest, corrected.and_then(|(_, verdict)| verdict.text.clone())) {
        (Some(Word::Reject), _) => Sentence::Reject(critique),
        (Some(Word::Modify), Some(text)) => Sentence::Modify(text),
        _ => Sentence::Regenerate(critique),
    }
}
