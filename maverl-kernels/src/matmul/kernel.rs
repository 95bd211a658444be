//! Kernel of a path: a tile of the left side times a panel of the right side.

use std::marker::PhantomData;

use super::element::Element;
#[cfg(target_arch = "x86_64")]
use super::part::{MOST_ROWS, TileSums};
use super::part::{OutputRows, Then, TilePart};
use super::path::{InnerLoop, ProductPath};
use super::prefetch::Ahead;
#[cfg(target_arch = "x86_64")]
use super::tiles::PANEL;
use super::tiles::{Panel, Tile};
use super::vectors::{VectorWork, Vectors};

/// A path with the state that one thread needs for it.
pub(super) enum TileKernel {
    Vectors(ProductPath),
    #[cfg(target_arch = "x86_64")]
    Dot,
    #[cfg(target_arch = "x86_64")]
    Amx(super::amx::Tiles, Box<TileSums>),
    #[cfg(test)]
    Tiles,
}

impl TileKernel {
    /// Prepares this thread for a path.
    pub(super) fn of(path: ProductPath) -> Self {
        match path.inner {
            InnerLoop::Vectors => Self::Vectors(path),
            #[cfg(target_arch = "x86_64")]
            InnerLoop::Dot => Self::Dot,
            #[cfg(target_arch = "x86_64")]
            InnerLoop::Amx => {
                Self::Amx(super::amx::Tiles::configure_tiles(), Box::new([[0.0; PANEL]; MOST_ROWS]))
            }
            #[cfg(test)]
            InnerLoop::Tiles => Self::Tiles,
        }
    }

    /// Stores the products of the rows of `tile` with `panel` to `out`, which has as many rows, and prefetches the
    /// lines that come next. AMX reads the tile up to a multiple of 16 rows.
    #[cfg_attr(
        not(any(test, target_arch = "x86_64")),
        allow(unused_mut, reason = "`Vectors` takes `out` whole")
    )]
    pub(super) fn multiply_tile<E: Element>(
        &mut self,
        tile: Tile<'_>,
        panel: Panel<'_>,
        ahead: &mut Ahead,
        mut out: OutputRows<'_>,
        then: Then,
    ) {
        match self {
            Self::Vectors(path) => path.run(Multiply::<E> {
                part: TilePart { tile, panel, ahead, out, then },
                element: PhantomData,
            }),
            #[cfg(target_arch = "x86_64")]
            Self::Dot => super::x86::dot_pairs(tile, panel, ahead, &mut out, then),
            #[cfg(target_arch = "x86_64")]
            Self::Amx(tiles, sums) => {
                super::amx::multiply_rows(tiles, tile, panel, out.len().next_multiple_of(16), sums);
                (0..out.len()).for_each(|row| then.store_sums(&sums[row], out.row(row)));
            }
            #[cfg(test)]
            Self::Tiles => super::tests::multiply_tile::<E>(tile, panel, &mut out, then),
        }
    }
}

struct Multiply<'a, E> {
    part: TilePart<'a>,
    element: PhantomData<E>,
}

impl<E: Element> VectorWork for Multiply<'_, E> {
    type Output = ();

    /// Splits a range into parts as equal as possible.
    #[inline(always)]
    fn run_with_vectors<V: Vectors>(self, simd: V) {
        let TilePart { tile, panel, ahead, mut out, then } = self.part;
        tile.assert_shape(out.len(), panel.depth * E::TERMS);
        let most = V::register_rows::<E>();
        let kernels = out.len().div_ceil(most).max(1);
        let size = out.len().div_ceil(kernels).max(1);
        for (i, first) in (0..out.len()).step_by(size).enumerate() {
            let out = out.some_rows(first, size);
            let tile = Tile { words: &tile.words[i * size * tile.row..], ..tile };
            simd.multiply_part::<E>(TilePart { tile, panel, ahead: &mut *ahead, out, then });
        }
    }
}
