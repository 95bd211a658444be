//! Loops around the kernel: blocking of a product for the caches and for threads.
//!
//! A task has some rows and some columns. It processes some columns at a time, and splits sums into pieces of at most
//! [`MOST_WORDS`], so that the panels of a piece stay in a cache while all rows of the task pass, one or several tiles
//! at a time, as the caches of a path's processors demand. With few tiles, each panel serves all of them before the next
//! panel is read. With many rows, small tasks share blocks of panels, see [`blocks`]. The blocking of rows and columns
//! never changes an element's sum; the pieces of a sum depend on its length alone.
#![allow(unsafe_code)]

mod blocks;
mod out;
mod view;

use std::{cell::RefCell, ops::Range};

use rayon::prelude::*;

use super::element::Element;
use super::kernel::TileKernel;
use super::layout::{PackedPanels, Panels};
use super::matrix::{GAP, MOST_WORDS, Matrix};
use super::part::{MOST_ROWS, OutputRows, Then, TileSums};
use super::path::ProductPath;
use super::prefetch::Ahead;
use super::tiles::{BLOCK, PANEL, Panel, PanelLine, Tile};
use crate::par;
pub(super) use out::ProductOutput;
use view::View;

/// Tiles that are packed at once at most, so that each panel is read once for all of them. With few rows, panels come
/// from a far cache. With more rows, the path decides ([`ProductPath::tiles_at_once`]).
const FEW_TILES: usize = 8;
/// Rows that repay packing the columns of a task, where threads suffice.
const LEAST_ROWS: usize = 256;
/// Multiplications of words that are worth a task of their own.
const GRAIN: usize = 1 << 19;
/// Rows that a word counts as at least, because with fewer it takes longer to read than to multiply: a task then reads at least
/// 512 KiB of the right side, which is worth waking a thread.
const READ_ROWS: usize = 4;
/// Tiles up to which rows are few: tasks have all rows, and some panels.
const FEW_ROW_TILES: usize = 4;
/// Tasks for each thread, where there is enough work; the last tasks balance the load.
const TASKS: usize = 4;

/// A product `out (+)= a · b`.
pub(super) struct MatrixProduct<'a, E> {
    pub(super) a: Matrix<'a, E>,
    pub(super) b: Panels<'a, E>,
    pub(super) out: ProductOutput<'a>,
    pub(super) then: Then,
    pub(super) path: ProductPath,
}

/// Returns one of `across` parts of some columns, each of whole panels.
fn part_of_columns(columns: &Range<usize>, part: usize, across: usize) -> Range<usize> {
    let panels = columns.len().div_ceil(PANEL);
    let [start, end] = [part, part + 1].map(|part| part * panels / across * PANEL);
    columns.end.min(columns.start + start)..columns.end.min(columns.start + end)
}

/// Buffers for one tile and the panels of one piece. Each thread keeps its own.
#[derive(Default)]
struct TaskScratch {
    tile: Vec<u32>,
    panels: Vec<PanelLine>,
}

thread_local! {
    static SCRATCH: RefCell<TaskScratch> = RefCell::default();
}

