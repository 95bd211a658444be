//! Matrix products whose rows do not depend on each other, in `f32`, `bf16` and `f16`.
//!
//! An element of a product is a sum of terms in ascending order: one chain of fused multiply-adds for each piece of at
//! most 512 words (a word is one `f32`, or two `bf16` or `f16`), with the pieces added in order. Nothing else affects it: not the
//! other rows, not the number of threads, not how a matrix was split or packed. K-1 follows without a special case. In
//! `f32` and `f16` every path has the same bits; terms in `f16` are widened to `f32`. In `bf16` that holds for the paths that
//! widen terms (scalar, NEON, AVX2, and AVX-512 without AVX512_BF16). The dot products of AVX512_BF16 and of AMX define their own addition of two
//! terms and their own handling of subnormal numbers, so these two have bits of their own and agree with the others to
//! rounding.
//!
//! The right side is read in panels of 32 columns. [`PackedWeight`] stores a weight in that layout. Products of few
//! rows (decoding) need it: they are then one pass over the weight's memory. [`Matmul::nt`] packs the weight in each
//! call, which pays off with many rows. Arrays are always `f32`; [`Precision::Bf16`] and [`Precision::F16`] round them during
//! packing.

mod block;
mod ceiling;
mod element;
mod engine;
mod halves;
mod kernel;
mod layout;
mod matrix;
mod multiply;
mod part;
mod path;
mod prefetch;
mod scalar;
mod tiles;
mod vectors;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::pages::large_array;
pub(crate) use block::{BlockPanels, BlockSide};
pub use ceiling::multiply_add_registers;
pub(crate) use element::nearest_bf16;
use element::{Bf16, Element, F16, F32};
use engine::{MatrixProduct, ProductOutput};
use layout::{PackedPanels, Panels};
use matrix::{Matrix, MemoryOrder};
use part::Then;
use path::ProductPath;
pub(crate) use prefetch::prefetch_line;
use tiles::PanelLine;

/// Returns true if the processor has AMX for `bf16` and the operating system lets this process use it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_amx() -> bool {
    amx::is_available()
}

/// Rounding of a product's terms. Sums and arrays are always `f32`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// No rounding.
    #[default]
    F32,
    /// Rounding to the nearest `bf16`.
    Bf16,
    /// Rounding to the nearest `f16`. Subnormal numbers are kept, and numbers from 65,520 on become infinite.
    F16,
}

impl Precision {
    /// Every precision.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// Returns the name, as options have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Returns products that overwrite the output.
    pub fn set(self) -> Matmul {
        Matmul { precision: self, then: Then::Set }
    }

    /// Returns products that are added to the output.
    pub fn add(self) -> Matmul {
        Matmul { precision: self, then: Then::Add }
    }
}

/// A matrix product: its precision, and whether it overwrites the output or adds to it.
#[derive(Debug, Clone, Copy)]
pub struct Matmul {
    precision: Precision,
    then: Then,
}

impl Matmul {
    /// Returns the rounding of terms.
    pub fn precision(self) -> Precision {
        self.precision
    }

    /// Computes `out[m, n] (+)= a[m, k] · b[n, k]ᵀ`: a linear layer, `y = x Wᵀ`.
    ///
    /// # Panics
    ///
    /// If a slice does not have the length of its shape.
    pub fn nt(self, a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize, k: usize) {
        check_shapes("nt", [("a", a.len(), m, k), ("b", b.len(), n, k), ("out", out.len(), m, n)]);
        self.run_sides((a, m, MemoryOrder::Terms), (b, n, MemoryOrder::Terms), out, k);
    }

    /// Computes `out[m, n] (+)= a[m, k] · wᵀ` with `w [n, k]` packed. The bits are those of [`Matmul::nt`]; packing `w`
    /// is saved.
    ///
    /// # Panics
    ///
    /// If a slice does not have the length of its shape, or `w` was packed for another precision.
    pub fn nt_packed(self, a: &[f32], w: &PackedWeight, out: &mut [f32], m: usize) {
        self.nt_packed_each(a, [(w, out)], m);
    }

    /// Computes [`Matmul::nt_packed`] of several weights and outputs with the same `a`. If `m` is small, threads start once
    /// for all of them.
    ///
    /// # Panics
    ///
    /// If a slice does not have the length of its shape, or a weight was packed for another precision.
    pub fn nt_packed_each<const N: usize>(
        self,
        a: &[f32],
        products: [(&PackedWeight, &mut [f32]); N],
        m: usize,
    ) {
        match self.precision {
            Precision::F32 => self.run_packed::<F32, N>(a, m, products),
            Precision::Bf16 => self.run_packed::<Bf16, N>(a, m, products),
            Precision::F16 => self.run_packed::<F16, N>(a, m, products),
        }
    }

    /// Computes `out[m, n] (+)= a[m, k] · b[k, n]`: the gradient of a layer's input, `dx = dy W`.
    ///
    /// # Panics
    ///
    /// If a slice does not have the length of its shape.
    pub fn nn(self, a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize, k: usize) {
        check_shapes("nn", [("a", a.len(), m, k), ("b", b.len(), k, n), ("out", out.len(), m, n)]);
        self.run_sides((a, m, MemoryOrder::Terms), (b, n, MemoryOrder::Indices), out, k);
    }

    /// Computes `out[m, n] (+)= a[k, m]ᵀ · b[k, n]`: the gradient of a weight, summed over `k` rows.
    ///
    /// # Panics
    ///
    /// If a slice does not have the length of its shape.
    pub fn tn(self, a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize, k: usize) {
        check_shapes("tn", [("a", a.len(), k, m), ("b", b.len(), k, n), ("out", out.len(), m, n)]);
        self.run_sides((a, m, MemoryOrder::Indices), (b, n, MemoryOrder::Indices), out, k);
    }

