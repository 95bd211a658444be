//! Reusable buffers, so that a repeated forward pass allocates nothing.

use crate::model::decoder::Projected;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Vec<f32>>,
    /// Buffers of threads that process rows of their own.
    shares: Vec<Share>,
}

/// Buffers of a thread that processes rows of its own.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Buffers of the thread.
    pub(super) pool: Pool,
    /// Residual stream of the thread's rows.
    pub(super) x: Vec<f32>,
    /// Inputs of the current layer's attention.
    pub(super) projected: Projected,
}

impl Pool {
    /// Returns a buffer of `len` numbers of arbitrary content. Its capacity is at most half as large again.
    pub fn take(&mut self, len: usize) -> Vec<f32> {
        let fits = |buffer: &Vec<f32>| (len..=len + len / 2).contains(&buffer.capacity());
        let best = self.free.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        match best.min_by_key(|(_, buffer)| buffer.capacity()) {
            Some((at, _)) => {
                let mut buffer = self.free.swap_remove(at);
                buffer.resize(len, 0.0);
                buffer
            }
            None => vec![0.0; len],
        }
    }

    /// Returns a buffer with a copy of these numbers.
    pub fn copy(&mut self, values: &[f32]) -> Vec<f32> {
        let mut buffer = self.take(values.len());
        buffer.copy_from_slice(values);
        buffer
    }

    /// Returns a share for each of `n` threads.
    pub(super) fn shares(&mut self, n: usize) -> &mut [Share] {
        if self.shares.len() < n {
            self.shares.resize_with(n, Share::default);
        }
        &mut self.shares[..n]
    }

    /// Returns buffers to the pool.
    pub fn give(&mut self, buffers: impl IntoIterator<Item = Vec<f32>>) {
        self.free.extend(buffers);
    }
}
