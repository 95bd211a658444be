//! Instructions of a product, chosen at run time for the path in use, see [`simd`].

#[cfg(target_arch = "x86_64")]
use pulp::x86::V3;
use pulp::{Arch, Scalar};

use super::element::Element;
use super::tiles::{BLOCK, PANEL};
use super::vectors::VectorWork;
#[cfg(target_arch = "x86_64")]
use super::vectors::Vectors;
use crate::simd;

/// Instructions of a product.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProductPath {
    /// Vectors of everything around the inner loop.
    vectors: Arch,
    /// Instructions of the inner loop.
    pub(super) inner: InnerLoop,
}

/// Instructions that multiply a tile and a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InnerLoop {
    /// Fused multiply-adds of `f32` vectors. Terms of 16 bits are widened.
    Vectors,
    /// AVX-512's dot product of `bf16` pairs.
    #[cfg(target_arch = "x86_64")]
    Dot,
    /// AMX tiles of `bf16` pairs.
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// Tiles with the blocking of [`InnerLoop::Amx`], on every processor.
    #[cfg(test)]
    Tiles,
}

impl ProductPath {
    /// Returns the instructions of the path in use.
    pub(super) fn current<E: Element>() -> Self {
        Self::for_path::<E>(simd::current_path())
    }

    /// Returns the instructions of a path that this processor has.
    pub(super) fn for_path<E: Element>(path: simd::Path) -> Self {
        let inner = match path {
            #[cfg(target_arch = "x86_64")]
            simd::Path::Amx if has_pairs::<E>() => InnerLoop::Amx,
            #[cfg(target_arch = "x86_64")]
            simd::Path::Avx512 if has_pairs::<E>() && super::x86::has_dot() => InnerLoop::Dot,
            _ => InnerLoop::Vectors,
        };
        Self { vectors: path.compiled_arch(), inner }
    }

    /// Returns the same vectors with another inner loop.
    #[cfg(test)]
    pub(super) fn with(self, inner: InnerLoop) -> Self {
        Self { inner, ..self }
    }

    /// Returns the maximum number of rows of a tile: as many as the registers hold at once, or two or three times that.
    /// Widened rows are packed in each use, [`BLOCK`] at a time: fifteen rows leave one of them unused.
    pub(super) fn max_tile_rows<E: Element>(self) -> usize {
        match self.vectors {
            _ if self.reads_rows() => 32,
            #[cfg(target_arch = "x86_64")]
            Arch::V3(_) if E::TERMS == 2 => 15,
            _ => 12,
        }
    }

    /// Returns the number of tiles that are packed at once and multiplied with a panel before the next panel is read. Tiles
    /// that lie side by side in memory are packed together. Processors with AVX2 alone have level-2 caches of 256 or 512 KiB,
    /// which do not hold the panels of a piece and the rows that pass; they hold these tiles and a panel.
    pub(super) fn tiles_at_once(self, side_by_side: bool) -> usize {
        match self.vectors {
            #[cfg(target_arch = "x86_64")]
            Arch::V3(_) if side_by_side => 8,
            #[cfg(target_arch = "x86_64")]
            Arch::V3(_) => 4,
            _ if side_by_side => 4,
            _ => 1,
        }
    }

    /// Returns the number of tiles whose rows are a task where tasks share blocks of the right side; `None` if they share
    /// none. Measured on processors with AVX2 alone.
    pub(super) fn tiles_of_blocks(self) -> Option<usize> {
        match self.vectors {
            #[cfg(target_arch = "x86_64")]
            Arch::V3(_) => Some(self.tiles_at_once(false)),
            _ => None,
        }
    }

    /// Returns the number of panels of the longest piece that are packed at once. Half a megabyte of them fits a
    /// level-2 cache. Where they are read once for several tiles, the next cache is near enough, and twice as many save
    /// half of the packing of tiles.
    pub(super) fn panels_at_once(self) -> usize {
        if self.tiles_at_once(false) > 1 { 16 } else { 8 }
    }

    /// Returns the number of rows up to which a right side with consecutive columns is not worth packing. Its lines are
    /// far apart, often by a power of two, so that they share few sets of a level-1 cache: each loop over them reads
    /// them from the next cache.
    pub(super) fn in_place_rows<E: Element>(self) -> usize {
        if self.reads_halves() { self.max_tile_rows::<E>() } else { 128 }
    }

    /// Returns the number of loops over the words of a panel that a kernel of some rows takes.
    pub(super) fn kernel_loops<E: Element>(self, rows: usize) -> usize {
        #[cfg(not(target_arch = "x86_64"))]
        let _ = rows;
        match self.vectors {
            #[cfg(target_arch = "x86_64")]
            Arch::V3(_) if rows > 3 => 2 * rows.div_ceil(V3::register_rows::<E>()),
            _ => 1,
        }
    }

    /// Returns true if kernels of many rows read half of a panel's columns at a time.
    fn reads_halves(self) -> bool {
        match self.vectors {
            #[cfg(target_arch = "x86_64")]
            Arch::V4(_) => false,
            _ => self.inner == InnerLoop::Vectors,
        }
    }

    /// Returns the words of a packed panel from one word of a column to its next, and from the first columns to the
    /// others, if it has `depth` words of each.
    pub(super) fn packed_panel(self, depth: usize) -> (usize, usize) {
        if self.reads_halves() { (BLOCK, depth * BLOCK) } else { (PANEL, BLOCK) }
    }

    /// Returns true if the words of a tile's row are read together.
    pub(super) fn reads_rows(self) -> bool {
        match self.inner {
            #[cfg(target_arch = "x86_64")]
            InnerLoop::Amx => true,
            #[cfg(test)]
            InnerLoop::Tiles => true,
            _ => false,
        }
    }

    /// Returns the number of words of a tile for each word of a sum. A tile of widened terms stores each as an `f32`.
    pub(super) fn tile_words<E: Element>(self) -> usize {
        if self.inner == InnerLoop::Vectors { E::TERMS } else { 1 }
    }

    /// Runs `work` compiled for the vectors of the path.
    #[inline(always)]
    pub(super) fn run<W: VectorWork>(self, work: W) -> W::Output {
        match self.vectors {
            #[cfg(target_arch = "x86_64")]
            Arch::V4(simd) => simd.vectorize(
                #[inline(always)]
                || work.run_with_vectors(simd),
            ),
            #[cfg(target_arch = "x86_64")]
            Arch::V3(simd) => super::x86::run_on_avx2(simd, work),
            #[cfg(target_arch = "aarch64")]
            Arch::Neon(simd) => pulp::Simd::vectorize(
                simd,
                #[inline(always)]
                || work.run_with_vectors(simd),
            ),
            _ => work.run_with_vectors(Scalar),
        }
    }
}

/// Returns true if some processors have instructions that multiply and add words of two terms: those of `bf16`.
#[cfg(target_arch = "x86_64")]
fn has_pairs<E: Element>() -> bool {
    E::TERMS == 2 && !E::SEPARATE
}