    fn run_sides(self, a: ProductSide<'_>, b: ProductSide<'_>, out: &mut [f32], terms: usize) {
        match self.precision {
            Precision::F32 => {
                run_product::<F32>(a, b, out, terms, self.then, ProductPath::current::<F32>())
            }
            Precision::Bf16 => {
                run_product::<Bf16>(a, b, out, terms, self.then, ProductPath::current::<Bf16>())
            }
            Precision::F16 => {
                run_product::<F16>(a, b, out, terms, self.then, ProductPath::current::<F16>())
            }
        }
    }

    fn run_packed<E: Element, const N: usize>(
        self,
        a: &[f32],
        m: usize,
        products: [(&PackedWeight, &mut [f32]); N],
    ) {
        let products = products.map(|(w, out)| self.packed_product::<E>(a, m, w, out));
        engine::compute_products(&products);
    }

    /// Returns the product `a[m, k] · wᵀ`.
    fn packed_product<'a, E: Element>(
        self,
        a: &'a [f32],
        m: usize,
        w: &'a PackedWeight,
        out: &'a mut [f32],
    ) -> MatrixProduct<'a, E> {
        let (n, k) = w.shape();
        check_shapes(
            "nt_packed",
            [("a", a.len(), m, k), ("w", n * k, n, k), ("out", out.len(), m, n)],
        );
        assert_eq!(w.precision, self.precision, "nt_packed: w is packed for another precision");
        let a = Matrix::<E>::new(a, m, k, MemoryOrder::Terms);
        let (lines, columns) = (&w.lines[..], 0..n);
        let b = Panels::Packed(PackedPanels { lines, columns, words: 0..a.words() });
        let (out, path) = (ProductOutput::new(out, n), ProductPath::current::<E>());
        MatrixProduct { a, b, out, then: self.then, path }
    }
}

/// A weight `[outputs, inputs]` in the layout that products read. It is packed once and used by every
/// [`Matmul::nt_packed`]; when the weight changes, its owner calls [`PackedWeight::update`].
#[derive(Debug, Clone)]
pub struct PackedWeight {
    precision: Precision,
    outputs: usize,
    inputs: usize,
    lines: Vec<PanelLine>,
}

impl PackedWeight {
    /// Packs `w [outputs, inputs]`.
    ///
    /// # Panics
    ///
    /// If `w` does not have the length of its shape.
    pub fn pack(precision: Precision, w: &[f32], outputs: usize, inputs: usize) -> Self {
        let lines = large_array(PanelLine::default(), line_count(precision, outputs, inputs));
        let mut packed = Self { precision, outputs, inputs, lines };
        packed.update(w);
        packed
    }

    /// Packs the weight's new values into the same memory.
    ///
    /// # Panics
    ///
    /// If `w` does not have the length of the packed shape.
    pub fn update(&mut self, w: &[f32]) {
        let (o, i) = self.shape();
        assert_eq!(w.len(), o * i, "packed weight: w has {} elements, not [{o}, {i}]", w.len());
        match self.precision {
            Precision::F32 => self.pack_panels::<F32>(w),
            Precision::Bf16 => self.pack_panels::<Bf16>(w),
            Precision::F16 => self.pack_panels::<F16>(w),
        }
    }

    fn pack_panels<E: Element>(&mut self, w: &[f32]) {
        let w = Matrix::<E>::new(w, self.outputs, self.inputs, MemoryOrder::Terms);
        engine::pack_panels(&w, &mut self.lines, ProductPath::current::<E>());
    }

    /// Returns the number of outputs and inputs.
    pub fn shape(&self) -> (usize, usize) {
        (self.outputs, self.inputs)
    }

    /// Returns the bytes of a packed weight. Outputs are rounded up to 32. In `bf16` and `f16`, where a term has two bytes,
    /// inputs are rounded up to 32 and to 2.
    pub fn packed_bytes(precision: Precision, outputs: usize, inputs: usize) -> usize {
        line_count(precision, outputs, inputs) * size_of::<PanelLine>()
    }
}

fn line_count(precision: Precision, outputs: usize, inputs: usize) -> usize {
    match precision {
        Precision::F32 => layout::panel_lines::<F32>(outputs, inputs),
        Precision::Bf16 => layout::panel_lines::<Bf16>(outputs, inputs),
        Precision::F16 => layout::panel_lines::<F16>(outputs, inputs),
    }
}

/// Values, number of sums, and memory order of one side.
type ProductSide<'a> = (&'a [f32], usize, MemoryOrder);

fn run_product<E: Element>(
    (a, m, a_order): ProductSide<'_>,
    (b, n, b_order): ProductSide<'_>,
    out: &mut [f32],
    terms: usize,
    then: Then,
    path: ProductPath,
) {
    let a = Matrix::<E>::new(a, m, terms, a_order);
    let b = Panels::Of(Matrix::new(b, n, terms, b_order));
    MatrixProduct { a, b, out: ProductOutput::new(out, n), then, path }.compute_product();
}

/// Asserts that each slice has the length of its `rows x cols`.
fn check_shapes(name: &str, shapes: [(&str, usize, usize, usize); 3]) {
    for (slice, len, rows, cols) in shapes {
        assert_eq!(len, rows * cols, "{name}: {slice} has {len} elements, not [{rows}, {cols}]");
    }
}

#[cfg(test)]
mod tests;
