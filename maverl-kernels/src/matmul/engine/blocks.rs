//! Products of many rows on several threads, whose tasks share the right side.
//!
//! The right side is split into blocks of some columns and pieces. The threads pack a block together, unless it is part of
//! a packed weight. Then each task multiplies a few tiles with the whole block. So a block is packed once and stays in a
//! cache of all threads, rows are packed once for each block, and many small tasks balance the load.

use std::{cell::RefCell, ops::Range};

use rayon::prelude::*;

use super::super::kernel::Kernel;
use super::super::layout::{Element, Line, PANEL, Packed, Panels};
use super::view::View;
use super::{GRAIN, LEAST_ROWS, Product, SCRATCH, Scratch, TASKS, pieces};
use crate::par;

/// Bytes of a block. The level-3 cache of a small processor holds them beside the rows and the output of each thread.
const BLOCK_BYTES: usize = 2 << 20;
/// Panels of a task at least, if a block has them. A task packs its rows anew for each part of a block.
const LEAST_PANELS: usize = 8;

thread_local! {
    /// Block that the tasks of a product share. The thread that starts the product keeps it.
    static SHARED: RefCell<Vec<Line>> = RefCell::default();
}

/// Panels and pieces of a block, and rows of the tasks that share it.
pub(super) struct Blocks {
    panels: usize,
    pieces: usize,
    rows: usize,
}

impl<E: Element> Product<'_, E> {
    /// Returns the blocks of the product if sharing them pays: with many rows, and enough work for several threads. A
    /// thread that works alone starts no tasks.
    pub(super) fn blocks(&self) -> Option<Blocks> {
        let (m, threads) = (self.a.indices, par::threads());
        let panels = self.b.columns().div_ceil(PANEL);
        let work = m * panels * PANEL * self.a.words();
        let enough = threads > 1 && m >= LEAST_ROWS && work >= GRAIN * TASKS * threads;
        let tiles = self.path.tiles_of_blocks().filter(|_| enough)?;
        // The first piece is the longest.
        let mut each = pieces(self.a.words());
        let words = each.next()?.len();
        let most = BLOCK_BYTES / size_of::<Line>() / words;
        let panels = panels.min(most.max(1));
        let pieces = (1 + each.count()).min((most / panels).max(1));
        let rows = GRAIN.div_ceil(panels * PANEL * pieces * words);
        Some(Blocks { panels, pieces, rows: rows.next_multiple_of(tiles * self.path.rows::<E>()) })
    }

    /// Computes the product block by block.
    pub(super) fn run_blocks(&self, blocks: &Blocks) {
        let (n, pieces) = (self.b.columns(), Vec::from_iter(pieces(self.a.words())));
        // Taken: while this thread waits for tasks, it may start another product.
        let mut scratch = SHARED.take();
        for start in (0..n).step_by(blocks.panels * PANEL) {
            let columns = start..n.min(start + blocks.panels * PANEL);
            for pieces in pieces.chunks(blocks.pieces) {
                let block = self.block(&columns, pieces, &mut scratch);
                self.run_block(blocks, &columns, pieces, &block);
            }
        }
        SHARED.set(scratch);
    }

    /// Returns a block: packed into `scratch`, or the whole of a packed weight.
    fn block<'s>(
        &'s self,
        columns: &Range<usize>,
        pieces: &[Range<usize>],
        scratch: &'s mut Vec<Line>,
    ) -> Packed<'s> {
        let matrix = match &self.b {
            Panels::Packed(weight) => return weight.clone(),
            Panels::Of(matrix) => matrix,
        };
        let words = pieces[0].start..pieces[pieces.len() - 1].end;
        let len = columns.len().div_ceil(PANEL) * words.len();
        if scratch.len() < len {
            scratch.resize(len, Line::default());
        }
        let lines = &mut scratch[..len];
        lines.par_chunks_exact_mut(words.len()).enumerate().for_each(|(panel, out)| {
            let start = columns.start + panel * PANEL;
            let columns = start..columns.end.min(start + PANEL);
            matrix.panel(columns, words.clone(), out, self.path);
        });
        Packed { lines, columns: columns.clone(), words }
    }

    /// Multiplies all rows with a block, in tasks of some rows. With few of them, columns are split, too.
    fn run_block(
        &self,
        blocks: &Blocks,
        columns: &Range<usize>,
        pieces: &[Range<usize>],
        block: &Packed<'_>,
    ) {
        let (m, panels) = (self.a.indices, columns.len().div_ceil(PANEL));
        let down = m.div_ceil(blocks.rows);
        let across =
            (TASKS * par::threads()).div_ceil(down).clamp(1, panels.div_ceil(LEAST_PANELS));
        let column = |part: usize| columns.end.min(columns.start + part * panels / across * PANEL);
        (0..down * across).into_par_iter().with_max_len(1).for_each(|i| {
            let (row, part) = (i / across * blocks.rows, i % across);
            let rows = row..m.min(row + blocks.rows);
            let mut kernel = Kernel::of(self.path);
            SCRATCH.with_borrow_mut(|Scratch { tile, .. }| {
                for words in pieces {
                    let view = View {
                        columns: column(part)..column(part + 1),
                        words: words.clone(),
                        in_place: None,
                        packed: block.clone(),
                        // Other tasks have read the block, or packed it.
                        prefetches: false,
                        path: self.path,
                    };
                    self.piece(&mut kernel, &rows, &view, tile);
                }
            });
        });
    }
}
