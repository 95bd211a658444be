//! AVX2 and AVX-512: operations of layouts and kernels that pulp lacks, conversions of `f16`, and the dot product of `bf16`
//! pairs.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::hint::black_box;

use pulp::Simd;
use pulp::bytemuck::cast;
use pulp::x86::{V3, V4};

use super::element::Element;
use super::halves::Halves;
use super::multiply::{multiply_rows, rows};
use super::part::{OutputRows, Then, TilePart};
use super::prefetch::{Ahead, STEPS};
use super::tiles::{BLOCK, Panel, Tile};
use super::vectors::{VectorWork, Vectors, WordBlock};

/// Vectors of eight lanes, 16 registers: twelve sums, the columns' vectors, and a term.
impl Vectors for V3 {
    /// Returns fewer rows than without widening, which uses the registers of a row.
    #[inline(always)]
    fn register_rows<E: Element>() -> usize {
        if E::TERMS == 1 { 6 } else { 5 }
    }

    #[inline(always)]
    fn multiply_part<E: Element>(self, part: TilePart<'_>) {
        if E::TERMS == 1 {
            rows!(self, part, E, 1 x 4, 2 x 4, 3 x 4, 4 x 2, 5 x 2, 6 x 2);
        } else {
            rows!(self, part, E, 1 x 4, 2 x 4, 3 x 2, 4 x 2, 5 x 2);
        }
    }

    #[inline(always)]
    fn transpose_block(self, block: &mut WordBlock) {
        let lines = *block;
        for i in 0..2 {
            for j in 0..2 {
                let mut eight = [self.avx._mm256_setzero_ps(); 8];
                for (row, eight) in eight.iter_mut().enumerate() {
                    *eight = cast(lines[8 * i + row].as_chunks::<8>().0[j]);
                }
                for (row, words) in eight_by_eight(self, eight).into_iter().enumerate() {
                    block[8 * j + row].as_chunks_mut::<8>().0[i] = cast(words);
                }
            }
        }
    }

    #[inline(always)]
    fn pair_terms<E: Element>(self, terms: &[f32; 2 * BLOCK], words: &mut [u32; BLOCK]) {
        let (terms, _) = Self::as_simd_f32s(terms);
        let (words, _) = Self::as_mut_simd_u32s(words);
        for (words, terms) in words.iter_mut().zip(terms.as_chunks::<2>().0) {
            let mut halves = [self.avx._mm256_setzero_si256(); 2];
            for (half, &terms) in halves.iter_mut().zip(terms) {
                *half = self.avx2._mm256_srli_epi32::<16>(cast(E::round_vector(self, terms)));
            }
            // Packing takes four words of each operand in turn.
            let packed = self.avx2._mm256_packus_epi32(halves[0], halves[1]);
            *words = cast(self.avx2._mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
    }
}

impl Halves for V3 {
    #[inline(always)]
    fn nearest_halves(self, terms: Self::f32s) -> Self::u32s {
        // SAFETY: the path `avx2` is only available with F16C.
        let halves = unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(cast(terms)) };
        cast(self.avx2._mm256_cvtepu16_epi32(halves))
    }

    #[inline(always)]
    fn separate_halves(self, words: Self::u32s) -> Self::u32s {
        /// Bytes of the low halves of four words, then those of their high halves.
        const BYTES: [u8; 16] = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15];
        let each = self.avx2._mm256_shuffle_epi8(cast(words), cast([BYTES; 2]));
        cast(self.avx2._mm256_permute4x64_epi64::<0b11_01_10_00>(each))
    }

    #[inline(always)]
    fn widen_halves(self, words: Self::u32s, term: usize) -> Self::f32s {
        let half = match term {
            0 => self.avx._mm256_castsi256_si128(cast(words)),
            _ => self.avx2._mm256_extracti128_si256::<1>(cast(words)),
        };
        // SAFETY: the path `avx2` is only available with F16C.
        cast(unsafe { _mm256_cvtph_ps(half) })
    }
}

/// Runs `work` compiled for AVX2 and F16C.
#[inline(always)]
pub(super) fn run_on_avx2<W: VectorWork>(simd: V3, work: W) -> W::Output {
    // SAFETY: `simd` exists where its instructions do, and the path `avx2` is only available with F16C.
    unsafe { with_f16c(simd, work) }
}

#[inline]
#[target_feature(
    enable = "sse,sse2,fxsr,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,fma,lzcnt,f16c"
)]
fn with_f16c<W: VectorWork>(simd: V3, work: W) -> W::Output {
    work.run_with_vectors(simd)
}

