//! Inner loop in vectors: a tile of the left side times a panel of the right side.
#![allow(unsafe_code)]

mod operands;

use super::element::Element;
use super::part::{Then, TilePart};
use super::prefetch::Ahead;
use super::tiles::{BLOCK, PANEL, Panel};
use super::vectors::Vectors;
use operands::Operands;

/// Computes the sums of `R` rows, `N` vectors of columns at once. An element's sum is a chain of fused multiply-adds
/// over the terms in ascending order, whatever `R`, `N` and the vector are.
#[inline(always)]
pub(super) fn multiply_rows<V: Vectors, E: Element, const R: usize, const N: usize>(
    simd: V,
    part: TilePart<'_>,
) {
    part.assert_shapes::<E>(R);
    let half = part.half_offset::<V>();
    let TilePart { tile, panel, ahead, mut out, then } = part;
    let operands = Operands::<R>::from_tile(tile, Panel { half, ..panel });
    for start in (0..PANEL).step_by(N * V::U32_LANES) {
        let operands = operands.at_column(start);
        let depth = panel.depth;
        // Paths with short vectors have few registers, and distances that the compiler knows need none. With up to three
        // rows nothing is gained, because the loop waits for memory.
        let constant = R > 3 && V::U32_LANES < BLOCK;
        // SAFETY: tile and panel have `depth` words, by the check of their part.
        let sums = unsafe {
            match (tile.word, panel.stride) {
                (1, BLOCK) if constant => {
                    let operands = operands.with_distances(1, BLOCK);
                    compute_sums::<V, E, R, N, 4>(simd, operands, depth, ahead)
                }
                (BLOCK, BLOCK) if constant => {
                    let operands = operands.with_distances(BLOCK, BLOCK);
                    compute_sums::<V, E, R, N, 4>(simd, operands, depth, ahead)
                }
                _ => compute_sums::<V, E, R, N, 1>(simd, operands, depth, ahead),
            }
        };
        for (r, sums) in sums.iter().enumerate() {
            store_vectors(simd, then, sums, &mut out.row(r)[start..]);
        }
    }
}

/// Computes the sums of `R` rows and `N` vectors of columns over `depth` words, `TERMS` terms without a branch. Where the
/// compiler knows the distances of `operands`, such terms are read at constant offsets, without an addition for each.
///
/// # Safety
///
/// The operands have `depth` words.
#[inline(always)]
unsafe fn compute_sums<
    V: Vectors,
    E: Element,
    const R: usize,
    const N: usize,
    const TERMS: usize,
>(
    simd: V,
    mut operands: Operands<R>,
    depth: usize,
    ahead: &mut Ahead,
) -> [[V::f32s; N]; R] {
    let at_once = (TERMS / E::TERMS).max(1);
    let mut sums = [[simd.splat_f32s(0.0); N]; R];
    let mut next = *ahead;
    let mut left = depth;
    while left > 0 {
        let words = next.prefetch_due().min(left);
        left -= words;
        for _ in 0..words / at_once {
            for p in 0..at_once {
                // SAFETY: at most `depth` words, as guaranteed by the caller.
                unsafe { multiply_word::<V, E, R, N>(simd, &operands, p, &mut sums) };
            }
            operands.advance::<E>(at_once);
        }
        for _ in 0..words % at_once {
            // SAFETY: as above.
            unsafe { multiply_word::<V, E, R, N>(simd, &operands, 0, &mut sums) };
            operands.advance::<E>(1);
        }
    }
    *ahead = next;
    sums
}

/// Adds the products of word `p` of some operands to `sums`.
///
/// # Safety
///
/// The operands have this word.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "closures over vectors may lose their instructions")]
unsafe fn multiply_word<V: Vectors, E: Element, const R: usize, const N: usize>(
    simd: V,
    operands: &Operands<R>,
    p: usize,
    sums: &mut [[V::f32s; N]; R],
) {
    for term in 0..E::TERMS {
        // SAFETY: `r < R`, and the word exists, as guaranteed by the caller.
        let a = |r: usize| unsafe { operands.row_word(r, p * E::TERMS + term) };
        // SAFETY: `i < N`, and the word exists, as guaranteed by the caller.
        let b = |i: usize| unsafe { operands.column_vector::<V>(i, p) };
        // The smaller side is held in registers.
        if R < N {
            let mut terms = [simd.splat_f32s(0.0); R];
            for r in 0..R {
                terms[r] = simd.splat_f32s(a(r));
            }
            for i in 0..N {
                let b = E::unpack_term(simd, b(i), term);
                for r in 0..R {
                    sums[r][i] = simd.mul_add_f32s(terms[r], b, sums[r][i]);
                }
            }
        } else {
            let mut columns = [simd.splat_f32s(0.0); N];
            for i in 0..N {
                columns[i] = E::unpack_term(simd, b(i), term);
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

/// Stores some vectors of sums, or adds them to `out`.
#[inline(always)]
fn store_vectors<V: Vectors, const N: usize>(
    simd: V,
    then: Then,
    sums: &[V::f32s; N],
    out: &mut [f32],
) {
    let (out, _) = V::as_mut_simd_f32s(&mut out[..N * V::F32_LANES]);
    for i in 0..N {
        out[i] = match then {
            Then::Set => sums[i],
            Then::Add => simd.add_f32s(out[i], sums[i]),
        };
    }
}

/// Calls the kernel that is compiled for the number of rows of a part, with `N` vectors of columns at once.
macro_rules! rows {
    ($simd:ident, $part:ident, $element:ident, $($rows:literal x $vectors:literal),*) => {
        match $part.out.len() {
            0 => {}
            $($rows => multiply_rows::<Self, $element, $rows, $vectors>($simd, $part),)*
            rows => unreachable!("{rows} rows at once"),
        }
    };
}
pub(super) use rows;
