//! Buffers that are used again, so that a forward pass allocates nothing once it has run before.

use crate::model::decoder::Projected;

/// Buffers that nobody uses at the moment.
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Vec<f32>>,
    /// Of threads that work on rows of their own.
    shares: Vec<Share>,
}

/// What a thread has that takes rows of its own through the layers of a decoder.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Its buffers.
    pub(super) pool: Pool,
    /// The residual stream of its rows.
    pub(super) x: Vec<f32>,
    /// What attention of the layer at hand is given.
    pub(super) projected: Projected,
}

impl Pool {
    /// A buffer of `len` numbers, whatever they are. It is at most half as large again.
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

    /// A buffer with these numbers.
    pub fn copy(&mut self, values: &[f32]) -> Vec<f32> {
        let mut buffer = self.take(values.len());
        buffer.copy_from_slice(values);
        buffer
    }

    /// A share for each of `n` threads.
    pub(super) fn shares(&mut self, n: usize) -> &mut [Share] {
        if self.shares.len() < n {
            self.shares.resize_with(n, Share::default);
        }
        &mut self.shares[..n]
    }

    /// Takes buffers back.
    pub fn give(&mut self, buffers: impl IntoIterator<Item = Vec<f32>>) {
        self.free.extend(buffers);
    }
}
