//! The inner loop: a tile of the left side times a panel of the right.
#![allow(unsafe_code)]

use super::layout::{Element, PANEL, Panel, Tile};
use super::path::Path;
use crate::lanes::{self, LANES};

/// Rows of the largest tile.
pub(super) const MOST_ROWS: usize = 32;

/// The sums of a tile's rows with a panel's columns.
pub(super) type Sums = [[f32; PANEL]; MOST_ROWS];

/// Where sums go: [`PANEL`] places for each row of a tile.
pub(super) type Places<'a> = [&'a mut [f32]];

/// What happens to the value that an output had.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Then {
    Set,
    Add,
}

impl Then {
    /// Puts sums where they belong.
    #[inline(always)]
    pub(super) fn put(self, sums: &[f32], out: &mut [f32]) {
        match self {
            Self::Set => out.copy_from_slice(sums),
            Self::Add => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
        }
    }
}

/// A path as one thread uses it.
pub(super) enum Kernel {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Amx(super::amx::Tiles, Box<Sums>),
}

impl Kernel {
    /// Readies this thread for a path.
    pub(super) fn of(path: Path) -> Self {
        match path {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => Self::Avx512,
            #[cfg(target_arch = "x86_64")]
            Path::Amx => Self::Amx(super::amx::Tiles::enter(), Box::new([[0.0; PANEL]; MOST_ROWS])),
            _ => Self::Portable,
        }
    }

    /// Puts the products of the rows of `tile` with `panel` into `out`, which has as many. AMX reads the tile up to a
    /// multiple of 16 rows.
    pub(super) fn multiply<E: Element>(
        &mut self,
        tile: Tile<'_>,
        panel: Panel<'_>,
        out: &mut Places<'_>,
        then: Then,
    ) {
        match self {
            Self::Portable => lanes::dispatch(
                #[inline(always)]
                || portable::<E>(tile, panel, out, then),
            ),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => super::x86::kernel::<E>(tile, panel, out, then),
            #[cfg(target_arch = "x86_64")]
            Self::Amx(tiles, sums) => {
                super::amx::kernel(tiles, tile, panel, out.len().next_multiple_of(16), sums);
                out.iter_mut().zip(&**sums).for_each(|(out, sums)| then.put(sums, out));
            }
        }
    }
}

/// Six rows and half a panel at once: twelve sums of eight lanes are what AVX2 has registers for.
#[inline(always)]
pub(super) fn portable<E: Element>(
    tile: Tile<'_>,
    panel: Panel<'_>,
    out: &mut Places<'_>,
    then: Then,
) {
    tile.check(out.len(), panel.depth);
    for (i, out) in out.chunks_mut(6).enumerate() {
        let tile = Tile { words: &tile.words[6 * i * tile.row..], ..tile };
        for half in 0..2 {
            match out.len() {
                1 => some_rows::<E, 1>(tile, panel, half, out, then),
                2 => some_rows::<E, 2>(tile, panel, half, out, then),
                3 => some_rows::<E, 3>(tile, panel, half, out, then),
                4 => some_rows::<E, 4>(tile, panel, half, out, then),
                5 => some_rows::<E, 5>(tile, panel, half, out, then),
                _ => some_rows::<E, 6>(tile, panel, half, out, then),
            }
        }
    }
}

#[inline(always)]
fn some_rows<E: Element, const R: usize>(
    tile: Tile<'_>,
    panel: Panel<'_>,
    half: usize,
    out: &mut Places<'_>,
    then: Then,
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
    for (out, acc) in out.iter_mut().zip(&acc) {
        then.put(acc, &mut out[half * LANES..][..LANES]);
    }
}
