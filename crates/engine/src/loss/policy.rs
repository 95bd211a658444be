//! Policy-gradient loss of one row, and the weights of its tokens.

use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LossOptions, PolicyReply, Surrogate, Term, importance_corrected, kl, policy_drift};

/// Aggregation of token losses to one number; every count is a true count of the whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Sum over tokens, over the number of tokens.
    #[default]
    TokenMean,
    /// Mean over each row's tokens, then over rows.
    SequenceMean,
    /// Sum over each row's tokens, then mean over rows.
    SequenceSum,
    /// Sum over tokens, over the tokens there would be if every reply were as long as it may be.
    Constant,
}

/// Computes the weight of each token for rows of `lengths` tokens packed one after another: `[N]`, with `N` the sum of
/// lengths. The weighted sum of token losses is the aggregate over the whole batch.
///
/// ```text
/// token_mean      w = 1 / N                            DAPO, BNPO
/// sequence_mean   w = 1 / (rows · length of the row)   GRPO
/// sequence_sum    w = 1 / rows                         LUSPO, where the ratio is of the sequence
/// constant        w = 1 / (rows · longest)             Dr. GRPO
/// ```
///
/// `longest` is the maximum length of a reply: a number of the configuration, not of the batch.
pub fn token_weights(lengths: &[usize], aggregation: Aggregation, longest: usize) -> Vec<f32> {
    let rows = lengths.len() as f64;
    let tokens = lengths.iter().sum::<usize>() as f64;
    let weights = lengths.iter().flat_map(|&length| {
        let weight = match aggregation {
            Aggregation::TokenMean => 1.0 / tokens,
            Aggregation::SequenceMean => 1.0 / (rows * length as f64),
            Aggregation::SequenceSum => 1.0 / rows,
            Aggregation::Constant => 1.0 / (rows * longest as f64),
        };
        std::iter::repeat_n(weight as f32, length)
    });
    weights.collect()
}

/// Token values of one row. All slices are `[T]`.
#[derive(Debug, Clone, Copy)]
pub struct RowTokens<'a> {
    /// Current log-probs.
    pub logp: &'a [f32],
    /// Current entropies of the token distributions.
    pub entropy: &'a [f32],
    /// Log-probs at sampling; those of the trainer before its update, if the row is corrected.
    pub old: &'a [f32],
    /// Log-probs of the sampler, if `old` has those of the trainer.
    pub sampler: Option<&'a [f32]>,
    /// Log-probs under the reference; present only if the row has a KL term.
    pub reference: Option<&'a [f32]>,
    /// Weight of each token: [`token_weights`].
    pub weights: &'a [f32],
    /// Coefficient of the absolute log-ratio of each token; present only if tokens have a penalty.
    pub penalties: Option<&'a [f32]>,
    /// Weight of a token in the means that are measured, whatever the aggregation of the loss: 1 / number of tokens of the batch.
    pub share: f64,
}

/// Sums over tokens. Sums of several rows can be added.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PolicyLoss {
    /// Total loss, `Σ w · (surrogate + β · kl + δ · drift + κ · |log ρ| − η · entropy)`, with the divergence from teachers.
    pub loss: f64,
    /// Surrogate part, `Σ w · surrogate`.
    pub surrogate: f64,
    /// KL to the reference, `Σ share · kl`.
    pub kl: f64,
    /// Entropy, `Σ share · entropy`.
    pub entropy: f64,
    /// Number of tokens.
    pub tokens: u64,
    /// Number of tokens whose KL to the reference is in the loss.
    pub kl_tokens: u64,
    /// Number of tokens that reached each bound: `[low, high, dual]`.
    pub clipped: [u64; 3],
    /// k1 of the KL from the sampling policy, `Σ (logp_old − logp)`.
    pub ppo_kl: f64,
    /// Number of tokens without a surrogate, because their row is off policy.
    pub masked: u64,
    /// Divergence from teachers, the sum over tokens with one.
    pub divergence: f64,
    /// Probability of the teachers' support under the policy, the sum over the same tokens.
    pub mass: f64,
    /// Number of tokens with a teacher.
    pub taught: u64,
    /// Negative log-likelihood of observations, the sum over their tokens.
    pub observation_nll: f64,
    /// Number of tokens of observations.
    pub observed: u64,
}

