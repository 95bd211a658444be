//! Parts of a product: rows of a tile, a panel, and where their sums are stored.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use pulp::Simd;

use super::element::Element;
use super::prefetch::Ahead;
use super::tiles::{BLOCK, PANEL, Panel, Tile};

/// Number of rows of the largest tile.
pub(super) const MOST_ROWS: usize = 32;

/// Sums of a tile's rows with a panel's columns.
pub(super) type TileSums = [[f32; PANEL]; MOST_ROWS];

/// Output of a kernel: [`PANEL`] elements for each row of a tile.
pub(super) struct OutputRows<'a> {
    start: *mut f32,
    stride: usize,
    rows: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

impl<'a> OutputRows<'a> {
    /// Creates the output of `rows` rows, `stride` elements apart.
    ///
    /// # Safety
    ///
    /// Each row has [`PANEL`] elements, and all are in one allocation. While the result lives, no other reference to them
    /// exists.
    pub(super) unsafe fn new(start: *mut f32, stride: usize, rows: usize) -> Self {
        Self { start, stride, rows, borrow: PhantomData }
    }

    /// Returns the first `rows` of some sums.
    pub(super) fn from_sums(sums: &'a mut TileSums, rows: usize) -> Self {
        assert!(rows <= MOST_ROWS, "{rows} rows of sums");
        // SAFETY: these rows are borrowed.
        unsafe { Self::new(sums.as_mut_ptr().cast(), PANEL, rows) }
    }

    /// Returns the number of rows.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Returns a row.
    #[inline(always)]
    pub(super) fn row(&mut self, row: usize) -> &mut [f32; PANEL] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row exists and is borrowed, as guaranteed to `new`.
        unsafe { &mut *self.start.add(row * self.stride).cast() }
    }

    /// Returns at most `count` rows from `first` on.
    #[inline(always)]
    pub(super) fn some_rows(&mut self, first: usize, count: usize) -> OutputRows<'_> {
        assert!(first < self.rows, "row {first} of {}", self.rows);
        let rows = count.min(self.rows - first);
        // SAFETY: these rows are borrowed, as guaranteed to `new`.
        unsafe { OutputRows::new(self.start.add(first * self.stride), self.stride, rows) }
    }
}

/// Treatment of the output's old value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Then {
    Set,
    Add,
}

impl Then {
    /// Stores sums to the output.
    #[inline(always)]
    pub(super) fn store_sums(self, sums: &[f32], out: &mut [f32]) {
        match self {
            Self::Set => out.copy_from_slice(sums),
            Self::Add => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
        }
    }
}

/// Some rows of a tile, a panel, and the output of their sums.
pub(super) struct TilePart<'a> {
    pub(super) tile: Tile<'a>,
    pub(super) panel: Panel<'a>,
    pub(super) ahead: &'a mut Ahead,
    pub(super) out: OutputRows<'a>,
    pub(super) then: Then,
}

impl TilePart<'_> {
    /// Asserts that tile, panel and output have `rows` rows and the words of the panel.
    #[inline(always)]
    pub(super) fn assert_shapes<E: Element>(&self, rows: usize) {
        self.tile.assert_shape(rows, self.panel.depth * E::TERMS);
        self.panel.assert_words();
        assert_eq!(self.out.len(), rows, "a kernel for its rows");
    }

    /// Returns the words from the first columns of a panel to the others. Vectors of a whole half read whole lines, which
    /// makes the number known to the compiler.
    #[inline(always)]
    pub(super) fn half_offset<V: Simd>(&self) -> usize {
        if V::U32_LANES < BLOCK {
            return self.panel.half;
        }
        assert_eq!(self.panel.half, BLOCK, "a panel of whole lines");
        BLOCK
    }
}
