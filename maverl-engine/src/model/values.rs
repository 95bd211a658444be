//! Parameters of models: named tensors in one array of f32.

use std::ops::{Deref, Range};
use std::sync::{Arc, PoisonError, RwLock};

use crate::model::{ModelError, ModelErrorKind};

/// Multiple of elements at which each tensor of an array begins.
pub const ALIGN: usize = 64;

/// Storage that the tensors of [`Params`] share.
type Storage = Arc<RwLock<Vec<f32>>>;

/// Named tensors in one array, in order. Each begins at a multiple of [`ALIGN`] elements, with zeros before it. Clones
/// share the storage.
#[derive(Debug, Clone, Default)]
pub struct Params {
    vars: Arc<[(String, Tensor)]>,
    storage: Storage,
}

impl Params {
    /// Creates tensors of zeros by name and dimensions.
    pub fn zeros(shapes: impl IntoIterator<Item = (String, Vec<usize>)>) -> Self {
        let storage = Storage::default();
        let mut end = 0;
        let place = |(name, dims): (String, Vec<usize>)| {
            let range = end..end + dims.iter().product::<usize>();
            end = range.end.next_multiple_of(ALIGN);
            (name, Tensor { dims: dims.into(), storage: Arc::clone(&storage), range })
        };
        let vars = shapes.into_iter().map(place).collect();
        *storage.write().unwrap_or_else(PoisonError::into_inner) = vec![0.0; end];
        Self { vars, storage }
    }

    /// Creates tensors by name and dimensions. `fill` gets the index of each and its values, which are zero, and writes
    /// them.
    ///
    /// # Errors
    ///
    /// The error of `fill`.
    pub fn new(
        shapes: impl IntoIterator<Item = (String, Vec<usize>)>,
        mut fill: impl FnMut(usize, &mut [f32]) -> Result<(), ModelError>,
    ) -> Result<Self, ModelError> {
        let params = Self::zeros(shapes);
        for (index, (_, var)) in params.vars.iter().enumerate() {
            var.update(|values| fill(index, values))?;
        }
        Ok(params)
    }

    /// Returns names and tensors, in order.
    pub fn vars(&self) -> &[(String, Tensor)] {
        &self.vars
    }

    /// Returns the tensor of an index as a trained weight.
    pub fn param(&self, index: usize) -> Param {
        Param::new(self.vars[index].1.clone(), Some(index))
    }

    /// Returns the number of elements of the array, those between tensors included.
    pub fn elements(&self) -> usize {
        self.vars.last().map_or(0, |(_, var)| var.range.end.next_multiple_of(ALIGN))
    }

    /// Calls `f` with the whole array for modification in place.
    pub fn update<R>(&self, f: impl FnOnce(&mut [f32]) -> R) -> R {
        f(&mut self.storage.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a copy with storage of its own.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let values = self.storage.read().unwrap_or_else(PoisonError::into_inner).clone();
        let storage = Arc::new(RwLock::new(values));
        let own = |(name, var): &(String, Tensor)| {
            (name.clone(), Tensor { storage: Arc::clone(&storage), ..var.clone() })
        };
        Self { vars: self.vars.iter().map(own).collect(), storage }
    }
}

/// A tensor in row-major order: a range of [`Params`]. Clones share the storage: a write through one is visible through
/// all.
#[derive(Debug, Clone)]
pub struct Tensor {
    dims: Arc<[usize]>,
    storage: Storage,
    range: Range<usize>,
}

impl Tensor {
    /// Returns the sizes of its dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the number of its elements.
    pub fn elem_count(&self) -> usize {
        self.range.len()
    }

    /// Returns its place in the array, which is also that of its gradient and its moments.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Borrows the current values, which cannot change meanwhile.
    pub fn values(&self) -> impl Deref<Target = [f32]> {
        let array = self.storage.read().unwrap_or_else(PoisonError::into_inner);
        Values { array, range: self.range() }
    }

    /// Copies the current values.
    pub fn to_vec(&self) -> Vec<f32> {
        self.values().to_vec()
    }

