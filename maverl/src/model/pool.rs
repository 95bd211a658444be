//! Buffers that are used again, so that a forward pass allocates nothing once it has run before.

/// Buffers that nobody uses at the moment.
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Vec<f32>>,
    /// Of threads that work on rows of their own.
    shares: Vec<Pool>,
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

    /// A pool for each of `n` threads.
    pub(super) fn shares(&mut self, n: usize) -> &mut [Self] {
        if self.shares.len() < n {
            self.shares.resize_with(n, Self::default);
        }
        &mut self.shares[..n]
    }

    /// Takes buffers back.
    pub fn give(&mut self, buffers: impl IntoIterator<Item = Vec<f32>>) {
        self.free.extend(buffers);
    }
}
