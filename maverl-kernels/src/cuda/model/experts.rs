//! Rows of experts, and what their results are multiplied by.

use super::elementwise::ROWS;
use super::parts::element_shape;
use crate::cuda::array::{args, expect_length};
use crate::cuda::{DeviceArray, Kernels, LaunchShape, Machine, Slice, SliceMut};
use crate::experts::ExpertRows;
use crate::mlp::ClampedGate;

/// Rows of [`ExpertRows`] on a machine: the choices of tokens, sorted by expert and token.
#[derive(Debug)]
pub struct ChoiceRows<M: Machine> {
    /// Token of each row.
    tokens: DeviceArray<M, u32>,
    /// Row of each choice.
    rows: DeviceArray<M, u32>,
    /// Weights by row, and by choice.
    by_row: DeviceArray<M, f32>,
    by_choice: DeviceArray<M, f32>,
    /// Number of experts of a token.
    chosen: usize,
}

impl<M: Machine> ChoiceRows<M> {
    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.tokens.len()
    }

    fn token_count(&self) -> usize {
        self.tokens.len() / self.chosen
    }
}

impl<M: Machine> Kernels<M> {
    /// Copies rows and the weights of their choices to the machine. Each token has `chosen` experts.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If there are not as many weights as rows.
    pub fn choice_rows(
        &self,
        of: &ExpertRows,
        weights: &[f32],
        chosen: usize,
    ) -> Result<ChoiceRows<M>, M::Error> {
        expect_length("choice_rows", "weights", weights.len(), of.count());
        let tokens: Vec<u32> = of.tokens(0..of.count()).map(|token| token as u32).collect();
        let by_row: Vec<f32> =
            of.choices_of_rows().iter().map(|&choice| weights[choice as usize]).collect();
        Ok(ChoiceRows {
            tokens: self.array_of(&tokens)?,
            rows: self.array_of(of.rows_of_choices())?,
            by_row: self.array_of(&by_row)?,
            by_choice: self.array_of(weights)?,
            chosen,
        })
    }

    /// Copies the token `x [n, d]` of each row to `y [n k, d]`, `weighted` by its choice or not.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn gather_choices(
        &self,
        x: Slice<'_, u16>,
        of: &ChoiceRows<M>,
        weighted: bool,
        d: usize,
        y: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let rows = of.row_count();
        expect_length("gather_choices", "x", x.len(), of.token_count() * d);
        expect_length("gather_choices", "y", y.len(), rows * d);
        let weights = weighted.then(|| of.by_row.as_slice());
        let args = args![x, of.tokens, weights, rows, d, y];
        self.run_model_kernel("gather_choices", LaunchShape::of_blocks(rows.div_ceil(ROWS)), args)
    }

    /// Sums the rows `x [n k, d]` of each token to `y [n, d]`, `weighted` by their choices or not, by rising expert.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn sum_choices(
        &self,
        x: Slice<'_, u16>,
        of: &ChoiceRows<M>,
        weighted: bool,
        d: usize,
        y: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let n = of.token_count();
        expect_length("sum_choices", "x", x.len(), of.row_count() * d);
        expect_length("sum_choices", "y", y.len(), n * d);
        let weights = weighted.then(|| of.by_choice.as_slice());
        let args = args![x, of.rows, weights, n, of.chosen, d, y];
        self.run_model_kernel("sum_choices", LaunchShape::of_blocks(n.div_ceil(ROWS)), args)
    }

    /// Returns the products `[n k]` of each choice's row of `x [n k, d]` and the gradient of its token, of `dy [n, d]`.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn multiply_choices(
        &self,
        dy: Slice<'_, u16>,
        x: Slice<'_, u16>,
        of: &ChoiceRows<M>,
        d: usize,
    ) -> Result<Vec<f32>, M::Error> {
        let rows = of.row_count();
        expect_length("multiply_choices", "dy", dy.len(), of.token_count() * d);
        expect_length("multiply_choices", "x", x.len(), rows * d);
        let found = self.new_array::<f32>(rows)?;
        let args = args![dy, x, of.rows, rows, of.chosen, d, found];
        self.run_model_kernel(
            "multiply_choices",
            LaunchShape::of_blocks(rows.div_ceil(ROWS)),
            args,
        )?;
        self.read_array(&found)
    }

    /// Computes [`ClampedGate::forward`].
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn clamped_gate(
        &self,
        of: ClampedGate,
        [gate, up]: [Slice<'_, u16>; 2],
        act: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let n = gate.len();
        expect_length("clamped_gate", "up", up.len(), n);
        expect_length("clamped_gate", "act", act.len(), n);
        let args = args![gate, up, n, of.alpha, of.limit, act];
        self.run_model_kernel("clamped_gate", element_shape(n), args)
    }

    /// Computes [`ClampedGate::backward`].
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn clamped_gate_back(
        &self,
        of: ClampedGate,
        [gate, up, dact]: [Slice<'_, u16>; 3],
        [dgate, dup]: [SliceMut<'_, u16>; 2],
    ) -> Result<(), M::Error> {
        let n = gate.len();
        for len in [up.len(), dact.len(), dgate.len(), dup.len()] {
            expect_length("clamped_gate_back", "an array", len, n);
        }
        let args = args![gate, up, dact, n, of.alpha, of.limit, dgate, dup];
        self.run_model_kernel("clamped_gate_back", element_shape(n), args)
    }

    /// Computes [`add_gated_rows`](crate::experts::add_gated_rows): `x`, `y` are `[n, d]`, `gates` `[n]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn add_gated_rows(
        &self,
        x: Slice<'_, u16>,
        gates: Slice<'_, u16>,
        y: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let n = gates.len();
        let d = x.len().checked_div(n).unwrap_or(0);
        expect_length("add_gated_rows", "y", y.len(), n * d);
        let shape = LaunchShape::of_blocks(n.div_ceil(ROWS));
        self.run_model_kernel("add_gated_rows", shape, args![x, gates, n, d, y])
    }

    /// Computes [`gated_rows_bwd`](crate::experts::gated_rows_bwd): `dx [n, d]` and `dgates [n]` are overwritten.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn gated_rows_back(
        &self,
        [x, gates, dy]: [Slice<'_, u16>; 3],
        [dx, dgates]: [SliceMut<'_, u16>; 2],
    ) -> Result<(), M::Error> {
        let n = gates.len();
        let d = x.len().checked_div(n).unwrap_or(0);
        expect_length("gated_rows_back", "dy", dy.len(), n * d);
        expect_length("gated_rows_back", "dx", dx.len(), n * d);
        expect_length("gated_rows_back", "dgates", dgates.len(), n);
        let shape = LaunchShape::of_blocks(n.div_ceil(ROWS));
        self.run_model_kernel("gated_rows_back", shape, args![x, gates, dy, n, d, dx, dgates])
    }
}
