//! NEON: vectors of four lanes, 32 registers.
#![allow(unsafe_code)]

use std::arch::aarch64::*;

use pulp::Simd;
use pulp::aarch64::Neon;
use pulp::bytemuck::cast;

use super::element::Element;
use super::halves::Halves;
use super::multiply::{multiply_rows, rows};
use super::part::TilePart;
use super::tiles::BLOCK;
use super::vectors::{Vectors, WordBlock};

impl Vectors for Neon {
    #[inline(always)]
    fn register_rows<E: Element>() -> usize {
        6
    }

    #[inline(always)]
    fn multiply_part<E: Element>(self, part: TilePart<'_>) {
        rows!(self, part, E, 1 x 8, 2 x 8, 3 x 4, 4 x 4, 5 x 4, 6 x 4);
    }

    #[inline(always)]
    fn transpose_block(self, block: &mut WordBlock) {
        let lines = *block;
        for i in 0..BLOCK / 4 {
            for j in 0..BLOCK / 4 {
                let mut four = [self.splat_f32s(0.0); 4];
                for (row, four) in four.iter_mut().enumerate() {
                    let words = Self::as_simd_u32s(&lines[4 * i + row]).0[j];
                    *four = self.transmute_f32s_u32s(words);
                }
                // Deinterleaving four vectors of four lanes transposes them.
                let four = self.deinterleave_shfl_f32s(four);
                for (row, four) in four.into_iter().enumerate() {
                    let words = self.transmute_u32s_f32s(four);
                    Self::as_mut_simd_u32s(&mut block[4 * j + row]).0[i] = words;
                }
            }
        }
    }

    #[inline(always)]
    fn pair_terms<E: Element>(self, terms: &[f32; 2 * BLOCK], words: &mut [u32; BLOCK]) {
        let (terms, _) = Self::as_simd_f32s(terms);
        let (words, _) = Self::as_mut_simd_u32s(words);
        for (words, terms) in words.iter_mut().zip(terms.as_chunks::<2>().0) {
            let [low, high] = self.deinterleave_shfl_f32s(*terms);
            let low = E::round_vector(self, low);
            let low = self.wrapping_dyn_shr_u32s(low, self.splat_u32s(16));
            *words = self.or_u32s(low, E::round_vector(self, high));
        }
    }
}

impl Halves for Neon {
    #[inline(always)]
    fn nearest_halves(self, terms: Self::f32s) -> Self::u32s {
        // SAFETY: `self` exists where NEON does.
        cast(unsafe { vmovl_u16(vreinterpret_u16_f16(vcvt_f16_f32(cast(terms)))) })
    }

    #[inline(always)]
    fn separate_halves(self, words: Self::u32s) -> Self::u32s {
        let words = cast(words);
        // SAFETY: `self` exists where NEON does.
        cast(unsafe {
            let (low, high) = (vuzp1q_u16(words, words), vuzp2q_u16(words, words));
            vcombine_u16(vget_low_u16(low), vget_low_u16(high))
        })
    }

    #[inline(always)]
    fn widen_halves(self, words: Self::u32s, term: usize) -> Self::f32s {
        let words = cast(words);
        // SAFETY: `self` exists where NEON does.
        cast(unsafe {
            let half = if term == 0 { vget_low_u16(words) } else { vget_high_u16(words) };
            vcvt_f32_f16(vreinterpret_f16_u16(half))
        })
    }
}
