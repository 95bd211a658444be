//! Products of many rows on several threads, whose tasks share the right side.
//!
//! The right side is split into blocks: some panels, of some pieces in succession (`nc` columns and `kc` terms of the
//! GotoBLAS algorithm). The threads pack a block together, unless it is part of a packed weight. Then each task multiplies
//! some rows (`mc`) with the block, or with some of its panels. So the right side is packed once, a block stays in the
//! level-3 cache, and many small tasks balance the load.

use std::{cell::RefCell, ops::Range};

use rayon::prelude::*;

use super::super::element::Element;
use super::super::kernel::TileKernel;
use super::super::layout::{PackedPanels, Panels};
use super::super::tiles::{PANEL, PanelLine};
use super::view::View;
use super::{
    GRAIN, LEAST_ROWS, MatrixProduct, SCRATCH, TASKS, TaskScratch, part_of_columns, split_pieces,
};
use crate::par;

/// Bytes of a block at most. The level-3 cache of a small processor holds them beside the rows and the output of each
/// thread.
const SHARED_BYTES: usize = 2 << 20;
/// Panels of a block for each part of its columns. A task packs its rows anew for each part.
const PART_PANELS: usize = 8;

thread_local! {
    /// Buffer for blocks. The thread that starts a product keeps it.
    static SHARED: RefCell<Vec<PanelLine>> = RefCell::default();
}

/// Sizes of a block, of which the last may be smaller, and rows of a task.
pub(super) struct SharedBlocks {
    panels: usize,
    pieces_at_once: usize,
    rows: usize,
}

impl<E: Element> MatrixProduct<'_, E> {
    /// Returns the sizes of shared blocks if sharing pays: with many rows, and with tasks of enough work for every thread in
    /// each block. A thread that works alone starts no tasks.
    pub(super) fn block_sizes(&self) -> Option<SharedBlocks> {
        let (m, threads) = (self.a.indices, par::thread_count());
        let tiles = self.path.tiles_of_blocks()?;
        // The first piece is the longest.
        let mut pieces = split_pieces(self.a.words());
        let words = pieces.next()?.len();
        let most = SHARED_BYTES / size_of::<PanelLine>() / words;
        let all = self.b.columns().div_ceil(PANEL);
        let panels = all.div_ceil(all.div_ceil(most));
        let pieces_at_once = (1 + pieces.count()).min(most / panels);
        let work = panels * PANEL * pieces_at_once * words;
        let rows = GRAIN.div_ceil(work).next_multiple_of(tiles * self.path.max_tile_rows::<E>());
        let tasks = m.div_ceil(rows) * panels.div_ceil(PART_PANELS);
        let least = TASKS * threads;
        let enough = threads > 1 && m >= LEAST_ROWS && tasks >= least && m * work >= GRAIN * least;
        enough.then_some(SharedBlocks { panels, pieces_at_once, rows })
    }

    /// Computes the product block by block.
    pub(super) fn run_blocks(&self, blocks: &SharedBlocks) {
        let (n, all) = (self.b.columns(), Vec::from_iter(split_pieces(self.a.words())));
        // Taken, not borrowed: while this thread waits, it may run a job that starts another product.
        let mut scratch = SHARED.take();
        for start in (0..n).step_by(blocks.panels * PANEL) {
            let columns = start..n.min(start + blocks.panels * PANEL);
            for pieces in all.chunks(blocks.pieces_at_once) {
                let block = self.packed_block(&columns, pieces, &mut scratch);
                self.run_block(blocks, &columns, pieces, &block);
            }
        }
        SHARED.set(scratch);
    }

    /// Returns a block: packed into `scratch`, or the whole of a packed weight.
    fn packed_block<'s>(
        &'s self,
        columns: &Range<usize>,
        pieces: &[Range<usize>],
        scratch: &'s mut Vec<PanelLine>,
    ) -> PackedPanels<'s> {
        let matrix = match &self.b {
            Panels::Packed(weight) => return weight.clone(),
            Panels::Of(matrix) => matrix,
        };
        let words = pieces[0].start..pieces[pieces.len() - 1].end;
        let len = columns.len().div_ceil(PANEL) * words.len();
        if scratch.len() < len {
            scratch.resize(len, PanelLine::default());
        }
        let lines = &mut scratch[..len];
        let panels = lines.par_chunks_exact_mut(words.len()).with_max_len(1);
        panels.enumerate().for_each(|(panel, out)| {
            let start = columns.start + panel * PANEL;
            let columns = start..columns.end.min(start + PANEL);
            matrix.pack_panel(columns, words.clone(), out, self.path);
        });
        PackedPanels { lines, columns: columns.clone(), words }
    }

    /// Multiplies all rows with a block, in tasks of some rows. Where these are too few for the threads, columns are split,
    /// too.
    fn run_block(
        &self,
        blocks: &SharedBlocks,
        columns: &Range<usize>,
        pieces: &[Range<usize>],
        block: &PackedPanels<'_>,
    ) {
        let (m, panels) = (self.a.indices, columns.len().div_ceil(PANEL));
        let down = m.div_ceil(blocks.rows);
        let across =
            (TASKS * par::thread_count()).div_ceil(down).clamp(1, panels.div_ceil(PART_PANELS));
        (0..down * across).into_par_iter().with_max_len(1).for_each(|i| {
            let (row, part) = (i / across * blocks.rows, i % across);
            let rows = row..m.min(row + blocks.rows);
            let mut kernel = TileKernel::of(self.path);
            SCRATCH.with_borrow_mut(|TaskScratch { tile, .. }| {
                for words in pieces {
                    let view = View {
                        columns: part_of_columns(columns, part, across),
                        words: words.clone(),
                        in_place: None,
                        packed: block.clone(),
                        // A block is in the shared cache: packing it, or the first tasks, brought it there.
                        prefetches: false,
                        path: self.path,
                    };
                    self.compute_piece(&mut kernel, &rows, &view, tile);
                }
            });
        });
    }
}