impl<E: Element> MatrixProduct<'_, E> {
    /// Computes the product in the current pool.
    pub(super) fn compute_product(&self) {
        let (m, n) = (self.a.indices, self.b.columns());
        if m == 0 || n == 0 {
            return;
        }
        match self.block_sizes() {
            Some(blocks) => self.run_blocks(&blocks),
            None => self.run_tasks(),
        }
    }

    /// Computes the product task by task.
    fn run_tasks(&self) {
        let (m, n) = (self.a.indices, self.b.columns());
        let (rows, across) = self.cut_tasks();
        match m.div_ceil(rows) * across {
            1 => self.compute_task(0..m, 0..n),
            tasks => (0..tasks).into_par_iter().with_max_len(1).for_each(|i| {
                let (row, part) = (i / across * rows, i % across);
                self.compute_task(row..m.min(row + rows), part_of_columns(&(0..n), part, across));
            }),
        }
    }

    /// Returns the rows of a task and the number of parts of the columns. Columns are split before rows, because each
    /// task packs its own columns. A task has at least enough columns to repay reading the rows and, if every thread has
    /// a task, enough rows to repay packing or reading the columns.
    fn cut_tasks(&self) -> (usize, usize) {
        let (m, n, panels) = (self.a.indices, self.b.columns(), self.panel_count());
        let tasks = self.count_tasks(panels);
        // Tiles are packed once for each part of the columns.
        let packs_rows = m >= n && !self.a.has_tiles_in_place();
        let least_panels = if self.has_few_rows() {
            1
        } else if packs_rows {
            self.path.panels_at_once()
        } else {
            8
        };
        let across = tasks.min(panels.div_ceil(least_panels));
        let enough = m.div_ceil(LEAST_ROWS).max(par::thread_count().div_ceil(across));
        let down =
            tasks.div_ceil(across).min(enough).min(m.div_ceil(self.path.max_tile_rows::<E>()));
        let rows = m.div_ceil(down).next_multiple_of(self.path.max_tile_rows::<E>());
        (rows, across)
    }

    /// Returns the number of panels of its columns.
    fn panel_count(&self) -> usize {
        self.b.columns().div_ceil(PANEL)
    }

    /// Returns true if a task has all rows.
    fn has_few_rows(&self) -> bool {
        self.a.indices <= FEW_ROW_TILES * self.path.max_tile_rows::<E>()
    }

    /// Returns the number of tasks that the work with so many panels is worth. With few rows, every thread gets as many.
    fn count_tasks(&self, panels: usize) -> usize {
        let threads = par::thread_count();
        if threads == 1 {
            return 1;
        }
        let rows = self.a.indices.max(READ_ROWS);
        let tasks = rows * panels * PANEL * self.a.words() / GRAIN;
        match tasks.clamp(1, TASKS * threads) {
            tasks if tasks > threads && self.has_few_rows() => tasks / threads * threads,
            tasks => tasks,
        }
    }

    /// Computes some panels of the columns of all rows, if there are any.
    fn compute_panels(&self, panels: Range<usize>) {
        let n = self.b.columns();
        let [start, end] = [panels.start, panels.end].map(|panel| n.min(panel * PANEL));
        if start < end {
            self.compute_task(0..self.a.indices, start..end);
        }
    }

    /// Returns the number of columns whose panels are packed at once, for the longest piece of a sum.
    fn columns_at_once(&self) -> usize {
        let words = self.a.words().clamp(1, MOST_WORDS);
        self.path.panels_at_once() * PANEL * MOST_WORDS / words / PANEL * PANEL
    }

    /// Computes some rows and columns of the product.
    pub(super) fn compute_task(&self, rows: Range<usize>, columns: Range<usize>) {
        let mut kernel = TileKernel::of(self.path);
        SCRATCH.with_borrow_mut(|TaskScratch { tile, panels }| {
            let most = self.columns_at_once();
            for start in columns.clone().step_by(most) {
                let columns = start..columns.end.min(start + most);
                if self.a.words() == 0 && self.then == Then::Set {
                    rows.clone().for_each(|row| {
                        // SAFETY: rows and columns of different tasks are disjoint.
                        unsafe { self.out.row_columns(row, columns.clone()) }.fill(0.0);
                    });
                }
                for words in split_pieces(self.a.words()) {
                    let panels = self.view_panels(rows.len(), columns.clone(), words, panels);
                    self.compute_piece(&mut kernel, &rows, &panels, tile);
                }
            }
        });
    }

    /// Returns the panels of some columns and words: in place, or packed into `scratch` if `rows` repay it.
    fn view_panels<'s>(
        &'s self,
        rows: usize,
        columns: Range<usize>,
        words: Range<usize>,
        scratch: &'s mut Vec<PanelLine>,
    ) -> View<'s, E> {
        let depth = words.len();
        let matrix = match &self.b {
            Panels::Of(matrix) => matrix,
            Panels::Packed(weight) => {
                let (packed, path) = (weight.clone(), self.path);
                return View { columns, words, in_place: None, packed, prefetches: true, path };
            }
        };
        let in_place = (rows <= self.path.in_place_rows::<E>() && matrix.has_panels_in_place())
            .then_some(matrix);
        let skipped = if in_place.is_some() { columns.len() / PANEL * PANEL } else { 0 };
        let starts = (columns.start + skipped..columns.end).step_by(PANEL);
        if scratch.len() < starts.len() * depth {
            scratch.resize(starts.len() * depth, PanelLine::default());
        }
        for (start, out) in starts.zip(scratch.chunks_exact_mut(depth)) {
            let columns = start..columns.end.min(start + PANEL);
            matrix.pack_panel(columns, words.clone(), out, self.path);
        }
        let packed = columns.start + skipped..columns.end;
        let packed = PackedPanels { lines: scratch, columns: packed, words: words.clone() };
        View { columns, words, in_place, packed, prefetches: false, path: self.path }
    }

    /// Computes one piece of the sums of some rows and columns.
    fn compute_piece(
        &self,
        kernel: &mut TileKernel,
        rows: &Range<usize>,
        panels: &View<'_, E>,
        scratch: &mut Vec<u32>,
    ) {
        let (columns, words) = (&panels.columns, &panels.words);
        let then = if words.start == 0 { self.then } else { Then::Add };
        // Tiles of sizes as equal as possible.
        let tiles = rows.len().div_ceil(self.path.max_tile_rows::<E>());
        let size = rows.len().div_ceil(tiles);
        let at_once = match tiles {
            _ if tiles <= FEW_TILES => size * tiles,
            _ => {
                size * self.path.tiles_at_once(self.a.has_tiles_together(self.path)).min(FEW_TILES)
            }
        };
        let len = words.len() * self.path.tile_words::<E>();
        let room =
            (self.path.max_tile_rows::<E>().max(BLOCK) + 1) * (len + GAP).next_multiple_of(BLOCK);
        let scratch = aligned_words(scratch, room * at_once.div_ceil(size));
        let (first, loops) =
            (rows.start, at_once.div_ceil(size) * self.path.kernel_loops::<E>(size));
        for start in rows.clone().step_by(at_once) {
            let next = rows.end.min(start + at_once)..rows.end.min(start + 2 * at_once);
            let rows = start..next.start;
            let mut tiles = [Tile::default(); FEW_TILES];
            let place = (&mut *scratch, room);
            self.a.pack_tiles(rows.clone(), size, words.clone(), place, self.path, &mut tiles);
            let panel_starts = columns.clone().step_by(PANEL);
            let parts = panel_starts.len();
            for (part, column) in panel_starts.enumerate() {
                self.a.prefetch_part(&next, words, part, parts);
                let panel = panels.panel_at(column);
                // Later tiles find the panels in the cache.
                let mut ahead = if start == first {
                    panels.prefetch_after(column, loops)
                } else {
                    Ahead::none()
                };
                for (tile, start) in tiles.iter().zip(rows.clone().step_by(size)) {
                    let rows = start..rows.end.min(start + size);
                    self.multiply_panel(kernel, (*tile, rows), (panel, column), &mut ahead, then);
                }
            }
        }
    }

    /// Multiplies a tile and the panel that begins at a column.
    fn multiply_panel(
        &self,
        kernel: &mut TileKernel,
        (tile, rows): (Tile<'_>, Range<usize>),
        (panel, column): (Panel<'_>, usize),
        ahead: &mut Ahead,
        then: Then,
    ) {
        self.out.prefetch_output(&rows, column);
        let columns = column..self.out.columns().min(column + PANEL);
        if columns.len() == PANEL {
            // SAFETY: rows and columns of different tasks are disjoint.
            let out = unsafe { self.out.panel_columns(rows, column) };
            return kernel.multiply_tile::<E>(tile, panel, ahead, out, then);
        }
        let mut sums: TileSums = [[0.0; PANEL]; MOST_ROWS];
        let places = OutputRows::from_sums(&mut sums, rows.len());
        kernel.multiply_tile::<E>(tile, panel, ahead, places, Then::Set);
        for (row, sums) in rows.zip(&sums) {
            // SAFETY: rows and columns of different tasks are disjoint.
            let out = unsafe { self.out.row_columns(row, columns.clone()) };
            then.store_sums(&sums[..columns.len()], out);
        }
    }
}

/// Computes products with the same left side. If it has few rows, threads start once for all products: they get equal shares
/// of the panels of all right sides.
pub(super) fn compute_products<E: Element>(products: &[MatrixProduct<'_, E>]) {
    let few = products.first().filter(|first| first.has_few_rows() && first.a.indices > 0);
    let Some(first) = few else { return products.iter().for_each(MatrixProduct::compute_product) };
    let panels: usize = products.iter().map(MatrixProduct::panel_count).sum();
    let shares = first.count_tasks(panels).clamp(1, panels.max(1));
    match shares {
        1 => compute_share(products, 0..panels),
        _ => (0..shares).into_par_iter().with_max_len(1).for_each(|share| {
            compute_share(products, share * panels / shares..(share + 1) * panels / shares);
        }),
    }
}

/// Computes some of the panels of all products, which are counted one product after the other.
fn compute_share<E: Element>(products: &[MatrixProduct<'_, E>], share: Range<usize>) {
    let mut before = 0;
    for product in products {
        let count = product.panel_count();
        let own = |panel: usize| panel.saturating_sub(before).min(count);
        product.compute_panels(own(share.start)..own(share.end));
        before += count;
    }
}

/// Splits a sum into pieces, as equal as steps allow.
fn split_pieces(words: usize) -> impl Iterator<Item = Range<usize>> {
    let steps = words.div_ceil(BLOCK);
    let size = steps.div_ceil(words.div_ceil(MOST_WORDS).max(1)).max(1) * BLOCK;
    (0..words).step_by(size).map(move |start| start..words.min(start + size))
}

/// Returns the first `len` words of `scratch` from the start of a cache line on.
fn aligned_words(scratch: &mut Vec<u32>, len: usize) -> &mut [u32] {
    if scratch.len() < len + BLOCK {
        scratch.resize(len + BLOCK, 0);
    }
    let start = scratch.as_ptr().align_offset(64).min(BLOCK);
    &mut scratch[start..start + len]
}

/// Packs all panels of a matrix, `[panels, words, PANEL]`.
pub(super) fn pack_panels<E: Element>(
    matrix: &Matrix<'_, E>,
    lines: &mut [PanelLine],
    path: ProductPath,
) {
    let words = matrix.words();
    if words == 0 {
        return;
    }
    lines.par_chunks_exact_mut(words).enumerate().for_each(|(panel, out)| {
        let start = panel * PANEL;
        matrix.pack_panel(start..matrix.indices.min(start + PANEL), 0..words, out, path);
    });
}

#[cfg(test)]
mod tests {
    use super::super::element::F32;
    use super::super::matrix::MemoryOrder;
    use super::*;
    use crate::testing::threads;

    /// Returns the number of tasks of `x Wᵀ` with `m` rows on so many threads.
    fn tasks(m: usize, [n, k]: [usize; 2], count: usize) -> usize {
        let (x, w, mut out) = (vec![0.0; m * k], vec![0.0; n * k], vec![0.0; m * n]);
        let a = Matrix::<F32>::new(&x, m, k, MemoryOrder::Terms);
        let b = Panels::Of(Matrix::new(&w, n, k, MemoryOrder::Terms));
        let (out, path) = (ProductOutput::new(&mut out, n), ProductPath::current::<F32>());
        let product = MatrixProduct { a, b, out, then: Then::Set, path };
        threads(count, || product.count_tasks(product.panel_count()))
    }

    #[test]
    fn a_product_of_few_rows_is_cut_by_the_bytes_that_it_reads_into_equal_shares_for_all_threads() {
        // 2 MiB of weights: four tasks of 512 KiB.
        assert_eq!(
            [1, 2, 3, 4, 16, 64].map(|count| tasks(1, [512, 1024], count)),
            [1, 4, 3, 4, 4, 4]
        );
        // As many as the rows of a tile repay, and as few as there is work for.
        assert_eq!([tasks(8, [512, 1024], 3), tasks(32, [512, 1024], 4)], [6, 16]);
        assert_eq!(
            [tasks(1, [64, 512], 2), tasks(1, [224, 512], 2), tasks(1, [512, 512], 2)],
            [1, 1, 2]
        );
    }
}
