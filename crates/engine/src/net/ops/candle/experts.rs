//! Mixtures of experts: tokens are sorted by expert, and each expert is a few products of its rows. Shapes: `N` tokens, `k` experts
//! of a token, `D` width of the residual stream, `F` width of an expert.

use std::ops::Range;

use candle_core::{D, Result, Tensor};
use maverl_kernels::experts::ExpertRows;

use super::head::read;
use super::{Candle, CandleTensor, Done, gates, join_rows, linear};
use crate::files::parts::{Experts, GatedMlp, Maps, SharedExpert};
use crate::net::experts::{BalanceTerm, LayerRoutes, SavedExperts, SavedShared};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use linear::PassedRows;

/// Tokens and weights of the rows.
struct RoutedRows {
    tokens: Vec<usize>,
    /// Tokens, `[N k]`.
    at: Tensor,
    /// Choice of each row.
    choices: Vec<usize>,
}

impl RoutedRows {
    /// Sorts the choices `[N, k]` by expert and token, as [`ExpertRows`] does.
    fn of(ops: &Candle, chosen: &[u32], k: usize) -> Result<Self> {
        let mut choices: Vec<usize> = (0..chosen.len()).collect();
        choices.sort_by_key(|&choice| chosen[choice]);
        let tokens: Vec<usize> = choices.iter().map(|choice| choice / k).collect();
        Ok(Self { at: ops.indices(tokens.iter().copied())?, tokens, choices })
    }

    /// Returns the weight of each row, `[N k, 1]`.
    fn weights(&self, ops: &Candle, weights: &[f32]) -> Result<Tensor> {
        let of_rows: Vec<f32> = self.choices.iter().map(|&choice| weights[choice]).collect();
        let n = of_rows.len();
        ops.upload(of_rows, (n, 1))
    }
}

/// Iterates over the experts with their rows, where they have some.
fn expert_ranges<'a>(
    of: &'a Experts<Linear<Candle>>,
    rows: &'a ExpertRows,
) -> impl Iterator<Item = (&'a GatedMlp<Linear<Candle>>, Range<usize>)> {
    of.experts.iter().zip(rows.offsets.windows(2)).map(|(expert, own)| (expert, own[0]..own[1]))
}

/// Returns the maps to gate and up of an expert; no family fuses those of experts in memory.
fn split_maps(expert: &GatedMlp<Linear<Candle>>) -> [&Linear<Candle>; 2] {
    match &expert.gate_up {
        Maps::Split(maps) => maps.each_ref(),
        Maps::Fused(..) => unreachable!("the maps of experts are split when they are read"),
    }
}

/// Computes gate, up and result of an MLP of some rows `x [n, D]`.
fn mlp(of: &GatedMlp<Linear<Candle>>, x: &Tensor, tokens: PassedRows<'_>) -> Done<[Tensor; 3]> {
    let [gate, up] = split_maps(of).map(|map| linear::forward(map, x, tokens));
    let (gate, up) = (gate?, up?);
    let act = gates::gated(of.activation, &gate, &up)?;
    let out = linear::forward(&of.down, &act, tokens)?;
    Ok([gate, up, out])
}

/// Computes the gradient of [`mlp`]'s result by `x`, and adds those of the weights.
fn mlp_back(
    of: &GatedMlp<Linear<Candle>>,
    [x, gate, up]: [&Tensor; 3],
    dout: &Tensor,
    tokens: PassedRows<'_>,
    sums: &mut Gradients<'_, Candle>,
) -> Done<Tensor> {
    let act = gates::gated(of.activation, gate, up)?;
    let dact = linear::backward(&of.down, [&act, dout], tokens, sums)?;
    let [dgate, dup] = gates::gated_back(of.activation, [gate, up], &dact)?;
    let [of_gate, of_up] = split_maps(of);
    let dx = linear::backward(of_gate, [x, &dgate], tokens, sums)?;
    Ok((dx + linear::backward(of_up, [x, &dup], tokens, sums)?)?)
}

