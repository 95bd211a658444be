//! The inner loop: a tile of the left side times a panel of the right.
#![allow(unsafe_code)]

use super::layout::{Element, PANEL, Panel, Tile};
use super::path::Path;
use crate::lanes::{self, LANES};

/// Rows of the largest tile.
pub(super) const MOST_ROWS: usize = 32;

/// The sums of a tile's rows with a panel's columns.
pub(super) type Sums = [[f32; PANEL]; MOST_ROWS];

/// A path as one thread uses it.
pub(super) enum Kernel {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Amx(super::amx::Tiles),
}

impl Kernel {
    /// Readies this thread for a path.
    pub(super) fn of(path: Path) -> Self {
        match path {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => Self::Avx512,
            #[cfg(target_arch = "x86_64")]
            Path::Amx => Self::Amx(super::amx::Tiles::enter()),
            _ => Self::Portable,
        }
    }

    /// Sets the first `rows` rows of `sums` to the product of `tile` and `panel`. AMX reads
    /// the tile up to a multiple of 16 rows, and sets as many.
    pub(super) fn multiply<E: Element>(
        &self,
        tile: Tile<'_>,
        panel: Panel<'_>,
        rows: usize,
        sums: &mut Sums,
    ) {
        match self {
            Self::Portable => lanes::dispatch(
                #[inline(always)]
                || portable::<E>(tile, panel, &mut sums[..rows]),
            ),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => super::x86::kernel::<E>(tile, panel, &mut sums[..rows]),
            #[cfg(target_arch = "x86_64")]
            Self::Amx(tiles) => {
                let rows = rows.next_multiple_of(16);
                super::amx::kernel(tiles, tile, panel, rows, sums);
            }
        }
    }
}

/// Six rows and half a panel at once: twelve sums of eight lanes are what AVX2 has registers for.
#[inline(always)]
pub(super) fn portable<E: Element>(tile: Tile<'_>, panel: Panel<'_>, sums: &mut [[f32; PANEL]]) {
    tile.check(sums.len(), panel.depth);
    for (i, sums) in sums.chunks_mut(6).enumerate() {
        let tile = Tile { words: &tile.words[6 * i * tile.row..], ..tile };
        for half in 0..2 {
            match sums.len() {
                1 => some_rows::<E, 1>(tile, panel, half, sums),
                2 => some_rows::<E, 2>(tile, panel, half, sums),
                3 => some_rows::<E, 3>(tile, panel, half, sums),
                4 => some_rows::<E, 4>(tile, panel, half, sums),
                5 => some_rows::<E, 5>(tile, panel, half, sums),
                _ => some_rows::<E, 6>(tile, panel, half, sums),
            }
        }
    }
}

#[inline(always)]
fn some_rows<E: Element, const R: usize>(
    tile: Tile<'_>,
    panel: Panel<'_>,
    half: usize,
    sums: &mut [[f32; PANEL]],
) {
    tile.check(R, panel.depth);
    let mut acc = [[0.0; LANES]; R];
    let lines = panel.words[half * LANES..].chunks(panel.stride);
    for (p, line) in lines.take(panel.depth).enumerate() {
        let b = &line.as_chunks::<LANES>().0[0];
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: `r < R` and `p < depth`, which the tile has.
            let a = unsafe { *tile.words.get_unchecked(r * tile.row + p * tile.word) };
            for (acc, &b) in acc.iter_mut().zip(b) {
                *acc = E::multiply_add(a, b, *acc);
            }
        }
    }
    for (sums, acc) in sums.iter_mut().zip(acc) {
        sums[half * LANES..][..LANES].copy_from_slice(&acc);
    }
}
