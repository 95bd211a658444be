//! Token sampling: counter-based random numbers, filters, and inverse-CDF sampling.
//!
//! Nothing here has state: a random number is a function of a seed and a counter; a token is a function of logits and a
//! random number.

mod filter;

use std::fmt;

use pulp::Simd;

use crate::lanes::{self, Kernel, LANES, Lanes};
use crate::logprob::RowOf;
pub use filter::SamplingFilter;

/// Derives a seed from two numbers. Both go through the finalizer of SplitMix64 ([Steele et al., 2014]), one after the
/// other, so that similar inputs give unrelated outputs and the order matters.
///
/// [Steele et al., 2014]: https://doi.org/10.1145/2714064.2660195
pub fn derive_seed(a: u64, b: u64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let first = finalize_hash(a.wrapping_add(GOLDEN));
    finalize_hash(first.wrapping_add(b.wrapping_mul(GOLDEN)).wrapping_add(GOLDEN))
}

/// Mixes the bits of a number: the finalizer of SplitMix64.
#[inline]
fn finalize_hash(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the `counter`-th number of the stream `seed`, uniform in `[0, 1)` with 53 bits. A stream is SplitMix64
/// started at a hash of its seed ([`derive_seed`]).
pub fn uniform_number(seed: u64, counter: u64) -> f64 {
    (derive_seed(seed, counter) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Sampling of a token without filters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenDraw {
    /// Temperature; 0 takes the largest logit.
    pub temperature: f32,
    /// Stream of random numbers.
    pub seed: u64,
    /// Number in the stream, as in [`uniform_number`].
    pub counter: u64,
}

impl TokenDraw {
    /// Samples a token from its logits.
    ///
    /// # Errors
    ///
    /// See [`sample_token`].
    pub fn sample(&self, logits: &[f32]) -> Result<Sampled, BadLogits> {
        let filter = SamplingFilter { temperature: self.temperature, ..SamplingFilter::default() };
        sample_token(logits, &filter, uniform_number(self.seed, self.counter))
    }
}

/// Smallest temperature above zero. Smaller ones are raised to it, so that scaled logits stay finite.
const COLDEST: f32 = 1e-6;

/// A sampled token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Id of the token.
    pub id: u32,
    /// Log-probability under the temperature-scaled, unfiltered softmax.
    pub logprob: f32,
    /// Entropy of that softmax, in nats.
    pub entropy: f32,
}

/// Logits that describe no distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLogits {
    /// The list is empty.
    Empty,
    /// The logit at this index is NaN.
    Nan(usize),
    /// The logit at this index is positive infinity.
    Infinite(usize),
    /// All logits are negative infinity.
    NoMass,
}

impl fmt::Display for BadLogits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "there are no logits"),
            Self::Nan(i) => write!(f, "logit {i} is not a number"),
            Self::Infinite(i) => write!(f, "logit {i} is infinite"),
            Self::NoMass => write!(f, "every logit is negative infinity"),
        }
    }
}

impl std::error::Error for BadLogits {}

/// Samples a token from `logits [V]` with the random number `u` in `[0, 1)`: applies the filters, then takes the first
/// id, ascending, at which the cumulative kept mass exceeds `u` times its total.
///
/// Temperature 0 takes the largest logit, and the lowest id of equal ones; log-probability and entropy are then those
/// at temperature 1. A token of zero probability is never returned.
///
/// # Errors
///
/// If the logits describe no distribution.
///
/// # Panics
///
/// If `u` is not in `[0, 1)`, the temperature is negative or not finite, or `top_p` or `min_p` is not in `[0, 1]`.
pub fn sample_token(logits: &[f32], filter: &SamplingFilter, u: f64) -> Result<Sampled, BadLogits> {
    assert!((0.0..1.0).contains(&u), "sample: u = {u} is not in [0, 1)");
    let temperature = filter.temperature;
    assert!(temperature >= 0.0 && temperature.is_finite(), "sample: temperature {temperature}");
    assert!((0.0..=1.0).contains(&filter.top_p), "sample: top_p {}", filter.top_p);
    assert!((0.0..=1.0).contains(&filter.min_p), "sample: min_p {}", filter.min_p);

    let best = largest_logit(logits)?;
    let greedy = temperature == 0.0;
    let inverse = inverse_temperature(temperature);
    let (row, id) = if greedy {
        (lanes::run_kernel(RowOf { logits, inverse }), best)
    } else {
        filter::draw_filtered(logits, inverse, filter, u)
    };
    Ok(Sampled { id: id as u32, logprob: row.logp(logits[id]), entropy: row.entropy() as f32 })
}