/// Transposes pairs of rows, then fours, then the halves of the vectors.
#[inline(always)]
fn eight_by_eight(V3 { avx, .. }: V3, rows: [__m256; 8]) -> [__m256; 8] {
    let mut pairs = rows;
    for i in 0..4 {
        pairs[2 * i] = avx._mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = avx._mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    // Half `h` of `fours[4 i + j]` is column `4 h + j` of rows `4 i..4 i + 4`.
    let mut fours = pairs;
    for i in 0..2 {
        for j in 0..2 {
            let (low, high) = (pairs[4 * i + j], pairs[4 * i + 2 + j]);
            fours[4 * i + 2 * j] = avx._mm256_shuffle_ps::<0b01_00_01_00>(low, high);
            fours[4 * i + 2 * j + 1] = avx._mm256_shuffle_ps::<0b11_10_11_10>(low, high);
        }
    }
    let mut columns = fours;
    for j in 0..4 {
        columns[j] = avx._mm256_permute2f128_ps::<0x20>(fours[j], fours[4 + j]);
        columns[4 + j] = avx._mm256_permute2f128_ps::<0x31>(fours[j], fours[4 + j]);
    }
    columns
}

/// Vectors of sixteen lanes, 32 registers.
impl Vectors for V4 {
    #[inline(always)]
    fn register_rows<E: Element>() -> usize {
        12
    }

    #[inline(always)]
    fn multiply_part<E: Element>(self, part: TilePart<'_>) {
        rows!(
            self, part, E, 1 x 2, 2 x 2, 3 x 2, 4 x 2, 5 x 2, 6 x 2, 7 x 2, 8 x 2, 9 x 2, 10 x 2, 11 x 2, 12 x 2
        );
    }

    /// Transposes pairs of rows, then fours, then the quarters of the vectors.
    #[inline(always)]
    fn transpose_block(self, block: &mut WordBlock) {
        let V4 { avx512f, .. } = self;
        let mut rows = [avx512f._mm512_setzero_si512(); BLOCK];
        for (row, words) in rows.iter_mut().zip(&*block) {
            *row = cast(*words);
        }
        let mut pairs = rows;
        for i in 0..8 {
            pairs[2 * i] = avx512f._mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = avx512f._mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
        }
        // Quarter `q` of `fours[4 i + j]` is column `4 q + j` of rows `4 i..4 i + 4`.
        let mut fours = pairs;
        for i in 0..4 {
            let pairs = &pairs[4 * i..4 * i + 4];
            fours[4 * i] = avx512f._mm512_unpacklo_epi64(pairs[0], pairs[2]);
            fours[4 * i + 1] = avx512f._mm512_unpackhi_epi64(pairs[0], pairs[2]);
            fours[4 * i + 2] = avx512f._mm512_unpacklo_epi64(pairs[1], pairs[3]);
            fours[4 * i + 3] = avx512f._mm512_unpackhi_epi64(pairs[1], pairs[3]);
        }
        for j in 0..4 {
            let (a, b, c, d) = (fours[j], fours[4 + j], fours[8 + j], fours[12 + j]);
            let even = avx512f._mm512_shuffle_i32x4::<0x88>(a, b);
            let even_below = avx512f._mm512_shuffle_i32x4::<0x88>(c, d);
            let odd = avx512f._mm512_shuffle_i32x4::<0xdd>(a, b);
            let odd_below = avx512f._mm512_shuffle_i32x4::<0xdd>(c, d);
            block[j] = cast(avx512f._mm512_shuffle_i32x4::<0x88>(even, even_below));
            block[4 + j] = cast(avx512f._mm512_shuffle_i32x4::<0x88>(odd, odd_below));
            block[8 + j] = cast(avx512f._mm512_shuffle_i32x4::<0xdd>(even, even_below));
            block[12 + j] = cast(avx512f._mm512_shuffle_i32x4::<0xdd>(odd, odd_below));
        }
    }

    #[inline(always)]
    fn pair_terms<E: Element>(self, terms: &[f32; 2 * BLOCK], words: &mut [u32; BLOCK]) {
        const HIGH_HALVES: [u16; 32] = {
            let mut halves = [0; 32];
            let mut i = 0;
            while i < 32 {
                halves[i] = 2 * i as u16 + 1;
                i += 1;
            }
            halves
        };
        let (terms, _) = Self::as_simd_f32s(terms);
        let (low, high) = (E::round_vector(self, terms[0]), E::round_vector(self, terms[1]));
        let (low, high) = (cast(low), cast(high));
        *words = cast(self.avx512bw._mm512_permutex2var_epi16(low, cast(HIGH_HALVES), high));
    }
}

impl Halves for V4 {
    #[inline(always)]
    fn nearest_halves(self, terms: Self::f32s) -> Self::u32s {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        let halves = self.avx512f._mm512_cvtps_ph::<NEAREST>(cast(terms));
        cast(self.avx512f._mm512_cvtepu16_epi32(halves))
    }

    #[inline(always)]
    fn separate_halves(self, words: Self::u32s) -> Self::u32s {
        const HALVES: [u16; 32] = {
            let mut halves = [0; 32];
            let mut i = 0;
            while i < 16 {
                (halves[i], halves[16 + i]) = (2 * i as u16, 2 * i as u16 + 1);
                i += 1;
            }
            halves
        };
        cast(self.avx512bw._mm512_permutexvar_epi16(cast(HALVES), cast(words)))
    }

    #[inline(always)]
    fn widen_halves(self, words: Self::u32s, term: usize) -> Self::f32s {
        let half = match term {
            0 => self.avx512f._mm512_castsi512_si256(cast(words)),
            _ => self.avx512f._mm512_extracti64x4_epi64::<1>(cast(words)),
        };
        cast(self.avx512f._mm512_cvtph_ps(half))
    }
}

/// Returns true if the processor has the instructions of [`dot_pairs`].
pub(super) fn has_dot() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
}

