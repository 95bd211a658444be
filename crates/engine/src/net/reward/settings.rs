//! Settings of the head of a reward model: where a row is scored, and how its logit becomes a probability.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::read_file;
use crate::files::{ModelError, ModelErrorKind};

/// File of the settings of a head.
pub(super) const FILE: &str = "reward_head.json";
/// Version of the settings. In version 1, the logit of a head of log-probs was calibrated itself.
const PROTOCOL: u32 = 2;

/// Settings of the head of a reward model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewardHead {
    /// Version of the settings.
    pub(super) protocol: u32,
    /// Tokens that are scored.
    pub(super) place: ScoredPlace,
    /// Divisor of logits, from calibration.
    pub temperature: f64,
    /// Offset of logits after the division, from calibration.
    #[serde(default)]
    pub offset: f64,
    /// Head of log-probs; none of a linear head, which is among the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) likelihood: Option<LikelihoodHead>,
}

/// Head of log-probs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct LikelihoodHead {
    pub(super) weight: f32,
    pub(super) bias: f32,
}

/// Tokens that are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScoredPlace {
    /// The last token of the prompt for a next reply, after the reply that is scored.
    GenerationPrompt,
    /// The tokens of the reply, by their log-probs.
    Reply,
}

impl RewardHead {
    /// Creates the settings of a head with a calibration.
    pub fn new(temperature: f64, offset: f64) -> Self {
        let place = ScoredPlace::GenerationPrompt;
        Self { protocol: PROTOCOL, place, temperature, offset, likelihood: None }
    }

    /// Reads the settings in the directory of a reward model.
    ///
    /// # Errors
    ///
    /// If the directory has none, or those of another version.
    pub fn read(dir: &Path) -> Result<Self, ModelError> {
        let path = dir.join(FILE);
        let bytes = read_file(&path).map_err(|e| ModelError::cannot_do("read", &path, e))?;
        let head: Result<Self, String> = serde_json::from_slice(&bytes).map_err(|e| e.to_string());
        head.and_then(Self::check).map_err(|what| {
            ModelError::new(ModelErrorKind::Invalid, format!("{}: {what}", path.display()))
        })
    }

    /// Returns the settings if they are valid.
    fn check(self) -> Result<Self, String> {
        let Self { protocol, temperature, offset, .. } = self;
        if !(protocol == PROTOCOL || protocol == 1 && self.likelihood.is_none()) {
            return Err(format!("`protocol` is {protocol}; {PROTOCOL} is known"));
        }
        if !(temperature.is_finite() && temperature > 0.0) {
            return Err(format!("`temperature` is {temperature}; it is a number above 0"));
        }
        if !offset.is_finite() {
            return Err(format!("`offset` is {offset}; it is a finite number"));
        }
        if (self.place == ScoredPlace::Reply) != self.likelihood.is_some() {
            let message = "the place `reply` is that of `likelihood`; write both or neither";
            return Err(message.to_owned());
        }
        if let Some(LikelihoodHead { weight, bias }) = self.likelihood
            && !(weight.is_finite() && weight > 0.0 && bias.is_finite())
        {
            return Err(format!(
                "`likelihood` has weight {weight} and bias {bias}; they are a number above 0 and a finite one"
            ));
        }
        Ok(self)
    }

    /// Returns the probability of a logit.
    pub fn probability(&self, logit: f32) -> f64 {
        let logit = f64::from(logit);
        let odds = self.likelihood.map_or(logit, |it| reply_odds(logit, [it.weight, it.bias]));
        1.0 / (1.0 + libm::exp(-(odds / self.temperature + self.offset)))
    }
}

/// Computes the log-odds `log(s / (1 − s))` of a reply from its logit, with `log s = (logit − bias) / weight`: s is the geometric
/// mean of the tokens' probabilities. They have no bound, while no logit is above the bias, as no log-prob is above 0. As log-probs
/// are in f32, log s is at most -1e-6.
pub fn reply_odds(logit: f64, [weight, bias]: [f32; 2]) -> f64 {
    let log_mean = ((logit - f64::from(bias)) / f64::from(weight)).min(-1e-6);
    log_mean - libm::log(-libm::expm1(log_mean))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Reads settings, and returns the error.
    fn refused(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), text).unwrap();
        RewardHead::read(dir.path()).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_linear_head_of_the_version_before_is_read_and_one_of_log_probs_is_not() {
        let linear = r#"{"protocol": 1, "place": "generation_prompt", "temperature": 1.0}"#;
        assert_eq!(refused(linear), "");
        let of = |protocol: u32, weight: &str| {
            refused(&format!(
                r#"{{"protocol": {protocol}, "place": "reply", "temperature": 1.0, "offset": 0.5, "likelihood": {{"weight": {weight}, "bias": 0.5}}}}"#
            ))
        };
        assert_eq!(of(2, "3.0"), "");
        assert!(of(1, "3.0").contains("`protocol` is 1; 2 is known"), "{}", of(1, "3.0"));
        for weight in ["0.0", "-2.0"] {
            let error = of(2, weight);
            assert!(
                error.contains("`likelihood` has weight") && error.contains("above 0"),
                "{error}"
            );
        }
        assert!(refused(&linear.replace('1', "3")).contains("`protocol` is 3"));
    }

    #[test]
    fn log_odds_of_a_reply_have_no_bound_and_a_probability_has_the_calibration() {
        assert!(reply_odds(1.0, [2.0, 1.0]) > 13.0 && reply_odds(-60.0, [2.0, 1.0]) < -30.0);
        for (head, logit) in [(RewardHead::new(2.0, 0.0), 2.0), (RewardHead::new(2.0, -0.5), 3.0)] {
            assert!((head.probability(logit) - 0.731_058_578_6).abs() < 1e-9);
        }
    }
}
