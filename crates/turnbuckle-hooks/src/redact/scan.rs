//! The matcher that works over chunks.
//!
//! Two lazy automata share the work. The *scout* looks for the looser twins of the patterns at every place at once: one
//! table lookup for a byte, and while it is in its first state nothing can be under way, so all before passes. The
//! *judge* runs from one place and knows the patterns exactly; it is asked only about text in which the scout saw
//! something, and about what is still held back at the end of a chunk, unless that is a part of one word.

use regex_automata::Anchored;
use regex_automata::hybrid::LazyStateID;
use regex_automata::util::start;
use sha2::{Digest as _, Sha256};
use turnbuckle::BoxError;
use turnbuckle::hook::TransformOutput;

use super::Strategy;
use super::engine::{Caches, Engine};

/// How much text is processed at once. This and the longest match limit what is held in memory.
const PIECE: usize = 8192;
/// How many steps the judge may take at the end of a chunk, to let text go that the scout would still keep.
const SETTLE: usize = 128;
/// A word of this length is judged before it ends.
const WORD: usize = 64;
/// How much decided text is kept before it is removed: moving the held text for every chunk would cost as much as
/// scanning it.
const DECIDED: usize = 1024;

/// The state of one stream of text.
#[derive(Default)]
pub(super) struct Scan {
    /// Decided text that is not removed yet, followed by undecided text.
    pub(super) held: String,
    /// How much of it is decided: passed or replaced.
    done: usize,
    /// The last byte before it.
    before: Option<u8>,
    /// How far the scout has come, and its state.
    scouted: usize,
    state: Option<LazyStateID>,
    /// The last place where the scout had neither begun nor seen a match: all text before it is plain.
    rest: usize,
    /// Whether the scout saw a match since.
    seen: bool,
    /// The judge, where it had to wait for more text.
    trial: Option<Trial>,
    /// A match that more text may be part of.
    open: Option<Open>,
    /// How many matches there were.
    pub(super) found: u64,
}

/// One run of the judge.
struct Trial {
    start: usize,
    at: usize,
    state: LazyStateID,
    best: Option<(usize, usize)>,
}

enum Verdict {
    Match { end: usize, pattern: usize },
    Plain,
    Undecided,
}

/// A match that is being replaced.
struct Open {
    pattern: usize,
    chars: usize,
    last: [char; 4],
    /// The hash of the match so far, for [`Strategy::Hash`].
    hash: Option<Sha256>,
}

/// What a scan works with besides its own state.
pub(super) struct Tools<'a, 'b> {
    pub(super) engine: &'a Engine,
    pub(super) caches: &'a mut Caches,
    pub(super) out: &'a mut TransformOutput<'b>,
}

