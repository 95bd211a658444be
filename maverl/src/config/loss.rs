//! Coefficients of the loss.
//!
//! [`LossPlan::options`] is the loss as the engine has it. A built-in surrogate is a kind here, a table in `tables.rs`, and
//! a variant of `BuiltinSurrogate`. A penalty has its arithmetic in `rollout/runner.rs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::instance::Instance;
use crate::credit::Surrogate;
use crate::loss::{
    BuiltinSurrogate, CispoOptions, ClipOptions, Correction, CpgdOptions, DppoOptions, DroOptions,
    GmpoOptions, Kl, LossOptions, Ratio, ReinforceOptions, SapoOptions, VespoOptions,
};
use crate::settings::Settings;

/// Loss of a row: the surrogate, and the terms beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Settings)]
#[settings(partial = "LossConfig", level = "agent")]
pub struct LossPlan {
    /// Surrogate loss of a token.
    #[setting(table)]
    pub surrogate: SurrogatePlan,
    /// Importance ratio: of each token (`token`), the geometric mean over the tokens of the reply (`sequence`), their product
    /// (`product`), or the value of `sequence` with the gradient of the token's own log-prob (`sequence_token`, GSPO-token).
    pub ratio: Ratio,
    /// Coefficient of the KL to the reference.
    #[setting(default = 0.0, range = 0.0..)]
    pub kl_coef: f32,
    /// Estimator of the KL.
    #[setting(idle_when = "kl_coef = 0")]
    pub kl: Kl,
    /// Multiply the KL of a token by its importance ratio (DeepSeek-V3.2).
    #[setting(default = false, idle_when = "kl_coef = 0")]
    #[setting(idle_when = "kl_in = 'reward'")]
    pub kl_corrected: bool,
    /// Use of the KL: as a term of the loss of a token (`loss`), or as a penalty in the reward of a turn (`reward`).
    #[setting(idle_when = "kl_coef = 0")]
    pub kl_in: KlIn,
    /// Correction of differences between the log-probs of sampler and trainer; it may also be a list of tables, whose weights are
    /// multiplied.
    #[setting(table)]
    pub correction: Vec<Correction>,
    /// Mean over a reply of the sampler's log-prob minus the current one, above which its tokens with a negative advantage are
    /// masked (DeepSeek-V3.2); 0 disables it.
    #[setting(default = 0.0, range = 0.0..)]
    pub off_policy_mask: f64,
    /// Coefficient of the drift penalty towards the sampling policy (CPGD).
    #[setting(default = 0.0, range = 0.0..)]
    pub drift_coef: f32,
    /// Coefficient of the entropy bonus.
    #[setting(default = 0.0, range = 0.0..)]
    pub entropy_coef: f32,
    /// Weight of the teacher, in the advantages or in the loss; the default is `algorithm.distill.coef`.
    #[setting(optional, range = 0.0.., example = "0.5")]
    pub distill_coef: Option<f64>,
    /// Coefficient of the negative log-likelihood of what the environment wrote in conversations (ECHO); 0 disables it.
    #[setting(default = 0.0, range = 0.0..)]
    pub observation_coef: f32,
    /// Use of replies that were truncated at `max_tokens`: like others (`train`), or compared with others but not trained on
    /// (`skip`).
    pub truncated: TruncatedReply,
    /// Penalty on the reward of a turn whose reply is malformed or truncated.
    #[setting(default = 0.1, range = 0.0..)]
    pub invalid_reply_penalty: f64,
    /// Soft overlong penalty (DAPO): length of the buffer before `max_tokens`, as a share of `max_tokens`; within it, the
    /// penalty of a reply grows linearly; 0 disables it.
    #[setting(default = 0.0, range = 0.0..=1.0)]
    pub overlong_buffer: f64,
    /// Soft overlong penalty of a reply with `max_tokens` tokens, the longest.
    #[setting(default = 1.0, range = 0.0.., idle_when = "overlong_buffer = 0")]
    pub overlong_penalty: f64,
}

impl LossPlan {
    /// Returns the loss of a row. A KL in the reward is no part of it.
    pub(crate) fn options(&self) -> LossOptions {
        LossOptions {
            surrogate: self.surrogate.built_in(),
            ratio: self.ratio,
            kl_coef: if self.kl_in == KlIn::Loss { self.kl_coef } else { 0.0 },
            kl: self.kl,
            kl_corrected: self.kl_corrected,
            drift_coef: self.drift_coef,
            entropy_coef: self.entropy_coef,
            correction: self.correction.clone(),
            off_policy_mask: self.off_policy_mask,
        }
    }
}

