//! Prefetches of memory that later kernels read.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::tiles::Panel;

/// Prefetches a cache line. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch_line<T>(address: *const T) {
    // SAFETY: a prefetch reads nothing that the program sees and does not fault, whatever the address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        _mm_prefetch::<_MM_HINT_T1>(address.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Words of a sum between two prefetches.
pub(super) const STEPS: usize = 16;

/// Fractions of a line that [`Ahead`] counts.
const UNIT: usize = 64;

/// Lines of a panel that later kernels read. They are prefetched at an even pace, because the memory needs most of the
/// time that the kernels take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// First word of the first line. It may lie outside of the panels, because it is only prefetched.
    start: *const u32,
    /// Words from one line to the next, and to its second half.
    stride: usize,
    half: usize,
    lines: usize,
    /// Fractions of a line that are prefetched in each step, and those that are due.
    pace: usize,
    due: usize,
}

impl Ahead {
    /// Creates the prefetch of a panel like `panel`, line by line, in about `loops` loops over as many words.
    pub(super) fn new(start: *const u32, panel: Panel<'_>, loops: usize) -> Self {
        let Panel { stride, half, depth: lines, .. } = panel;
        let steps = loops.max(1) * lines.div_ceil(STEPS).max(1);
        Self { start, stride, half, lines, pace: (UNIT * lines).div_ceil(steps), due: 0 }
    }

    /// Returns a prefetch of nothing.
    pub(super) fn none() -> Self {
        Self { start: std::ptr::null(), stride: 0, half: 0, lines: 0, pace: 0, due: 0 }
    }

    /// Prefetches the lines that are due. Returns the number of words after which the next ones are.
    #[inline(always)]
    pub(super) fn prefetch_due(&mut self) -> usize {
        // Most kernels prefetch nothing, and go through all words in one loop.
        if self.lines == 0 {
            return usize::MAX;
        }
        self.due += self.pace;
        while self.due >= UNIT && self.lines > 0 {
            prefetch_line(self.start);
            prefetch_line(self.start.wrapping_add(self.half));
            self.start = self.start.wrapping_add(self.stride);
            self.lines -= 1;
            self.due -= UNIT;
        }
        STEPS
    }
}
