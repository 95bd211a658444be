//! Loss of single replies that are good or bad.

use super::preference::sigmoid;
use super::{PreferenceOptions, Term};

/// A reply with a label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KtoReply {
    /// Sum of its log-probs minus those of the reference; of the log-probs alone if the loss is reference-free.
    pub log_ratio: f64,
    /// True if it is good.
    pub good: bool,
}

/// Computes the loss of a reply, and its derivative by the log-ratio. `shift` is z₀, from [`kto_shift`].
///
/// ```text
/// good   L = λ_D · (1 − sigmoid(β · (h − z₀)))          λ_D: good_weight
/// bad    L = λ_U · (1 − sigmoid(β · (z₀ − h)))          λ_U: bad_weight;  z₀ has no gradient
/// ```
///
/// KTO, [2402.01306](https://arxiv.org/abs/2402.01306) eq. 8. A constant, `λ` less the value of the paper, is added.
pub fn kto(options: &PreferenceOptions, reply: KtoReply, shift: f64) -> Term {
    let (sign, weight) =
        if reply.good { (1.0, options.good_weight) } else { (-1.0, options.bad_weight) };
    let value = sigmoid(sign * options.beta * (reply.log_ratio - shift));
    let slope = -weight * options.beta * sign * value * (1.0 - value);
    Term { value: weight * (1.0 - value), grad: slope }
}

/// Returns z₀ of a batch, `max(0, mean)` of the log-ratios of replies under the prompts of others: an estimate of the KL of the
/// policy to the reference. It is 0 without any.
pub fn kto_shift(mismatched: &[f64]) -> f64 {
    (mismatched.iter().sum::<f64>() / mismatched.len().max(1) as f64).max(0.0)
}
