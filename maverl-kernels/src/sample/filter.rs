//! The filters, as weights of dropped tokens set to zero, and the draw from what is left.

use std::cell::RefCell;

use pulp::Simd;

use super::Filter;
use crate::lanes::{self, Kernel, LANES, Lanes};
use crate::logprob::Row;

/// Blocks of weights that are summed before one of them is looked at.
const MOST_BLOCKS: usize = 128;
/// Weights that are sorted first.
const FIRST_SORTED: usize = 256;

thread_local! {
    static WEIGHTS: RefCell<Vec<f32>> = RefCell::default();
}

/// The softmax of `logits * inverse`, and an id that is drawn from what the filters leave of it.
pub(super) fn draw(logits: &[f32], inverse: f32, filter: &Filter, u: f64) -> (Row, usize) {
    WEIGHTS.with_borrow_mut(|weights| {
        weights.resize(logits.len(), 0.0);
        let row = lanes::run(Weigh { logits, inverse, weights });
        top_k(weights, logits, filter.top_k);
        top_p(weights, filter.top_p);
        if filter.min_p > 0.0 {
            // The largest weight is 1 and passes every filter.
            lanes::run(DropBelow { least: filter.min_p, weights });
        }
        (row, invert(weights, u))
    })
}

/// [`Row::with_weights`].
struct Weigh<'a> {
    logits: &'a [f32],
    inverse: f32,
    weights: &'a mut [f32],
}

impl Kernel for Weigh<'_> {
    type Output = Row;

    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> Row {
        Row::with_weights(lanes, self.logits, self.inverse, self.weights)
    }
}

/// Sets weights below the least one to zero.
struct DropBelow<'a> {
    least: f32,
    weights: &'a mut [f32],
}

impl Kernel for DropBelow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let zero = lanes.splat(0.0);
        lanes.each(
            [],
            [self.weights],
            #[inline(always)]
            |[], [weight]| [lanes.where_less(weight, self.least, zero, weight)],
        );
    }
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
    // Weights are not negative, so their bits have their order: the largest first, of equals the lower id.
    let key = |id: usize, weight: f32| u64::from(!weight.to_bits()) << 32 | id as u64;
    let mut keys: Vec<u64> = (weights.iter().enumerate())
        .filter(|&(_, &weight)| f64::from(weight) > sure || weight == 1.0)
        .map(|(id, &weight)| key(id, weight))
        .collect();
    let kept = kept(&mut keys, p * total);
    let old = kept.iter().map(|&key| (key as u32 as usize, f32::from_bits(!(key >> 32) as u32)));
    weights.fill(0.0);
    old.for_each(|(id, weight)| weights[id] = weight);
}

/// The first of the sorted keys, before which there is less than a mass. A few are usually enough, so as many are sorted
/// as there were before.
fn kept(keys: &mut [u64], mass: f64) -> &[u64] {
    let (mut before, mut sorted) = (0.0, 0);
    while sorted < keys.len() {
        let next = keys.len().min((2 * sorted).max(FIRST_SORTED));
        let rest = &mut keys[sorted..];
        if next - sorted < rest.len() {
            rest.select_nth_unstable(next - sorted);
        }
        rest[..next - sorted].sort_unstable();
        for (rank, &key) in (sorted..next).zip(&rest[..next - sorted]) {
            if rank > 0 && before >= mass {
                return &keys[..rank];
            }
            before += f64::from(f32::from_bits(!(key >> 32) as u32));
        }
        sorted = next;
    }
    keys
}

/// The first id at which the running sum passes `u` of the total; an id of weight zero never makes it pass.
fn invert(weights: &[f32], u: f64) -> usize {
    lanes::run(Guess { weights, u }).unwrap_or_else(|| invert_in_order(weights, u))
}

/// [`invert`] by the sums in ascending order, which wait for one another.
fn invert_in_order(weights: &[f32], u: f64) -> usize {
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

/// The result of [`invert_in_order`] from sums that are taken in another order, if it is sure to be the same.
///
/// A sum of `n` weights, which are not negative, is within `n 2⁻⁵³` of what it should be, relative to the total, in any
/// order. So the two targets, and the two sums up to an id, differ by less than `n 2⁻⁵⁰` together, with room for the
/// rounding of the target: an id whose sum is that far above the target is above it in ascending order too, and those
/// that are that far below are below.
struct Guess<'a> {
    weights: &'a [f32],
    u: f64,
}

impl Kernel for Guess<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> Option<usize> {
        let Self { weights, u } = self;
        let mut sums = [0.0; MOST_BLOCKS];
        let size = weights.len().div_ceil(MOST_BLOCKS).max(1).next_multiple_of(4 * LANES);
        let blocks = weights.len().div_ceil(size);
        let mut total = 0.0;
        for (sum, block) in sums.iter_mut().zip(weights.chunks(size)) {
            total += lanes.wide_sum(block);
            *sum = total;
        }
        let target = u * total;
        let margin = weights.len() as f64 * 2.0_f64.powi(-50) * total;
        let block = sums[..blocks].iter().position(|&sum| sum >= target - margin)?;
        let mut sum = if block > 0 { sums[block - 1] } else { 0.0 };
        for (i, &weight) in weights.iter().enumerate().skip(block * size) {
            sum += f64::from(weight);
            if weight > 0.0 && sum >= target - margin {
                return (sum > target + margin).then_some(i);
            }
        }
        None
    }
}

/// The sum of the weights, in ascending order.
fn total(weights: &[f32]) -> f64 {
    weights.iter().map(|&w| f64::from(w)).sum()
}

#[cfg(test)]
mod tests;
