//! Experts on the CPU: tokens are sorted by expert, each expert computes its rows, and the rows of a token are summed by rising
//! expert. A row of a product does not depend on the other rows, so a token has the same bits whatever tokens share its experts.

mod expert;
mod shared;

use std::borrow::Cow;
use std::ops::Range;

use maverl_kernels::experts::ExpertRows;
use maverl_kernels::matmul::Precision;

use super::{Done, linear};
use crate::files::parts::{Experts, GatedMlp};
use crate::net::experts::{BalanceTerm, LayerRoutes, SavedExperts};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::pool::Pool;
use expert::{activate, expert_back, split_maps};

/// Computes `Σ_e w_e expert_e(h)` for `h [N, D]`, by the experts of its scores, or of routes.
pub(super) fn forward(
    (h, routes): (&[f32], Option<LayerRoutes<'_>>),
    of: &Experts<Linear>,
    precision: Precision,
    pool: &mut Pool,
) -> (Vec<f32>, SavedExperts) {
    let Experts { scores: map, router, .. } = of;
    let d = map.dims().1;
    // 1. Scores, choice and weights: (N, D) -> (N, E), (N, k)
    let mut scores = vec![0.0; h.len() / d * router.experts];
    linear::forward(map, h, &mut scores, Precision::F32.set(), pool);
    let mut chosen = router.choose_experts(&scores);
    let replaced = routes.map(|routes| routes.replace(&mut chosen, router.chosen));
    let replaced = replaced.unwrap_or_default();
    let weights = router.weigh_experts(&scores, &chosen);
    // 2. Tokens by expert: (N, D) -> (N k, D)
    let rows = ExpertRows::sort_choices(&chosen, *router);
    let mut x = pool.take(rows.count() * d);
    rows.gather_tokens(h, None, d, &mut x);
    // 3. Experts: (N k, D) -> (N k, F), (N k, F), (N k, D)
    let f = of.width();
    let [mut gate, mut up] = [(); 2].map(|()| pool.take(rows.count() * f));
    let mut out = pool.take(rows.count() * d);
    for (expert, own) in expert_ranges(of, &rows) {
        let expert = &of_rows(expert, &rows, &own);
        let (x, wide) = (&x[columns(&own, d)], columns(&own, f));
        let (gate, up) = (&mut gate[wide.clone()], &mut up[wide]);
        let maps = split_maps(expert);
        linear::forward_each(maps, x, [&mut *gate, &mut *up], precision.set(), pool);
        let mut act = pool.take(gate.len());
        activate(expert.activation, gate, up, &mut act);
        linear::forward(&expert.down, &act, &mut out[columns(&own, d)], precision.set(), pool);
        pool.give([act]);
    }
    // 4. Weighted sum: (N k, D) -> (N, D)
    let mut mixed = pool.take(h.len());
    rows.sum_choices(&out, Some(&weights), d, &mut mixed);
    pool.give([x]);
    // 5. Shared expert: (N, D) -> (N, D)
    let shared = of.shared.as_ref().map(|of| shared::forward(h, of, &mut mixed, precision, pool));
    let router = *router;
    (mixed, SavedExperts { router, scores, chosen, weights, rows, gate, up, out, shared, replaced })
}

/// Computes the gradient `[N, D]` of [`forward`] by `h`, from that of its result, and adds those of the weights. An expert
/// without tokens has a gradient of zero.
pub(super) fn backward(
    h: &[f32],
    of: &Experts<Linear>,
    mut saved: SavedExperts,
    (dmixed, balance): (&[f32], Option<BalanceTerm<'_>>),
    precision: Precision,
    sums: &mut Gradients<'_>,
    pool: &mut Pool,
) -> Done<Vec<f32>> {
    let (d, shared) = (of.scores.dims().1, saved.shared.take());
    let SavedExperts { rows, weights, .. } = &saved;
    // 4. (N, D) -> (N k, D), (N, k)
    let mut dout = pool.take(rows.count() * d);
    rows.gather_tokens(dmixed, Some(weights), d, &mut dout);
    let dweights = rows.multiply_choices(dmixed, &saved.out, d);
    // 3. (N k, D) -> (N k, D)
    let mut x = pool.take(rows.count() * d);
    rows.gather_tokens(h, None, d, &mut x);
    let mut dx = pool.take(rows.count() * d);
    for (expert, own) in expert_ranges(of, rows) {
        let (narrow, wide) = (columns(&own, d), columns(&own, of.width()));
        let inputs = [&x[narrow.clone()], &saved.gate[wide.clone()], &saved.up[wide]];
        let grads = (&dout[narrow.clone()], &mut dx[narrow]);
        let expert = &of_rows(expert, rows, &own);
        expert_back(expert, inputs, grads, precision.set(), sums, pool);
    }
    // 2. (N k, D) -> (N, D)
    let mut dh = pool.take(h.len());
    rows.sum_choices(&dx, None, d, &mut dh);
    // 1. (N, k) -> (N, E) -> (N, D)
    let dscores = score_gradients(&saved, &dweights, balance);
    let products = Precision::F32.add();
    linear::backward(&of.scores, [h, &dscores], &mut dh, products, sums, pool);
    // 5. (N, D) -> (N, D)
    if let (Some(of), Some(saved)) = (&of.shared, shared) {
        shared::backward(h, of, saved, (dmixed, &mut dh), precision, sums, pool);
    }
    pool.give([dout, x, dx]);
    pool.give(saved.buffers());
    Ok(dh)
}

/// Computes the gradient `[N, E]` of the scores.
fn score_gradients(
    saved: &SavedExperts,
    dweights: &[f32],
    balance: Option<BalanceTerm<'_>>,
) -> Vec<f32> {
    let SavedExperts { router, scores, chosen, weights, .. } = saved;
    let mut dscores = vec![0.0; scores.len()];
    router.weigh_experts_back(scores, chosen, [weights, dweights], &mut dscores);
    if let Some(BalanceTerm { slopes, counts }) = balance {
        router.add_mean_back(scores, slopes, counts, &mut dscores);
    }
    dscores
}

/// Iterates over the experts with their rows.
fn expert_ranges<'a>(
    of: &'a Experts<Linear>,
    rows: &'a ExpertRows,
) -> impl Iterator<Item = (&'a GatedMlp<Linear>, Range<usize>)> {
    of.experts.iter().zip(rows.offsets.windows(2)).map(|(expert, own)| (expert, own[0]..own[1]))
}

/// Returns an expert whose adapter drops inputs of its rows as of their tokens.
fn of_rows<'a>(
    expert: &'a GatedMlp<Linear>,
    rows: &ExpertRows,
    own: &Range<usize>,
) -> Cow<'a, GatedMlp<Linear>> {
    let dropout = |map: &Linear| map.lora.as_ref().is_some_and(|lora| lora.dropout.is_some());
    if !expert.linears().any(dropout) {
        return Cow::Borrowed(expert);
    }
    let mut expert = expert.clone();
    let adapters = expert.linears_mut().filter_map(|map| map.lora.as_mut());
    for dropout in adapters.filter_map(|lora| lora.dropout.as_mut()) {
        dropout.keys = rows.tokens(own.clone()).map(|token| dropout.keys[token]).collect();
    }
    Cow::Owned(expert)
}

/// Returns the elements of rows of a width.
fn columns(rows: &Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}
