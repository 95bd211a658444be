//! Terms of a sum in words of 32 bits: one `f32`, or two terms of 16 bits with the earlier one in the low half.

use pulp::Simd;

use super::halves::{Halves, nearest_f16};

/// Conversion of terms to words in one precision.
pub(super) trait Element: Send + Sync + 'static {
    /// Terms per word.
    const TERMS: usize;
    /// Number of words that divides every sum's length; the last ones are zero. It is the depth of a tile instruction.
    const STEP: usize;
    /// True if a vector of a panel has the first terms of its words in its first half, and the second ones in the other.
    const SEPARATE: bool;

    /// Returns the bits of a rounded term: those of an `f32`, or 16 bits in the upper half.
    fn round_term(term: f32) -> u32;

    /// Returns [`Element::round_term`] of some terms.
    fn round_vector<V: Halves>(simd: V, terms: V::f32s) -> V::u32s;

    /// Returns one of the terms of some words, as `f32`. If [`Element::SEPARATE`], the words are separated
    /// ([`Halves::separate_halves`]).
    fn unpack_term<V: Halves>(simd: V, words: V::u32s, term: usize) -> V::f32s;

    /// Returns the word of a term and the next one; `f32` has no next one.
    #[inline(always)]
    fn pack_word(low: f32, high: f32) -> u32 {
        match Self::TERMS {
            1 => Self::round_term(low),
            _ => Self::round_term(low) >> 16 | Self::round_term(high),
        }
    }
}

/// Terms without rounding.
pub(super) enum F32 {}

/// Terms rounded to `bf16` (to the nearest, ties to even), two per word.
pub(super) enum Bf16 {}

/// Terms rounded to `f16` (to the nearest, ties to even), two per word. They are separate in panels, because processors widen
/// numbers that follow each other.
pub(super) enum F16 {}

impl Element for F32 {
    const TERMS: usize = 1;
    const STEP: usize = 1;
    const SEPARATE: bool = false;

    #[inline(always)]
    fn round_term(term: f32) -> u32 {
        term.to_bits()
    }

    #[inline(always)]
    fn round_vector<V: Halves>(simd: V, terms: V::f32s) -> V::u32s {
        simd.transmute_u32s_f32s(terms)
    }

    #[inline(always)]
    fn unpack_term<V: Halves>(simd: V, words: V::u32s, _: usize) -> V::f32s {
        simd.transmute_f32s_u32s(words)
    }
}

impl Element for Bf16 {
    const TERMS: usize = 2;
    const STEP: usize = 16;
    const SEPARATE: bool = false;

    #[inline(always)]
    fn round_term(term: f32) -> u32 {
        nearest_bf16(term.to_bits())
    }

    #[inline(always)]
    fn round_vector<V: Halves>(simd: V, terms: V::f32s) -> V::u32s {
        nearest_bits(simd, terms)
    }

    #[inline(always)]
    fn unpack_term<V: Halves>(simd: V, words: V::u32s, term: usize) -> V::f32s {
        simd.transmute_f32s_u32s(match term {
            0 => simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(16)),
            _ => simd.and_u32s(words, simd.splat_u32s(0xffff_0000)),
        })
    }
}

impl Element for F16 {
    const TERMS: usize = 2;
    const STEP: usize = 1;
    const SEPARATE: bool = true;

    #[inline(always)]
    fn round_term(term: f32) -> u32 {
        nearest_f16(term) << 16
    }

    #[inline(always)]
    fn round_vector<V: Halves>(simd: V, terms: V::f32s) -> V::u32s {
        simd.wrapping_dyn_shl_u32s(simd.nearest_halves(terms), simd.splat_u32s(16))
    }

    #[inline(always)]
    fn unpack_term<V: Halves>(simd: V, words: V::u32s, term: usize) -> V::f32s {
        simd.widen_halves(words, term)
    }
}

/// Rounds an `f32` to the nearest `bf16`, ties to even. Its bits are the upper half; the lower half is zero. NaN stays
/// NaN.
#[inline(always)]
pub(crate) fn nearest_bf16(bits: u32) -> u32 {
    let nan = bits & 0x7fff_ffff > 0x7f80_0000;
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    (if nan { bits | 0x40_0000 } else { rounded }) & 0xffff_0000
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

/// Returns the number of words of a sum of `terms`.
pub(super) fn word_count<E: Element>(terms: usize) -> usize {
    terms.div_ceil(E::TERMS).next_multiple_of(E::STEP)
}
