//! Losses of pairs of a better and a worse reply.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Loss of a pair of replies (dpo, spin, online_dpo).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "PreferenceConfig", level = "team", crate = crate)]
pub struct PreferenceOptions {
    /// Loss of a pair.
    pub loss: PairLoss,
    /// Strength of the KL constraint to the reference; smaller values allow larger deviations.
    #[setting(default = 0.1, range = above(0.0)..)]
    pub beta: f64,
    /// Assumed probability that a pair is labeled the wrong way round; only with `sigmoid` and `robust`.
    #[setting(default = 0.0, range = 0.0..0.5)]
    pub label_smoothing: f64,
    /// Omit the reference's log-probabilities from the margin.
    #[setting(default = false)]
    pub reference_free: bool,
}

/// The loss of a pair of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PairLoss {
    /// Logistic (DPO). arXiv:2305.18290
    #[default]
    Sigmoid,
    /// A margin of 1 (SLiC-HF). arXiv:2305.10425
    Hinge,
    /// Squared distance from a margin, over means of tokens (IPO). arXiv:2310.12036
    Ipo,
    /// Logistic, unbiased where a known share of the pairs is the wrong way round. arXiv:2403.00409
    Robust,
}

/// A pair of replies: for each, the sum of log-probs minus those of the reference, and the number of tokens.
///
/// Without a reference ("reference-free") the sums are of the log-probs alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Sum over the better reply, and its number of tokens.
    pub chosen: (f64, usize),
    /// Sum over the worse reply, and its number of tokens.
    pub rejected: (f64, usize),
}

/// Loss of a pair, with its derivatives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PreferenceLoss {
    /// Value of the loss.
    pub value: f64,
    /// Derivative by the log-prob of each token of the better reply.
    pub chosen: f64,
    /// Derivative by the log-prob of each token of the worse reply.
    pub rejected: f64,
    /// β times the sum over the better reply: its implicit reward.
    pub reward_chosen: f64,
    /// β times the sum over the worse reply.
    pub reward_rejected: f64,
}

/// Computes the loss of a pair of replies.
///
/// ```text
/// h = Σ (logp − logp_ref) over chosen − Σ (logp − logp_ref) over rejected
/// d = β · h
/// sigmoid    −(1 − s) · log sigmoid(d) − s · log sigmoid(−d)               DPO, 2305.18290 eq. 7
/// hinge      max(0, 1 − d)                                                 SLiC-HF, 2305.10425
/// ipo        (h − 1 / (2β))², with h over mean log-ratios                  IPO, 2310.12036
/// robust     (−(1 − s) · log sigmoid(d) + s · log sigmoid(−d)) / (1 − 2s)  Robust DPO, 2403.00409
/// ```
///
/// `s` is [`PreferenceOptions::label_smoothing`].
pub fn preference(options: &PreferenceOptions, pair: &Pair) -> PreferenceLoss {
    let PreferenceOptions { loss: kind, beta, label_smoothing: s, .. } = *options;
    let ((chosen, chosen_tokens), (rejected, rejected_tokens)) = (pair.chosen, pair.rejected);
    let d = beta * (chosen - rejected);
    let (value, grad, scales): (f64, f64, (f64, f64)) = match kind {
        PairLoss::Sigmoid => {
            let value = (1.0 - s) * softplus(-d) + s * softplus(d);
            (value, beta * (s * sigmoid(d) - (1.0 - s) * sigmoid(-d)), (1.0, 1.0))
        }
        PairLoss::Hinge => {
            let grad = if d < 1.0 { -beta } else { 0.0 };
            (1.0 - super::surrogate::at_most(d, 1.0), grad, (1.0, 1.0))
        }
        PairLoss::Ipo => {
            let (own, other) = (chosen_tokens.max(1) as f64, rejected_tokens.max(1) as f64);
            let error = chosen / own - rejected / other - 1.0 / (2.0 * beta);
            (error * error, 2.0 * error, (1.0 / own, 1.0 / other))
        }
        PairLoss::Robust => {
            let value = ((1.0 - s) * softplus(-d) - s * softplus(d)) / (1.0 - 2.0 * s);
            let grad = -beta * ((1.0 - s) * sigmoid(-d) + s * sigmoid(d)) / (1.0 - 2.0 * s);
            (value, grad, (1.0, 1.0))
        }
    };
    PreferenceLoss {
        value,
        chosen: grad * scales.0,
        rejected: -grad * scales.1,
        reward_chosen: beta * chosen,
        reward_rejected: beta * rejected,
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

/// Returns `log(1 + eˣ)`, also where `eˣ` overflows.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}
