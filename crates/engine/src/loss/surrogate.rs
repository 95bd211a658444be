//! Surrogate losses of a token or of a whole reply, as functions of `log ρ = logp − logp_old`.
//!
//! Derivatives are with respect to `log ρ`, which for a token's ratio is `∂/∂logp`.

use super::{Clip, Clipped, Term};

/// Bound of `log ρ`. Every clip cuts the gradient long before it; the bound keeps infinities out.
pub(super) const LOG_RATIO_MAX: f64 = 20.0;

/// Returns `ρ`, bounded. NaN stays NaN and is reported with the loss.
pub(super) fn ratio(log_ratio: f64) -> f64 {
    libm::exp(at_most(log_ratio, LOG_RATIO_MAX))
}

/// The smaller of both; what is not a number stays so, unlike in [`f64::min`].
pub(super) fn at_most(x: f64, bound: f64) -> f64 {
    if x > bound { bound } else { x }
}

/// Computes the clipped surrogate with a dual bound.
///
/// ```text
/// ρ = exp(log ρ)
/// L = max(−A·ρ, −A·clip(ρ, 1 − low, 1 + high))
/// L = min(L, −A·dual)                             where A < 0
/// ```
///
/// PPO ([1707.06347] eq. 7) with separate bounds (DAPO, [2503.14476] eq. 8) and the dual clip ([1912.09729] eq. 8).
/// With `dual ≥ 1 + high` this is also the two-sided clipping of INTELLECT-2 ([2505.07291]), with `dual` as its δ.
///
/// - `log ρ` is cut at 20, where `ρ` is far outside every clip: neither value nor gradient changes.
///
/// [1707.06347]: https://arxiv.org/abs/1707.06347
/// [2503.14476]: https://arxiv.org/abs/2503.14476
/// [1912.09729]: https://arxiv.org/abs/1912.09729
/// [2505.07291]: https://arxiv.org/abs/2505.07291
pub fn clipped_surrogate(
    log_ratio: f64,
    advantage: f64,
    (low, high, dual): (f64, f64, f64),
) -> Clipped {
    let ratio = ratio(log_ratio);
    if advantage > 0.0 && ratio > 1.0 + high {
        Clipped::cut_at(-advantage * (1.0 + high), Clip::High)
    } else if advantage < 0.0 && ratio < 1.0 - low {
        Clipped::cut_at(-advantage * (1.0 - low), Clip::Low)
    } else if advantage < 0.0 && ratio > dual {
        Clipped::cut_at(-advantage * dual, Clip::Dual)
    } else {
        Clipped::free(-advantage * ratio, -advantage * ratio)
    }
}

/// Computes the surrogate of CISPO: the weight of a token is clipped, its gradient never is.
///
/// ```text
/// L = −sg(min(ρ, 1 + high)) · A · logp                 sg: stop-gradient
/// ```
///
/// MiniMax-M1, [2506.13585]. A ratio above the bound counts as [`Clip::High`], although its token still has a gradient.
///
/// [2506.13585]: https://arxiv.org/abs/2506.13585
pub fn cispo(logp: f64, log_ratio: f64, advantage: f64, high: f64) -> Clipped {
    let ratio = ratio(log_ratio);
    let weight = at_most(ratio, 1.0 + high);
    let term = Term { value: -weight * advantage * logp, grad: -weight * advantage };
    Clipped { term, clip: (ratio > weight).then_some(Clip::High) }
}

/// Computes the surrogate of SAPO: a soft gate in place of the clip.
///
/// ```text
/// L = −A · (4 / τ) · sigmoid(τ · (ρ − 1))              τ = positive where A > 0, else negative
/// ```
///
/// [2511.20347]. On policy its gradient is that of the clipped surrogate; it decays with the distance from the sampling
/// policy.
///
/// [2511.20347]: https://arxiv.org/abs/2511.20347
pub fn sapo(log_ratio: f64, advantage: f64, (positive, negative): (f64, f64)) -> Clipped {
    let tau = if advantage > 0.0 { positive } else { negative };
    let ratio = ratio(log_ratio);
    let gate = 1.0 / (1.0 + libm::exp(-tau * (ratio - 1.0)));
    let grad = -advantage * 4.0 * gate * (1.0 - gate) * ratio;
    Clipped::free(-advantage * 4.0 / tau * gate, grad)
}

/// Computes the surrogate of CPGD: it clips the log-ratio, so no ratio can grow.
///
/// ```text
/// L = −A · min(log ρ, log(1 + high))                   where A > 0
/// L = −A · max(log ρ, log(1 − low))                    else
/// ```
///
/// [2505.12504]; the constant `−A · logp_old` is omitted. It is used with [`policy_drift`](super::policy_drift).
///
/// [2505.12504]: https://arxiv.org/abs/2505.12504
pub fn cpgd(log_ratio: f64, advantage: f64, (low, high): (f64, f64)) -> Clipped {
    let (floor, ceiling) = (libm::log1p(-low), libm::log1p(high));
    if advantage > 0.0 && log_ratio > ceiling {
        Clipped::cut_at(-advantage * ceiling, Clip::High)
    } else if advantage < 0.0 && log_ratio < floor {
        Clipped::cut_at(-advantage * floor, Clip::Low)
    } else {
        Clipped::free(-advantage * log_ratio, -advantage)
    }
}
