//! Panels of a piece, as a task reads them.

use std::ops::Range;

use super::super::kernel::Ahead;
use super::super::layout::{Element, Matrix, PANEL, Packed, Panel};
use super::super::path::Path;

/// Panels of some columns and of the words of a piece.
pub(super) struct View<'a, E> {
    pub(super) columns: Range<usize>,
    pub(super) words: Range<usize>,
    /// Matrix whose panels are read in place, where all columns of a panel exist.
    pub(super) in_place: Option<&'a Matrix<'a, E>>,
    /// Panels that are not read in place. They may have more columns and words than the view.
    pub(super) packed: Packed<'a>,
    /// True if packed panels are prefetched, because they may not be in a cache.
    pub(super) prefetches: bool,
    pub(super) path: Path,
}

impl<E: Element> View<'_, E> {
    /// Returns the panel that begins at a column.
    pub(super) fn panel(&self, column: usize) -> Panel<'_> {
        if let Some(matrix) = self.in_place
            && column + PANEL <= self.columns.end
        {
            return matrix.panel_in_place(column, self.words.clone());
        }
        let Packed { lines, columns, words } = &self.packed;
        let lines = &lines[(column - columns.start) / PANEL * words.len()..][..words.len()];
        let words = self.words.start - words.start..self.words.end - words.start;
        Panel::packed(lines, words, self.path)
    }

    /// Returns the prefetch of the panel that is read after the one that begins at a column, in about `loops` loops.
    pub(super) fn ahead(&self, column: usize, loops: usize) -> Ahead {
        let panel = self.panel(column);
        let next = column + PANEL;
        let start = match self.in_place {
            Some(_) => panel.words.as_ptr().wrapping_add(PANEL),
            None if !self.prefetches => return Ahead::none(),
            None if next < self.columns.end => self.address(next, self.words.start),
            None if self.words.end < self.packed.words.end => {
                self.address(self.columns.start, self.words.end)
            }
            None => self.address(next, self.packed.words.start),
        };
        Ahead::new(start, panel, loops)
    }

    /// Returns the address of a word of a packed panel, which may lie outside of the panels.
    fn address(&self, column: usize, word: usize) -> *const u32 {
        let Packed { lines, columns, words } = &self.packed;
        let panel = (column - columns.start) / PANEL * words.len() * PANEL;
        let word = (word - words.start) * self.path.packed_panel(words.len()).0;
        lines.as_ptr().cast::<u32>().wrapping_add(panel + word)
    }
}
