//! Norms and rotations that only some families have, and what residual streams, queries and logits are multiplied by.

use super::elementwise::{ROWS, ROWS_OF_A_SUM, WARP_WIDTH};
use crate::cuda::array::{args, expect_length};
use crate::cuda::{
    DeviceArray, Kernels, LaunchShape, Machine, Positions, RopeTables, Slice, SliceMut,
};

/// Widest head that is normalized or rotated in part.
const WIDEST_HEAD: usize = 256;
/// Heads of one sum of gradients.
const HEADS_OF_A_SUM: usize = 32;
/// Elements of a block of eight a thread.
const BLOCK_ELEMENTS: usize = 2048;

/// Gains of the elements of a norm.
#[derive(Debug, Clone, Copy)]
pub struct Gains<'a> {
    /// Weight, of a row's width.
    pub w: Slice<'a, u16>,
    /// True if the gains are one more than the weight.
    pub one_plus: bool,
    /// Constant added to the mean square.
    pub eps: f32,
}

impl Gains<'_> {
    fn one(&self) -> f32 {
        if self.one_plus { 1.0 } else { 0.0 }
    }
}

/// Heads whose norm is another than that of [`Kernels::apply_rope`], or of which not all numbers are rotated.
#[derive(Debug)]
pub struct TurnedHeads<'a, M: Machine> {
    /// Number of heads.
    pub heads: usize,
    /// Elements of a head; at most 256.
    pub dim: usize,
    /// Norm of each head, if there is one.
    pub norm: Option<Gains<'a>>,
    /// Rotation of the first numbers of each head, if positions have an effect.
    pub tables: Option<&'a RopeTables<M>>,
}

