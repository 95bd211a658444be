//! Selections of tokens of a minibatch before its update, by their covariance or by their entropy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Selection of the tokens of a minibatch.
#[derive(Debug, Clone, Copy, PartialEq, Settings)]
#[settings(crate = crate)]
pub enum Selection {
    /// All tokens are trained on alike.
    #[setting(default)]
    None,
    /// Some tokens are dropped, whose log-prob and advantage vary together (Clip-Cov).
    ClipCov(ClipCovOptions),
    /// The tokens whose log-prob and advantage vary together most have a penalty (KL-Cov).
    KlCov(KlCovOptions),
    /// The tokens with the largest entropy are trained on.
    Entropy(TopEntropyOptions),
}

/// Tokens whose covariance is between bounds are dropped, chosen at random (Clip-Cov). arXiv:2505.22617
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team", crate = crate)]
pub struct ClipCovOptions {
    /// Share of the tokens of a minibatch that is dropped, at least one token.
    #[setting(default = 2e-4, range = above(0.0)..1.0)]
    pub share: f64,
    /// Covariance above which a token may be dropped.
    #[setting(default = 1.0, range = 0.0..)]
    pub low: f64,
    /// Covariance below which a token may be dropped.
    #[setting(default = 5.0, range = above(0.0)..)]
    pub high: f64,
}

/// The tokens with the largest covariance have a penalty (KL-Cov). arXiv:2505.22617
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team", crate = crate)]
pub struct KlCovOptions {
    /// Share of the tokens of a minibatch that has a penalty, at least one token.
    #[setting(default = 2e-4, range = above(0.0)..=1.0)]
    pub share: f64,
    /// Coefficient of the penalty, which is the absolute log-ratio to the sampling policy.
    #[setting(default = 1.0, range = above(0.0)..)]
    pub coef: f64,
}

/// The tokens with the largest entropy are trained on. arXiv:2506.01939
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team", crate = crate)]
pub struct TopEntropyOptions {
    /// Share of the tokens of a minibatch that is trained on.
    #[setting(default = 0.2, range = above(0.0)..=1.0)]
    pub share: f64,
}

/// Use of a token in an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenUse {
    /// It is trained on.
    Keep,
    /// It is in no term of the loss, and no aggregation counts it.
    Drop,
    /// It is trained on, with a penalty.
    Penalty,
}

/// Tokens of a minibatch before its update, packed. All slices are `[N]`.
#[derive(Debug, Clone, Copy)]
pub struct MinibatchTokens<'a> {
    /// Log-probs at sampling; those of the trainer, if they are corrected.
    pub logp: &'a [f64],
    /// Advantages.
    pub advantages: &'a [f64],
    /// Entropies under the policy before the update; empty unless [`Selection::needs_entropies`].
    pub entropies: &'a [f64],
}

impl Selection {
    /// Computes the use of each token of a minibatch, `[N]`. It depends only on values before the update.
    ///
    /// ```text
    /// cov_t      (A_t − mean A) · (logp_t − mean logp)          means over the N tokens
    /// clip_cov   of the tokens with low < cov_t < high, max(1, ⌊share · N⌋) are dropped: those with the least `order`
    /// kl_cov     the max(1, ⌊share · N⌋) tokens with the largest cov_t have a penalty
    /// entropy    the ⌈share · N⌉ tokens with the largest entropy are kept, the others dropped
    /// ```
    ///
    /// Of equal tokens, the first ones are chosen. [2505.22617] for covariances, [2506.01939] for entropies.
    ///
    /// [2505.22617]: https://arxiv.org/abs/2505.22617
    /// [2506.01939]: https://arxiv.org/abs/2506.01939
    pub fn uses(
        &self,
        tokens: &MinibatchTokens<'_>,
        order: impl Fn(usize) -> u64,
    ) -> Vec<TokenUse> {
        let n = tokens.logp.len();
        let (others, chosen) = match self {
            Self::None => return vec![TokenUse::Keep; n],
            Self::ClipCov(_) => (TokenUse::Keep, TokenUse::Drop),
            Self::KlCov(_) => (TokenUse::Keep, TokenUse::Penalty),
            Self::Entropy(_) => (TokenUse::Drop, TokenUse::Keep),
        };
        let mut uses = vec![others; n];
        for token in self.chosen_tokens(tokens, order) {
            uses[token] = chosen;
        }
        uses
    }

    /// Returns the numbers of the tokens that are chosen: to be dropped, to have a penalty, or to be kept.
    fn chosen_tokens(
        &self,
        tokens: &MinibatchTokens<'_>,
        order: impl Fn(usize) -> u64,
    ) -> Vec<usize> {
        match self {
            Self::None => Vec::new(),
            Self::ClipCov(options) => {
                let values = covariances(tokens);
                let within = |cov: f64| options.low < cov && cov < options.high;
                let mut found: Vec<usize> =
                    (0..values.len()).filter(|&token| within(values[token])).collect();
                found.sort_by_key(|&token| order(token));
                found.truncate(at_least_one(options.share, values.len()));
                found
            }
            Self::KlCov(options) => {
                let values = covariances(tokens);
                largest(&values, at_least_one(options.share, values.len()))
            }
            Self::Entropy(options) => {
                let count = (options.share * tokens.entropies.len() as f64).ceil() as usize;
                largest(tokens.entropies, count)
            }
        }
    }

    /// Returns the coefficient of the penalty of a token with [`TokenUse::Penalty`].
    pub fn penalty_coef(&self) -> f64 {
        match self {
            Self::KlCov(options) => options.coef,
            Self::None | Self::ClipCov(_) | Self::Entropy(_) => 0.0,
        }
    }

    /// Returns true if tokens are chosen by their entropy.
    pub fn needs_entropies(&self) -> bool {
        matches!(self, Self::Entropy(_))
    }

    /// Returns true if tokens are dropped.
    pub fn drops_tokens(&self) -> bool {
        matches!(self, Self::ClipCov(_) | Self::Entropy(_))
    }

    /// Returns the share of the tokens of a minibatch that is chosen; `None` without a selection.
    pub fn share(&self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::ClipCov(options) => Some(options.share),
            Self::KlCov(options) => Some(options.share),
            Self::Entropy(options) => Some(options.share),
        }
    }
}

/// Computes the covariance of advantage and log-prob of each token, `[N]`: their product, each less its mean.
pub fn covariances(tokens: &MinibatchTokens<'_>) -> Vec<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (logp, advantage) = (mean(tokens.logp), mean(tokens.advantages));
    let both = tokens.logp.iter().zip(tokens.advantages);
    both.map(|(own, gained)| (own - logp) * (gained - advantage)).collect()
}

/// Returns the number of tokens of a share, rounded down, at least one.
fn at_least_one(share: f64, tokens: usize) -> usize {
    ((share * tokens as f64) as usize).max(1)
}

/// Returns the numbers of the `count` largest values. Of equal ones, the first are taken.
fn largest(values: &[f64], count: usize) -> Vec<usize> {
    let mut found: Vec<usize> = (0..values.len()).collect();
    found.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    found.truncate(count);
    found
}
