//! Products of blocks in `f32` on the calling thread, for operations that multiply many blocks of one array.

use super::element::F32;
use super::engine::{MatrixProduct, ProductOutput};
use super::layout::{PackedPanels, Panels, panel_lines};
use super::matrix::{Matrix, MemoryOrder};
use super::part::Then;
use super::path::ProductPath;
use super::tiles::{PANEL, PanelLine};

/// One side of a block's product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockSide<'a> {
    data: &'a [f32],
    indices: usize,
    terms: usize,
    order: MemoryOrder,
}

impl<'a> BlockSide<'a> {
    /// Creates a side of rows of `terms`: `[indices, terms]`.
    pub(crate) fn from_rows(data: &'a [f32], terms: usize) -> Self {
        Self { data, indices: data.len() / terms, terms, order: MemoryOrder::Terms }
    }

    /// Creates a side of columns, one for each index: `[terms, indices]`.
    pub(crate) fn from_columns(data: &'a [f32], indices: usize) -> Self {
        Self { data, indices, terms: data.len() / indices, order: MemoryOrder::Indices }
    }

    fn matrix(self) -> Matrix<'a, F32> {
        Matrix::new(self.data, self.indices, self.terms, self.order)
    }
}

/// Right side of the products of a block, in the layout that products read.
#[derive(Debug, Default)]
pub(crate) struct BlockPanels {
    lines: Vec<PanelLine>,
    columns: usize,
    terms: usize,
}

impl BlockPanels {
    /// Packs a side into the same memory. Its indices become columns.
    pub(crate) fn pack_side(&mut self, side: BlockSide<'_>) {
        (self.columns, self.terms) = (side.indices, side.terms);
        let len = panel_lines::<F32>(side.indices, side.terms);
        if self.lines.len() < len {
            self.lines.resize(len, PanelLine::default());
        }
        let (matrix, path) = (side.matrix(), ProductPath::current::<F32>());
        let starts = (0..side.indices).step_by(PANEL);
        for (start, out) in starts.zip(self.lines.chunks_exact_mut(side.terms)) {
            let columns = start..side.indices.min(start + PANEL);
            matrix.pack_panel(columns, 0..side.terms, out, path);
        }
    }

    /// Overwrites `out` by the products of the first `m` rows of `a` with the first `n` columns. `out` has rows of `pitch`
    /// elements, at least `n`; those past `n` get any values up to a multiple of 32. `a` may have fewer terms than the columns.
    ///
    /// # Panics
    ///
    /// If a slice is too short for the shapes.
    pub(crate) fn set_products(
        &self,
        (a, m): (BlockSide<'_>, usize),
        n: usize,
        out: (&mut [f32], usize),
    ) {
        self.multiply(a, [m, n], out, Then::Set);
    }

    /// Adds to `out` what [`BlockPanels::set_products`] sets.
    ///
    /// # Panics
    ///
    /// If a slice is too short for the shapes.
    pub(crate) fn add_products(
        &self,
        (a, m): (BlockSide<'_>, usize),
        n: usize,
        out: (&mut [f32], usize),
    ) {
        self.multiply(a, [m, n], out, Then::Add);
    }

    fn multiply(
        &self,
        a: BlockSide<'_>,
        [m, n]: [usize; 2],
        (out, pitch): (&mut [f32], usize),
        then: Then,
    ) {
        let Self { lines, columns, terms } = self;
        assert!(m <= a.indices && n <= *columns && a.terms <= *terms, "a block of its sides");
        let lines = &lines[..panel_lines::<F32>(*columns, *terms)];
        let b = Panels::Packed(PackedPanels { lines, columns: 0..*columns, words: 0..*terms });
        let (out, path) = (ProductOutput::new(out, pitch), ProductPath::current::<F32>());
        MatrixProduct { a: a.matrix(), b, out, then, path }.compute_task(0..m, 0..n);
    }
}

#[cfg(test)]
mod tests {
    use crate::matmul::Precision;
    use crate::testing::{random, same_bits};

    use super::*;

    /// Returns `x [rows, columns]` with its columns as rows.
    fn transposed(x: &[f32], columns: usize) -> Vec<f32> {
        (0..columns).flat_map(|column| x.iter().skip(column).step_by(columns)).copied().collect()
    }

    #[test]
    fn products_of_a_block_have_the_bits_of_whole_products() {
        for (m, n, k) in [(96, 256, 64), (7, 40, 20), (1, 64, 256), (33, 96, 100)] {
            let (a, b) = (random(1, m * k), random(2, n * k));
            let mut want = vec![1.0; m * n];
            Precision::F32.add().nt(&a, &b, &mut want, m, n, k);
            let mut panels = BlockPanels::default();
            panels.pack_side(BlockSide::from_rows(&b, k));
            let mut got = vec![1.0; m * n];
            panels.add_products((BlockSide::from_rows(&a, k), m), n, (&mut got, n));
            same_bits(&got, &want);
            let (turned_a, turned_b) = (transposed(&a, k), transposed(&b, k));
            panels.pack_side(BlockSide::from_columns(&turned_b, n));
            Precision::F32.set().nt(&a, &b, &mut want, m, n, k);
            panels.set_products((BlockSide::from_columns(&turned_a, m), m), n, (&mut got, n));
            same_bits(&got, &want);
        }
    }
}