impl<M: Machine> Kernels<M> {
    /// Computes the norm of rows of a residual stream: `x [n, d]`, `y [n, d]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn norm_stream(
        &self,
        x: Slice<'_, f32>,
        of: Gains<'_>,
        y: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let (n, d, shape) = row_shape("norm_stream", [x.len(), y.len()], of);
        let wide = d > WARP_WIDTH;
        self.run_model_kernel("norm_stream", shape, args![x, of.w, of.one(), n, d, of.eps, wide, y])
    }

    /// Computes the norm of rows of activations: `x [n, d]`, `y [n, d]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn norm_act(
        &self,
        x: Slice<'_, u16>,
        of: Gains<'_>,
        y: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let (n, d, shape) = row_shape("norm_act", [x.len(), y.len()], of);
        let wide = d > WARP_WIDTH;
        self.run_model_kernel("norm_act", shape, args![x, of.w, of.one(), n, d, of.eps, wide, y])
    }

    /// Computes the sum `y [n, d]` of `onto [n, d]` and the norm of rows of `x [n, d]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn norm_onto(
        &self,
        onto: Slice<'_, f32>,
        x: Slice<'_, u16>,
        of: Gains<'_>,
        y: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let (n, d, shape) = row_shape("norm_onto", [x.len(), y.len()], of);
        expect_length("norm_onto", "onto", onto.len(), n * d);
        let wide = d > WARP_WIDTH;
        let args = args![x, of.w, of.one(), n, d, of.eps, wide, onto, y];
        self.run_model_kernel("norm_onto", shape, args)
    }

    /// Computes the gradients of [`Self::norm_stream`]: `dx` is overwritten, or added to with `add`; that of the weight is added
    /// to `dw`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn norm_stream_back(
        &self,
        x: Slice<'_, f32>,
        of: Gains<'_>,
        dy: Slice<'_, u16>,
        (add, dx): (bool, SliceMut<'_, f32>),
        dw: Option<SliceMut<'_, f32>>,
    ) -> Result<(), M::Error> {
        let (n, d, _) = row_shape("norm_stream_back", [x.len(), dx.len()], of);
        expect_length("norm_stream_back", "dy", dy.len(), n * d);
        self.with_gain_sums(n, d, dw, |partials, shape| {
            let args = args![x, of.w, of.one(), dy, n, d, of.eps, add, dx, partials];
            self.run_model_kernel("norm_stream_back", shape, args)
        })
    }

    /// Computes the gradients of [`Self::norm_act`]: `dx` is overwritten; that of the weight is added to `dw`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn norm_act_back(
        &self,
        x: Slice<'_, u16>,
        of: Gains<'_>,
        dy: Slice<'_, u16>,
        dx: SliceMut<'_, u16>,
        dw: Option<SliceMut<'_, f32>>,
    ) -> Result<(), M::Error> {
        let (n, d, _) = row_shape("norm_act_back", [x.len(), dx.len()], of);
        expect_length("norm_act_back", "dy", dy.len(), n * d);
        self.with_gain_sums(n, d, dw, |partials, shape| {
            let args = args![x, of.w, of.one(), dy, n, d, of.eps, dx, partials];
            self.run_model_kernel("norm_act_back", shape, args)
        })
    }

    /// Computes the gradient of [`Self::norm_onto`] by `x`: `dx` is overwritten; that of the weight is added to `dw`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn norm_onto_back(
        &self,
        x: Slice<'_, u16>,
        of: Gains<'_>,
        dy: Slice<'_, f32>,
        dx: SliceMut<'_, u16>,
        dw: Option<SliceMut<'_, f32>>,
    ) -> Result<(), M::Error> {
        let (n, d, _) = row_shape("norm_onto_back", [x.len(), dx.len()], of);
        expect_length("norm_onto_back", "dy", dy.len(), n * d);
        self.with_gain_sums(n, d, dw, |partials, shape| {
            let args = args![x, of.w, of.one(), dy, n, d, of.eps, dx, partials];
            self.run_model_kernel("norm_onto_back", shape, args)
        })
    }

    /// Calls `run` with partial sums of 64 rows, if there is a sum, and adds them to it.
    fn with_gain_sums(
        &self,
        n: usize,
        d: usize,
        dw: Option<SliceMut<'_, f32>>,
        run: impl FnOnce(Option<Slice<'_, f32>>, LaunchShape) -> Result<(), M::Error>,
    ) -> Result<(), M::Error> {
        let blocks = n.div_ceil(ROWS_OF_A_SUM);
        let partials = dw.is_some().then(|| self.new_array::<f32>(blocks * d)).transpose()?;
        run(partials.as_ref().map(DeviceArray::as_slice), LaunchShape::of_blocks(blocks))?;
        match (dw, partials) {
            (Some(dw), Some(partials)) => self.add_rows(partials, blocks, d, dw),
            _ => Ok(()),
        }
    }

    /// Normalizes and rotates heads in place: `x [n, heads * dim]`. Copies what was there to `raw`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or a position is not in the table.
    pub fn turn_heads(
        &self,
        x: SliceMut<'_, u16>,
        of: TurnedHeads<'_, M>,
        at: &Positions<M>,
        raw: Option<SliceMut<'_, u16>>,
    ) -> Result<(), M::Error> {
        let (n, half) = of.checked("turn_heads", x.len(), at);
        expect_length("turn_heads", "raw", raw.as_ref().map_or(x.len(), SliceMut::len), x.len());
        let TurnedHeads { heads, dim, norm, tables } = of;
        let (cos, sin) = tables.map(RopeTables::arrays).unzip();
        let (w, eps) = (norm.map(|norm| norm.w), norm.map_or(0.0, |norm| norm.eps));
        let one = norm.map_or(0.0, |norm| norm.one());
        let args = args![x, at.array, n, heads, dim, half, cos, sin, w, one, eps, raw];
        self.run_model_kernel(
            "turn_heads",
            LaunchShape::of_blocks((n * heads).div_ceil(ROWS)),
            args,
        )
    }

    /// Computes the gradients of [`Self::turn_heads`] in place; `raw` is what that copied. The gradient of the norm's weight is
    /// added to `dw`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, a position is not in the table, or there is a norm and no `raw`.
    pub fn turn_heads_back(
        &self,
        dx: SliceMut<'_, u16>,
        of: TurnedHeads<'_, M>,
        at: &Positions<M>,
        raw: Option<Slice<'_, u16>>,
        dw: Option<SliceMut<'_, f32>>,
    ) -> Result<(), M::Error> {
        let (n, half) = of.checked("turn_heads_back", dx.len(), at);
        let TurnedHeads { heads, dim, norm, tables } = of;
        assert!(norm.is_none() || raw.is_some(), "turn_heads_back: a norm without its input");
        expect_length("turn_heads_back", "raw", raw.map_or(dx.len(), |raw| raw.len()), dx.len());
        let (cos, sin) = tables.map(RopeTables::arrays).unzip();
        let (w, eps) = (norm.map(|norm| norm.w), norm.map_or(0.0, |norm| norm.eps));
        let one = norm.map_or(0.0, |norm| norm.one());
        let dw = dw.filter(|_| norm.is_some());
        let blocks = (n * heads).div_ceil(HEADS_OF_A_SUM);
        let partials = dw.is_some().then(|| self.new_array::<f32>(blocks * dim)).transpose()?;
        let sums = partials.as_ref().map(DeviceArray::as_slice);
        let args = args![dx, at.array, n, heads, dim, half, cos, sin, w, one, eps, raw, sums];
        self.run_model_kernel("turn_heads_back", LaunchShape::of_blocks(blocks), args)?;
        match (dw, partials) {
            (Some(dw), Some(partials)) => self.add_rows(partials, blocks, dim, dw),
            _ => Ok(()),
        }
    }

    /// Multiplies the queries `[n, width]` of each token by `1 + beta ln(1 + floor(position / original))`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn scale_queries(
        &self,
        q: SliceMut<'_, u16>,
        at: &Positions<M>,
        [beta, original]: [f32; 2],
    ) -> Result<(), M::Error> {
        let n = at.array.len();
        let width = q.len().checked_div(n).unwrap_or(0);
        let shape = LaunchShape::of_threads(n * width);
        self.run_model_kernel("scale_queries", shape, args![q, at.array, n, width, beta, original])
    }

    /// Multiplies a residual stream by a factor.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn scale_stream(&self, x: SliceMut<'_, f32>, by: f32) -> Result<(), M::Error> {
        let n = x.len();
        self.run_model_kernel("scale_stream", element_shape(n), args![x, n, by])
    }

    /// Computes the sum `y` of a residual stream and activations, `[n]` each.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn sum_onto(
        &self,
        onto: Slice<'_, f32>,
        x: Slice<'_, u16>,
        y: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let n = x.len();
        expect_length("sum_onto", "onto", onto.len(), n);
        expect_length("sum_onto", "y", y.len(), n);
        self.run_model_kernel("sum_onto", element_shape(n), args![onto, x, n, y])
    }

    /// Adds activations to a residual stream, `[n]` each.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn add_to_stream(
        &self,
        onto: SliceMut<'_, f32>,
        x: Slice<'_, u16>,
    ) -> Result<(), M::Error> {
        let n = x.len();
        expect_length("sum_onto", "onto", onto.len(), n);
        self.run_model_kernel(
            "sum_onto",
            element_shape(n),
            args![onto.as_slice(), x, n, onto.as_slice()],
        )
    }
}

