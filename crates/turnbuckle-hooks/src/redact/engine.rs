//! The patterns, compiled: the automata that [`scan`](super::scan) runs.

use std::sync::Mutex;

use regex_automata::MatchKind;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson::{self, NFA, State, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, Hir};
use turnbuckle::BoxError;

use super::patterns::Pattern;
use super::{RedactError, Strategy, shape};

/// How many caches are kept for later redactors.
const POOLED: usize = 8;

/// The patterns, compiled.
pub(super) struct Engine {
    pub(super) patterns: Vec<Pattern>,
    pub(super) strategy: Strategy,
    /// The secret for hashes.
    pub(super) salt: String,
    /// Finds where a match may be, starting at any place.
    pub(super) scout: DFA,
    /// Finds the matches that begin at one place. Its input starts with the byte before that place.
    judge: DFA,
    /// The same for the beginning of the text, before which there is no byte.
    opening: DFA,
    /// Whether the scout is in its first state only when no match has begun.
    pub(super) rests: bool,
    pub(super) longest: usize,
    pool: Mutex<Vec<Caches>>,
}

/// The states that the lazy automata have built so far.
pub(super) struct Caches {
    pub(super) scout: Cache,
    judge: Cache,
    opening: Cache,
}

impl Engine {
    pub(super) fn new(patterns: Vec<Pattern>, strategy: Strategy, salt: String) -> Result<Self, RedactError> {
        let exact: Vec<Hir> = patterns.iter().map(|pattern| pattern.hir.clone()).collect();
        let placed: Vec<Hir> = patterns.iter().map(placed).collect();
        let loose: Vec<Hir> = exact.iter().map(shape::loosen).collect();
        let (scout, judge, opening) = (automaton(&loose, true)?, automaton(&placed, false)?, automaton(&exact, false)?);
        let longest = patterns.iter().map(|pattern| pattern.longest).max().unwrap_or(0);
        let rests = begins_apart(scout.get_nfa());
        Ok(Self { patterns, strategy, salt, scout, judge, opening, rests, longest, pool: Mutex::default() })
    }

    /// The judge for a place that comes after this byte, with its cache.
    pub(super) fn judge<'c>(&self, caches: &'c mut Caches, before: Option<u8>) -> (&DFA, &'c mut Cache) {
        match before {
            Some(_) => (&self.judge, &mut caches.judge),
            None => (&self.opening, &mut caches.opening),
        }
    }

    pub(super) fn lend(&self) -> Caches {
        let pooled = self.pool.lock().ok().and_then(|mut pool| pool.pop());
        pooled.unwrap_or_else(|| {
            let [scout, judge, opening] = [&self.scout, &self.judge, &self.opening].map(DFA::create_cache);
            Caches { scout, judge, opening }
        })
    }

    pub(super) fn take_back(&self, caches: Caches) {
        if let Ok(mut pool) = self.pool.lock()
            && pool.len() < POOLED
        {
            pool.push(caches);
        }
    }
}

/// The pattern, preceded by a byte that may stand before it.
fn placed(pattern: &Pattern) -> Hir {
    let follows = (0..=u8::MAX).filter(|byte| (pattern.follows)(*byte)).map(|byte| ClassBytesRange::new(byte, byte));
    let before = Hir::class(Class::Bytes(ClassBytes::new(follows)));
    Hir::concat(vec![before, pattern.hir.clone()])
}

fn automaton(patterns: &[Hir], starts: bool) -> Result<DFA, RedactError> {
    let refused = |source: BoxError| RedactError::TooComplex { source };
    let nfa = thompson::Compiler::new()
        .configure(thompson::Config::new().which_captures(WhichCaptures::None).nfa_size_limit(Some(8 << 20)))
        .build_many_from_hir(patterns)
        .map_err(|source| refused(source.into()))?;
    let config = Config::new().match_kind(MatchKind::All).cache_capacity(4 << 20).skip_cache_capacity_check(true);
    DFA::builder()
        .configure(config.specialize_start_states(starts))
        .build_from_nfa(nfa)
        .map_err(|source| refused(source.into()))
}

/// Whether no state in which a match begins is reached again later. Then the first state of the automaton means that no
/// match has begun.
fn begins_apart(nfa: &NFA) -> bool {
    let mut first = vec![false; nfa.states().len()];
    let mut later = first.clone();
    let mut heads = Vec::new();
    walk(nfa, vec![nfa.start_anchored()], &mut first, &mut |targets| heads.extend_from_slice(targets));
    while !heads.is_empty() {
        let mut next = Vec::new();
        walk(nfa, std::mem::take(&mut heads), &mut later, &mut |targets| next.extend_from_slice(targets));
        heads = next;
    }
    let consumes = |at: usize| matches!(nfa.states()[at], State::ByteRange { .. } | State::Sparse(_) | State::Dense(_));
    !(0..first.len()).any(|at| first[at] && later[at] && consumes(at))
}

/// Marks the states that are reached without consuming a byte, and reports where the next byte leads from each.
fn walk(nfa: &NFA, mut stack: Vec<StateID>, seen: &mut [bool], leads: &mut dyn FnMut(&[StateID])) {
    while let Some(id) = stack.pop() {
        if std::mem::replace(&mut seen[id.as_usize()], true) {
            continue;
        }
        match nfa.state(id) {
            State::ByteRange { trans } => leads(&[trans.next]),
            State::Sparse(sparse) => sparse.transitions.iter().for_each(|trans| leads(&[trans.next])),
            State::Dense(dense) => leads(&dense.transitions),
            State::Look { next, .. } | State::Capture { next, .. } => stack.push(*next),
            State::Union { alternates } => stack.extend_from_slice(alternates),
            State::BinaryUnion { alt1, alt2 } => stack.extend([*alt1, *alt2]),
            State::Fail | State::Match { .. } => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::patterns;
    use super::*;

    fn rests(patterns: Vec<Pattern>) -> bool {
        Engine::new(patterns, Strategy::Replace, String::new()).unwrap().rests
    }

    #[test]
    fn the_scout_rests_with_what_is_built_in_and_with_common_patterns() {
        for patterns in [patterns::emails(), patterns::cards(), patterns::keys()] {
            assert!(rests(patterns.unwrap()));
        }
        for pattern in ["TCK-[0-9]{6}", r"\b[A-Z]{2,5}-[0-9]{1,6}\b", r"(?:\+49 ?)?0[0-9]{5,9}", "(?i)name: \\w{1,30}"]
        {
            assert!(rests(vec![Pattern::new("mine", pattern).unwrap()]), "{pattern}");
        }
    }

    #[test]
    fn a_scout_that_could_rest_too_early_never_rests() {
        assert!(!rests(vec![Pattern::new("mine", "(?:a|-?){2}bb").unwrap()]));
    }
}
