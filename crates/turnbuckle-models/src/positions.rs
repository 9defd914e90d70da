//! Where an entry of a reply stands in its list, by key.
//!
//! A reply may hold many thousand entries (calls, blocks, reasoning details), each of which comes in many pieces. A server
//! chooses both numbers, so finding the entry of a piece must not take longer the more entries there are.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// A map from an entry's key to its place in a list.
#[derive(Debug)]
pub(crate) struct Positions<K>(HashMap<Counted<K>, usize>);

impl<K> Default for Positions<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Positions<K> {
    /// The place that was stored last under this key.
    pub(crate) fn get(&self, key: K) -> Option<usize> {
        self.0.get(&Counted(key)).copied()
    }

    pub(crate) fn set(&mut self, key: K, position: usize) {
        self.0.insert(Counted(key), position);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A key whose comparisons are counted in tests: they are the measure of how much a lookup does.
#[derive(Debug, Eq)]
struct Counted<K>(K);

impl<K: PartialEq> PartialEq for Counted<K> {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        comparisons::COUNT.set(comparisons::COUNT.get() + 1);
        self.0 == other.0
    }
}

impl<K: Hash> Hash for Counted<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// How many keys were compared on this thread.
#[cfg(test)]
pub(crate) mod comparisons {
    use std::cell::Cell;

    thread_local! {
        pub(super) static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    /// Runs `work` and says how many keys it compared.
    pub(crate) fn of(work: impl FnOnce()) -> usize {
        let before = COUNT.get();
        work();
        COUNT.get() - before
    }

    /// Checks that each of `pieces(n)` pieces costs about one comparison, whatever `n` is: a lookup that walks through the
    /// entries would cost `n` each, and one that does not go through [`super::Positions`] none at all.
    pub(crate) fn assert_linear(pieces: impl Fn(usize) -> usize, work: impl Fn(usize)) {
        for n in [500, 1000, 2000] {
            let (count, pieces) = (of(|| work(n)), pieces(n));
            assert!(count >= pieces / 2, "{pieces} pieces, {count} comparisons: are they looked up?");
            assert!(count <= 8 * pieces, "{pieces} pieces, {count} comparisons");
        }
    }
}
