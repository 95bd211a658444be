//! Matrix products whose rows do not know of each other, in `f32` and `bf16`.
//!
//! An element of a product is the sum of its terms taken in ascending order, one chain of fused multiply-adds for each
//! piece of at most 512 words (a word is one `f32` or two `bf16`), the pieces added in their order. Nothing else enters: not the other
//! rows, not the number of threads, not how a matrix was cut or packed. K-1 follows without a special case. In `f32` every
//! path has the same bits; in `bf16` the processor's own dot product decides how two terms meet, so bits hold on one
//! path and agree to rounding between paths.
//!
//! The right side is taken in panels of 32 columns. [`Packed`] keeps a weight in that form, which few rows need (decoding):
//! their product is one pass over the weight's memory. [`matmul_nt`] lays it out anew in each call, which many rows pay
//! for.

mod engine;
mod kernel;
mod layout;
mod path;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod x86;

use engine::{Out, Product, Then};
use half::bf16;
use layout::{Line, Matrix, Order, Panels};
use path::Path;

pub use layout::Element;

/// Computes `out[m, n] = a[m, k] · b[n, k]ᵀ`: a linear layer, `y = x Wᵀ`.
///
/// # Panics
///
/// If a slice does not have the length of its shape.
pub fn matmul_nt<E: Element>(a: &[E], b: &[E], out: &mut [f32], m: usize, n: usize, k: usize) {
    check("matmul_nt", [("a", a.len(), m, k), ("b", b.len(), n, k), ("out", out.len(), m, n)]);
    let (a, b) = (Matrix::new(a, m, k, Order::Terms), Matrix::new(b, n, k, Order::Terms));
    run(a, Panels::Of(b), out, Then::Set, Path::best::<E>());
}

/// Computes `out[m, n] = a[m, k] · wᵀ` with `w [n, k]` packed: the bits of [`matmul_nt`], without its look at `w`.
///
/// # Panics
///
/// If a slice does not have the length of its shape.
pub fn matmul_nt_packed<E: Element>(a: &[E], w: &Packed<E>, out: &mut [f32], m: usize) {
    let (n, k) = w.shape();
    check("matmul_nt_packed", [("a", a.len(), m, k), ("w", n * k, n, k), ("out", out.len(), m, n)]);
    let a = Matrix::new(a, m, k, Order::Terms);
    run(a, Panels::Packed { lines: &w.lines, columns: n }, out, Then::Set, Path::best::<E>());
}

/// Computes `out[m, n] = a[m, k] · b[k, n]`: the gradient of a layer's input, `dx = dy W`.
///
/// # Panics
///
/// If a slice does not have the length of its shape.
pub fn matmul_nn<E: Element>(a: &[E], b: &[E], out: &mut [f32], m: usize, n: usize, k: usize) {
    check("matmul_nn", [("a", a.len(), m, k), ("b", b.len(), k, n), ("out", out.len(), m, n)]);
    let (a, b) = (Matrix::new(a, m, k, Order::Terms), Matrix::new(b, n, k, Order::Indices));
    run(a, Panels::Of(b), out, Then::Set, Path::best::<E>());
}

/// Computes `out[m, n] += a[k, m]ᵀ · b[k, n]`: the gradient of a weight, summed over `k` rows.
///
/// # Panics
///
/// If a slice does not have the length of its shape.
pub fn matmul_tn_acc<E: Element>(a: &[E], b: &[E], out: &mut [f32], m: usize, n: usize, k: usize) {
    check("matmul_tn_acc", [("a", a.len(), k, m), ("b", b.len(), k, n), ("out", out.len(), m, n)]);
    let (a, b) = (Matrix::new(a, m, k, Order::Indices), Matrix::new(b, n, k, Order::Indices));
    run(a, Panels::Of(b), out, Then::Add, Path::best::<E>());
}

/// A weight `[outputs, inputs]` in the form that products read: made once, used by every [`matmul_nt_packed`] until the
/// weight changes, then [`Packed::update`]d by its owner.
///
/// It takes the memory of the weight, its outputs rounded up to 32 (and in `bf16` its inputs to 32).
#[derive(Debug, Clone)]
pub struct Packed<E> {
    outputs: usize,
    inputs: usize,
    lines: Vec<Line>,
    element: std::marker::PhantomData<E>,
}

/// A packed weight in single precision.
pub type PackedWeight = Packed<f32>;

impl<E: Element> Packed<E> {
    /// Packs `w [outputs, inputs]`.
    ///
    /// # Panics
    ///
    /// If `w` does not have the length of its shape.
    pub fn pack(w: &[E], outputs: usize, inputs: usize) -> Self {
        let lines = vec![Line::default(); layout::panel_lines::<E>(outputs, inputs)];
        let mut packed = Self { outputs, inputs, lines, element: std::marker::PhantomData };
        packed.update(w);
        packed
    }

    /// Packs the values that the weight has now, into the memory of the old ones.
    ///
    /// # Panics
    ///
    /// If `w` does not have the length of the packed shape.
    pub fn update(&mut self, w: &[E]) {
        let (o, i) = self.shape();
        assert_eq!(w.len(), o * i, "packed weight: w has {} elements, not [{o}, {i}]", w.len());
        engine::pack(Matrix::new(w, o, i, Order::Terms), &mut self.lines, Path::best::<E>());
    }

    /// Outputs and inputs.
    pub fn shape(&self) -> (usize, usize) {
        (self.outputs, self.inputs)
    }
}

/// Rounds to the nearest `bf16`, ties to even, as the processor's own instructions do; NaN stays NaN.
///
/// # Panics
///
/// If the lengths differ.
pub fn round_to_bf16(x: &[f32], out: &mut [bf16]) {
    assert_eq!(out.len(), x.len(), "round_to_bf16: out has {}, x has {}", out.len(), x.len());
    crate::par::parts(out, 1, |start, out| {
        let x = &x[start..start + out.len()];
        crate::lanes::dispatch(
            #[inline(always)]
            || {
                for (out, &x) in out.iter_mut().zip(x) {
                    *out = bf16::from_bits(layout::nearest_bf16(x.to_bits()));
                }
            },
        );
    });
}

/// Asserts that each slice holds its `rows x cols`.
fn check(name: &str, shapes: [(&str, usize, usize, usize); 3]) {
    for (slice, len, rows, cols) in shapes {
        assert_eq!(len, rows * cols, "{name}: {slice} has {len} elements, not [{rows}, {cols}]");
    }
}

fn run<E: Element>(a: Matrix<'_, E>, b: Panels<'_, E>, out: &mut [f32], then: Then, path: Path) {
    let out = Out::new(out, b.columns());
    Product { a, b, out, then, path }.run();
}

#[cfg(test)]
mod tests;
