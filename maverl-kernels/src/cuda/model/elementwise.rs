//! Norm, rope and SwiGLU.

use crate::cuda::array::{args, expect_length};
use crate::cuda::{DeviceArray, Kernels, LaunchShape, Machine, Slice, SliceMut};
use crate::rope::RopeTable;

/// Rows that a warp's block of eight has.
const ROWS: usize = 8;
/// Rows of one sum; sums of sums follow.
const ROWS_OF_A_SUM: usize = 64;
/// Widest row of which a warp takes the norm; a block has wider ones.
const WARP_WIDTH: usize = 2048;
/// Widest head.
const WIDEST_HEAD: usize = 128;

/// Positions of the tokens of a pass.
#[derive(Debug)]
pub struct Positions<M: Machine> {
    pub(super) array: DeviceArray<M, u32>,
    pub(super) most: u32,
}

/// Cosines and sines of a [`RopeTable`], of its first positions.
#[derive(Debug)]
pub struct RopeTables<M: Machine> {
    cos: DeviceArray<M, f32>,
    sin: DeviceArray<M, f32>,
    half: usize,
    positions: usize,
}

/// Norm of each head before rope.
#[derive(Debug, Clone, Copy)]
pub struct HeadNorm<'a> {
    /// Weight, of a head's width.
    pub w: Slice<'a, u16>,
    /// Constant added to the mean square.
    pub eps: f32,
}

