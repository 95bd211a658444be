//! Products with weights, and their gradients.

mod maps;

pub use maps::{MapOutput, fit_one_launch};

use crate::cuda::array::{Arg, args, expect_length};
use crate::cuda::{
    Kernels, LaunchShape, LibraryProduct, Machine, ProductGradient, Slice, SliceMut,
};

/// Width of a weight from which on a sum is one piece.
const WIDE: usize = 4096;
/// Blocks that the pieces of a product of few rows should make.
const BLOCKS: usize = 96;
/// Terms of a piece, at least.
const PIECE: usize = 512;
/// Rows up to which every piece has blocks of its own.
const FEW: usize = 256;

/// Where a product goes: `scale · sum + bias`, with the sum in f32.
#[derive(Debug)]
pub struct LinearOutput<'a> {
    /// Factor of the sum.
    pub scale: f32,
    /// Bias of each column.
    pub bias: Option<Slice<'a, u16>>,
    /// Result.
    pub to: Destination<'a>,
}

impl<'a> From<Destination<'a>> for LinearOutput<'a> {
    /// Writes the sum itself.
    fn from(to: Destination<'a>) -> Self {
        Self { scale: 1.0, bias: None, to }
    }
}

/// Array that a product is written to.
#[derive(Debug)]
pub enum Destination<'a> {
    /// Rounded to bf16.
    Bf16(SliceMut<'a, u16>),
    /// In f32.
    F32(SliceMut<'a, f32>),
    /// Added to what is there.
    Add(SliceMut<'a, f32>),
    /// Added to the first array, into the second.
    Onto(Slice<'a, f32>, SliceMut<'a, f32>),
}

/// Further terms of a product: `left [m, rank]` times a right side of the same form as the product's own.
#[derive(Debug, Clone, Copy)]
pub struct AdapterTerms<'a> {
    /// Left side.
    pub left: Slice<'a, u16>,
    /// Right side.
    pub right: Slice<'a, u16>,
    /// Number of terms.
    pub rank: usize,
}

/// Form of a product, and its shapes.
#[derive(Debug, Clone, Copy)]
struct ShapedProduct<'a> {
    form: ProductForm,
    x: Slice<'a, u16>,
    w: Slice<'a, u16>,
    adapter: Option<AdapterTerms<'a>>,
    m: usize,
    n: usize,
    k: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProductForm {
    /// `x [m, k] wᵀ`, with `w [n, k]`.
    Nt,
    /// `x [m, k] w`, with `w [k, n]`.
    Nn,
    /// `xᵀ w`, with `x [k, m]` and `w [k, n]`.
    Tn,
}

/// A kernel of products: its name, rows and columns of a block, terms of a step, threads, steps under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProductTile {
    kernel: &'static str,
    rows: usize,
    columns: usize,
    terms: usize,
    threads: u32,
    stages: usize,
}

pub(super) const NT_16: ProductTile = ProductTile {
    kernel: "product_nt_16",
    rows: 16,
    columns: 64,
    terms: 128,
    threads: 128,
    stages: 4,
};
pub(super) const NT_64: ProductTile = medium_tile("product_nt_64");
pub(super) const NT_128: ProductTile = large_tile("product_nt_128");
const NT_128_PIECES: ProductTile = large_tile("product_nt_128_pieces");

const fn medium_tile(kernel: &'static str) -> ProductTile {
    ProductTile { kernel, rows: 64, columns: 64, terms: 64, threads: 128, stages: 4 }
}

const fn large_tile(kernel: &'static str) -> ProductTile {
    ProductTile { kernel, rows: 128, columns: 128, terms: 32, threads: 256, stages: 5 }
}

/// Returns the tile of the gradient of an input.
fn input_tile(rows: usize) -> ProductTile {
    if rows <= FEW { medium_tile("product_nn_64") } else { large_tile("product_nn_128") }
}

/// Returns the number of pieces that the sums of a product with `w [n, k]` are cut into. It depends on the weight
/// alone, so that a row has the same bits in any batch.
pub fn count_pieces(n: usize, k: usize) -> usize {
    if n >= WIDE {
        return 1;
    }
    BLOCKS.div_ceil(n.div_ceil(64)).min(k / PIECE).max(1)
}

