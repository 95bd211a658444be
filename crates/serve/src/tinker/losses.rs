//! Losses of the Tinker API (tinker-docs, losses), as sums over the tokens of a request.
//!
//! ```text
//! cross_entropy         L = −Σ w · logp
//! importance_sampling   L = −Σ ρ · A                                        ρ = exp(logp − logprobs)
//! ppo                   L = −Σ min(ρ · A, clip(ρ, low, high) · A)           low 0.8, high 1.2
//! cispo                 L = −Σ stop_gradient(clip(ρ, low, high)) · logp · A low 0, high 4
//! dro                   L = −Σ (logp · A − β/2 · (logp − logprobs)²)        β 0.1
//! ```

use std::collections::BTreeMap;

use maverl::credit::{Clip, Clipped, PolicyToken, Surrogate, Term};

/// Names of the losses.
pub(super) const LOSSES: [&str; 5] =
    ["cross_entropy", "importance_sampling", "ppo", "cispo", "dro"];
/// Keys of the bounds of the ratio.
const BOUNDS: [&str; 2] = ["clip_low_threshold", "clip_high_threshold"];

/// Loss of a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TokenLoss {
    /// Weighted log-likelihood.
    CrossEntropy,
    /// The ratio.
    ImportanceSampling,
    /// The clipped ratio, with the bounds of the ratio itself.
    Ppo([f64; 2]),
    /// The log-prob, weighted by the clipped ratio.
    Cispo([f64; 2]),
    /// The log-prob, with a quadratic pull.
    Dro(f64),
}

impl TokenLoss {
    /// Reads a loss by its name and its numbers.
    ///
    /// # Errors
    ///
    /// If the name or a number is not known, or a bound is wrong.
    pub(super) fn read(name: &str, config: &BTreeMap<String, f64>) -> Result<Self, String> {
        let known: &[&str] = match name {
            "ppo" | "cispo" => &BOUNDS,
            "dro" => &["beta"],
            "cross_entropy" | "importance_sampling" => &[],
            _ => {
                let all = LOSSES.join("`, `");
                return Err(format!("there is no loss `{name}`; there are `{all}`"));
            }
        };
        if let Some(key) = config.keys().find(|key| !known.contains(&key.as_str())) {
            let known = match known {
                [] => "it has none".to_owned(),
                known => format!("it has `{}`", known.join("`, `")),
            };
            return Err(format!("`loss_fn_config` of `{name}` has no key `{key}`; {known}"));
        }
        if let Some((key, value)) = config.iter().find(|(_, value)| !value.is_finite()) {
            return Err(format!("`{key}` of `loss_fn_config` is {value}; write a finite number"));
        }
        let number = |key: &str, default: f64| config.get(key).copied().unwrap_or(default);
        let bounds = |low, high| [number(BOUNDS[0], low), number(BOUNDS[1], high)];
        let loss = match name {
            "ppo" => Self::Ppo(bounds(0.8, 1.2)),
            "cispo" => Self::Cispo(bounds(0.0, 4.0)),
            "dro" => Self::Dro(number("beta", 0.1)),
            "importance_sampling" => Self::ImportanceSampling,
            _ => Self::CrossEntropy,
        };
        match loss {
            Self::Ppo([low, high]) | Self::Cispo([low, high]) if !(0.0 <= low && low <= high) => {
                let [low_key, high_key] = BOUNDS;
                Err(format!("`{low_key}` is {low} and `{high_key}` {high}; write 0 <= low <= high"))
            }
            loss => Ok(loss),
        }
    }

    /// Returns true if the loss has a ratio to log-probs of the sampler, and advantages.
    pub(super) fn has_ratio(self) -> bool {
        self != Self::CrossEntropy
    }
}

