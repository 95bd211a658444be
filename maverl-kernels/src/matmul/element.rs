//! Terms of a sum in words of 32 bits: one `f32`, or two `bf16` with the earlier term in the low half.

use pulp::Simd;

/// Conversion of terms to words in one precision.
pub(super) trait Element: Send + Sync + 'static {
    /// Terms per word.
    const TERMS: usize;
    /// Number of words that divides every sum's length; the last ones are zero. It is the depth of a tile instruction.
    const STEP: usize;
    /// Returns the word of a term and the next one; `f32` has no next one.
    fn pack_word(low: f32, high: f32) -> u32;
    /// Returns one of the terms of some words, as `f32`.
    fn unpack_term<S: Simd>(simd: S, words: S::u32s, term: usize) -> S::f32s;
}

/// Terms without rounding.
pub(super) enum F32 {}

/// Terms rounded to `bf16` (to the nearest, ties to even), two per word.
pub(super) enum Bf16 {}

impl Element for F32 {
    const TERMS: usize = 1;
    const STEP: usize = 1;
    #[inline(always)]
    fn pack_word(low: f32, _: f32) -> u32 {
        low.to_bits()
    }
    #[inline(always)]
    fn unpack_term<S: Simd>(simd: S, words: S::u32s, _: usize) -> S::f32s {
        simd.transmute_f32s_u32s(words)
    }
}

impl Element for Bf16 {
    const TERMS: usize = 2;
    const STEP: usize = 16;
    #[inline(always)]
    fn pack_word(low: f32, high: f32) -> u32 {
        nearest_bf16(low.to_bits()) >> 16 | nearest_bf16(high.to_bits())
    }
    #[inline(always)]
    fn unpack_term<S: Simd>(simd: S, words: S::u32s, term: usize) -> S::f32s {
        simd.transmute_f32s_u32s(match term {
            0 => simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(16)),
            _ => simd.and_u32s(words, simd.splat_u32s(0xffff_0000)),
        })
    }
}

/// Rounds an `f32` to the nearest `bf16`, ties to even. Its bits are the upper half; the lower half is zero. NaN stays
/// NaN.
#[inline(always)]
pub(super) fn nearest_bf16(bits: u32) -> u32 {
    let nan = bits & 0x7fff_ffff > 0x7f80_0000;
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    (if nan { bits | 0x40_0000 } else { rounded }) & 0xffff_0000
}

/// Returns the number of words of a sum of `terms`.
pub(super) fn word_count<E: Element>(terms: usize) -> usize {
    terms.div_ceil(E::TERMS).next_multiple_of(E::STEP)
}
