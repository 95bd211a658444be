//! Numbers from a seed, for the points at which expressions are compared.

/// A generator of numbers (SplitMix64, [Steele et al., 2014](https://doi.org/10.1145/2660193.2660195)). Equal seeds give
/// equal sequences on every machine.
#[derive(Debug)]
pub(crate) struct RandomNumbers(u64);

impl RandomNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub(crate) fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Samples a number from 0 to `n`, exclusive: the high half of a 128-bit product.
    pub(crate) fn sample_index(&mut self, n: usize) -> usize {
        ((u128::from(self.next_bits()) * n as u128) >> 64) as usize
    }

    /// Returns true with probability `p`.
    #[cfg(test)]
    pub(crate) fn gen_bool(&mut self, p: f64) -> bool {
        ((self.next_bits() >> 11) as f64) < p * (1_u64 << 53) as f64
    }

    /// Samples one of the items.
    pub(crate) fn sample_item<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.sample_index(items.len())]
    }
}
