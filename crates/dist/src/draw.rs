//! Random choices of tests.

/// A generator of numbers that a seed determines.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below a limit.
    pub(crate) fn up_to(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// Returns true in half of the cases.
    pub(crate) fn flip(&mut self) -> bool {
        self.up_to(2) == 1
    }
}
