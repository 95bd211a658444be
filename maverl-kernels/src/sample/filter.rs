//! The filters, as weights of dropped tokens set to zero, and the draw from what is left.

use std::cell::RefCell;

use super::Filter;
use crate::{
    lanes,
    logprob::{Row, distance},
};

thread_local! {
    static WEIGHTS: RefCell<Vec<f32>> = RefCell::default();
}

/// Draws an id from the filtered softmax of `logits`, whose sums are `row`.
pub(super) fn draw(logits: &[f32], row: &Row, filter: &Filter, u: f64) -> usize {
    WEIGHTS.with_borrow_mut(|weights| {
        weights.resize(logits.len(), 0.0);
        draw_with(weights, logits, row, filter, u)
    })
}

/// [`draw`], with room for as many weights as there are logits.
fn draw_with(weights: &mut [f32], logits: &[f32], row: &Row, filter: &Filter, u: f64) -> usize {
    lanes::dispatch(
        #[inline(always)]
        || {
            for (weight, &z) in weights.iter_mut().zip(logits) {
                *weight = lanes::exp(distance(z, row.inverse, row.max));
            }
        },
    );
    top_k(weights, logits, filter.top_k);
    top_p(weights, filter.top_p);
    if filter.min_p > 0.0 {
        // The largest weight is 1 and passes every filter.
        for weight in &mut *weights {
            *weight = if *weight < filter.min_p { 0.0 } else { *weight };
        }
    }
    invert(weights, u)
}

/// Keeps the logits that are at least the `k`-th largest.
fn top_k(weights: &mut [f32], logits: &[f32], k: usize) {
    if k == 0 || k >= logits.len() {
        return;
    }
    let mut sorted = logits.to_vec();
    let (_, &mut least, _) = sorted.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    for (weight, &z) in weights.iter_mut().zip(logits) {
        *weight = if z < least { 0.0 } else { *weight };
    }
}

/// Keeps a token if the mass of those before it, most probable first, is below `p` of the total.
fn top_p(weights: &mut [f32], p: f32) {
    if p >= 1.0 {
        return;
    }
    let (total, p) = (total(weights), f64::from(p));
    // All tokens up to this weight have at most 1 − p of the mass together, so they go without being sorted.
    let sure = (1.0 - p) * total / weights.len() as f64;
    let mut order: Vec<usize> =
        (0..weights.len()).filter(|&i| f64::from(weights[i]) > sure || weights[i] == 1.0).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
    let mut before = 0.0;
    let mut kept = vec![false; weights.len()];
    for (rank, &i) in order.iter().enumerate() {
        if rank > 0 && before >= p * total {
            break;
        }
        kept[i] = true;
        before += f64::from(weights[i]);
    }
    for (weight, kept) in weights.iter_mut().zip(kept) {
        *weight = if kept { *weight } else { 0.0 };
    }
}

/// The first id at which the running sum passes `u` of the total; an id of weight zero never makes it pass.
fn invert(weights: &[f32], u: f64) -> usize {
    let target = u * total(weights);
    let (mut sum, mut last) = (0.0, 0);
    for (i, &weight) in weights.iter().enumerate() {
        if weight > 0.0 {
            sum += f64::from(weight);
            last = i;
            if sum > target {
                return i;
            }
        }
    }
    last
}

/// The sum of the weights, in ascending order.
fn total(weights: &[f32]) -> f64 {
    weights.iter().map(|&w| f64::from(w)).sum()
}