impl<M: Machine> Kernels<M> {
    /// Computes [`rms_norm`](crate::norm::rms_norm): `x [n, d]`, `w [d]`, `y [n, d]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn rms_norm(
        &self,
        x: Slice<'_, f32>,
        w: Slice<'_, u16>,
        eps: f32,
        y: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let (d, n) = (w.len(), x.len() / w.len());
        expect_length("rms_norm", "x", x.len(), n * d);
        expect_length("rms_norm", "y", y.len(), n * d);
        let args = args![x, w, n, d, eps, y];
        if d > WARP_WIDTH {
            return self.run_model_kernel("rms_norm_wide", LaunchShape::of_blocks(n), args);
        }
        self.run_model_kernel("rms_norm", LaunchShape::of_blocks(n.div_ceil(ROWS)), args)
    }

    /// Computes the gradients of [`Self::rms_norm`]: `dx` is overwritten, or added to with `add`; that of the weight is
    /// added to `dw`. Writes the norm's result to `again`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    #[expect(clippy::too_many_arguments, reason = "three arrays in, three out")]
    pub fn rms_norm_back(
        &self,
        x: Slice<'_, f32>,
        w: Slice<'_, u16>,
        eps: f32,
        dy: Slice<'_, u16>,
        add: bool,
        dx: SliceMut<'_, f32>,
        again: Option<SliceMut<'_, u16>>,
        dw: Option<SliceMut<'_, f32>>,
    ) -> Result<(), M::Error> {
        let (d, n) = (w.len(), x.len() / w.len());
        let again_len = again.as_ref().map_or(n * d, SliceMut::len);
        for (name, len) in
            [("x", x.len()), ("dy", dy.len()), ("dx", dx.len()), ("again", again_len)]
        {
            expect_length("rms_norm_back", name, len, n * d);
        }
        let blocks = n.div_ceil(ROWS_OF_A_SUM);
        let partials = dw.is_some().then(|| self.new_array::<f32>(blocks * d)).transpose()?;
        let of = partials.as_ref().map(DeviceArray::as_slice);
        let args = args![x, w, dy, n, d, eps, add, dx, again, of];
        self.run_model_kernel("rms_norm_back", LaunchShape::of_blocks(blocks), args)?;
        match (dw, partials) {
            (Some(dw), Some(partials)) => self.add_rows(partials, blocks, d, dw),
            _ => Ok(()),
        }
    }

    /// Adds the sum of `rows [n, d]` to `out [d]`: sums of 64 rows, ascending, until one is left.
    fn add_rows(
        &self,
        mut rows: DeviceArray<M, f32>,
        mut n: usize,
        d: usize,
        out: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        expect_length("sum_rows", "out", out.len(), d);
        while n > ROWS_OF_A_SUM {
            let fewer = n.div_ceil(ROWS_OF_A_SUM);
            let sums = self.new_array::<f32>(fewer * d)?;
            self.run_model_kernel("sum_rows", sum_shape(fewer, d), args![rows, n, d, false, sums])?;
            (rows, n) = (sums, fewer);
        }
        if n == 0 {
            return Ok(());
        }
        self.run_model_kernel("sum_rows", sum_shape(1, d), args![rows, n, d, true, out])
    }

    /// Adds the sum of the rows of `x [n, d]` to `out [d]`: the gradient of a bias.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn sum_rows(&self, x: Slice<'_, u16>, out: SliceMut<'_, f32>) -> Result<(), M::Error> {
        let (d, n) = (out.len(), x.len() / out.len());
        expect_length("sum_rows", "x", x.len(), n * d);
        let fewer = n.div_ceil(ROWS_OF_A_SUM);
        let sums = self.new_array::<f32>(fewer * d)?;
        self.run_model_kernel("sum_rows_bf16", sum_shape(fewer, d), args![x, n, d, sums])?;
        self.add_rows(sums, fewer, d, out)
    }

    /// Copies the first positions of a table to the machine.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If the table has fewer positions, or a head is wider than 128.
    pub fn rope_tables(
        &self,
        table: &RopeTable,
        positions: usize,
    ) -> Result<RopeTables<M>, M::Error> {
        let half = table.head_dim() / 2;
        assert!(2 * half <= WIDEST_HEAD, "rope: a head of {}", 2 * half);
        let [cos, sin] = table.first_rows(positions);
        Ok(RopeTables { cos: self.array_of(&cos)?, sin: self.array_of(&sin)?, half, positions })
    }

    /// Copies the positions of the tokens of a pass to the machine.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn upload_positions(&self, positions: &[u32]) -> Result<Positions<M>, M::Error> {
        let most = positions.iter().copied().max().unwrap_or(0);
        Ok(Positions { array: self.array_of(positions)?, most })
    }

    /// Computes [`apply_rope`](crate::rope::apply_rope) in place, after the norm of each head if there is one: `x [n, heads * d]`.
    /// Copies what was there to `raw`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or a position is not in the table.
    pub fn apply_rope(
        &self,
        x: SliceMut<'_, u16>,
        heads: usize,
        at: &Positions<M>,
        tables: &RopeTables<M>,
        norm: Option<HeadNorm<'_>>,
        raw: Option<SliceMut<'_, u16>>,
    ) -> Result<(), M::Error> {
        let (n, d) = (at.array.len(), 2 * tables.half);
        check_rope("rope", x.len(), heads, at, tables, norm);
        expect_length("rope", "raw", raw.as_ref().map_or(x.len(), SliceMut::len), x.len());
        let (w, eps) = (norm.map(|norm| norm.w), norm.map_or(0.0, |norm| norm.eps));
        let args = args![x, at.array, n, heads, d, tables.cos, tables.sin, w, eps, raw];
        self.run_model_kernel("rope", LaunchShape::of_blocks((n * heads).div_ceil(ROWS)), args)
    }

    /// Computes the gradients of [`Self::apply_rope`] in place; `norm` is the norm with what rope copied to `raw`. The
    /// gradient of the norm's weight is added to `dw`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or a position is not in the table.
    pub fn rope_back(
        &self,
        dx: SliceMut<'_, u16>,
        heads: usize,
        at: &Positions<M>,
        tables: &RopeTables<M>,
        norm: Option<(HeadNorm<'_>, Slice<'_, u16>)>,
        dw: Option<SliceMut<'_, f32>>,
    ) -> Result<(), M::Error> {
        let (n, d) = (at.array.len(), 2 * tables.half);
        let weight = norm.map(|(norm, _)| norm);
        check_rope("rope_back", dx.len(), heads, at, tables, weight);
        let raw = norm.map(|(_, raw)| raw);
        expect_length("rope_back", "raw", raw.map_or(dx.len(), |raw| raw.len()), dx.len());
        let (w, eps) = (weight.map(|norm| norm.w), weight.map_or(0.0, |norm| norm.eps));
        let dw = dw.filter(|_| norm.is_some());
        let blocks = (n * heads).div_ceil(ROWS_OF_A_SUM);
        let partials = dw.is_some().then(|| self.new_array::<f32>(blocks * d)).transpose()?;
        let of = partials.as_ref().map(DeviceArray::as_slice);
        let args = args![dx, at.array, n, heads, d, tables.cos, tables.sin, w, eps, raw, of];
        self.run_model_kernel("rope_back", LaunchShape::of_blocks(blocks), args)?;
        match (dw, partials) {
            (Some(dw), Some(partials)) => self.add_rows(partials, blocks, d, dw),
            _ => Ok(()),
        }
    }

    /// Computes [`swiglu`](crate::mlp::swiglu).
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn swiglu(
        &self,
        gate: Slice<'_, u16>,
        up: Slice<'_, u16>,
        act: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let n = gate.len();
        expect_length("swiglu", "up", up.len(), n);
        expect_length("swiglu", "act", act.len(), n);
        let shape = LaunchShape::of_threads(n.div_ceil(8));
        self.run_model_kernel("swiglu", shape, args![gate, up, n, act])
    }

    /// Computes the gradients of [`Self::swiglu`], and its result again.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn swiglu_back(
        &self,
        [gate, up, dact]: [Slice<'_, u16>; 3],
        [dgate, dup]: [SliceMut<'_, u16>; 2],
        act: Option<SliceMut<'_, u16>>,
    ) -> Result<(), M::Error> {
        let n = gate.len();
        let lens = [up.len(), dact.len(), dgate.len(), dup.len()];
        let act_len = act.as_ref().map_or(n, SliceMut::len);
        assert!(lens.iter().chain([&act_len]).all(|&len| len == n), "swiglu_back: {lens:?}");
        let args = args![gate, up, dact, n, dgate, dup, act];
        self.run_model_kernel("swiglu_back", LaunchShape::of_threads(n.div_ceil(8)), args)
    }
}

/// Grid of sums of rows into `sums` rows.
fn sum_shape(sums: usize, d: usize) -> LaunchShape {
    LaunchShape { grid: [d.div_ceil(256) as u32, sums as u32, 1], ..LaunchShape::of_blocks(0) }
}

#[track_caller]
fn check_rope<M: Machine>(
    kernel: &str,
    len: usize,
    heads: usize,
    at: &Positions<M>,
    tables: &RopeTables<M>,
    norm: Option<HeadNorm<'_>>,
) {
    let (n, d) = (at.array.len(), 2 * tables.half);
    expect_length(kernel, "x", len, n * heads * d);
    expect_length(kernel, "the norm's weight", norm.map_or(d, |norm| norm.w.len()), d);
    let most = at.most as usize;
    assert!(
        most < tables.positions || n == 0,
        "{kernel}: position {most} of a table of {}",
        tables.positions
    );
}
