//! Matrix products whose rows do not know of each other, in `f32` and `bf16`.
//!
//! An element of a product is the sum of its terms taken in ascending order, one chain of fused multiply-adds for each
//! piece of at most 512 words (a word is one `f32` or two `bf16`), the pieces added in their order. Nothing else enters: not the other
//! rows, not the number of threads, not how a matrix was cut or packed. K-1 follows without a special case. In `f32` every
//! path has the same bits; in `bf16` the same holds of the paths that widen terms to `f32` (scalar, NEON, AVX2, and AVX-512 without
//! AVX512_BF16). The dot products of AVX512_BF16 and of AMX decide themselves how two terms meet and what becomes of
//! subnormal numbers, so these two have bits of their own and agree with the others to rounding.
//!
//! The right side is taken in panels of 32 columns. [`PackedWeight`] keeps a weight in that form, which few rows need (decoding):
//! their product is one pass over the weight's memory. [`Matmul::nt`] lays it out anew in each call, which many rows pay
//! for. Arrays are `f32` always; [`Precision::Bf16`] rounds them where they are laid out.

mod ceiling;
mod engine;
mod kernel;
mod layout;
mod path;
mod vectors;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use ceiling::multiply_add_registers;
use engine::{Out, Product, Then};
use layout::{Bf16, Element, F32, Line, Matrix, Order, Panels};
use path::Path;
pub(crate) use path::prefetch;

/// Tests if the processor has AMX for `bf16`, and the system lets this process use it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_amx() -> bool {
    amx::works()
}

/// What the terms of a product are rounded to. Sums are `f32` in any case, and so are the arrays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Not at all.
    #[default]
    F32,
    /// To the nearest `bf16`.
    Bf16,
}

impl Precision {
    /// Products that overwrite what they are given.
    pub fn set(self) -> Matmul {
        Matmul { precision: self, then: Then::Set }
    }

    /// Products that are added to what they are given.
    pub fn add(self) -> Matmul {
        Matmul { precision: self, then: Then::Add }
    }
}

/// A matrix product: its precision, and what happens to the values that the output had.
#[derive(Debug, Clone, Copy)]
pub struct Matmul {
    precision: Precision,
    then: Then,
}

impl Matmul {
    /// What terms are rounded to.
    pub fn precision(self) -> Precision {
        self.precision
    }

    /// `out[m, n] (+)= a[m, k] · b[n, k]ᵀ`: a linear layer, `y = x Wᵀ`.
    ///
    /// # Panics
    ///
    /// If a slice does not have the length of its shape.
    pub fn nt(self, a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize, k: usize) {
        check("nt", [("a", a.len(), m, k), ("b", b.len(), n, k), ("out", out.len(), m, n)]);
        self.run((a, m, Order::Terms), (b, n, Order::Terms), out, k);
    }

    /// `out[m, n] (+)= a[m, k] · wᵀ` with `w [n, k]` packed: the bits of [`Matmul::nt`], without its look at `w`.
    ///
    /// # Panics
    ///
    /// If a slice does not have the length of its shape, or `w` was packed for another precision.
    pub fn nt_packed(self, a: &[f32], w: &PackedWeight, out: &mut [f32], m: usize) {
        let (n, k) = w.shape();
        check("nt_packed", [("a", a.len(), m, k), ("w", n * k, n, k), ("out", out.len(), m, n)]);
        assert_eq!(w.precision, self.precision, "nt_packed: w is packed for another precision");
        match self.precision {
            Precision::F32 => self.run_packed::<F32>(a, m, w, out),
            Precision::Bf16 => self.run_packed::<Bf16>(a, m, w, out),
        }
    }

    /// `out[m, n] (+)= a[m, k] · b[k, n]`: the gradient of a layer's input, `dx = dy W`.
    ///
    /// # Panics
    ///
    /// If a slice does not have the length of its shape.
    pub fn nn(self, a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize, k: usize) {
        check("nn", [("a", a.len(), m, k), ("b", b.len(), k, n), ("out", out.len(), m, n)]);
        self.run((a, m, Order::Terms), (b, n, Order::Indices), out, k);
    }

