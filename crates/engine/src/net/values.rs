//! Parameters of models: named tensors in one array in the memory of a device.

#[cfg(feature = "candle")]
mod blocks;
mod param;
mod parts;

use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use maverl_kernels::large_zeros;
use rayon::prelude::*;

pub use param::Param;

#[cfg(feature = "candle")]
use crate::files::gguf::BlockMatrix;
use crate::files::save::HostTensor;
use crate::files::shards::fits;
use crate::files::{ModelError, Shards};
use crate::net::memory::{Cpu, Memory};

/// Multiple of elements at which each tensor of an array begins.
pub const ALIGN: usize = 64;

/// Start of a checksum, and of each chunk of it.
const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// Array that the tensors of [`Params`] share.
struct Storage<O: Memory>(Arc<RwLock<O::Weights>>);

impl<O: Memory> Storage<O> {
    fn new(weights: O::Weights) -> Self {
        Self(Arc::new(RwLock::new(weights)))
    }

    fn read(&self) -> RwLockReadGuard<'_, O::Weights> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, O::Weights> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Memory> Clone for Storage<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O: Memory> Debug for Storage<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").finish_non_exhaustive()
    }
}

/// Named tensors in one array, in order. Each begins at a multiple of [`ALIGN`] elements, with zeros before it. Clones
/// share the array.
#[derive(Debug, Clone)]
pub struct Params<O: Memory = Cpu> {
    vars: Arc<[(String, Tensor<O>)]>,
    storage: Storage<O>,
}

impl Default for Params {
    fn default() -> Self {
        Self::zeros([])
    }
}

impl Params {
    /// Creates tensors of zeros by name and dimensions.
    pub fn zeros(shapes: impl IntoIterator<Item = (String, Vec<usize>)>) -> Self {
        let params = Self::shaped(shapes);
        *params.storage.write() = large_zeros(params.elements());
        params
    }

    /// Creates tensors without values by name and dimensions: on a device, they have any.
    pub fn shaped(shapes: impl IntoIterator<Item = (String, Vec<usize>)>) -> Self {
        let storage = Storage::<Cpu>::new(Vec::new());
        let mut end = 0;
        let vars = shapes.into_iter().map(|(name, dims)| {
            let range = end..end + dims.iter().product::<usize>();
            end = range.end.next_multiple_of(ALIGN);
            (name, Tensor::new(dims.into(), storage.clone(), range))
        });
        Self { vars: vars.collect(), storage }
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

    /// Returns a copy with an array of its own.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        self.over(Storage::new(self.storage.read().clone()))
    }

    /// Returns the tensors over an array with the values of those alone that `keep` selects by index. The values of others must
    /// not be used.
    #[must_use]
    pub fn keep(&self, keep: impl Fn(usize) -> bool) -> Self {
        let storage = Storage::<Cpu>::new(Vec::new());
        let mut end = 0;
        let vars = self.vars.iter().enumerate().map(|(index, (name, var))| {
            let len = if keep(index) { var.elem_count() } else { 0 };
            let range = end..end + len;
            end = range.end.next_multiple_of(ALIGN);
            (name.clone(), var.over(storage.clone(), range))
        });
        let kept = Self { vars: vars.collect(), storage };
        let mut values = large_zeros(kept.elements());
        for ((_, from), (_, to)) in self.vars.iter().zip(kept.vars()) {
            if to.has_values() {
                values[to.range()].copy_from_slice(&from.values());
            }
        }
        *kept.storage.write() = values;
        kept
    }

    /// Calls `f` with the whole array for modification in place.
    pub fn update<R>(&self, f: impl FnOnce(&mut [f32]) -> R) -> R {
        f(&mut self.storage.write())
    }

