//! Random numbers from a seed, the same on every machine.

/// A random number generator (SplitMix64). Equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Samples a number from 0 to `n`, exclusive.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    pub fn index(&mut self, n: usize) -> usize {
        assert!(n > 0, "nothing to draw from");
        // The high half of a 128-bit product: uniform up to a bias of n / 2^64.
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Samples a number from `low` to `high`, inclusive.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.index((high - low + 1) as usize) as i64
    }

    /// Returns true with probability `p`.
    pub fn gen_bool(&mut self, p: f64) -> bool {
        ((self.bits() >> 11) as f64) < p * (1_u64 << 53) as f64
    }

    /// Samples one of the items.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }

    /// Shuffles the items (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

/// Returns the arrival time of an item with a seed of its own and a weight above 0, `−ln(u) / weight`.
///
/// In the order of these times, items are drawn without repetition, the next one in proportion to its weight among those that are
/// left (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
pub(crate) fn arrival_time(seed: u64, weight: f64) -> f64 {
    let bits = SplitMix64::new(seed).bits();
    let uniform = ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    -libm::log(uniform) / weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_lots() {
        // The first outputs of SplitMix64 for seed 1234567 (Vigna's reference implementation).
        let mut draw = SplitMix64::new(1_234_567);
        assert_eq!(
            [draw.bits(), draw.bits(), draw.bits()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        SplitMix64::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn chances_come_true_as_often_as_they_should() {
        let mut draw = SplitMix64::new(0);
        let hits = (0..10_000).filter(|_| draw.gen_bool(0.3)).count();
        assert!((2_850..3_150).contains(&hits), "{hits}");
        assert!(!(0..1000).any(|_| draw.gen_bool(0.0)));
        assert!((0..1000).all(|_| draw.gen_bool(1.0)));
    }
}
