//! Losses of pairs of a better and a worse reply, and the settings of these and of labeled replies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Loss of a pair of replies (dpo, spin, online_dpo).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "PreferenceConfig", level = "team", crate = crate)]
pub struct PreferenceOptions {
    /// Loss of a pair (`sigmoid`, `hinge`, `ipo`, `robust`, `orpo`, `simpo`), or of each reply by its label (`kto`).
    pub loss: PairLoss,
    /// Strength of the KL constraint to the reference; smaller values allow larger deviations.
    #[setting(default = 0.1, range = above(0.0)..)]
    pub beta: f64,
    /// Assumed probability that a pair is labeled the wrong way round; only with `sigmoid` and `robust`.
    #[setting(default = 0.0, range = 0.0..0.5)]
    pub label_smoothing: f64,
    /// Omit the reference's log-probabilities from the margin.
    #[setting(default = false, idle_when = "loss = ['orpo', 'simpo']")]
    pub reference_free: bool,
    /// Margin of SimPO, which the difference of the mean log-probabilities times `beta` is to exceed.
    #[setting(default = 1.0, range = 0.0.., idle_unless = "loss = 'simpo'")]
    pub margin: f64,
    /// Weight of good replies in the loss of KTO.
    #[setting(default = 1.0, range = 0.0.., idle_unless = "loss = 'kto'")]
    pub good_weight: f64,
    /// Weight of bad replies in the loss of KTO.
    #[setting(default = 1.0, range = 0.0.., idle_unless = "loss = 'kto'")]
    pub bad_weight: f64,
    /// Reward from which a reply is good for KTO, where replies are the policy's own (`online_dpo`).
    #[setting(default = 0.5, range = .., idle_unless = "loss = 'kto'")]
    pub threshold: f64,
}

impl PreferenceOptions {
    /// Returns true if log-probs are compared with those of a reference.
    pub fn needs_reference(&self) -> bool {
        !self.reference_free && !self.loss.is_reference_free()
    }
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
    /// Log-odds of the two replies beside the negative log-likelihood of the better one, over means of tokens, without a
    /// reference (ORPO). arXiv:2403.07691
    Orpo,
    /// Logistic with a margin, over means of tokens, without a reference (SimPO). arXiv:2405.14734
    Simpo,
    /// Each reply alone, as good or bad: its log-ratio to the reference, compared with that of replies to other prompts (KTO).
    /// arXiv:2402.01306
    Kto,
}

impl PairLoss {
    /// Returns true for a loss of single replies with a label, [`kto`](super::kto), in place of pairs.
    pub const fn labels_replies(self) -> bool {
        matches!(self, Self::Kto)
    }

    /// Returns true for a loss that has no reference.
    pub const fn is_reference_free(self) -> bool {
        matches!(self, Self::Orpo | Self::Simpo)
    }
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
/// orpo       −l_w − β · log sigmoid(odds(l_w) − odds(l_l))                 ORPO, 2403.07691 eq. 6
/// simpo      −log sigmoid(β (l_w − l_l) − margin)                          SimPO, 2405.14734 eq. 6
///
/// l_w, l_l: mean log-probs of the better and of the worse reply;  odds(l) = l − log(1 − eˡ)
/// ```
///
/// `s` is [`PreferenceOptions::label_smoothing`].
///
/// # Panics
///
/// If the loss [labels replies](PairLoss::labels_replies).
pub fn preference(options: &PreferenceOptions, pair: &Pair) -> PreferenceLoss {
    match options.loss {
        PairLoss::Orpo => mean_preference(options, pair, orpo),
        PairLoss::Simpo => mean_preference(options, pair, simpo),
        _ => sum_preference(options, pair),
    }
}

/// Computes a loss of the mean log-probs of the two replies. `loss` returns its value and its derivatives by both.
fn mean_preference(
    options: &PreferenceOptions,
    pair: &Pair,
    loss: fn(&PreferenceOptions, f64, f64) -> (f64, [f64; 2]),
) -> PreferenceLoss {
    let [own, other] = [pair.chosen.1, pair.rejected.1].map(|tokens| tokens.max(1) as f64);
    let (chosen, rejected) = (pair.chosen.0 / own, pair.rejected.0 / other);
    let (value, [by_chosen, by_rejected]) = loss(options, chosen, rejected);
    PreferenceLoss {
        value,
        chosen: by_chosen / own,
        rejected: by_rejected / other,
        reward_chosen: options.beta * chosen,
        reward_rejected: options.beta * rejected,
    }
}

/// `−l_w + β · softplus(−o)` with `o = odds(l_w) − odds(l_l)`; `∂odds/∂l = 1 / (1 − eˡ)`.
fn orpo(options: &PreferenceOptions, chosen: f64, rejected: f64) -> (f64, [f64; 2]) {
    let [rest_chosen, rest_rejected] =
        [chosen, rejected].map(|mean| (-libm::expm1(mean)).max(f64::EPSILON));
    let odds = chosen - rejected - (libm::log(rest_chosen) - libm::log(rest_rejected));
    let pull = options.beta * sigmoid(-odds);
    let value = options.beta * softplus(-odds) - chosen;
    (value, [-1.0 - pull / rest_chosen, pull / rest_rejected])
}

/// `softplus(−d)` with `d = β (l_w − l_l) − margin`.
fn simpo(options: &PreferenceOptions, chosen: f64, rejected: f64) -> (f64, [f64; 2]) {
    let d = options.beta * (chosen - rejected) - options.margin;
    let pull = options.beta * sigmoid(-d);
    (softplus(-d), [-pull, pull])
}

/// Computes a loss of the sums of log-ratios of the two replies, or of their means (IPO).
fn sum_preference(options: &PreferenceOptions, pair: &Pair) -> PreferenceLoss {
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
            (1.0 - super::token::at_most(d, 1.0), grad, (1.0, 1.0))
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
        PairLoss::Orpo | PairLoss::Simpo => unreachable!("a loss of means"),
        PairLoss::Kto => panic!("preference: a loss of single replies"),
    };
    PreferenceLoss {
        value,
        chosen: grad * scales.0,
        rejected: -grad * scales.1,
        reward_chosen: beta * chosen,
        reward_rejected: beta * rejected,
    }
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

/// Returns `log(1 + eˣ)`, also where `eˣ` overflows.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}
