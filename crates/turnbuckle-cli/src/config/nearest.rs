//! The nearest right name, for hints.

/// The longest name that is compared: the time that takes grows with its length, and no right name is that long.
const LONGEST: usize = 64;

/// The candidate a person most likely meant; `None` if none is near.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let distance = |candidate: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &candidate.to_lowercase());
    let measured = candidates.into_iter().map(|candidate| (distance(candidate), candidate));
    let (distance, candidate) = measured.min_by_key(|(distance, _)| *distance)?;
    // A third of the letters wrong is a slip; more is another word. A name that is a beginning of it is meant too.
    let slip = distance <= (name.chars().count().max(candidate.chars().count()) / 3).max(1);
    (slip || (name.len() >= 3 && candidate.starts_with(name))).then_some(candidate)
}

/// What to say about a wrong name.
pub(super) fn instead(name: &str, candidates: &[&str]) -> String {
    match nearest(name, candidates.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("possible here: {}", candidates.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let keys = ["context_tokens", "max_model_calls", "turn_timeout"];
        assert_eq!(nearest("contxt_token", keys), Some("context_tokens"));
        assert_eq!(nearest("max_modle_calls", keys), Some("max_model_calls"));
        assert_eq!(nearest("colour", keys), None);
    }
}