    /// Moves the tensors towards others of the same places: `p ← (1 − share) p + share · other`, computed in f64.
    ///
    /// # Panics
    ///
    /// If the arrays have different lengths, or are the same.
    pub(crate) fn mix_in(&self, other: &Params, share: f64) {
        assert!(!Arc::ptr_eq(&self.storage.0, &other.storage.0), "mix_in: an array and itself");
        let other = other.storage.read();
        self.update(|values| {
            assert_eq!(values.len(), other.len(), "mix_in: arrays of one model");
            let both = values.par_iter_mut().zip(other.par_iter());
            both.for_each(|(value, other)| *value = mixed(*value, *other, share));
        });
    }

    /// Copies the tensors to a device, for training or not.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn on<O: Memory>(&self, ops: &O, trained: bool) -> Result<Params<O>, ModelError> {
        let values = self.storage.read();
        let weights = if values.is_empty() {
            ops.blank(self.elements(), trained)?
        } else {
            ops.weights(&values, trained)?
        };
        Ok(self.over(Storage::new(weights)))
    }
}

impl<O: Memory> Params<O> {
    /// Copies the tensors on their device, for training or not.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn copy(&self, ops: &O, trained: bool) -> Result<Self, ModelError> {
        Ok(self.over(Storage::new(ops.copy_weights(&self.storage.read(), trained)?)))
    }

    /// Copies the tensors to the host.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn to_host(&self, ops: &O) -> Result<Params, ModelError> {
        Ok(self.over(Storage::new(ops.read_weights(&self.storage.read())?.into_owned())))
    }

    /// Overwrites the tensors by those of the host of the same places.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn assign(&self, ops: &O, host: &Params) -> Result<(), ModelError> {
        ops.assign(&mut self.storage.write(), &host.storage.read())
    }

    /// Borrows the whole array for modification in place.
    pub fn write(&self) -> impl DerefMut<Target = O::Weights> {
        self.storage.write()
    }

    /// Computes a hash of all bits. It finds a difference, and is no fingerprint.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn checksum(&self, ops: &O) -> Result<u64, ModelError> {
        let all = self.storage.read();
        let values = ops.read_weights(&all)?;
        let chunks: Vec<u64> = values
            .par_chunks(1 << 16)
            .map(|chunk| chunk.iter().fold(SEED, |sum, v| hash_word(sum, u64::from(v.to_bits()))))
            .collect();
        Ok(chunks.into_iter().fold(SEED, hash_word))
    }

    /// Returns tensors of the same names and places over another array.
    fn over<P: Memory>(&self, storage: Storage<P>) -> Params<P> {
        let vars = self
            .vars
            .iter()
            .map(|(name, var)| (name.clone(), var.over(storage.clone(), var.range())));
        Params { vars: vars.collect(), storage }
    }

    /// Returns names and tensors, in order.
    pub fn vars(&self) -> &[(String, Tensor<O>)] {
        &self.vars
    }

    /// Returns the tensor of an index as a trained weight.
    pub fn param(&self, index: usize) -> Param<O> {
        Param::new(self.vars[index].1.clone(), Some(index))
    }

    /// Returns the number of elements of the array, those between tensors included.
    pub fn elements(&self) -> usize {
        self.vars.last().map_or(0, |(_, var)| var.range.end.next_multiple_of(ALIGN))
    }
}

/// `(1 − share) a + share · b`
fn mixed(a: f32, b: f32, share: f64) -> f32 {
    ((1.0 - share) * f64::from(a) + share * f64::from(b)) as f32
}

/// Adds a word to a hash.
fn hash_word(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3)
}

/// A tensor in row-major order: a range of [`Params`]. Clones share the array: a write through one is visible through
/// all.
#[derive(Debug, Clone)]
pub struct Tensor<O: Memory = Cpu> {
    dims: Arc<[usize]>,
    storage: Storage<O>,
    range: Range<usize>,
    /// Numbers in the blocks of a file, in place of values in the array.
    #[cfg(feature = "candle")]
    blocks: Option<Arc<BlockMatrix>>,
}

