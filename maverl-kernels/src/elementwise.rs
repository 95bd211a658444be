//! Sums, products, factors, columns and bytes of arrays.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use pulp::{Simd, WithSimd};

use crate::matmul::nearest_bf16;
use crate::{par, simd};

/// Adds `x` to `sum`, element by element.
///
/// # Panics
///
/// If the lengths differ.
pub fn add_numbers(sum: &mut [f32], x: &[f32]) {
    assert_eq!(sum.len(), x.len(), "sum: {} numbers and {}", sum.len(), x.len());
    par::for_each_part(sum, 1, |start, sum| {
        sum.iter_mut().zip(&x[start..]).for_each(|(sum, x)| *sum += x);
    });
}

/// Multiplies each element by a factor.
pub fn scale_numbers(x: &mut [f32], factor: f32) {
    par::for_each_part(x, 1, |_, x| x.iter_mut().for_each(|x| *x *= factor));
}

/// Computes the products of the elements of `a` and `b`.
///
/// # Panics
///
/// If the lengths differ.
pub fn multiply_numbers(a: &[f32], b: &[f32], out: &mut [f32]) {
    assert_eq!([a.len(), b.len()], [out.len(); 2], "multiply: lengths");
    par::for_each_part(out, 1, |start, out| {
        let pairs = a[start..].iter().zip(&b[start..]);
        out.iter_mut().zip(pairs).for_each(|(out, (a, b))| *out = a * b);
    });
}

/// Copies some columns of the rows of `x [n, width]` to `part [n, columns]`.
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn copy_columns(x: &[f32], width: usize, columns: Range<usize>, part: &mut [f32]) {
    check_columns(x.len(), width, &columns, part.len());
    let narrow = columns.len();
    par::for_each_part(part, narrow, |start, part| {
        let rows = x.chunks_exact(width).skip(start / narrow);
        for (to, row) in part.chunks_exact_mut(narrow).zip(rows) {
            to.copy_from_slice(&row[columns.clone()]);
        }
    });
}

/// Copies `part [n, columns]` to some columns of the rows of `x [n, width]`: the reverse of [`copy_columns`].
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn write_columns(part: &[f32], x: &mut [f32], width: usize, columns: Range<usize>) {
    check_columns(x.len(), width, &columns, part.len());
    let narrow = columns.len();
    par::for_each_part(x, width, |start, x| {
        let parts = part.chunks_exact(narrow).skip(start / width);
        for (row, from) in x.chunks_exact_mut(width).zip(parts) {
            row[columns.clone()].copy_from_slice(from);
        }
    });
}

/// Asserts the shapes of rows and of their columns.
fn check_columns(len: usize, width: usize, columns: &Range<usize>, part: usize) {
    let inside = !columns.is_empty() && columns.end <= width && len.is_multiple_of(width);
    assert!(
        inside && len / width * columns.len() == part,
        "columns {columns:?} of {len} elements in rows of {width}: {part}"
    );
}

/// Copies numbers as little-endian bytes of `f32`.
///
/// # Panics
///
/// If `bytes` has not four bytes for each number.
pub fn copy_to_bytes(x: &[f32], bytes: &mut [u8]) {
    assert_eq!(bytes.len(), 4 * x.len(), "bytes of {} numbers", x.len());
    par::for_each_part(bytes.as_chunks_mut::<4>().0, 1, |start, part| {
        part.iter_mut().zip(&x[start..]).for_each(|(bytes, x)| *bytes = x.to_le_bytes());
    });
}

/// Rounds numbers to the nearest `bf16`, ties to even, as little-endian bytes. Returns true if a finite number became an
/// infinity.
///
/// # Panics
///
/// If `bytes` has not two bytes for each number.
pub fn round_to_bf16_bytes(x: &[f32], bytes: &mut [u8]) -> bool {
    assert_eq!(bytes.len(), 2 * x.len(), "bytes of {} numbers in bf16", x.len());
    let overflowed = AtomicBool::new(false);
    par::for_each_part(bytes.as_chunks_mut::<2>().0, 1, |start, part| {
        if simd::dispatch(RoundToBytes { x: &x[start..start + part.len()], bytes: part }) {
            overflowed.store(true, Ordering::Relaxed);
        }
    });
    overflowed.into_inner()
}

/// Operation of [`round_to_bf16_bytes`].
struct RoundToBytes<'a> {
    x: &'a [f32],
    bytes: &'a mut [[u8; 2]],
}

impl WithSimd for RoundToBytes<'_> {
    type Output = bool;

    /// Compiled for each path. The instructions that are needed are those of whole numbers, which the compiler finds.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        /// Bits of an infinity without its sign.
        const INFINITE: u32 = 0x7f80_0000;
        let mut overflowed = 0;
        for (bytes, x) in self.bytes.iter_mut().zip(self.x) {
            let rounded = nearest_bf16(x.to_bits());
            let (before, after) = (x.to_bits() & !(1 << 31), rounded & !(1 << 31));
            overflowed |= u32::from(before < INFINITE) & u32::from(after == INFINITE);
            *bytes = ((rounded >> 16) as u16).to_le_bytes();
        }
        overflowed != 0
    }
}

#[cfg(test)]
mod tests;
