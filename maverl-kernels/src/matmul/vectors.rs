//! Vectors for layouts and kernels: those of pulp, with the operations that it lacks.

use pulp::Simd;

use super::element::{Element, nearest_bf16};
use super::part::TilePart;
use super::tiles::BLOCK;

/// Block of words that is transposed at once.
pub(super) type WordBlock = [[u32; BLOCK]; BLOCK];

/// Code that is compiled for every path.
pub(super) trait VectorWork {
    /// Result of the work.
    type Output;
    /// Does the work with the vectors of a path. This function and everything it calls, closures included, must be
    /// `#[inline(always)]`.
    fn run_with_vectors<V: Vectors>(self, simd: V) -> Self::Output;
}

/// Vectors of a path.
pub(super) trait Vectors: Simd {
    /// Returns the number of rows whose sums with some columns fit the registers.
    fn register_rows<E: Element>() -> usize;

    /// Multiplies at most [`Vectors::register_rows`] rows of a tile with a panel.
    fn multiply_part<E: Element>(self, part: TilePart<'_>);

    /// Transposes a block of words.
    fn transpose_block(self, block: &mut WordBlock);

    /// Pairs consecutive terms, rounded to `bf16`: term `2 i` in the low half of word `i`, the next one in its high
    /// half.
    fn pair_terms(self, terms: &[f32; 2 * BLOCK], words: &mut [u32; BLOCK]);
}

/// Returns the bits of some `f32`, each rounded to `bf16` as [`nearest_bf16`] does.
#[inline(always)]
pub(super) fn nearest_bits<V: Simd>(simd: V, terms: V::f32s) -> V::u32s {
    let bits = simd.transmute_u32s_f32s(terms);
    let shifted = simd.wrapping_dyn_shr_u32s(bits, simd.splat_u32s(16));
    let odd = simd.and_u32s(shifted, simd.splat_u32s(1));
    let rounded = simd.add_u32s(bits, simd.add_u32s(odd, simd.splat_u32s(0x7fff)));
    let nan = simd.or_u32s(bits, simd.splat_u32s(0x40_0000));
    let number = simd.equal_f32s(terms, terms);
    simd.and_u32s(simd.select_u32s(number, rounded, nan), simd.splat_u32s(0xffff_0000))
}

/// Returns `terms` rounded to `bf16`, as `f32`.
#[inline(always)]
pub(super) fn round_terms<V: Simd>(simd: V, terms: &[f32], out: &mut [u32]) {
    assert_eq!(terms.len(), out.len(), "a word for each term");
    let (terms, last_terms) = V::as_simd_f32s(terms);
    let (out, last_out) = V::as_mut_simd_u32s(out);
    for (out, &terms) in out.iter_mut().zip(terms) {
        *out = nearest_bits(simd, terms);
    }
    for (out, term) in last_out.iter_mut().zip(last_terms) {
        *out = nearest_bf16(term.to_bits());
    }
}

/// Returns words of the corresponding terms of `low` and `high`, rounded to `bf16`.
#[inline(always)]
pub(super) fn pair_words<V: Simd>(simd: V, low: &[f32], high: &[f32], out: &mut [u32]) {
    assert!(low.len() == out.len() && high.len() == out.len(), "two terms for each word");
    let (low, last_low) = V::as_simd_f32s(low);
    let (high, last_high) = V::as_simd_f32s(high);
    let (out, last_out) = V::as_mut_simd_u32s(out);
    for ((out, &low), &high) in out.iter_mut().zip(low).zip(high) {
        let low = simd.wrapping_dyn_shr_u32s(nearest_bits(simd, low), simd.splat_u32s(16));
        *out = simd.or_u32s(low, nearest_bits(simd, high));
    }
    for ((out, low), high) in last_out.iter_mut().zip(last_low).zip(last_high) {
        *out = nearest_bf16(low.to_bits()) >> 16 | nearest_bf16(high.to_bits());
    }
}
