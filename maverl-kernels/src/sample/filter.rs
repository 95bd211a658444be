//! Filters, which set the weights of dropped tokens to zero, and sampling from the remaining weights.

use std::cell::RefCell;

use pulp::Simd;

use crate::lanes::{self, Kernel, LANES, Lanes};
use crate::logprob::LogitRow;

/// Blocks of weights that are summed before the sums are compared with the target.
const MOST_BLOCKS: usize = 128;
/// Number of weights that are sorted first.
const FIRST_SORTED: usize = 256;

/// Temperature, and the filters applied after it, in the order of Hugging Face.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingFilter {
    /// Divisor of the logits. 0 is greedy; values between 0 and 1e-6 count as 1e-6.
    pub temperature: f32,
    /// Number of largest logits to keep; ties with the last one are kept too. 0 is off.
    pub top_k: usize,
    /// Probability mass to keep: the most probable tokens are kept until their mass reaches it, at least one. 1 is off.
    /// Of equally probable tokens the lower id comes first.
    pub top_p: f32,
    /// Smallest kept probability relative to that of the most probable token; 0 is off.
    pub min_p: f32,
}

impl Default for SamplingFilter {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 }
    }
}

thread_local! {
    static WEIGHTS: RefCell<Vec<f32>> = RefCell::default();
}

/// Returns the softmax of `logits * inverse`, and an id sampled from it after the filters.
pub(super) fn draw_filtered(
    logits: &[f32],
    inverse: f32,
    filter: &SamplingFilter,
    u: f64,
) -> (LogitRow, usize) {
    WEIGHTS.with_borrow_mut(|weights| {
        weights.resize(logits.len(), 0.0);
        let row = lanes::run_kernel(Weigh { logits, inverse, weights });
        top_k(weights, logits, filter.top_k);
        top_p(weights, filter.top_p);
        if filter.min_p > 0.0 {
            // The largest weight is 1 and passes every filter.
            lanes::run_kernel(DropBelow { least: filter.min_p, weights });
        }
        (row, invert_sum(weights, u))
    })
}

/// Computes [`LogitRow::with_weights`].
struct Weigh<'a> {
    logits: &'a [f32],
    inverse: f32,
    weights: &'a mut [f32],
}

impl Kernel for Weigh<'_> {
    type Output = LogitRow;

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> LogitRow {
        LogitRow::with_weights(lanes, self.logits, self.inverse, self.weights)
    }
}

/// Sets weights below `least` to zero.
struct DropBelow<'a> {
    least: f32,
    weights: &'a mut [f32],
}

impl Kernel for DropBelow<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let zero = lanes.splat(0.0);
        lanes.map_lanes(
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

/// Keeps a token if the mass of the more probable tokens is below `p` of the total.
fn top_p(weights: &mut [f32], p: f32) {
    if p >= 1.0 {
        return;
    }
    let (total, p) = (total_weight(weights), f64::from(p));
    // All tokens up to this weight together have at most 1 − p of the mass, so they are dropped without sorting.
    let sure = (1.0 - p) * total / weights.len() as f64;
    // Weights are not negative, so their bits sort like their values: the largest first, and the lower id first of
    // equal ones.
    let mut keys: Vec<u64> = (weights.iter().enumerate())
        .filter(|&(_, &weight)| f64::from(weight) > sure || weight == 1.0)
        .map(|(id, &weight)| u64::from(!weight.to_bits()) << 32 | id as u64)
        .collect();
    let kept = prefix_of_mass(&mut keys, p * total);
    let old = kept.iter().map(|&key| (key as u32 as usize, f32::from_bits(!(key >> 32) as u32)));
    weights.fill(0.0);
    old.for_each(|(id, weight)| weights[id] = weight);
}

/// Returns the shortest prefix of the sorted keys that reaches `mass`. A few keys are usually enough, so the sorted
/// part starts small and doubles.
fn prefix_of_mass(keys: &mut [u64], mass: f64) -> &[u64] {
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

/// Returns the first id at which the running sum exceeds `u` of the total. Ids of weight zero are skipped.
fn invert_sum(weights: &[f32], u: f64) -> usize {
    lanes::run_kernel(Guess { weights, u }).unwrap_or_else(|| invert_in_order(weights, u))
}

/// Computes [`invert_sum`] with sums in ascending order, each of which depends on the one before.
fn invert_in_order(weights: &[f32], u: f64) -> usize {
    let target = u * total_weight(weights);
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

/// Result of [`invert_in_order`] from sums in another order, or `None` if the two might differ.
///
/// A sum of `n` nonnegative weights has an error of at most `n 2⁻⁵³`, relative to the total, in any order. The two
/// targets and the two sums up to an id therefore differ by less than `n 2⁻⁵⁰` together, with room for the rounding of
/// the target. An id whose sum is that far above the target is above it in ascending order too, and one that is that
/// far below is below.
struct Guess<'a> {
    weights: &'a [f32],
    u: f64,
}

impl Kernel for Guess<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> Option<usize> {
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

/// Returns the sum of the weights, in ascending order.
fn total_weight(weights: &[f32]) -> f64 {
    weights.iter().map(|&w| f64::from(w)).sum()
}

#[cfg(test)]
mod tests;