impl Candle {
    /// Computes `Σ_e w_e expert_e(h)` for `h [N, D]`, by the experts of its scores, or of routes.
    pub(super) fn mix_experts(
        &self,
        h: &Tensor,
        routes: Option<LayerRoutes<'_>>,
        of: &Experts<Linear<Self>>,
    ) -> Done<(Tensor, SavedExperts<Self>)> {
        let router = of.router;
        // 1. Scores, choice and weights: (N, D) -> (N, E), (N, k)
        let scores = read(&linear::forward(&of.scores, h, None)?)?;
        let mut chosen = router.choose_experts(&scores);
        let replaced = routes.map(|routes| routes.replace(&mut chosen, router.chosen));
        let replaced = replaced.unwrap_or_default();
        let weights = router.weigh_experts(&scores, &chosen);
        // 2. Tokens by expert: (N, D) -> (N k, D)
        let sorted = ExpertRows::sort_choices(&chosen, router);
        let rows = RoutedRows::of(self, &chosen, router.chosen)?;
        let x = h.index_select(&rows.at, 0)?;
        // 3. Experts: (N k, D) -> (N k, F), (N k, F), (N k, D)
        let [mut gates, mut ups, mut outs] = [(); 3].map(|()| Vec::new());
        for (expert, own) in expert_ranges(of, &sorted).filter(|(_, own)| !own.is_empty()) {
            let x = x.narrow(0, own.start, own.len())?;
            let [gate, up, out] = mlp(expert, &x, Some(&rows.tokens[own]))?;
            gates.push(gate);
            ups.push(up);
            outs.push(out);
        }
        let (width, wide) = (of.scores.dims().1, of.width());
        let [gate, up] = [gates, ups].map(|parts| join_rows(&parts, wide, &self.device));
        let out = join_rows(&outs, width, &self.device)?;
        // 4. Weighted sum: (N k, D) -> (N, D)
        let weighted = out.broadcast_mul(&rows.weights(self, &weights)?)?;
        let mut mixed = h.zeros_like()?.index_add(&rows.at, &weighted, 0)?;
        // 5. Shared expert: (N, D) -> (N, D)
        let shared = of.shared.as_ref().map(|of| add_shared(h, of, &mut mixed)).transpose()?;
        let [gate, up, out] = [gate?, up?, out].map(CandleTensor::from);
        let rows = sorted;
        let saved =
            SavedExperts { router, scores, chosen, weights, rows, gate, up, out, shared, replaced };
        Ok((mixed, saved))
    }