impl<M: Machine> Kernels<M> {
    /// Computes `x wᵀ`: `x [m, k]`, `w [n, k]`, result `[m, n]`. An adapter adds `left [m, rank] rightᵀ`, with
    /// `right [n, rank]`, as one more piece of the sum. A row has the same bits in any batch.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn linear(
        &self,
        x: Slice<'_, u16>,
        w: Slice<'_, u16>,
        [m, n, k]: [usize; 3],
        adapter: Option<AdapterTerms<'_>>,
        out: LinearOutput<'_>,
    ) -> Result<(), M::Error> {
        let tile = match m {
            0..=16 => NT_16,
            17..=FEW => NT_64,
            _ => NT_128,
        };
        self.linear_by(tile, x, w, [m, n, k], adapter, out)
    }

    /// Computes [`Self::linear`] by a tile of one's own choice.
    pub(super) fn linear_by(
        &self,
        tile: ProductTile,
        x: Slice<'_, u16>,
        w: Slice<'_, u16>,
        [m, n, k]: [usize; 3],
        adapter: Option<AdapterTerms<'_>>,
        out: LinearOutput<'_>,
    ) -> Result<(), M::Error> {
        let product = ShapedProduct { form: ProductForm::Nt, x, w, adapter, m, n, k };
        product.assert_shapes("linear");
        let own = count_pieces(n, k);
        let all = own + usize::from(adapter.is_some());
        if all == 1 {
            return self.run_product(tile, &product, [1, 1], out);
        }
        if tile.rows == NT_128.rows {
            return self.run_product(NT_128_PIECES, &product, [own, 1], out);
        }
        let mut parts = self.new_array::<f32>(all * m * n)?;
        let to = Destination::F32(parts.slice_mut());
        self.run_product(tile, &product, [own, all], to.into())?;
        let [f32, half, onto] = out.to.checked_addresses("linear", m * n);
        let args = args![parts, all, m, n, f32, half, onto, out.bias, out.scale];
        self.run_model_kernel("add_pieces", LaunchShape::of_threads(m * n), args)
    }

    /// Computes the gradient of [`Self::linear`] by its input: `dy [m, k] w`, with `w [k, n]`. An adapter adds
    /// `left [m, rank] right`, with `right [rank, n]`. The machine's library computes it, if there is one; results of an
    /// adapter in bf16 it does not, as they would be rounded twice.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn linear_back(
        &self,
        dy: Slice<'_, u16>,
        w: Slice<'_, u16>,
        [m, n, k]: [usize; 3],
        adapter: Option<AdapterTerms<'_>>,
        out: LinearOutput<'_>,
    ) -> Result<(), M::Error> {
        let product = ShapedProduct { form: ProductForm::Nn, x: dy, w, adapter, m, n, k };
        product.assert_shapes("linear_back");
        if self.by_library(&product, &out)? {
            let Some(terms) = adapter else { return Ok(()) };
            let more = ShapedProduct { x: terms.left, w: terms.right, k: terms.rank, ..product };
            return self.add_terms(&ShapedProduct { adapter: None, ..more }, out);
        }
        self.run_product(input_tile(m), &product, [1, 1], out)
    }

    /// Computes the gradient of [`Self::linear`] by its weight: `dyᵀ x`, with `dy [k, m]` and `x [k, n]` of `k` tokens,
    /// result `[m, n]`. The machine's library computes it, if there is one.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn linear_back_weight(
        &self,
        dy: Slice<'_, u16>,
        x: Slice<'_, u16>,
        [m, n, k]: [usize; 3],
        out: LinearOutput<'_>,
    ) -> Result<(), M::Error> {
        let product = ShapedProduct { form: ProductForm::Tn, x: dy, w: x, adapter: None, m, n, k };
        product.assert_shapes("linear_back_weight");
        if self.by_library(&product, &out)? {
            return Ok(());
        }
        let small = m.min(n) <= 64;
        let tile = if small { medium_tile("product_tn_64") } else { large_tile("product_tn_128") };
        self.run_product(tile, &product, [1, 1], out)
    }

    /// Computes a product of a backward pass, without the terms of its adapter, by the machine's library. Returns false,
    /// without any effect, if there is none, it has no algorithm, or the result would be rounded before those terms.
    #[allow(unsafe_code)]
    fn by_library(
        &self,
        product: &ShapedProduct<'_>,
        out: &LinearOutput<'_>,
    ) -> Result<bool, M::Error> {
        let &ShapedProduct { form, x, w, adapter, m, n, k } = product;
        let rounded = adapter.is_some() && matches!(out.to, Destination::Bf16(_));
        let recorded = self.recorder.is_some() || self.own_products;
        if recorded || self.machine.product_library().is_none() || out.bias.is_some() || rounded {
            return Ok(false);
        }
        let [f32, half, onto] = out.to.checked_addresses("product", m * n);
        let of =
            if form == ProductForm::Tn { ProductGradient::Weight } else { ProductGradient::Input };
        let (to, bf16, shape) = (f32.max(half), half != 0, [m, n, k]);
        let (dy, right, scale) = (x.bits(), w.bits(), out.scale);
        let product = LibraryProduct { of, dy, right, shape, scale, onto, to, bf16 };
        // SAFETY: the callers have asserted the lengths of both sides, and `checked_addresses` that of the result.
        Ok(m * n > 0 && unsafe { self.machine.multiply_by_library(&product) }?)
    }

    /// Adds the terms of an adapter to the gradient of an input in f32, which the library has computed.
    fn add_terms(&self, terms: &ShapedProduct<'_>, out: LinearOutput<'_>) -> Result<(), M::Error> {
        let LinearOutput { scale, bias: None, to } = out else { return Ok(()) };
        let to = match to {
            Destination::F32(y) | Destination::Add(y) | Destination::Onto(_, y) => y,
            Destination::Bf16(_) => return Ok(()),
        };
        let out = LinearOutput { scale, bias: None, to: Destination::Add(to) };
        if self.by_library(terms, &out)? {
            return Ok(());
        }
        self.run_product(input_tile(terms.m), terms, [1, 1], out)
    }

    /// Runs a kernel with sums of `pieces` pieces, in `apart` blocks for each tile.
    fn run_product(
        &self,
        tile: ProductTile,
        product: &ShapedProduct<'_>,
        [pieces, apart]: [usize; 2],
        out: LinearOutput<'_>,
    ) -> Result<(), M::Error> {
        let &ShapedProduct { x, w, adapter, m, n, k, .. } = product;
        let [f32, half, onto] = out.to.checked_addresses("product", apart * m * n);
        expect_length("product", "bias", out.bias.map_or(n, |bias| bias.len()), n);
        let (left, right) = (adapter.map(|terms| terms.left), adapter.map(|terms| terms.right));
        let rank = adapter.map_or(0, |terms| terms.rank);
        let terms = args![x, w, left, right, m, n, k, rank, pieces];
        let args = [terms, args![f32, half, onto, out.bias, out.scale]].concat();
        let tiles = m.div_ceil(tile.rows) * n.div_ceil(tile.columns);
        let shared = tile.stages * (tile.rows + tile.columns) * tile.terms * 2;
        let grid = [tiles as u32, 1, apart as u32];
        let shape = LaunchShape { grid, threads: tile.threads, shared: shared as u32 };
        self.run_model_kernel(tile.kernel, shape, &args)
    }
}

