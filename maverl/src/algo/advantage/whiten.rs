//! Mean 0, deviation 1.

use maverl_kernels::advantage::{Segments, whiten};

/// Gives the values of all tokens `[N][T]` mean 0 and deviation 1; see [`whiten`].
pub fn whiten_tokens(values: &mut [Vec<f64>]) {
    let flat = values.concat();
    let whitened = whiten(&flat, &vec![1; flat.len()], &Segments::one(flat.len()));
    for (value, whitened) in values.iter_mut().flatten().zip(whitened) {
        *value = whitened;
    }
}