    /// Computes the gradient of [`Candle::mix_experts`] by `h`, and adds those of the weights. An expert without tokens has a
    /// gradient of zero.
    pub(super) fn mix_experts_back(
        &self,
        h: &Tensor,
        of: &Experts<Linear<Self>>,
        mut saved: SavedExperts<Self>,
        (dmixed, balance): (&Tensor, Option<BalanceTerm<'_>>),
        sums: &mut Gradients<'_, Self>,
    ) -> Done<Tensor> {
        let ((_, width), wide, shared) = (of.scores.dims(), of.width(), saved.shared.take());
        let rows = RoutedRows::of(self, &saved.chosen, saved.router.chosen)?;
        // 4. (N, D) -> (N k, D), (N, k)
        let of_rows = dmixed.index_select(&rows.at, 0)?;
        let dout = of_rows.broadcast_mul(&rows.weights(self, &saved.weights)?)?;
        let products = read(&(of_rows * saved.out.rows(width)?)?.sum(D::Minus1)?)?;
        let mut dweights = vec![0.0; products.len()];
        rows.choices.iter().zip(products).for_each(|(&choice, dw)| dweights[choice] = dw);
        // 3. (N k, D) -> (N k, D)
        let x = h.index_select(&rows.at, 0)?;
        let (gate, up, mut dxs) = (saved.gate.rows(wide)?, saved.up.rows(wide)?, Vec::new());
        for (expert, own) in expert_ranges(of, &saved.rows) {
            if own.is_empty() {
                mark_unused(expert, sums);
                continue;
            }
            let part = |x: &Tensor| x.narrow(0, own.start, own.len());
            let (x, gate, up, dout) = (part(&x)?, part(&gate)?, part(&up)?, part(&dout)?);
            let tokens = Some(&rows.tokens[own.clone()]);
            dxs.push(mlp_back(expert, [&x, &gate, &up], &dout, tokens, sums)?);
        }
        // 2. (N k, D) -> (N, D)
        let dx = join_rows(&dxs, width, &self.device)?;
        let mut dh = h.zeros_like()?.index_add(&rows.at, &dx, 0)?;
        // 1. (N, k) -> (N, E) -> (N, D)
        let dscores = score_gradients(&saved, &dweights, balance);
        let dscores = self.upload(dscores, (h.dim(0)?, saved.router.experts))?;
        dh = (dh + linear::backward(&of.scores, [h, &dscores], None, sums)?)?;
        // 5. (N, D) -> (N, D)
        if let (Some(of), Some(saved)) = (&of.shared, shared) {
            dh = (dh + shared_back(h, of, &saved, dmixed, sums)?)?;
        }
        Ok(dh)
    }
}

/// Computes the gradient `[N, E]` of the scores.
fn score_gradients(
    SavedExperts { router, scores, chosen, weights, .. }: &SavedExperts<Candle>,
    dweights: &[f32],
    balance: Option<BalanceTerm<'_>>,
) -> Vec<f32> {
    let mut dscores = vec![0.0; scores.len()];
    router.weigh_experts_back(scores, chosen, [weights, dweights], &mut dscores);
    if let Some(BalanceTerm { slopes, counts }) = balance {
        router.add_mean_back(scores, slopes, counts, &mut dscores);
    }
    dscores
}

/// Marks the weights of an expert without tokens.
fn mark_unused(expert: &GatedMlp<Linear<Candle>>, sums: &mut Gradients<'_, Candle>) {
    for map in expert.linears() {
        let of_map = [&map.weight].into_iter().chain(&map.bias);
        let of_adapter = map.lora.iter().flat_map(|lora| [&lora.a, &lora.b]);
        of_map.chain(of_adapter).for_each(|param| sums.mark_unused(param.slot()));
    }
}

/// Adds `sigmoid(gate(h)) mlp(h)` to `mixed [N, D]`.
fn add_shared(
    h: &Tensor,
    of: &SharedExpert<Linear<Candle>>,
    mixed: &mut Tensor,
) -> Done<SavedShared<Candle>> {
    let scores = linear::forward(&of.gate, h, None)?;
    let [gate, up, out] = mlp(&of.mlp, h, None)?;
    *mixed = (&*mixed + out.broadcast_mul(&gates::sigmoid(&scores)?)?)?;
    let [gates, gate, up, out] = [scores, gate, up, out].map(CandleTensor::from);
    Ok(SavedShared { gates, gate, up, out })
}

/// Computes the gradient of [`add_shared`] by `h`, and adds those of the weights.
fn shared_back(
    h: &Tensor,
    of: &SharedExpert<Linear<Candle>>,
    saved: &SavedShared<Candle>,
    dmixed: &Tensor,
    sums: &mut Gradients<'_, Candle>,
) -> Done<Tensor> {
    let SavedShared { gates: scores, gate, up, out } = saved;
    let factor = gates::sigmoid(scores.get()?)?;
    let along = (dmixed * out.get()?)?.sum_keepdim(D::Minus1)?;
    let dscores = ((along * &factor)? * (1.0 - &factor)?)?;
    let dout = dmixed.broadcast_mul(&factor)?;
    let dh = mlp_back(&of.mlp, [h, gate.get()?, up.get()?], &dout, None, sums)?;
    Ok((dh + linear::backward(&of.gate, [h, &dscores], None, sums)?)?)
}
