//! The kernels in AVX-512, for processors that have it.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::kernel::{Places, Then};
use super::layout::{BLOCK, Element, PANEL, Panel, Tile};

/// What [`kernel`] needs for `f32`.
pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// What [`kernel`] needs for `bf16`.
pub(super) fn has_avx512_bf16() -> bool {
    has_avx512() && is_x86_feature_detected!("avx512bf16")
}

/// Puts `tile [rows, depth]` times `panel [depth, PANEL]` into `out`, of at most twelve rows.
///
/// # Panics
///
/// If the processor lacks the instructions, or the shapes differ.
pub(super) fn kernel<E: Element>(
    tile: Tile<'_>,
    panel: Panel<'_>,
    out: &mut Places<'_>,
    then: Then,
) {
    if E::TERMS == 1 {
        assert!(has_avx512(), "the AVX-512 path is for processors that have it");
        // SAFETY: the processor has AVX-512F.
        unsafe { f32_rows(tile, panel, out, then) }
    } else {
        assert!(has_avx512_bf16(), "the AVX-512 path is for processors that have it");
        // SAFETY: the processor has AVX-512F and AVX512_BF16.
        unsafe { bf16_rows(tile, panel, out, then) }
    }
}

/// A kernel for each number of rows, so that all sums stay in registers.
macro_rules! kernels {
    ($rows:ident, $some:ident, $features:literal, $multiply_add:expr) => {
        #[target_feature(enable = $features)]
        fn $rows(tile: Tile<'_>, panel: Panel<'_>, out: &mut Places<'_>, then: Then) {
            match out.len() {
                0 => {}
                1 => $some::<1>(tile, panel, out, then),
                2 => $some::<2>(tile, panel, out, then),
                3 => $some::<3>(tile, panel, out, then),
                4 => $some::<4>(tile, panel, out, then),
                5 => $some::<5>(tile, panel, out, then),
                6 => $some::<6>(tile, panel, out, then),
                7 => $some::<7>(tile, panel, out, then),
                8 => $some::<8>(tile, panel, out, then),
                9 => $some::<9>(tile, panel, out, then),
                10 => $some::<10>(tile, panel, out, then),
                11 => $some::<11>(tile, panel, out, then),
                12 => $some::<12>(tile, panel, out, then),
                rows => unreachable!("a tile of {rows} rows"),
            }
        }

        #[target_feature(enable = $features)]
        fn $some<const R: usize>(
            tile: Tile<'_>,
            panel: Panel<'_>,
            out: &mut Places<'_>,
            then: Then,
        ) {
            let Panel { words, stride, depth } = panel;
            tile.check(R, depth);
            assert_eq!(out.len(), R, "a kernel for its rows");
            assert!(depth == 0 || words.len() >= (depth - 1) * stride + PANEL);
            let mut acc = [[_mm512_setzero_ps(); 2]; R];
            for p in 0..depth {
                // SAFETY: the last line ends within `words`, by the last assertion.
                let b = unsafe {
                    let line = words.as_ptr().add(p * stride).cast();
                    [_mm512_loadu_epi32(line), _mm512_loadu_epi32(line.add(16))]
                };
                for (r, acc) in acc.iter_mut().enumerate() {
                    // SAFETY: `r < R` and `p < depth`, which the tile has.
                    let a = unsafe { *tile.words.get_unchecked(r * tile.row + p * tile.word) };
                    let a = _mm512_set1_epi32(a as i32);
                    acc[0] = $multiply_add(a, b[0], acc[0]);
                    acc[1] = $multiply_add(a, b[1], acc[1]);
                }
            }
            for (out, [mut low, mut high]) in out.iter_mut().zip(acc) {
                let out: &mut [f32; PANEL] = (&mut **out).try_into().expect("a row of a panel");
                // SAFETY: these are the 32 places of `out`.
                unsafe {
                    let start = out.as_mut_ptr();
                    if then == Then::Add {
                        low = _mm512_add_ps(_mm512_loadu_ps(start), low);
                        high = _mm512_add_ps(_mm512_loadu_ps(start.add(16)), high);
                    }
                    _mm512_storeu_ps(start, low);
                    _mm512_storeu_ps(start.add(16), high);
                }
            }
        }
    };
}

kernels!(f32_rows, some_f32_rows, "avx512f", |a, b, sum| _mm512_fmadd_ps(
    _mm512_castsi512_ps(a),
    _mm512_castsi512_ps(b),
    sum
));
kernels!(bf16_rows, some_bf16_rows, "avx512f,avx512bf16", |a, b, sum| _mm512_dpbf16_ps(
    sum,
    pairs(a),
    pairs(b)
));

/// Words as pairs of `bf16`.
#[target_feature(enable = "avx512f")]
fn pairs(words: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes without invalid bits.
    unsafe { std::mem::transmute(words) }
}

/// Asks for a cache line.
#[inline(always)]
pub(super) fn prefetch(address: *const i8) {
    // SAFETY: a prefetch reads nothing that the program sees and does not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address) }
}

/// Turns a block of words.
pub(super) fn transpose(block: &mut [[u32; BLOCK]; BLOCK]) {
    assert!(has_avx512(), "the AVX-512 path is for processors that have it");
    // SAFETY: the processor has AVX-512F.
    unsafe { transpose_avx512(block) }
}

/// Pairs of rows, then fours, then the quarters of the vectors.
#[target_feature(enable = "avx512f")]
fn transpose_avx512(block: &mut [[u32; BLOCK]; BLOCK]) {
    let rows: [__m512i; 16] = std::array::from_fn(|i| {
        // SAFETY: a row is 16 words.
        unsafe { _mm512_loadu_epi32(block[i].as_ptr().cast()) }
    });
    let mut pairs = rows;
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    // Quarter `q` of `fours[4 i + j]` is column `4 q + j` of rows `4 i..4 i + 4`.
    let mut fours = pairs;
    for i in 0..4 {
        let pairs = &pairs[4 * i..4 * i + 4];
        fours[4 * i] = _mm512_unpacklo_epi64(pairs[0], pairs[2]);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(pairs[0], pairs[2]);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(pairs[1], pairs[3]);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(pairs[1], pairs[3]);
    }
    for j in 0..4 {
        let (a, b, c, d) = (fours[j], fours[4 + j], fours[8 + j], fours[12 + j]);
        let (top, bottom) =
            (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0x88>(c, d));
        let (odd_top, odd_bottom) =
            (_mm512_shuffle_i32x4::<0xdd>(a, b), _mm512_shuffle_i32x4::<0xdd>(c, d));
        let columns = [
            (j, _mm512_shuffle_i32x4::<0x88>(top, bottom)),
            (4 + j, _mm512_shuffle_i32x4::<0x88>(odd_top, odd_bottom)),
            (8 + j, _mm512_shuffle_i32x4::<0xdd>(top, bottom)),
            (12 + j, _mm512_shuffle_i32x4::<0xdd>(odd_top, odd_bottom)),
        ];
        for (column, words) in columns {
            // SAFETY: a row is 16 words.
            unsafe { _mm512_storeu_epi32(block[column].as_mut_ptr().cast(), words) };
        }
    }
}
