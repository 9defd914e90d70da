//! What a process has learned about the estimates of tokens, model by model.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cut::Factor;
use crate::message::Text;
use crate::store::Calibration;

/// A request with fewer tokens is mostly overhead, and says little about the tokens of a text.
const FEWEST: u64 = 200;
/// A count that is so many times the estimate, or the other way round, is not the tokenizer's doing: the provider added a prompt
/// of its own, or counts something else.
const ABSURD: u64 = 3;
/// A factor is stored when it has moved by so many thousandths.
const WORTH_STORING: u32 = 20;

/// Factors by the name of the model. Turns of all conversations learn and read, so there is a lock; it is never held over
/// anything but a look into the map.
#[derive(Debug, Default)]
pub(crate) struct Calibrations {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Whether what the store has was read.
    loaded: bool,
    models: HashMap<Text, Learned>,
}

#[derive(Clone, Copy, Debug)]
struct Learned {
    factor: Factor,
    /// What the store has.
    stored: Option<Factor>,
}

impl Calibrations {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the store is still to be asked.
    pub(crate) fn is_unloaded(&self) -> bool {
        !self.lock().loaded
    }

    /// Takes over what the store has. What was learned here meanwhile stays.
    pub(crate) fn load(&self, stored: Vec<Calibration>) {
        let mut inner = self.lock();
        inner.loaded = true;
        for Calibration { model, factor } in stored {
            let known = inner.models.entry(model).or_insert(Learned { factor, stored: None });
            known.stored = Some(factor);
        }
    }

    /// What corrects estimates for this model.
    pub(crate) fn factor(&self, model: &str) -> Factor {
        self.lock().models.get(model).map_or(Factor::ONE, |learned| learned.factor)
    }

    /// The provider counted `counted` tokens in a request that was estimated at `estimated`.
    pub(crate) fn learn(&self, model: &Text, estimated: u64, counted: u64) {
        let is_absurd = counted / ABSURD > estimated || estimated / ABSURD > counted;
        if estimated < FEWEST || counted < FEWEST || is_absurd {
            return;
        }
        let now = u64::from(Factor::thousandths(counted.saturating_mul(1000) / estimated).as_thousandths());
        let mut inner = self.lock();
        match inner.models.get_mut(model) {
            // The latest count weighs a quarter: the language of conversations changes slowly.
            Some(learned) => {
                let before = u64::from(learned.factor.as_thousandths());
                learned.factor = Factor::thousandths((3 * before + now) / 4);
            }
            None => {
                inner.models.insert(model.clone(), Learned { factor: Factor::thousandths(now), stored: None });
            }
        }
    }

    /// What has moved since it was stored.
    pub(crate) fn unstored(&self) -> Vec<Calibration> {
        let moved = |learned: &Learned| {
            let stored = learned.stored.map_or(u32::MAX, Factor::as_thousandths);
            learned.factor.as_thousandths().abs_diff(stored) >= WORTH_STORING
        };
        let inner = self.lock();
        let models = inner.models.iter().filter(|(_, learned)| moved(learned));
        models.map(|(model, learned)| Calibration { model: model.clone(), factor: learned.factor }).collect()
    }

    /// Notes that these are stored now.
    pub(crate) fn mark_stored(&self, stored: &[Calibration]) {
        let mut inner = self.lock();
        for Calibration { model, factor } in stored {
            if let Some(learned) = inner.models.get_mut(model) {
                learned.stored = Some(*factor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_follows_what_the_provider_counts_and_stays_between_a_half_and_two() {
        let (calibrations, model) = (Calibrations::default(), Text::from("m"));
        calibrations.learn(&model, 1000, 1200);
        assert_eq!(calibrations.factor("m"), Factor::thousandths(1200));
        calibrations.learn(&model, 1000, 1600);
        assert_eq!(calibrations.factor("m"), Factor::thousandths(1300));
        for _ in 0..50 {
            calibrations.learn(&model, 1000, 2900);
        }
        assert_eq!(calibrations.factor("m").to_string(), "1.99");
        assert_eq!(calibrations.factor("other"), Factor::ONE);
    }

    #[test]
    fn what_says_nothing_about_text_teaches_nothing() {
        let (calibrations, model) = (Calibrations::default(), Text::from("m"));
        for (estimated, counted) in [(0, 0), (10, 15), (1000, 50), (1000, 4000), (4000, 1000), (1, u64::MAX)] {
            calibrations.learn(&model, estimated, counted);
        }
        assert_eq!(calibrations.factor("m"), Factor::ONE);
        assert!(calibrations.unstored().is_empty());
    }

    #[test]
    fn what_the_store_has_is_taken_over_and_what_moved_is_stored_again() {
        let (calibrations, model) = (Calibrations::default(), Text::from("m"));
        let factor = Factor::thousandths(1500);
        calibrations.load(vec![Calibration { model: model.clone(), factor }]);
        assert!(calibrations.unstored().is_empty() && !calibrations.is_unloaded());
        calibrations.learn(&model, 1000, 1500);
        assert!(calibrations.unstored().is_empty());
        calibrations.learn(&model, 1000, 1000);
        let unstored = calibrations.unstored();
        assert_eq!(unstored, [Calibration { model, factor: Factor::thousandths(1375) }]);
        calibrations.mark_stored(&unstored);
        assert!(calibrations.unstored().is_empty());
    }
}