/// Stores `tile [rows, depth]` times `panel [depth, PANEL]`, both of `bf16` pairs, to `out`, of at most twelve rows.
///
/// # Panics
///
/// If the processor lacks the instructions, or the shapes differ.
pub(super) fn dot_pairs(
    tile: Tile<'_>,
    panel: Panel<'_>,
    ahead: &mut Ahead,
    out: &mut OutputRows<'_>,
    then: Then,
) {
    assert!(has_dot(), "the dot product is for processors that have it");
    // SAFETY: the processor has AVX-512F and AVX512_BF16.
    unsafe { dot_rows(tile, panel, ahead, out, then) }
}

/// Selects a kernel for each number of rows, so that all sums stay in registers.
#[target_feature(enable = "avx512f,avx512bf16")]
fn dot_rows(
    tile: Tile<'_>,
    panel: Panel<'_>,
    ahead: &mut Ahead,
    out: &mut OutputRows<'_>,
    then: Then,
) {
    match out.len() {
        0 => {}
        1 => some_dot_rows::<1>(tile, panel, ahead, out, then),
        2 => some_dot_rows::<2>(tile, panel, ahead, out, then),
        3 => some_dot_rows::<3>(tile, panel, ahead, out, then),
        4 => some_dot_rows::<4>(tile, panel, ahead, out, then),
        5 => some_dot_rows::<5>(tile, panel, ahead, out, then),
        6 => some_dot_rows::<6>(tile, panel, ahead, out, then),
        7 => some_dot_rows::<7>(tile, panel, ahead, out, then),
        8 => some_dot_rows::<8>(tile, panel, ahead, out, then),
        9 => some_dot_rows::<9>(tile, panel, ahead, out, then),
        10 => some_dot_rows::<10>(tile, panel, ahead, out, then),
        11 => some_dot_rows::<11>(tile, panel, ahead, out, then),
        12 => some_dot_rows::<12>(tile, panel, ahead, out, then),
        rows => unreachable!("a tile of {rows} rows"),
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn some_dot_rows<const R: usize>(
    tile: Tile<'_>,
    panel: Panel<'_>,
    ahead: &mut Ahead,
    out: &mut OutputRows<'_>,
    then: Then,
) {
    let Panel { words, stride, half, depth } = panel;
    tile.assert_shape(R, depth);
    panel.assert_words();
    assert_eq!((out.len(), half), (R, BLOCK), "a kernel for its rows, a panel of whole lines");
    let mut acc = [[_mm512_setzero_ps(); 2]; R];
    let mut next = *ahead;
    for step in (0..depth).step_by(STEPS) {
        next.prefetch_due();
        for p in step..depth.min(step + STEPS) {
            // SAFETY: the last line ends within `words`, by the last assertion.
            let b = unsafe {
                let line = words.as_ptr().add(p * stride).cast();
                [_mm512_loadu_epi32(line), _mm512_loadu_epi32(line.add(BLOCK))]
            };
            for (r, acc) in acc.iter_mut().enumerate() {
                // SAFETY: `r < R` and `p < depth`, which the tile has.
                let a = unsafe { *tile.words.get_unchecked(r * tile.row + p * tile.word) };
                let a = cast(_mm512_set1_epi32(a as i32));
                acc[0] = _mm512_dpbf16_ps(acc[0], a, cast(b[0]));
                acc[1] = _mm512_dpbf16_ps(acc[1], a, cast(b[1]));
            }
        }
    }
    *ahead = next;
    for (row, [mut low, mut high]) in acc.into_iter().enumerate() {
        let out = out.row(row);
        // SAFETY: these are the 32 elements of a row of `out`.
        unsafe {
            let start = out.as_mut_ptr();
            if then == Then::Add {
                low = _mm512_add_ps(_mm512_loadu_ps(start), low);
                high = _mm512_add_ps(_mm512_loadu_ps(start.add(BLOCK)), high);
            }
            _mm512_storeu_ps(start, low);
            _mm512_storeu_ps(start.add(BLOCK), high);
        }
    }
}

/// Multiplies pairs in registers, `steps` times. Returns the number of multiply-adds.
///
/// # Panics
///
/// If the processor lacks the instructions.
pub(super) fn dot_registers(steps: usize) -> usize {
    assert!(has_dot(), "the dot product is for processors that have it");
    // SAFETY: the processor has AVX-512F and AVX512_BF16.
    unsafe { some_dot_registers(steps) }
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn some_dot_registers(steps: usize) -> usize {
    const SUMS: usize = 24;
    /// A pair of the `bf16` number 0.25.
    const QUARTERS: u32 = 0x3e80_3e80;
    let quarters = cast(_mm512_set1_epi32(black_box(QUARTERS) as i32));
    let mut sums = [_mm512_setzero_ps(); SUMS];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, quarters, quarters);
        }
    }
    black_box(sums);
    steps * SUMS * 2 * BLOCK
}