impl AddAssign for PolicyLoss {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.surrogate += other.surrogate;
        self.kl += other.kl;
        self.entropy += other.entropy;
        self.tokens += other.tokens;
        self.kl_tokens += other.kl_tokens;
        self.ppo_kl += other.ppo_kl;
        self.masked += other.masked;
        self.divergence += other.divergence;
        self.mass += other.mass;
        self.taught += other.taught;
        self.observation_nll += other.observation_nll;
        self.observed += other.observed;
        for (ours, theirs) in self.clipped.iter_mut().zip(other.clipped) {
            *ours += theirs;
        }
    }
}

/// Computes the policy-gradient loss of one row. Adds its derivatives by `logp [T]` and by `entropy [T]`.
///
/// `surrogate` is that of `options`, or another one; [`PolicyReply::token_losses`] has the ratios. With
/// `options.off_policy_mask`:
///
/// ```text
/// surrogate of token t = 0        if Aₜ < 0 and mean(logp_sampler − logp) > off_policy_mask
/// ```
///
/// DeepSeek-V3.2, [2512.02556](https://arxiv.org/abs/2512.02556) eq. 9. `row.penalties` are κ of KL-Cov,
/// [2505.22617](https://arxiv.org/abs/2505.22617); other tokens have none.
///
/// # Panics
///
/// If the lengths differ.
pub fn policy_gradient(
    row: &RowTokens<'_>,
    advantages: &[f32],
    (options, surrogate): (&LossOptions, &dyn Surrogate),
    [d_logp, d_entropy]: [&mut [f32]; 2],
) -> PolicyLoss {
    let n = row.logp.len();
    let lengths = [
        row.entropy.len(),
        row.old.len(),
        row.weights.len(),
        advantages.len(),
        d_logp.len(),
        d_entropy.len(),
    ];
    assert!(lengths.iter().all(|&len| len == n), "policy_gradient: {lengths:?} for {n} tokens");
    let mut sums = PolicyLoss { tokens: n as u64, ..PolicyLoss::default() };
    surrogates(row, advantages, (options, surrogate), d_logp, &mut sums);
    for t in 0..n {
        let weight = f64::from(row.weights[t]);
        let (logp, log_ratio) = (f64::from(row.logp[t]), log_ratio(row, t));
        sums.ppo_kl -= log_ratio;
        let mut pull = 0.0;
        if let Some(reference) = row.reference.filter(|_| options.kl_coef != 0.0) {
            let kl = divergence(options, logp, f64::from(reference[t]), log_ratio);
            sums.kl += row.share * kl.value;
            sums.kl_tokens += 1;
            sums.loss += weight * f64::from(options.kl_coef) * kl.value;
            pull += f64::from(options.kl_coef) * kl.grad;
        }
        if options.drift_coef != 0.0 {
            let drift = policy_drift(log_ratio);
            sums.loss += weight * f64::from(options.drift_coef) * drift.value;
            pull += f64::from(options.drift_coef) * drift.grad;
        }
        if let Some(penalties) = row.penalties {
            let penalty = distance_from_sampler(log_ratio);
            sums.loss += weight * f64::from(penalties[t]) * penalty.value;
            pull += f64::from(penalties[t]) * penalty.grad;
        }
        d_logp[t] += (weight * pull) as f32;
        d_entropy[t] -= (weight * f64::from(options.entropy_coef)) as f32;
        let entropy = f64::from(row.entropy[t]);
        sums.entropy += row.share * entropy;
        sums.loss -= f64::from(options.entropy_coef) * (weight * entropy);
    }
    sums.loss += sums.surrogate;
    sums
}

