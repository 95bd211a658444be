//! Gradients of one optimizer step, summed over micro-batches in f32.

use std::ops::Range;

use crate::files::{ModelError, ModelErrorKind};
use crate::net::memory::{Cpu, Memory};
use crate::net::values::{ALIGN, Params};

/// Sums of gradients, in one array with the places of the parameters.
pub struct Gradients<'m, O: Memory = Cpu> {
    params: &'m Params<O>,
    sums: O::Sums,
    reached: Vec<bool>,
    /// First element of the parameters that the array has sums of.
    first: usize,
    /// Sums of the embedding apart from those of the head that it is too, if they are apart.
    embedding: Option<EmbeddingSums<O>>,
}

/// Sums of the gradients of an embedding that is also the head, without those of the head.
struct EmbeddingSums<O: Memory> {
    /// Index of the embedding among the parameters.
    slot: usize,
    sums: O::Sums,
}

/// Sums of gradients to which later passes add, without the parameters that they are of.
pub(crate) struct PendingSums<O: Memory = Cpu> {
    sums: O::Sums,
    reached: Vec<bool>,
}

impl<'m, O: Memory> Gradients<'m, O> {
    /// Continues sums of these parameters.
    pub(crate) fn resumed(params: &'m Params<O>, pending: PendingSums<O>) -> Self {
        let PendingSums { sums, reached } = pending;
        Self { params, sums, reached, first: 0, embedding: None }
    }

    /// Returns the sums, to be continued later.
    pub(crate) fn into_pending(self) -> PendingSums<O> {
        PendingSums { sums: self.sums, reached: self.reached }
    }

    /// Creates zeros for parameters on a device.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn on(ops: &O, params: &'m Params<O>) -> Result<Self, ModelError> {
        Ok(Self::over(params, ops.sums(params.elements())?))
    }

    /// Creates the sums of parameters in an array of zeros.
    pub(crate) fn over(params: &'m Params<O>, sums: O::Sums) -> Self {
        Self::beginning_at(params, 0, sums)
    }

    /// Creates the sums of the parameters from an element on, as many as an array of zeros has.
    pub(crate) fn beginning_at(params: &'m Params<O>, first: usize, sums: O::Sums) -> Self {
        Self { params, sums, reached: vec![false; params.vars().len()], first, embedding: None }
    }

    /// Creates sums that are complete.
    pub(crate) fn complete(params: &'m Params<O>, sums: O::Sums) -> Self {
        Self { reached: vec![true; params.vars().len()], ..Self::over(params, sums) }
    }

    /// Returns the array, and for each variable true if it got a gradient.
    pub(crate) fn into_parts(self) -> (O::Sums, Vec<bool>) {
        (self.sums, self.reached)
    }

    /// Returns the parameters.
    pub(crate) fn params(&self) -> &'m Params<O> {
        self.params
    }

    /// Adds the gradients of the embedding to an array of their own from now on, if it is also the head: `slot` is the index of
    /// both. Ranks then add the parts of the head and those of the embedding each by themselves.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(crate) fn separate_embedding(
        &mut self,
        ops: &O,
        slot: Option<usize>,
    ) -> Result<(), ModelError> {
        let Some(slot) = slot else { return Ok(()) };
        let length = self.params.vars()[slot].1.elem_count().next_multiple_of(ALIGN);
        self.embedding = Some(EmbeddingSums { slot, sums: ops.sums(length)? });
        Ok(())
    }

    /// Takes the sums of the embedding that are apart, with their place among all.
    pub(crate) fn take_embedding(&mut self) -> Option<(Range<usize>, O::Sums)> {
        let EmbeddingSums { slot, sums } = self.embedding.take()?;
        let place = self.params.vars()[slot].1.range();
        Some((place.start..place.end.next_multiple_of(ALIGN), sums))
    }

    /// Returns the array and the place of the variable at `slot`, or `None` for a frozen one.
    pub(super) fn place(&mut self, slot: Option<usize>) -> Option<(&mut O::Sums, Range<usize>)> {
        let slot = slot?;
        self.reached[slot] = true;
        let place = self.params.vars()[slot].1.range();
        Some((&mut self.sums, place.start - self.first..place.end - self.first))
    }

    /// Returns the array and the place of the embedding at `slot`, or `None` for a frozen one.
    pub(super) fn embedding_place(
        &mut self,
        slot: Option<usize>,
    ) -> Option<(&mut O::Sums, Range<usize>)> {
        if self.embedding.as_ref().is_none_or(|apart| Some(apart.slot) != slot) {
            return self.place(slot);
        }
        let EmbeddingSums { slot, sums } = self.embedding.as_mut()?;
        self.reached[*slot] = true;
        Some((sums, 0..self.params.vars()[*slot].1.elem_count()))
    }

    /// Returns the number of elements of the array.
    pub fn elements(&self) -> usize {
        self.params.elements()
    }

    /// Marks the variable at `slot` as one that no result depends on.
    pub fn mark_unused(&mut self, slot: Option<usize>) {
        if let Some(slot) = slot {
            self.reached[slot] = true;
        }
    }

    /// Returns the array of the sums.
    ///
    /// # Errors
    ///
    /// If a variable got no gradient (MO-1).
    pub fn all_sums(&self) -> Result<&O::Sums, ModelError> {
        self.check().map(|()| &self.sums)
    }

    /// Returns the array of the sums, to be consumed by an optimizer.
    ///
    /// # Errors
    ///
    /// If a variable got no gradient (MO-1).
    pub fn into_all(self) -> Result<O::Sums, ModelError> {
        self.check().map(|()| self.sums)
    }

    /// Returns the sums, to add those of other processes. A variable has a gradient if it has one in any process: `count`
    /// adds the arrays of all processes to an array.
    ///
    /// # Errors
    ///
    /// If the function fails.
    pub fn combine(
        &mut self,
        count: impl FnOnce(&mut [f32]) -> Result<(), ModelError>,
    ) -> Result<&mut O::Sums, ModelError> {
        let mut reached: Vec<f32> = self.reached.iter().map(|&reached| reached.into()).collect();
        count(&mut reached)?;
        self.reached = reached.into_iter().map(|processes| processes > 0.0).collect();
        Ok(&mut self.sums)
    }

    fn check(&self) -> Result<(), ModelError> {
        require_all(self.params, &self.reached)
    }

    /// Returns the norm of all sums together.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn norm(&self, ops: &O) -> Result<f64, ModelError> {
        Ok(self.squares(ops, 0..self.elements())?.sqrt())
    }

    /// Returns the sum of the squares of a range, which begins at a multiple of [`ALIGN`].
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn squares(&self, ops: &O, range: Range<usize>) -> Result<f64, ModelError> {
        if range.is_empty() {
            return Ok(0.0);
        }
        let vars = self.params.vars().iter();
        let parts = vars.map(|(_, var)| common(&var.range(), &range));
        ops.squares(&self.sums, range.clone(), parts.filter(|part| !part.is_empty()))
    }
}

