//! Mean 0, deviation 1.

use maverl_kernels::advantage::Segments;

use crate::credit::Estimators;

/// Gives the values of all tokens `[N][T]` mean 0 and deviation 1; see
/// [`whiten`](maverl_kernels::advantage::whiten()).
pub(crate) fn whiten_tokens(values: &mut [Vec<f64>], estimators: &Estimators) {
    let flat = values.concat();
    let whitened = estimators.whiten(&flat, &vec![1; flat.len()], &Segments::one(flat.len()));
    for (value, whitened) in values.iter_mut().flatten().zip(whitened) {
        *value = whitened;
    }
}
