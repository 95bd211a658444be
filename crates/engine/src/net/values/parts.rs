//! Parameters of which each part has an array of its own.

use std::mem;
use std::ops::Range;

use super::{Params, Storage};
use crate::files::ModelError;
use crate::net::memory::Memory;

impl<O: Memory> Params<O> {
    /// Returns the tensors of each range over an array of its own, in which the range begins at 0. The arrays have no elements, so
    /// the values of a part must not be used before [`Params::replace`].
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(crate) fn split(&self, ops: &O, ranges: &[Range<usize>]) -> Result<Vec<Self>, ModelError> {
        ranges.iter().map(|range| self.part(ops, range)).collect()
    }

    fn part(&self, ops: &O, range: &Range<usize>) -> Result<Self, ModelError> {
        let storage = Storage::<O>::new(ops.blank(0, true)?);
        let inside = self.vars.iter().filter(|(_, var)| range.contains(&var.range.start));
        let vars = inside.map(|(name, var)| {
            let place = var.range.start - range.start..var.range.end - range.start;
            (name.clone(), var.over(storage.clone(), place))
        });
        Ok(Self { vars: vars.collect(), storage })
    }

    /// Replaces the array, and returns the one before.
    pub(crate) fn replace(&self, array: O::Weights) -> O::Weights {
        mem::replace(&mut *self.storage.write(), array)
    }
}