    /// `out[m, n] (+)= a[k, m]ᵀ · b[k, n]`: the gradient of a weight, summed over `k` rows.
    ///
    /// # Panics
    ///
    /// If a slice does not have the length of its shape.
    pub fn tn(self, a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize, k: usize) {
        check("tn", [("a", a.len(), k, m), ("b", b.len(), k, n), ("out", out.len(), m, n)]);
        self.run((a, m, Order::Indices), (b, n, Order::Indices), out, k);
    }

    fn run(self, a: Side<'_>, b: Side<'_>, out: &mut [f32], terms: usize) {
        match self.precision {
            Precision::F32 => run::<F32>(a, b, out, terms, self.then, Path::current::<F32>()),
            Precision::Bf16 => run::<Bf16>(a, b, out, terms, self.then, Path::current::<Bf16>()),
        }
    }

    fn run_packed<E: Element>(self, a: &[f32], m: usize, w: &PackedWeight, out: &mut [f32]) {
        let a = Matrix::<E>::new(a, m, w.inputs, Order::Terms);
        let b = Panels::PackedWeight { lines: &w.lines, columns: w.outputs };
        let out = Out::new(out, w.outputs);
        Product { a, b, out, then: self.then, path: Path::current::<E>() }.run();
    }
}

/// A weight `[outputs, inputs]` in the form that products read: made once, used by every [`Matmul::nt_packed`] until the
/// weight changes, then [`PackedWeight::update`]d by its owner.
#[derive(Debug, Clone)]
pub struct PackedWeight {
    precision: Precision,
    outputs: usize,
    inputs: usize,
    lines: Vec<Line>,
}

impl PackedWeight {
    /// Packs `w [outputs, inputs]`.
    ///
    /// # Panics
    ///
    /// If `w` does not have the length of its shape.
    pub fn pack(precision: Precision, w: &[f32], outputs: usize, inputs: usize) -> Self {
        let lines = vec![Line::default(); lines(precision, outputs, inputs)];
        let mut packed = Self { precision, outputs, inputs, lines };
        packed.update(w);
        packed
    }

    /// Packs the values that the weight has now, into the memory of the old ones.
    ///
    /// # Panics
    ///
    /// If `w` does not have the length of the packed shape.
    pub fn update(&mut self, w: &[f32]) {
        let (o, i) = self.shape();
        assert_eq!(w.len(), o * i, "packed weight: w has {} elements, not [{o}, {i}]", w.len());
        match self.precision {
            Precision::F32 => {
                let w = Matrix::<F32>::new(w, o, i, Order::Terms);
                engine::pack(&w, &mut self.lines, Path::current::<F32>());
            }
            Precision::Bf16 => {
                let w = Matrix::<Bf16>::new(w, o, i, Order::Terms);
                engine::pack(&w, &mut self.lines, Path::current::<Bf16>());
            }
        }
    }

    /// Outputs and inputs.
    pub fn shape(&self) -> (usize, usize) {
        (self.outputs, self.inputs)
    }

    /// Bytes of a packed weight: its outputs are rounded up to 32, and in `bf16`, where a term has two bytes, its inputs
    /// to 32.
    pub fn bytes(precision: Precision, outputs: usize, inputs: usize) -> usize {
        lines(precision, outputs, inputs) * size_of::<Line>()
    }
}

fn lines(precision: Precision, outputs: usize, inputs: usize) -> usize {
    match precision {
        Precision::F32 => layout::panel_lines::<F32>(outputs, inputs),
        Precision::Bf16 => layout::panel_lines::<Bf16>(outputs, inputs),
    }
}

/// Values, how many sums they enter, and how they lie.
type Side<'a> = (&'a [f32], usize, Order);

fn run<E: Element>(
    (a, m, a_order): Side<'_>,
    (b, n, b_order): Side<'_>,
    out: &mut [f32],
    terms: usize,
    then: Then,
    path: Path,
) {
    let a = Matrix::<E>::new(a, m, terms, a_order);
    let b = Panels::Of(Matrix::new(b, n, terms, b_order));
    Product { a, b, out: Out::new(out, n), then, path }.run();
}

/// Asserts that each slice holds its `rows x cols`.
fn check(name: &str, shapes: [(&str, usize, usize, usize); 3]) {
    for (slice, len, rows, cols) in shapes {
        assert_eq!(len, rows * cols, "{name}: {slice} has {len} elements, not [{rows}, {cols}]");
    }
}

#[cfg(test)]
mod tests;
