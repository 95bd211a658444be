//! Bytes of arrays in the memory of a machine: now, and the high-water mark.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that allocations of a driver are rounded up to.
const STEP: u64 = 512;

/// Bytes of the arrays of [`Kernels`](super::Kernels), each rounded up to 512.
#[derive(Debug, Default)]
pub struct MemoryUsage {
    used: AtomicU64,
    most: AtomicU64,
}

/// Bytes of an array, until it is dropped.
#[derive(Debug)]
pub(super) struct HeldBytes {
    bytes: u64,
    usage: Arc<MemoryUsage>,
}

impl MemoryUsage {
    /// Returns the bytes of all arrays.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the largest number of bytes that were used at once.
    pub fn high_water_mark(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Begins a new high-water mark at what is used now.
    pub fn restart_peak(&self) {
        self.most.store(self.used(), Ordering::Relaxed);
    }

    pub(super) fn hold_bytes(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        let bytes = (bytes as u64).max(1).next_multiple_of(STEP);
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(used, Ordering::Relaxed);
        HeldBytes { bytes, usage: Arc::clone(self) }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.usage.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::cuda::{CountingMachine, Kernels};

    #[test]
    fn arrays_count_until_they_are_dropped_and_the_mark_stays() {
        let kernels = Kernels::new(CountingMachine);
        let usage = Arc::clone(kernels.usage());
        let a = kernels.new_array::<u16>(257).unwrap();
        let b = kernels.array_of(&[1.0_f32; 128]).unwrap();
        assert_eq!(usage.used(), 1024 + 512);
        drop(a);
        let c = kernels.zeroed_array::<u64>(0).unwrap();
        assert_eq!((usage.used(), usage.high_water_mark()), (1024, 1536));
        usage.restart_peak();
        assert_eq!(usage.high_water_mark(), 1024);
        assert_eq!(kernels.read_array(&b).unwrap(), [0.0; 128]);
        drop((b, c));
        assert_eq!(usage.used(), 0);
        // Kernels of their own count apart.
        let other = kernels.fork();
        let _array = other.new_array::<u8>(1).unwrap();
        assert_eq!((usage.used(), other.usage().used()), (0, 512));
    }
}