impl LossConfig {
    /// Returns the table with one upper bound for each correction: `high`, or its other name `cap` if that is written.
    pub(crate) fn with_one_bound(mut self) -> Self {
        for table in &mut self.correction.0 {
            if table.settings.contains_key("cap") {
                table.settings.shift_remove("high");
            }
        }
        self
    }
}

/// Surrogate loss of a token.
#[derive(Debug, Clone, PartialEq, Settings)]
pub enum SurrogatePlan {
    /// The clipped ratio (PPO).
    #[setting(default)]
    Clip(ClipOptions),
    /// The log-probability, weighted by the clipped ratio (CISPO).
    Cispo(CispoOptions),
    /// A soft gate of the ratio (SAPO).
    Sapo(SapoOptions),
    /// The clipped log-ratio (CPGD).
    Cpgd(CpgdOptions),
    /// The geometric mean of the clipped ratios of a reply (GMPO).
    Gmpo(GmpoOptions),
    /// The log-probability, weighted by a smooth function of the ratio of the reply (VESPO).
    Vespo(VespoOptions),
    /// The log-probability, weighted by the ratio; 0 for tokens whose probability has moved too far in the direction of the advantage (DPPO).
    Dppo(DppoOptions),
    /// The log-probability, and a quadratic pull towards the sampling policy (DRO).
    Dro(DroOptions),
    /// The log-probability, without a ratio (REINFORCE, GPG).
    Reinforce(ReinforceOptions),
    /// A surrogate declared with `#[surrogate]`.
    #[setting(open)]
    Declared(Instance<dyn Surrogate>),
}

impl SurrogatePlan {
    /// Returns the surrogate itself.
    pub fn surrogate(&self) -> &dyn Surrogate {
        match self {
            Self::Clip(options) => options,
            Self::Cispo(options) => options,
            Self::Sapo(options) => options,
            Self::Cpgd(options) => options,
            Self::Gmpo(options) => options,
            Self::Vespo(options) => options,
            Self::Dppo(options) => options,
            Self::Dro(options) => options,
            Self::Reinforce(options) => options,
            Self::Declared(declared) => &*declared.value,
        }
    }

    /// Returns the surrogate of a row. One that is declared is used in place of those of all rows.
    fn built_in(&self) -> BuiltinSurrogate {
        match self {
            Self::Clip(options) => BuiltinSurrogate::Clip(*options),
            Self::Cispo(options) => BuiltinSurrogate::Cispo(*options),
            Self::Sapo(options) => BuiltinSurrogate::Sapo(*options),
            Self::Cpgd(options) => BuiltinSurrogate::Cpgd(*options),
            Self::Gmpo(options) => BuiltinSurrogate::Gmpo(*options),
            Self::Vespo(options) => BuiltinSurrogate::Vespo(*options),
            Self::Dppo(options) => BuiltinSurrogate::Dppo(*options),
            Self::Dro(options) => BuiltinSurrogate::Dro(*options),
            Self::Reinforce(options) => BuiltinSurrogate::Reinforce(*options),
            Self::Declared(_) => BuiltinSurrogate::default(),
        }
    }
}

/// Use of replies that were truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TruncatedReply {
    /// They are trained on like others.
    #[default]
    Train,
    /// Their rewards count in groups, and they are not trained on (DAPO's overlong filtering).
    Skip,
}

/// Where the KL to the reference counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlIn {
    /// In the loss, token by token.
    #[default]
    Loss,
    /// In the reward of the turn: the sum over its tokens, as they were sampled.
    Reward,
}

/// Policy that a KL and pairs of replies are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "ReferenceConfig", level = "team")]
pub struct ReferencePlan {
    /// Number of steps after which the current policy becomes the reference; 0 keeps the starting weights.
    #[setting(default = 0)]
    pub every: u64,
    /// Share of the current policy in the new reference; the rest is the old one (TR-DPO).
    #[setting(default = 1.0, range = above(0.0)..=1.0, idle_when = "every = 0")]
    pub mix: f64,
}

impl ReferencePlan {
    /// Returns true if the reference is renewed before step `step`, counted from 0.
    pub fn is_due(self, step: u64) -> bool {
        step > 0 && self.every > 0 && step.is_multiple_of(self.every)
    }
}