impl Surrogate for TokenLoss {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        let PolicyToken { logp, log_ratio, advantage } = *token;
        let ratio = libm::exp(log_ratio.min(MOST_LOG_RATIO));
        match *self {
            Self::CrossEntropy => Clipped::free(-advantage * logp, -advantage),
            Self::ImportanceSampling => Clipped::free(-ratio * advantage, -ratio * advantage),
            Self::Ppo([low, high]) => {
                if advantage > 0.0 && ratio > high {
                    Clipped::cut_at(-high * advantage, Clip::High)
                } else if advantage < 0.0 && ratio < low {
                    Clipped::cut_at(-low * advantage, Clip::Low)
                } else {
                    Clipped::free(-ratio * advantage, -ratio * advantage)
                }
            }
            Self::Cispo([low, high]) => {
                let weight = ratio.clamp(low, high);
                let term = Term { value: -weight * advantage * logp, grad: -weight * advantage };
                Clipped { term, clip: (ratio > high).then_some(Clip::High) }
            }
            Self::Dro(beta) => {
                let value = beta / 2.0 * log_ratio * log_ratio - logp * advantage;
                Clipped::free(value, beta * log_ratio - advantage)
            }
        }
    }
}

/// Largest logarithm of a ratio; larger ones would not be finite.
const MOST_LOG_RATIO: f64 = 80.0;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn config(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
    }

    #[test]
    fn bounds_are_those_of_the_ratio_itself() {
        let read = |name: &str| TokenLoss::read(name, &BTreeMap::new()).unwrap();
        assert_eq!(read("ppo"), TokenLoss::Ppo([0.8, 1.2]));
        assert_eq!(read("cispo"), TokenLoss::Cispo([0.0, 4.0]));
        let found = TokenLoss::read("ppo", &config(&[("clip_high_threshold", 1.5)])).unwrap();
        assert_eq!(found, TokenLoss::Ppo([0.8, 1.5]));
    }

    #[test]
    fn an_unknown_loss_or_number_is_answered_with_those_that_there_are() {
        let read =
            |name: &str, pairs: &[(&str, f64)]| TokenLoss::read(name, &config(pairs)).unwrap_err();
        let found = read("gspo", &[]);
        assert!(
            found.ends_with(
                "there are `cross_entropy`, `importance_sampling`, `ppo`, `cispo`, `dro`"
            )
        );
        let found = read("ppo", &[("clip_low", 0.2)]);
        let wanted = "`loss_fn_config` of `ppo` has no key `clip_low`; it has `clip_low_threshold`, `clip_high_threshold`";
        assert_eq!(found, wanted);
        assert!(read("cross_entropy", &[("beta", 1.0)]).ends_with("it has none"));
        assert!(read("dro", &[("beta", f64::NAN)]).ends_with("write a finite number"));
        assert!(read("ppo", &[("clip_low_threshold", 2.0)]).ends_with("write 0 <= low <= high"));
    }

    fn token(step: f64, log_ratio: f64, advantage: f64) -> PolicyToken {
        PolicyToken { logp: -1.0 + step, log_ratio: log_ratio + step, advantage }
    }

    /// The derivative of each loss by the log-prob equals its difference quotient.
    #[test]
    fn derivatives_are_those_of_the_losses() {
        let losses =
            [TokenLoss::ImportanceSampling, TokenLoss::Ppo([0.8, 1.2]), TokenLoss::Dro(0.3)];
        for loss in losses {
            for log_ratio in [-0.7, -0.1, 0.05, 0.6] {
                for advantage in [-1.5, 0.8] {
                    let at = |step: f64| loss.loss(&token(step, log_ratio, advantage)).term;
                    let quotient = (at(1e-6).value - at(-1e-6).value) / 2e-6;
                    assert!((at(0.0).grad - quotient).abs() < 1e-6, "{loss:?} {log_ratio}");
                }
            }
        }
        let weight = TokenLoss::Cispo([0.5, 2.0]);
        let term = weight.loss(&token(0.0, 3.0, 2.0)).term;
        assert_eq!((term.value, term.grad), (4.0, -4.0));
    }
}
