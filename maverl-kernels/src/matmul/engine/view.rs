//! Panels of a piece, as a task reads them.

use std::ops::Range;

use super::super::element::Element;
use super::super::layout::PackedPanels;
use super::super::matrix::Matrix;
use super::super::path::ProductPath;
use super::super::prefetch::Ahead;
use super::super::tiles::{PANEL, Panel};

/// Panels of some columns and of the words of a piece.
pub(super) struct View<'a, E> {
    pub(super) columns: Range<usize>,
    pub(super) words: Range<usize>,
    /// Matrix whose panels are read in place, where all columns of a panel exist.
    pub(super) in_place: Option<&'a Matrix<'a, E>>,
    /// Panels that are not read in place. They may have more columns and words than the view.
    pub(super) packed: PackedPanels<'a>,
    /// True if packed panels are prefetched, because they may not be in a cache.
    pub(super) prefetches: bool,
    pub(super) path: ProductPath,
}

impl<E: Element> View<'_, E> {
    /// Returns the panel that begins at a column.
    pub(super) fn panel_at(&self, column: usize) -> Panel<'_> {
        if let Some(matrix) = self.in_place
            && column + PANEL <= self.columns.end
        {
            return matrix.panel_in_place(column, self.words.clone());
        }
        let PackedPanels { lines, columns, words } = &self.packed;
        let lines = &lines[(column - columns.start) / PANEL * words.len()..][..words.len()];
        let words = self.words.start - words.start..self.words.end - words.start;
        Panel::from_packed(lines, words, self.path.packed_panel(lines.len()))
    }

    /// Returns the prefetch of the panel that is read after the one that begins at a column, in about `loops` loops.
    pub(super) fn prefetch_after(&self, column: usize, loops: usize) -> Ahead {
        let panel = self.panel_at(column);
        let next = column + PANEL;
        let start = match self.in_place {
            Some(_) => panel.words.as_ptr().wrapping_add(PANEL),
            None if !self.prefetches => return Ahead::none(),
            None if next < self.columns.end => self.word_address(next, self.words.start),
            None if self.words.end < self.packed.words.end => {
                self.word_address(self.columns.start, self.words.end)
            }
            None => self.word_address(next, self.packed.words.start),
        };
        Ahead::new(start, panel, loops)
    }

    /// Returns the address of a word of a packed panel, which may lie outside of the panels.
    fn word_address(&self, column: usize, word: usize) -> *const u32 {
        let PackedPanels { lines, columns, words } = &self.packed;
        let panel = (column - columns.start) / PANEL * words.len() * PANEL;
        let word = (word - words.start) * self.path.packed_panel(words.len()).0;
        lines.as_ptr().cast::<u32>().wrapping_add(panel + word)
    }
}
