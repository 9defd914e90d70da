//! Values by call id, in the order in which they were added.

use std::fmt;

use smallvec::SmallVec;

use crate::id::{CallId, NameMap};

/// Up to this many slots are searched one by one: most replies have one call, and an index would cost more than it
/// saves.
const SEARCHED: usize = 8;

/// A map from call ids to values that keeps the order in which they were added. Lookup and removal take constant time,
/// so a reply with thousands of calls costs thousands of steps and not millions.
#[derive(Clone)]
pub struct CallMap<T> {
    /// In order; `None` where a value was removed. Emptied when the last value goes. Most replies have one call, whose slot needs no
    /// allocation.
    slots: SmallVec<[Option<(CallId, T)>; 1]>,
    /// Where each id is in `slots`. Only kept for more than [`SEARCHED`] slots.
    index: NameMap<CallId, usize>,
    len: usize,
}

impl<T> CallMap<T> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn position(&self, call: &CallId) -> Option<usize> {
        if self.slots.len() > SEARCHED {
            return self.index.get(call).copied();
        }
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|(id, _)| id == call))
    }

    /// The value of this call.
    pub fn get(&self, call: &CallId) -> Option<&T> {
        self.slots[self.position(call)?].as_ref().map(|(_, value)| value)
    }

    /// The value of this call, to change.
    pub fn get_mut(&mut self, call: &CallId) -> Option<&mut T> {
        let position = self.position(call)?;
        self.slots[position].as_mut().map(|(_, value)| value)
    }

    /// Whether there is a value of this call.
    pub fn contains(&self, call: &CallId) -> bool {
        self.position(call).is_some()
    }

    /// Adds a value at the end. A value that the call had before is removed and returned.
    pub fn insert(&mut self, call: CallId, value: T) -> Option<T> {
        let before = self.remove(&call);
        if self.slots.len() == SEARCHED {
            let ids = self.slots.iter().enumerate().filter_map(|(at, slot)| Some((slot.as_ref()?.0.clone(), at)));
            self.index = ids.collect();
        }
        if self.slots.len() >= SEARCHED {
            self.index.insert(call.clone(), self.slots.len());
        }
        self.slots.push(Some((call, value)));
        self.len += 1;
        before
    }

    /// Removes the value of this call.
    pub fn remove(&mut self, call: &CallId) -> Option<T> {
        let position = self.position(call)?;
        let (_, value) = self.slots[position].take()?;
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        } else if !self.index.is_empty() {
            self.index.remove(call);
        }
        Some(value)
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.index.clear();
        self.len = 0;
    }

    /// The calls and their values, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&CallId, &T)> {
        self.slots.iter().flatten().map(|(id, value)| (id, value))
    }

    /// The values, in order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// The values, in order, to change.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten().map(|(_, value)| value)
    }

    /// The first value.
    pub fn first(&self) -> Option<&T> {
        self.values().next()
    }

    /// Takes all calls and values out, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = (CallId, T)> {
        self.index.clear();
        self.len = 0;
        self.slots.drain(..).flatten()
    }
}

impl<T> Default for CallMap<T> {
    fn default() -> Self {
        Self { slots: SmallVec::new(), index: NameMap::default(), len: 0 }
    }
}

impl<T: PartialEq> PartialEq for CallMap<T> {
    /// Compares what is there and its order.
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<T: fmt::Debug> fmt::Debug for CallMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u32),
        Remove(u8),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..40_u8, any::<u32>()).prop_map(|(id, value)| Step::Insert(id, value)),
            4 => (0..40_u8).prop_map(Step::Remove),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn it_does_what_a_list_searched_from_the_front_would_do(steps in prop::collection::vec(step(), 0..200)) {
            let (mut map, mut list) = (CallMap::default(), Vec::<(CallId, u32)>::new());
            for step in steps {
                match step {
                    Step::Insert(id, value) => {
                        let id = CallId::from(format!("c{id}"));
                        let before = list.iter().position(|(other, _)| *other == id).map(|at| list.remove(at).1);
                        list.push((id.clone(), value));
                        prop_assert_eq!(map.insert(id, value), before);
                    }
                    Step::Remove(id) => {
                        let id = CallId::from(format!("c{id}"));
                        let removed = list.iter().position(|(other, _)| *other == id).map(|at| list.remove(at).1);
                        prop_assert_eq!(map.remove(&id), removed);
                    }
                    Step::Clear => {
                        map.clear();
                        list.clear();
                    }
                }
                prop_assert_eq!(map.len(), list.len());
                prop_assert!(map.iter().map(|(id, value)| (id.clone(), *value)).eq(list.iter().cloned()));
                prop_assert!(list.iter().all(|(id, value)| map.get(id) == Some(value)));
            }
        }
    }
}