impl ShapedProduct<'_> {
    #[track_caller]
    fn assert_shapes(&self, name: &str) {
        let &Self { form, x, w, adapter, m, n, k } = self;
        assert!(k > 0 || m * n == 0, "{name}: no terms");
        expect_length(name, "the left side", x.len(), m * k);
        expect_length(name, "the right side", w.len(), n * k);
        let Some(AdapterTerms { left, right, rank }) = adapter else { return };
        assert!(rank > 0 && form != ProductForm::Tn, "{name}: an adapter without terms");
        expect_length(name, "the adapter's left side", left.len(), m * rank);
        expect_length(name, "the adapter's right side", right.len(), n * rank);
    }
}

impl Destination<'_> {
    /// Returns the addresses of the result in f32, in bf16, and of what it is added to; 0 for those that are not there.
    #[track_caller]
    fn checked_addresses(&self, name: &str, len: usize) -> [u64; 3] {
        let (addresses, lens) = match self {
            Self::Bf16(y) => ([0, y.bits(), 0], [y.len(), len]),
            Self::F32(y) => ([y.bits(), 0, 0], [y.len(), len]),
            Self::Add(y) => ([y.bits(), 0, y.bits()], [y.len(), len]),
            Self::Onto(x, y) => ([y.bits(), 0, x.bits()], [y.len(), x.len()]),
        };
        lens.iter().for_each(|&found| expect_length(name, "the result", found, len));
        addresses
    }
}
