//! Numbers in `f16`: rounding, widening, and the vectors that do both.

use pulp::Simd;

/// Vectors that convert `f16`. Every path has the same bits.
pub(super) trait Halves: Simd {
    /// Returns some terms rounded as [`nearest_f16`] does, each in the low half of a word.
    fn nearest_halves(self, terms: Self::f32s) -> Self::u32s;

    /// Returns the low halves of some words, then their high halves.
    fn separate_halves(self, words: Self::u32s) -> Self::u32s;

    /// Widens the numbers of the first (`term` 0) or the second half of a vector, which hold a number for each lane.
    fn widen_halves(self, words: Self::u32s, term: usize) -> Self::f32s;
}

/// Returns the 16 bits of the nearest `f16`, ties to even. Numbers from 65,520 on become infinite, subnormal ones are kept, and
/// NaN stays NaN: the bits are those of F16C.
#[inline(always)]
pub(super) fn nearest_f16(term: f32) -> u32 {
    /// Bits of 0.5, whose last place is worth as much as that of a subnormal `f16`.
    const HALF: u32 = 0x3f00_0000;
    /// Bits of 2⁻¹⁴, the smallest normal `f16`.
    const NORMAL: u32 = 0x3880_0000;
    /// Difference of the exponents, in place.
    const BIAS: u32 = (127 - 15) << 23;
    let bits = term.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let rounded = match magnitude {
        0x7f80_0001.. => 0x7e00 | magnitude >> 13 & 0x3ff,
        0x477f_f000.. => 0x7c00,
        NORMAL.. => (magnitude - BIAS + 0xfff + (magnitude >> 13 & 1)) >> 13,
        _ => (f32::from_bits(magnitude) + f32::from_bits(HALF)).to_bits() - HALF,
    };
    bits >> 16 & 0x8000 | rounded
}

/// Returns the number with the 16 bits of an `f16`.
#[inline(always)]
pub(super) fn widen_f16(half: u32) -> f32 {
    let fraction = half & 0x3ff;
    let magnitude = match half >> 10 & 0x1f {
        // Whole multiples of 2⁻²⁴.
        0 => (fraction as f32 * f32::from_bits((127 - 24) << 23)).to_bits(),
        0x1f => 0x7f80_0000 | fraction << 13,
        exponent => (exponent + 127 - 15) << 23 | fraction << 13,
    };
    f32::from_bits((half & 0x8000) << 16 | magnitude)
}