impl<M: Machine> TurnedHeads<'_, M> {
    /// Returns the number of tokens, and that of pairs that are rotated.
    #[track_caller]
    fn checked(&self, kernel: &str, len: usize, at: &Positions<M>) -> (usize, usize) {
        let &Self { heads, dim, norm, tables } = self;
        let (n, half) = (at.array.len(), tables.map_or(0, RopeTables::pairs));
        assert!(dim <= WIDEST_HEAD && 2 * half <= dim, "{kernel}: {half} pairs of a head of {dim}");
        expect_length(kernel, "x", len, n * heads * dim);
        expect_length(kernel, "the norm's weight", norm.map_or(dim, |norm| norm.w.len()), dim);
        if let Some(tables) = tables {
            tables.check_positions(kernel, at);
        }
        (n, half)
    }
}

/// Returns the shape of a launch of eight elements a thread.
pub(super) fn element_shape(n: usize) -> LaunchShape {
    LaunchShape::of_blocks(n.div_ceil(BLOCK_ELEMENTS))
}

/// Returns rows, width and the shape of the launch of a norm.
#[track_caller]
fn row_shape(kernel: &str, lens: [usize; 2], of: Gains<'_>) -> (usize, usize, LaunchShape) {
    let d = of.w.len();
    let n = lens[0] / d;
    lens.into_iter().for_each(|len| expect_length(kernel, "an array", len, n * d));
    let blocks = if d > WARP_WIDTH { n } else { n.div_ceil(ROWS) };
    (n, d, LaunchShape::of_blocks(blocks))
}
