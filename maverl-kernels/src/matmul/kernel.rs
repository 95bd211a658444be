//! Inner loop: a tile of the left side times a panel of the right side.
#![allow(unsafe_code)]

use super::layout::{Element, PANEL, Panel, Tile};
use super::path::{Inner, Path};
use super::vectors::{Vectors, Work};

/// Number of rows of the largest tile.
pub(super) const MOST_ROWS: usize = 32;

/// Sums of a tile's rows with a panel's columns.
pub(super) type Sums = [[f32; PANEL]; MOST_ROWS];

/// Output of a kernel: [`PANEL`] elements for each row of a tile.
pub(super) type Places<'a> = [&'a mut [f32]];

/// Treatment of the output's old value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Then {
    Set,
    Add,
}

impl Then {
    /// Stores sums to the output.
    #[inline(always)]
    pub(super) fn put(self, sums: &[f32], out: &mut [f32]) {
        match self {
            Self::Set => out.copy_from_slice(sums),
            Self::Add => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
        }
    }
}

/// A path with the state that one thread needs for it.
pub(super) enum Kernel {
    Vectors(Path),
    #[cfg(target_arch = "x86_64")]
    Dot,
    #[cfg(target_arch = "x86_64")]
    Amx(super::amx::Tiles, Box<Sums>),
    #[cfg(test)]
    Tiles,
}

impl Kernel {
    /// Prepares this thread for a path.
    pub(super) fn of(path: Path) -> Self {
        match path.inner {
            Inner::Vectors => Self::Vectors(path),
            #[cfg(target_arch = "x86_64")]
            Inner::Dot => Self::Dot,
            #[cfg(target_arch = "x86_64")]
            Inner::Amx => {
                Self::Amx(super::amx::Tiles::enter(), Box::new([[0.0; PANEL]; MOST_ROWS]))
            }
            #[cfg(test)]
            Inner::Tiles => Self::Tiles,
        }
    }

    /// Stores the products of the rows of `tile` with `panel` to `out`, which has as many rows. AMX reads the tile up
    /// to a multiple of 16 rows.
    pub(super) fn multiply<E: Element>(
        &mut self,
        tile: Tile<'_>,
        panel: Panel<'_>,
        out: &mut Places<'_>,
        then: Then,
    ) {
        match self {
            Self::Vectors(path) => path.run(Multiply::<E> {
                part: Part { tile, panel, out, then },
                element: std::marker::PhantomData,
            }),
            #[cfg(target_arch = "x86_64")]
            Self::Dot => super::x86::dot(tile, panel, out, then),
            #[cfg(target_arch = "x86_64")]
            Self::Amx(tiles, sums) => {
                super::amx::kernel(tiles, tile, panel, out.len().next_multiple_of(16), sums);
                out.iter_mut().zip(&**sums).for_each(|(out, sums)| then.put(sums, out));
            }
            #[cfg(test)]
            Self::Tiles => super::tests::multiply_tile::<E>(tile, panel, out, then),
        }
    }
}

/// Some rows of a tile, a panel, and the output of their sums.
pub(super) struct Part<'a, 'o> {
    pub(super) tile: Tile<'a>,
    pub(super) panel: Panel<'a>,
    pub(super) out: &'a mut Places<'o>,
    pub(super) then: Then,
}

struct Multiply<'a, 'o, E> {
    part: Part<'a, 'o>,
    element: std::marker::PhantomData<E>,
}

impl<E: Element> Work for Multiply<'_, '_, E> {
    type Output = ();

    /// Splits a range into parts as equal as possible.
    #[inline(always)]
    fn run<V: Vectors>(self, simd: V) {
        let Part { tile, panel, out, then } = self.part;
        tile.check(out.len(), panel.depth * E::TERMS);
        let most = V::rows::<E>();
        let size = out.len().div_ceil(out.len().div_ceil(most).max(1)).max(1);
        for (i, out) in out.chunks_mut(size).enumerate() {
            let tile = Tile { words: &tile.words[i * size * tile.row..], ..tile };
            simd.multiply::<E>(Part { tile, panel, out, then });
        }
    }
}

/// Computes the sums of `R` rows, `N` vectors of columns at once. An element's sum is a chain of fused multiply-adds
/// over the terms in ascending order, whatever `R`, `N` and the vector are.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "closures over vectors may lose their instructions")]
pub(super) fn multiply_rows<V: Vectors, E: Element, const R: usize, const N: usize>(
    simd: V,
    part: Part<'_, '_>,
) {
    let Part { tile, panel: Panel { words, stride, depth }, out, then } = part;
    tile.check(R, depth * E::TERMS);
    assert_eq!(out.len(), R, "a kernel for its rows");
    assert!(depth == 0 || words.len() >= (depth - 1) * stride + PANEL);
    for start in (0..PANEL).step_by(N * V::U32_LANES) {
        let mut sums = [[simd.splat_f32s(0.0); N]; R];
        for p in 0..depth {
            for term in 0..E::TERMS {
                // SAFETY: `r < R` and `p < depth`, which the tile has.
                let a = |r: usize| unsafe {
                    let at = r * tile.row + (p * E::TERMS + term) * tile.word;
                    f32::from_bits(*tile.words.get_unchecked(at))
                };
                // SAFETY: the vector ends within the line, and the last line within `words`, by the last assertion.
                let b = |i: usize| unsafe {
                    let at = p * stride + start + i * V::U32_LANES;
                    words.as_ptr().add(at).cast::<V::u32s>().read_unaligned()
                };
                // The smaller side is held in registers.
                if R < N {
                    let mut terms = [simd.splat_f32s(0.0); R];
                    for r in 0..R {
                        terms[r] = simd.splat_f32s(a(r));
                    }
                    for i in 0..N {
                        let b = E::term(simd, b(i), term);
                        for r in 0..R {
                            sums[r][i] = simd.mul_add_f32s(terms[r], b, sums[r][i]);
                        }
                    }
                } else {
                    let mut columns = [simd.splat_f32s(0.0); N];
                    for i in 0..N {
                        columns[i] = E::term(simd, b(i), term);
                    }
                    for r in 0..R {
                        let a = simd.splat_f32s(a(r));
                        for i in 0..N {
                            sums[r][i] = simd.mul_add_f32s(a, columns[i], sums[r][i]);
                        }
                    }
                }
            }
        }
        for r in 0..R {
            let (out, _) = V::as_mut_simd_f32s(&mut out[r][start..start + N * V::F32_LANES]);
            for i in 0..N {
                out[i] = match then {
                    Then::Set => sums[r][i],
                    Then::Add => simd.add_f32s(out[i], sums[r][i]),
                };
            }
        }
    }
}
