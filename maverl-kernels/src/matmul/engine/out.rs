//! Output of a product, of which tasks write disjoint parts.
#![allow(unsafe_code)]

use std::{marker::PhantomData, ops::Range};

use super::super::part::OutputRows;
use super::super::prefetch::prefetch_line;
use super::super::tiles::{BLOCK, PANEL};

/// Output of a product. Tasks write disjoint parts of it.
pub(in super::super) struct ProductOutput<'a> {
    start: *mut f32,
    len: usize,
    columns: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for a `&mut [f32]`, and tasks write disjoint parts of it (`Out::row_columns`).
unsafe impl Sync for ProductOutput<'_> {}

impl<'a> ProductOutput<'a> {
    pub(in super::super) fn new(out: &'a mut [f32], columns: usize) -> Self {
        Self { start: out.as_mut_ptr(), len: out.len(), columns, borrow: PhantomData }
    }

    /// Returns the number of columns.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Returns some columns of a row.
    ///
    /// # Safety
    ///
    /// While the result lives, no other reference to that part exists.
    #[expect(clippy::mut_from_ref, reason = "the parts of different tasks are disjoint")]
    pub(super) unsafe fn row_columns(&self, row: usize, columns: Range<usize>) -> &mut [f32] {
        let start = row * self.columns + columns.start;
        assert!(columns.end <= self.columns && start + columns.len() <= self.len);
        // SAFETY: in bounds of the borrowed slice, and exclusive as guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), columns.len()) }
    }
}

impl ProductOutput<'_> {
    /// Returns the columns of a panel of some rows.
    ///
    /// # Safety
    ///
    /// While the result lives, no other reference to that part exists.
    pub(super) unsafe fn panel_columns(&self, rows: Range<usize>, column: usize) -> OutputRows<'_> {
        assert!(column + PANEL <= self.columns && rows.end * self.columns <= self.len);
        // SAFETY: in bounds of the borrowed slice, and exclusive as guaranteed by the caller.
        unsafe {
            let start = self.start.add(rows.start * self.columns + column);
            OutputRows::new(start, self.columns, rows.len())
        }
    }

    /// Prefetches the output of a kernel while its sums are computed.
    pub(super) fn prefetch_output(&self, rows: &Range<usize>, column: usize) {
        for row in rows.clone() {
            let start = self.start.wrapping_add(row * self.columns + column);
            (0..PANEL).step_by(BLOCK).for_each(|i| prefetch_line(start.wrapping_add(i)));
        }
    }
}
