//! Host memory that operations use again.

use std::collections::VecDeque;

/// Number of buffers that are taken or given after which an unused one is freed: those of some dozens of passes. Passes of many
/// shapes would otherwise leave buffers of every size.
const UNUSED: u64 = 1 << 13;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Buffers in the order in which they were given, with the time of that.
    free: VecDeque<(u64, Vec<f32>)>,
    /// Number of buffers that were taken or given so far.
    clock: u64,
}

impl Buffers {
    /// Returns a buffer of `len` numbers of arbitrary content. Its capacity is at most half as large again.
    pub(crate) fn take(&mut self, len: usize) -> Vec<f32> {
        self.clock += 1;
        let (all, fitting) = (self.free.iter().enumerate(), len..=len + len / 2);
        let best = all.filter(|(_, (_, buffer))| fitting.contains(&buffer.capacity()));
        let best = best.min_by_key(|(_, (_, buffer))| buffer.capacity()).map(|(at, _)| at);
        match best.and_then(|at| self.free.remove(at)) {
            Some((_, mut buffer)) => {
                buffer.resize(len, 0.0);
                buffer
            }
            None => maverl_kernels::large_zeros(len),
        }
    }

    /// Takes buffers back, and frees those that were not used for long.
    pub(super) fn give(&mut self, buffers: impl IntoIterator<Item = Vec<f32>>) {
        for buffer in buffers {
            self.clock += 1;
            self.free.push_back((self.clock, buffer));
        }
        while self.free.front().is_some_and(|(given, _)| given + UNUSED < self.clock) {
            self.free.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_freed_if_they_are_not() {
        let mut buffers = Buffers::default();
        buffers.give([vec![0.0; 100], vec![0.0; 7]]);
        assert_eq!(buffers.take(90).capacity(), 100);
        for _ in 0..UNUSED {
            let one = buffers.take(50);
            buffers.give([one]);
        }
        // That of 7 numbers was not used.
        assert_eq!(buffers.free.len(), 1);
        // Buffers of others are no growth either.
        (0..3 * UNUSED).for_each(|_| buffers.give([vec![0.0; 3]]));
        assert!(buffers.free.len() as u64 <= UNUSED + 1);
    }
}
