//! Vectors for layouts and kernels: those of pulp, with the operations that it lacks.

use pulp::Scalar;

use super::element::Element;
use super::halves::Halves;
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
pub(super) trait Vectors: Halves {
    /// Returns the number of rows whose sums with some columns fit the registers.
    fn register_rows<E: Element>() -> usize;

    /// Multiplies at most [`Vectors::register_rows`] rows of a tile with a panel.
    fn multiply_part<E: Element>(self, part: TilePart<'_>);

    /// Transposes a block of words.
    fn transpose_block(self, block: &mut WordBlock);

    /// Pairs consecutive terms, rounded to 16 bits: term `2 i` in the low half of word `i`, the next one in its high half.
    fn pair_terms<E: Element>(self, terms: &[f32; 2 * BLOCK], words: &mut [u32; BLOCK]);
}

/// Returns `terms` rounded, as `f32`.
#[inline(always)]
pub(super) fn round_terms<E: Element, V: Vectors>(simd: V, terms: &[f32], out: &mut [u32]) {
    assert_eq!(terms.len(), out.len(), "a word for each term");
    let (terms, last_terms) = V::as_simd_f32s(terms);
    let (out, last_out) = V::as_mut_simd_u32s(out);
    // A rounded term is the last one of its word.
    let last = E::TERMS - 1;
    for (out, &terms) in out.iter_mut().zip(terms) {
        let words = E::round_vector(simd, terms);
        let words = if E::SEPARATE { simd.separate_halves(words) } else { words };
        *out = simd.transmute_u32s_f32s(E::unpack_term(simd, words, last));
    }
    for (out, &term) in last_out.iter_mut().zip(last_terms) {
        *out = E::unpack_term(Scalar, E::round_term(term), last).to_bits();
    }
}

/// Returns words of the corresponding terms of `low` and `high`, rounded to 16 bits.
#[inline(always)]
pub(super) fn pair_words<E: Element, V: Vectors>(
    simd: V,
    low: &[f32],
    high: &[f32],
    out: &mut [u32],
) {
    assert!(low.len() == out.len() && high.len() == out.len(), "two terms for each word");
    let (low, last_low) = V::as_simd_f32s(low);
    let (high, last_high) = V::as_simd_f32s(high);
    let (out, last_out) = V::as_mut_simd_u32s(out);
    for ((out, &low), &high) in out.iter_mut().zip(low).zip(high) {
        let low = simd.wrapping_dyn_shr_u32s(E::round_vector(simd, low), simd.splat_u32s(16));
        *out = simd.or_u32s(low, E::round_vector(simd, high));
    }
    for ((out, &low), &high) in last_out.iter_mut().zip(last_low).zip(last_high) {
        *out = E::pack_word(low, high);
    }
}
