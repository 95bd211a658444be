//! Host memory that operations use again.

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub struct Buffers {
    pub(super) free: Vec<Vec<f32>>,
}

impl Buffers {
    /// Returns a buffer of `len` numbers of arbitrary content. Its capacity is at most half as large again.
    pub(in crate::model) fn take(&mut self, len: usize) -> Vec<f32> {
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
}