    /// Calls `f` with the values for modification in place.
    pub fn update<R>(&self, f: impl FnOnce(&mut [f32]) -> R) -> R {
        let mut array = self.storage.write().unwrap_or_else(PoisonError::into_inner);
        f(&mut array[self.range()])
    }

    /// Copies values of the same shape into the storage.
    ///
    /// # Errors
    ///
    /// If their number differs.
    pub fn set(&self, values: &[f32]) -> Result<(), ModelError> {
        fits(values.len(), &self.dims)?;
        self.update(|own| own.copy_from_slice(values));
        Ok(())
    }
}

/// Returns an error if the number of values does not fit the dimensions.
pub(super) fn fits(values: usize, dims: &[usize]) -> Result<(), ModelError> {
    let wanted: usize = dims.iter().product();
    if values == wanted {
        return Ok(());
    }
    Err(ModelError::new(
        ModelErrorKind::Mismatch,
        format!("{values} values for the shape {dims:?}, which has {wanted}"),
    ))
}

/// Borrowed values of a tensor.
struct Values<G> {
    array: G,
    range: Range<usize>,
}

impl<G: Deref<Target = Vec<f32>>> Deref for Values<G> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.array[self.range.clone()]
    }
}

/// A weight: its values, and the slot of its gradient.
#[derive(Debug, Clone)]
pub struct Param {
    tensor: Tensor,
    slot: Option<usize>,
}

impl Param {
    /// Creates a weight over an array's storage. `slot` is its index in
    /// [`Model::trainable`](crate::model::Model::trainable). A weight without one is frozen, and its gradient is never
    /// computed.
    pub fn new(tensor: Tensor, slot: Option<usize>) -> Self {
        Self { tensor, slot }
    }

    /// Returns its index among the trainable weights.
    pub fn slot(&self) -> Option<usize> {
        self.slot
    }

    /// Freezes the weight.
    pub(super) fn freeze(&mut self) {
        self.slot = None;
    }

    /// Returns the sizes of its dimensions.
    pub fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }

    /// Borrows the current values.
    pub fn values(&self) -> impl Deref<Target = [f32]> {
        self.tensor.values()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn params() -> Params {
        let shapes = [("a", vec![2, 2]), ("b", vec![70]), ("c", vec![1])];
        let shapes = shapes.map(|(name, dims)| (name.to_owned(), dims));
        let fill = |index, values: &mut [f32]| {
            values.fill(index as f32 + 1.0);
            Ok(())
        };
        Params::new(shapes, fill).unwrap()
    }

    #[test]
    fn tensors_lie_one_after_the_other_at_multiples_with_zeros_between() {
        let params = params();
        let ranges: Vec<_> = params.vars().iter().map(|(_, var)| var.range()).collect();
        assert_eq!(ranges, [0..4, 64..134, 192..193]);
        assert_eq!(params.elements(), 256);
        params.update(|all| {
            assert_eq!(all.len(), 256);
            let of = |i: usize| ranges.iter().position(|range| range.contains(&i));
            assert!((0..256).all(|i| all[i] == of(i).map_or(0.0, |of| of as f32 + 1.0)));
        });
        assert_eq!(params.vars()[1].1.to_vec(), [2.0; 70]);
        assert_eq!(Params::default().elements(), 0);
    }

    #[test]
    fn clones_share_their_values_and_duplicates_do_not() {
        let params = params();
        let (shared, own) = (params.vars()[0].1.clone(), params.duplicate());
        params.vars()[0].1.set(&[5.0; 4]).unwrap();
        shared.update(|values| values[0] = 6.0);
        assert_eq!(params.param(0).values()[..], [6.0, 5.0, 5.0, 5.0]);
        assert_eq!(own.vars()[0].1.to_vec(), [1.0; 4]);
        assert_eq!(own.vars()[1].1.to_vec(), [2.0; 70]);
    }

    #[test]
    fn values_that_do_not_fill_the_shape_are_refused() {
        let error = params().vars()[0].1.set(&[0.0; 5]).unwrap_err();
        assert_eq!(error.to_string(), "5 values for the shape [2, 2], which has 4");
    }
}