impl Scan {
    pub(super) fn feed(&mut self, text: &str, tools: &mut Tools<'_, '_>) -> Result<(), BoxError> {
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE));
            self.held.push_str(piece);
            self.work(tools)?;
            self.trim();
            rest = after;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, tools: &mut Tools<'_, '_>) -> Result<(), BoxError> {
        if self.open.is_none() || self.swallow(true, tools) {
            self.judge(self.held.len(), usize::MAX, true, tools)?;
        }
        let found = self.found;
        *self = Self { held: std::mem::take(&mut self.held), found, ..Self::default() };
        self.held.clear();
        Ok(())
    }

    fn work(&mut self, tools: &mut Tools<'_, '_>) -> Result<(), BoxError> {
        let longest = tools.engine.longest;
        if self.open.is_some() && !self.swallow(false, tools) {
            return Ok(());
        }
        while self.scout(tools)? {
            self.pass(self.rest, tools);
            self.judge(self.scouted, usize::MAX, false, tools)?;
            if self.open.is_some() {
                return Ok(());
            }
            self.seen = self.done < self.scouted;
        }
        self.pass(self.rest, tools);
        // A match that began further back than the longest match is decided, wherever the scout is.
        if self.waiting() > longest {
            let decided = self.held.floor_char_boundary(self.held.len() - longest);
            if !self.seen {
                self.pass(decided, tools);
            } else if self.waiting() > 2 * longest + SETTLE {
                self.judge(decided, usize::MAX, false, tools)?;
            }
        }
        if self.open.is_none() && !self.is_part_of_a_word() {
            self.judge(self.held.len(), SETTLE, false, tools)?;
        }
        self.seen &= self.done < self.held.len();
        Ok(())
    }

    /// Whether only a part of one word is held back. The judge is not asked to release a word in parts.
    fn is_part_of_a_word(&self) -> bool {
        let waiting = &self.held.as_bytes()[self.done..];
        waiting.len() < WORD && !waiting.iter().any(u8::is_ascii_whitespace)
    }

    /// How many bytes are held back.
    pub(super) fn waiting(&self) -> usize {
        self.held.len() - self.done
    }

    /// Advances the scout. Returns true when it is back in its first state after it has seen something.
    fn scout(&mut self, tools: &mut Tools<'_, '_>) -> Result<bool, BoxError> {
        let (dfa, rests) = (&tools.engine.scout, tools.engine.rests);
        let cache = &mut tools.caches.scout;
        let bytes = self.held.as_bytes();
        let mut state = match self.state {
            Some(state) => state,
            None => dfa.start_state(cache, &start::Config::new().look_behind(self.byte_before(self.scouted)))?,
        };
        for (at, byte) in bytes.iter().enumerate().skip(self.scouted) {
            // Within a word most steps lead from one ordinary state to another and are cached.
            if !state.is_tagged() {
                let next = dfa.next_state_untagged(cache, state, *byte);
                if !next.is_tagged() {
                    state = next;
                    continue;
                }
            }
            state = dfa.next_state(cache, state, *byte)?;
            if state.is_match() {
                self.seen = true;
            } else if state.is_dead() || (state.is_start() && rests) {
                if self.seen {
                    (self.scouted, self.state) = (at + 1, Some(state));
                    return Ok(true);
                }
                self.rest = at + 1;
            } else if state.is_quit() {
                return Err("the automaton gave up".into());
            }
        }
        (self.scouted, self.state) = (bytes.len(), Some(state));
        Ok(false)
    }

    /// Decides, from left to right, on all matches that begin before `limit`, as far as there is enough text.
    fn judge(&mut self, limit: usize, mut steps: usize, last: bool, tools: &mut Tools<'_, '_>) -> Result<(), BoxError> {
        let mut at = self.trial.as_ref().map_or(self.done, |trial| trial.start);
        while at < limit {
            match self.run(at, &mut steps, last, tools)? {
                Verdict::Undecided => break,
                Verdict::Plain => at = self.held.ceil_char_boundary(at + 1),
                Verdict::Match { pattern, .. } if tools.engine.strategy == Strategy::Block => {
                    return Err(format!("it holds {}", tools.engine.patterns[pattern].label).into());
                }
                Verdict::Match { end, pattern } => {
                    self.pass(at, tools);
                    self.found += 1;
                    self.open = Some(Open::new(pattern, tools.engine));
                    self.take(end, tools);
                    if !self.swallow(last, tools) {
                        return Ok(());
                    }
                    at = self.done;
                }
            }
        }
        self.pass(at, tools);
        Ok(())
    }

    /// The longest match that begins at `start`.
    fn run(
        &mut self,
        start: usize,
        steps: &mut usize,
        last: bool,
        tools: &mut Tools<'_, '_>,
    ) -> Result<Verdict, BoxError> {
        let before = self.byte_before(start);
        let (judge, cache) = tools.engine.judge(tools.caches, before);
        let mut trial = match self.trial.take() {
            Some(trial) if trial.start == start => trial,
            _ => {
                let state = judge.start_state(cache, &start::Config::new().anchored(Anchored::Yes))?;
                let state = before.map_or(Ok(state), |byte| judge.next_state(cache, state, byte))?;
                Trial { start, at: start, state, best: None }
            }
        };
        let bytes = self.held.as_bytes();
        while !trial.state.is_dead() {
            // The automaton reports a match one byte after its end.
            let after = bytes.get(trial.at).copied();
            trial.state = match after {
                Some(byte) if *steps > 0 => judge.next_state(cache, trial.state, byte)?,
                None if last => judge.next_eoi_state(cache, trial.state)?,
                _ => {
                    self.trial = Some(trial);
                    return Ok(Verdict::Undecided);
                }
            };
            *steps = steps.saturating_sub(1);
            if trial.state.is_match() {
                let count = judge.match_len(cache, trial.state);
                let matched = (0..count).map(|nth| judge.match_pattern(cache, trial.state, nth).as_usize());
                let found = &bytes[start..trial.at];
                let counts = matched.filter(|pattern| (tools.engine.patterns[*pattern].guard)(found, after));
                trial.best = counts.min().map(|pattern| (trial.at, pattern)).or(trial.best);
            } else if trial.state.is_quit() {
                return Err("the automaton gave up".into());
            }
            if after.is_none() {
                break;
            }
            trial.at += 1;
        }
        Ok(trial.best.map_or(Verdict::Plain, |(end, pattern)| Verdict::Match { end, pattern }))
    }

    /// Extends the open match over its tail. Returns false when more text could belong to it.
    fn swallow(&mut self, last: bool, tools: &mut Tools<'_, '_>) -> bool {
        let Some(open) = &self.open else { return true };
        let (taken, more) = tools.engine.patterns[open.pattern].tail.take(&self.held[self.done..]);
        self.take(self.done + taken, tools);
        let more = more && !last;
        if more || self.done > self.scouted {
            // The scout starts again where the match ends.
            (self.scouted, self.rest, self.state, self.seen) = (self.done, self.done, None, false);
        }
        if !more && let Some(open) = self.open.take() {
            open.close(tools);
        }
        !more
    }

    /// Passes plain text up to this place.
    fn pass(&mut self, to: usize, tools: &mut Tools<'_, '_>) {
        if to <= self.done {
            return;
        }
        let to = self.held.floor_char_boundary(to);
        tools.out.push(&self.held[self.done..to]);
        self.done = to;
        if self.trial.as_ref().is_some_and(|trial| trial.start < self.done) {
            self.trial = None;
        }
    }

    /// Adds text up to this place to the open match.
    fn take(&mut self, to: usize, tools: &mut Tools<'_, '_>) {
        if let Some(open) = &mut self.open {
            open.take(&self.held[self.done..to], tools);
            self.done = to;
        }
    }

    /// Removes decided text, when it is much or all there is.
    fn trim(&mut self) {
        if self.done < DECIDED && self.done < self.held.len() {
            return;
        }
        let done = std::mem::take(&mut self.done);
        self.before = done.checked_sub(1).and_then(|last| self.held.as_bytes().get(last).copied()).or(self.before);
        self.held.drain(..done);
        self.scouted = self.scouted.saturating_sub(done);
        self.rest = self.rest.saturating_sub(done);
        if let Some(trial) = &mut self.trial {
            trial.start -= done;
            trial.at -= done;
            trial.best = trial.best.map(|(end, pattern)| (end - done, pattern));
        }
    }

    fn byte_before(&self, at: usize) -> Option<u8> {
        at.checked_sub(1).map_or(self.before, |at| self.held.as_bytes().get(at).copied())
    }
}