impl<O: Memory> Tensor<O> {
    fn new(dims: Arc<[usize]>, storage: Storage<O>, range: Range<usize>) -> Self {
        Self {
            dims,
            storage,
            range,
            #[cfg(feature = "candle")]
            blocks: None,
        }
    }

    /// Returns the tensor at a place of another array.
    fn over<P: Memory>(&self, storage: Storage<P>, range: Range<usize>) -> Tensor<P> {
        Tensor {
            dims: Arc::clone(&self.dims),
            storage,
            range,
            #[cfg(feature = "candle")]
            blocks: self.blocks.clone(),
        }
    }

    /// Returns true if its numbers are in the blocks of a file.
    pub(super) fn is_in_blocks(&self) -> bool {
        #[cfg(feature = "candle")]
        let found = self.blocks.is_some();
        #[cfg(not(feature = "candle"))]
        let found = false;
        found
    }

    /// Returns the sizes of its dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the number of its elements.
    pub fn elem_count(&self) -> usize {
        self.dims.iter().product()
    }

    /// Returns true if its values are in the array: see [`Params::keep`].
    pub(super) fn has_values(&self) -> bool {
        self.range.len() == self.elem_count()
    }

    /// Returns its place in the array, which is also that of its gradient and its moments.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl Tensor {
    /// Borrows the current values, which cannot change meanwhile.
    ///
    /// # Panics
    ///
    /// If its values were not kept.
    pub fn values(&self) -> impl Deref<Target = [f32]> {
        assert!(self.has_values(), "a tensor {:?} without values is read", self.dims);
        TensorValues { array: self.storage.read(), range: self.range() }
    }

    /// Copies the current values.
    pub fn to_vec(&self) -> Vec<f32> {
        self.values().to_vec()
    }

    /// Calls `f` with the values for modification in place.
    pub fn update<R>(&self, f: impl FnOnce(&mut [f32]) -> R) -> R {
        f(&mut self.storage.write()[self.range()])
    }

    /// Reads the values from a checkpoint.
    ///
    /// # Errors
    ///
    /// See [`Shards::fill`].
    pub fn load(&self, shards: &Shards, name: &str) -> Result<(), ModelError> {
        self.update(|values| shards.fill(name, &self.dims, values))
    }

    /// Copies values of the same shape into the array.
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

/// Numbers of a tensor, which are written to files.
impl HostTensor for Tensor {
    fn shape(&self) -> &[usize] {
        &self.dims
    }

    fn read(&self, take: &mut dyn FnMut(&[f32])) {
        #[cfg(feature = "candle")]
        if let Some(numbers) = self.numbers_of_blocks() {
            return take(&numbers);
        }
        take(&self.values());
    }
}

/// Borrowed values of a tensor.
struct TensorValues<'a> {
    array: RwLockReadGuard<'a, Vec<f32>>,
    range: Range<usize>,
}

impl Deref for TensorValues<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.array[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn tensors_move_towards_others_as_recorded() {
        use crate::loss::testing::{assert_close, learning, numbers};

        let case = learning("reference/mix");
        let of = |values: &serde_json::Value| {
            let values = numbers(values);
            let fill = |_, to: &mut [f32]| {
                to.iter_mut().zip(&values).for_each(|(to, value)| *to = *value as f32);
                Ok(())
            };
            Params::new([("w".to_owned(), vec![values.len()])], fill).unwrap()
        };
        let [reference, policy] = ["reference", "policy"].map(|key| of(&case["inputs"][key]));
        reference.mix_in(&policy, case["params"]["mix"].as_f64().unwrap());
        let found: Vec<f64> = reference.update(|all| all.iter().map(|&x| f64::from(x)).collect());
        let wanted = numbers(&case["outputs"]["reference"]);
        assert_close("reference", &found[..wanted.len()], &wanted, 1e-7);
        reference.mix_in(&policy, 1.0);
        let same = policy.update(|all| all.to_vec());
        assert_eq!(reference.update(|all| all.to_vec()), same);
    }

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
