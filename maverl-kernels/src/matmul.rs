//! Matrix products whose rows do not know of each other.
//!
//! The `gemm` crate does the work. Left alone it breaks K-1 in three places, each closed here: small products (16 x 16
//! outputs and less) and those of one row or column go through other instructions, so few rows are padded; sums over more
//! than 512 terms are cut where the cache sizes say, so they are cut here, by their length alone; sums of one or two terms
//! have their own path, and here too.
#![allow(unsafe_code)]

use gemm::Parallelism;

use crate::{lanes, par};

/// Terms that `gemm` sums in one go whatever the other sizes are.
const TERMS: usize = 512;
/// Outputs up to which `gemm` may take the path for small products.
const SMALL: usize = 16 * 16;
/// Rows that a product has at least.
const MIN_ROWS: usize = 8;
/// Columns below which rows are plain dot products.
const MIN_COLS: usize = 8;
/// Multiplications below which threads are not worth starting.
const PARALLEL: usize = 64 * 64 * 128;

/// A matrix as `gemm` sees it: where element `(i, j)` lies.
#[derive(Clone, Copy)]
struct Layout {
    row: isize,
    col: isize,
}

/// Computes `out[m, n] = a[m, k] · b[n, k]ᵀ`: a linear layer, `y = x Wᵀ`.
///
/// # Panics
///
/// If a slice does not have the length of its shape.
pub fn matmul_nt(a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize, k: usize) {
    check("matmul_nt", [("a", a.len(), m, k), ("b", b.len(), n, k), ("out", out.len(), m, n)]);
    if n < MIN_COLS || k <= 2 {
        par::parts(out, n.max(1), |start, out| {
            lanes::dispatch(
                #[inline(always)]
                || dots(&a[start / n.max(1) * k..], b, out, n, k),
            );
        });
        return;
    }
    rows(a, b, Layout { row: 1, col: k as isize }, out, m, n, k);
}

/// Computes `out[m, n] = a[m, k] · b[k, n]`.
///
/// # Panics
///
/// If a slice does not have the length of its shape.
pub fn matmul_nn(a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize, k: usize) {
    check("matmul_nn", [("a", a.len(), m, k), ("b", b.len(), k, n), ("out", out.len(), m, n)]);
    if n < MIN_COLS || k <= 2 {
        let transposed: Vec<f32> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
        return par::parts(out, n.max(1), |start, out| {
            dots(&a[start / n.max(1) * k..], &transposed, out, n, k);
        });
    }
    rows(a, b, Layout { row: n as isize, col: 1 }, out, m, n, k);
}

/// Computes `out[m, n] += a[k, m]ᵀ · b[k, n]`: the gradient of a weight, summed over `k` rows.
///
/// # Panics
///
/// If a slice does not have the length of its shape.
pub fn matmul_tn_acc(a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize, k: usize) {
    check("matmul_tn_acc", [("a", a.len(), k, m), ("b", b.len(), k, n), ("out", out.len(), m, n)]);
    let a_layout = Layout { row: 1, col: m as isize };
    let b_layout = Layout { row: n as isize, col: 1 };
    product(a, a_layout, b, b_layout, out, m, n, k, Then::Add);
}

/// Asserts that each slice holds its `rows x cols`.
fn check(name: &str, shapes: [(&str, usize, usize, usize); 3]) {
    for (slice, len, rows, cols) in shapes {
        assert_eq!(len, rows * cols, "{name}: {slice} has {len} elements, not [{rows}, {cols}]");
    }
}

/// Rows of dot products `out[.., n] = a[.., k] · b[n, k]ᵀ`, for the shapes that are kept from `gemm`.
#[inline(always)]
fn dots(a: &[f32], b: &[f32], out: &mut [f32], n: usize, k: usize) {
    if k == 0 {
        return out.fill(0.0);
    }
    for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n.max(1))) {
        for (b, out) in b.chunks_exact(k).zip(out) {
            *out = lanes::dot(a, b);
        }
    }
}

/// `out[m, n] = a[m, k] · b`, with enough rows for the bits of one not to depend on how many there are.
fn rows(a: &[f32], b: &[f32], b_layout: Layout, out: &mut [f32], m: usize, n: usize, k: usize) {
    let a_layout = Layout { row: k as isize, col: 1 };
    let enough = MIN_ROWS.max(SMALL / n + 1);
    if m == 0 || m >= enough {
        return cut(a, a_layout, b, b_layout, out, m, n, k);
    }
    let mut padded = vec![0.0; enough * k];
    padded[..m * k].copy_from_slice(a);
    let mut result = vec![0.0; enough * n];
    cut(&padded, a_layout, b, b_layout, &mut result, enough, n, k);
    out.copy_from_slice(&result[..m * n]);
}

/// A product cut into pieces of at most [`TERMS`] terms, as equal as can be.
#[expect(clippy::too_many_arguments, reason = "two matrices, their layouts and three sizes")]
fn cut(
    a: &[f32],
    a_layout: Layout,
    b: &[f32],
    b_layout: Layout,
    out: &mut [f32],
    m: usize,
    n: usize,
    k: usize,
) {
    let size = k.div_ceil(k.div_ceil(TERMS));
    for start in (0..k).step_by(size) {
        let then = if start == 0 { Then::Set } else { Then::Add };
        let (a, b) = (&a[start * a_layout.col as usize..], &b[start * b_layout.row as usize..]);
        product(a, a_layout, b, b_layout, out, m, n, size.min(k - start), then);
    }
}

/// What happens to the value that an output had.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Set,
    Add,
}

/// The largest index of a matrix plus one.
fn extent(layout: Layout, rows: usize, cols: usize) -> usize {
    if rows == 0 || cols == 0 {
        return 0;
    }
    (rows - 1) * layout.row as usize + (cols - 1) * layout.col as usize + 1
}

/// The one call to `gemm`: `out[m, n] (+)= a[m, k] · b[k, n]` with `out` row-major.
#[expect(clippy::too_many_arguments, reason = "two matrices, their layouts and three sizes")]
fn product(
    a: &[f32],
    a_layout: Layout,
    b: &[f32],
    b_layout: Layout,
    out: &mut [f32],
    m: usize,
    n: usize,
    k: usize,
    then: Then,
) {
    assert!(a.len() >= extent(a_layout, m, k) && b.len() >= extent(b_layout, k, n));
    assert_eq!(out.len(), m * n);
    let threads = rayon::current_num_threads();
    let parallelism = if threads > 1 && m * n * k >= PARALLEL {
        Parallelism::Rayon(threads)
    } else {
        Parallelism::None
    };
    // SAFETY: the strides are non-negative, so the largest index read from `a` and `b` is their extent minus one, which
    // the first assertion holds below their lengths; `out` is `m * n` contiguous elements, borrowed mutably and thus not
    // overlapping `a` or `b`; all pointers are valid for `f32`.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            then == Then::Add,
            a.as_ptr(),
            a_layout.col,
            a_layout.row,
            b.as_ptr(),
            b_layout.col,
            b_layout.row,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests;