/// Returns an error if a variable got no gradient (MO-1).
pub(crate) fn require_all<O: Memory>(
    params: &Params<O>,
    reached: &[bool],
) -> Result<(), ModelError> {
    match params.vars().iter().zip(reached).find(|(_, reached)| !**reached) {
        Some(((name, _), _)) => Err(ModelError::new(
            ModelErrorKind::Numeric,
            format!("`{name}` got no gradient (MO-1)"),
        )),
        None => Ok(()),
    }
}

/// Returns the elements that two ranges have in common.
pub(crate) fn common(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    let (start, end) = (one.start.max(other.start), one.end.min(other.end));
    start..end.max(start)
}

impl<'m> Gradients<'m> {
    /// Creates zeros for parameters.
    pub fn new(params: &'m Params) -> Self {
        Self::over(params, maverl_kernels::large_zeros(params.elements()))
    }

    /// Returns the gradient sum of the variable at `slot`, or `None` for a frozen one.
    pub fn of(&mut self, slot: Option<usize>) -> Option<&mut [f32]> {
        let (sums, place) = self.place(slot)?;
        Some(&mut sums[place])
    }

    /// Returns the gradient sum of the embedding at `slot`, or `None` for a frozen one.
    pub(crate) fn of_embedding(&mut self, slot: Option<usize>) -> Option<&mut [f32]> {
        let (sums, place) = self.embedding_place(slot)?;
        Some(&mut sums[place])
    }

    /// Returns the sums, in the order of the variables.
    ///
    /// # Errors
    ///
    /// If a variable got no gradient (MO-1).
    pub fn sums(&self) -> Result<Vec<&[f32]>, ModelError> {
        let all = self.all_sums()?;
        Ok(self.params.vars().iter().map(|(_, var)| &all[var.range()]).collect())
    }
}