impl Open {
    fn new(pattern: usize, engine: &Engine) -> Self {
        let hash = (engine.strategy == Strategy::Hash)
            .then(|| Sha256::new().chain_update((engine.salt.len() as u64).to_le_bytes()).chain_update(&engine.salt));
        Self { pattern, chars: 0, last: ['*'; 4], hash }
    }

    fn take(&mut self, text: &str, tools: &mut Tools<'_, '_>) {
        match tools.engine.strategy {
            Strategy::Replace if self.chars == 0 => tools.out.push(&tools.engine.patterns[self.pattern].label),
            Strategy::Replace | Strategy::Block => {}
            Strategy::Hash => {
                if let Some(hash) = &mut self.hash {
                    hash.update(text);
                }
            }
            Strategy::Mask => {
                for c in text.chars() {
                    if self.chars >= self.last.len() {
                        tools.out.push("*");
                    }
                    self.last[self.chars % 4] = c;
                    self.chars += 1;
                }
                return;
            }
        }
        self.chars += 1;
    }

    fn close(self, tools: &mut Tools<'_, '_>) {
        if let Some(hash) = self.hash {
            let name = tools.engine.patterns[self.pattern].label.trim_end_matches(']');
            let digits: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
            tools.out.push(&format!("{name}:{digits}]"));
        }
        if tools.engine.strategy != Strategy::Mask {
            return;
        }
        for nth in self.chars.saturating_sub(4)..self.chars {
            let shown = if self.chars < super::SHOWN_FROM { '*' } else { self.last[nth % 4] };
            tools.out.push(shown.encode_utf8(&mut [0; 4]));
        }
    }
}