/// Samples like [`sample_token`], with a repetition penalty (CTRL, [1909.05858]): the logits of the tokens `seen` are divided
/// by `penalty` where positive and multiplied by it where negative, each once however often it was seen. 1 is off.
///
/// Log-probability and entropy are those of the unpenalized `logits`, so that they do not depend on filters or history.
///
/// # Errors
///
/// If the logits describe no distribution.
///
/// # Panics
///
/// Under the same conditions as [`sample_token`], or if `penalty` is not above 0 and finite, or an id not below `V`.
///
/// [1909.05858]: https://arxiv.org/abs/1909.05858
pub fn sample_fresh(
    logits: &[f32],
    seen: &[u32],
    penalty: f32,
    filter: &SamplingFilter,
    u: f64,
) -> Result<Sampled, BadLogits> {
    if penalty == 1.0 {
        return sample_token(logits, filter, u);
    }
    let mut penalized = logits.to_vec();
    penalize_seen(&mut penalized, seen, penalty);
    let Sampled { id, .. } = sample_token(&penalized, filter, u)?;
    let SamplingFilter { temperature, .. } = *filter;
    let row = lanes::run_kernel(RowOf { logits, inverse: inverse_temperature(temperature) });
    let logprob = row.logp(logits[id as usize]);
    Ok(Sampled { id, logprob, entropy: row.entropy() as f32 })
}

/// Log-probability of a token, and the most probable tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLikelihood {
    /// Log-probability of the token.
    pub logprob: f32,
    /// Ids and log-probabilities of the most probable tokens, descending; of equal ones the lower id comes first.
    pub top: Vec<(u32, f32)>,
}

/// Computes the log-probability of token `id` and the `n` most probable tokens under the softmax of `logits [V]` at a
/// temperature, as [`sample_token`] does: at 0 they are those at temperature 1. The bits are those of [`sample_token`].
///
/// # Errors
///
/// If the logits describe no distribution.
///
/// # Panics
///
/// If `id` is not below `V`.
pub fn token_likelihood(
    logits: &[f32],
    temperature: f32,
    id: u32,
    n: usize,
) -> Result<TokenLikelihood, BadLogits> {
    largest_logit(logits)?;
    let row = lanes::run_kernel(RowOf { logits, inverse: inverse_temperature(temperature) });
    let mut top: Vec<u32> = Vec::with_capacity(n + 1);
    for (id, &logit) in (0u32..).zip(logits) {
        let last = top.last().filter(|_| top.len() == n).map(|&last| logits[last as usize]);
        if n > 0 && last.is_none_or(|last| logit > last) {
            let at = top.partition_point(|&other| logits[other as usize] >= logit);
            top.insert(at, id);
            top.truncate(n);
        }
    }
    let top = top.into_iter().map(|id| (id, row.logp(logits[id as usize]))).collect();
    Ok(TokenLikelihood { logprob: row.logp(logits[id as usize]), top })
}

/// Returns the factor of logits at a temperature; 1 at temperature 0.
pub(crate) fn inverse_temperature(temperature: f32) -> f32 {
    if temperature == 0.0 { 1.0 } else { 1.0 / temperature.max(COLDEST) }
}

/// Applies the penalty to the logits of the tokens `seen`, each once.
fn penalize_seen(logits: &mut [f32], seen: &[u32], penalty: f32) {
    assert!(penalty > 0.0 && penalty.is_finite(), "sample: a repetition penalty of {penalty}");
    let mut done = vec![false; logits.len()];
    for &id in seen {
        let id = id as usize;
        if !std::mem::replace(&mut done[id], true) {
            let z = logits[id];
            logits[id] = if z < 0.0 { z * penalty } else { z / penalty };
        }
    }
}

/// Returns the lowest id of the largest logit.
fn largest_logit(logits: &[f32]) -> Result<usize, BadLogits> {
    let BestLogit { max, start, has_nan } = lanes::run_kernel(FindBest(logits));
    if has_nan {
        return Err(BadLogits::Nan(logits.iter().position(|z| z.is_nan()).unwrap_or(0)));
    }
    match logits[start..].iter().position(|&z| z == max) {
        None => Err(BadLogits::Empty),
        Some(i) if max == f32::INFINITY => Err(BadLogits::Infinite(start + i)),
        Some(_) if max == f32::NEG_INFINITY => Err(BadLogits::NoMass),
        Some(i) => Ok(start + i),
    }
}

/// Largest logit, and the start of the first block that has it.
struct BestLogit {
    max: f32,
    start: usize,
    has_nan: bool,
}

struct FindBest<'a>(&'a [f32]);

impl Kernel for FindBest<'_> {
    type Output = BestLogit;

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> BestLogit {
        const BLOCK: usize = 16 * LANES;
        let has_nan = lanes.has_nan(self.0);
        let mut best = BestLogit { max: f32::NEG_INFINITY, start: 0, has_nan };
        for (i, block) in self.0.chunks(BLOCK).enumerate() {
            let max = lanes.max(block);
            if max > best.max {
                best = BestLogit { max, start: i * BLOCK, has_nan };
            }
        }
        best
    }
}

#[cfg(test)]
mod tests;