/// Computes the negative log-likelihood of one row (supervised training). Adds its derivative by `logp [T]`.
///
/// ```text
/// L = −Σ w · logp
/// ```
///
/// The entropy that is measured is that of the tokens with a weight.
pub fn log_likelihood(row: &RowTokens<'_>, d_logp: &mut [f32]) -> PolicyLoss {
    let mut sums = PolicyLoss::default();
    for (t, &weight) in row.weights.iter().enumerate() {
        sums.surrogate -= f64::from(weight) * f64::from(row.logp[t]);
        sums.entropy += if weight == 0.0 { 0.0 } else { row.share * f64::from(row.entropy[t]) };
        d_logp[t] -= weight;
    }
    sums.loss = sums.surrogate;
    sums
}

/// Computes the negative log-likelihood of an observation, a text that the environment wrote, beside policy gradients. Adds its
/// derivative by `logp [T]`.
///
/// ```text
/// L = −Σ w · logp        w: a coefficient over the number of tokens of all observations
/// ```
///
/// ECHO, [2605.24517](https://arxiv.org/abs/2605.24517).
pub fn observation(row: &RowTokens<'_>, d_logp: &mut [f32]) -> PolicyLoss {
    let likelihood = log_likelihood(&RowTokens { share: 0.0, ..*row }, d_logp);
    PolicyLoss {
        loss: likelihood.loss,
        observation_nll: row.logp.iter().map(|&logp| -f64::from(logp)).sum(),
        observed: row.logp.len() as u64,
        ..PolicyLoss::default()
    }
}

/// Computes a loss that is linear in the log-probs: the derivative of each token is its weight. Adds the derivative.
pub fn linear(row: &RowTokens<'_>, d_logp: &mut [f32]) -> PolicyLoss {
    for (d_logp, weight) in d_logp.iter_mut().zip(row.weights) {
        *d_logp += weight;
    }
    PolicyLoss::default()
}

/// `|log ρ|`, whose derivative at 0 is 0.
fn distance_from_sampler(log_ratio: f64) -> Term {
    let grad = if log_ratio == 0.0 { 0.0 } else { log_ratio.signum() };
    Term { value: log_ratio.abs(), grad }
}

fn log_ratio(row: &RowTokens<'_>, t: usize) -> f64 {
    f64::from(row.logp[t]) - f64::from(row.old[t])
}

fn divergence(options: &LossOptions, logp: f64, reference: f64, log_ratio: f64) -> Term {
    let kl = kl(options.kl, logp, reference);
    if options.kl_corrected { importance_corrected(kl, log_ratio) } else { kl }
}

/// Computes the surrogates of a row.
fn surrogates(
    row: &RowTokens<'_>,
    advantages: &[f32],
    (options, surrogate): (&LossOptions, &dyn Surrogate),
    d_logp: &mut [f32],
    sums: &mut PolicyLoss,
) {
    let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
    let (logp, advantages, mut weights) = (wide(row.logp), wide(advantages), wide(row.weights));
    let log_ratios: Vec<f64> = (0..logp.len()).map(|t| log_ratio(row, t)).collect();
    if options.off_policy_mask > 0.0 && sampler_gap(row) > options.off_policy_mask {
        for (weight, _) in weights.iter_mut().zip(&advantages).filter(|(_, a)| **a < 0.0) {
            *weight = 0.0;
            sums.masked += 1;
        }
    }
    let reply = PolicyReply {
        ratio: options.ratio,
        ..PolicyReply::new(&logp, &log_ratios, &advantages, &weights)
    };
    let mut slopes = vec![0.0; logp.len()];
    let found = surrogate.reply(&reply, &mut slopes);
    for (d_logp, slope) in d_logp.iter_mut().zip(&slopes) {
        *d_logp += *slope as f32;
    }
    sums.surrogate += found.value;
    for (ours, theirs) in sums.clipped.iter_mut().zip(found.clipped) {
        *ours += theirs;
    }
}

/// Returns the mean of `logp_sampler − logp` over a row.
fn sampler_gap(row: &RowTokens<'_>) -> f64 {
    let sampler = row.sampler.unwrap_or(row.old).iter().zip(row.logp);
    let gap: f64 = sampler.map(|(sampler, logp)| f64::from(*sampler) - f64::from(*logp)).sum();
    gap / row.logp.len().max(1) as f64
}
