//! Arrays of f32 that models and optimizers share, and the weights of a decoder.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use crate::model::{ModelError, ModelErrorKind};

/// An array of f32 in row-major order. Clones share the storage: a write through one is visible through all.
#[derive(Debug, Clone)]
pub struct Tensor {
    dims: Arc<[usize]>,
    values: Arc<RwLock<Vec<f32>>>,
}

impl Tensor {
    /// Creates an array over a buffer.
    ///
    /// # Errors
    ///
    /// If the dimensions have another number of elements.
    pub fn new(values: Vec<f32>, dims: &[usize]) -> Result<Self, ModelError> {
        fits(values.len(), dims)?;
        Ok(Self { dims: dims.into(), values: Arc::new(RwLock::new(values)) })
    }

    /// Creates an array of zeros.
    pub fn zeros(dims: &[usize]) -> Self {
        let values = vec![0.0; dims.iter().product()];
        Self { dims: dims.into(), values: Arc::new(RwLock::new(values)) }
    }

    /// Returns the sizes of its dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the number of its elements.
    pub fn elem_count(&self) -> usize {
        self.dims.iter().product()
    }

    /// Borrows the current values, which cannot change meanwhile.
    pub fn values(&self) -> impl Deref<Target = [f32]> {
        Values(self.values.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Copies the current values.
    pub fn to_vec(&self) -> Vec<f32> {
        self.values().to_vec()
    }

    /// Calls `f` with the values for modification in place.
    pub fn update<R>(&self, f: impl FnOnce(&mut [f32]) -> R) -> R {
        f(&mut self.values.write().unwrap_or_else(PoisonError::into_inner))
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

    /// Returns a copy with storage of its own.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let values = Arc::new(RwLock::new(self.to_vec()));
        Self { dims: Arc::clone(&self.dims), values }
    }
}

/// Returns an error if the number of values does not fit the dimensions.
fn fits(values: usize, dims: &[usize]) -> Result<(), ModelError> {
    let wanted: usize = dims.iter().product();
    if values == wanted {
        return Ok(());
    }
    Err(ModelError::new(
        ModelErrorKind::Mismatch,
        format!("{values} values for the shape {dims:?}, which has {wanted}"),
    ))
}

/// Borrowed values of an array.
struct Values<G>(G);

impl<G: Deref<Target = Vec<f32>>> Deref for Values<G> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.0
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

    #[test]
    fn clones_share_their_values_and_duplicates_do_not() {
        let tensor = Tensor::new(vec![1.0, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
        let (shared, own) = (tensor.clone(), tensor.duplicate());
        tensor.set(&[5.0; 4]).unwrap();
        shared.update(|values| values[0] = 6.0);
        assert_eq!(tensor.to_vec(), [6.0, 5.0, 5.0, 5.0]);
        assert_eq!(own.to_vec(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn values_that_do_not_fill_the_shape_are_refused() {
        let error = Tensor::new(vec![0.0; 5], &[2, 3]).unwrap_err();
        assert_eq!(error.to_string(), "5 values for the shape [2, 3], which has 6");
        assert!(Tensor::new(vec![0.0; 6], &[2, 3]).unwrap().set(&[0.0; 5]).is_err());
    }
}
