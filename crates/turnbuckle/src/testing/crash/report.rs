//! What the kit found, as a story that a person can read.

use std::collections::BTreeMap;
use std::fmt;

use super::life::{Boundary, BoundaryKind};
use super::promises::{Found, Promise};

/// What came of all the crashes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    boundaries: Vec<Boundary>,
    broken: Vec<Broken>,
    missed: Vec<Boundary>,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Broken {
    /// Where the process died; `None`: it was not kept even without a crash.
    pub at: Option<Boundary>,
    /// The promise that was broken.
    pub promise: Promise,
    /// What was seen instead.
    pub story: String,
}

/// How many broken promises are told in full.
const TOLD_IN_FULL: usize = 3;

impl Report {
    pub(super) fn of(boundaries: Vec<Boundary>) -> Self {
        Self { boundaries, ..Self::default() }
    }

    pub(super) fn add(&mut self, at: Option<&Boundary>, found: Found) {
        let broken = |(promise, story)| Broken { at: at.cloned(), promise, story };
        self.broken.extend(found.into_iter().map(broken));
    }

    pub(super) fn miss(&mut self, boundary: &Boundary) {
        self.missed.push(boundary.clone());
    }

    /// Every boundary of the run without a crash, in order: the process died once at each.
    pub fn boundaries(&self) -> &[Boundary] {
        &self.boundaries
    }

    /// How many boundaries there are of each kind.
    pub fn kinds(&self) -> BTreeMap<BoundaryKind, usize> {
        let mut kinds = BTreeMap::new();
        for boundary in &self.boundaries {
            *kinds.entry(boundary.kind).or_default() += 1;
        }
        kinds
    }

    /// Promises that were not kept, in the order of the boundaries.
    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    /// Boundaries that did not come again: the agent does not do the same in every run. Nothing is known about them.
    pub fn missed(&self) -> &[Boundary] {
        &self.missed
    }

    /// Whether every promise was kept at every boundary.
    pub fn is_kept(&self) -> bool {
        self.broken.is_empty() && self.missed.is_empty()
    }

    /// Ends a test that found a broken promise.
    ///
    /// # Panics
    /// With the story, if a promise was broken, or if a boundary did not come again and so was not tried.
    #[track_caller]
    #[allow(clippy::panic, reason = "a broken promise ends the test that looked for it")]
    pub fn assert_kept(&self) {
        if !self.is_kept() {
            panic!("{self}");
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => writeln!(f, "The process died {at}.")?,
            None => writeln!(f, "Without any crash.")?,
        }
        writeln!(f, "  broken: {}", self.promise)?;
        writeln!(f, "  {}", self.story.trim_end())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.kinds().iter().map(|(kind, count)| format!("{kind:?} {count}")).collect();
        writeln!(f, "{} crashes ({})", self.boundaries.len(), kinds.join(", ").to_lowercase())?;
        if self.is_kept() {
            return writeln!(f, "every promise was kept");
        }
        writeln!(f, "{} promises broken", self.broken.len())?;
        for broken in self.broken.iter().take(TOLD_IN_FULL) {
            write!(f, "\n{broken}")?;
        }
        if self.broken.len() > TOLD_IN_FULL {
            writeln!(f, "\nand:")?;
        }
        for Broken { at, promise, .. } in self.broken.iter().skip(TOLD_IN_FULL) {
            let place = at.as_ref().map_or("without any crash", |at| &at.name);
            writeln!(f, "  {place}: broken: {promise}")?;
        }
        for missed in &self.missed {
            writeln!(f, "  {missed}: did not come again; the agent does not do the same in every run")?;
        }
        Ok(())
    }
}
