//! Vectors of one lane, for processors without others.

use pulp::Scalar;

use super::element::Element;
use super::halves::{Halves, nearest_f16, widen_f16};
use super::multiply::{multiply_rows, rows};
use super::part::TilePart;
use super::tiles::BLOCK;
use super::vectors::{Vectors, WordBlock};

impl Vectors for Scalar {
    #[inline(always)]
    fn register_rows<E: Element>() -> usize {
        4
    }

    #[inline(always)]
    fn multiply_part<E: Element>(self, part: TilePart<'_>) {
        rows!(self, part, E, 1 x 4, 2 x 4, 3 x 4, 4 x 4);
    }

    #[inline(always)]
    fn transpose_block(self, block: &mut WordBlock) {
        let lines = *block;
        for (i, line) in block.iter_mut().enumerate() {
            line.iter_mut().zip(&lines).for_each(|(word, line)| *word = line[i]);
        }
    }

    #[inline(always)]
    fn pair_terms<E: Element>(self, terms: &[f32; 2 * BLOCK], words: &mut [u32; BLOCK]) {
        for (word, [low, high]) in words.iter_mut().zip(terms.as_chunks::<2>().0) {
            *word = E::pack_word(*low, *high);
        }
    }
}

impl Halves for Scalar {
    #[inline(always)]
    fn nearest_halves(self, term: f32) -> u32 {
        nearest_f16(term)
    }

    #[inline(always)]
    fn separate_halves(self, word: u32) -> u32 {
        word
    }

    #[inline(always)]
    fn widen_halves(self, word: u32, term: usize) -> f32 {
        widen_f16(if term == 0 { word & 0xffff } else { word >> 16 })
    }
}
