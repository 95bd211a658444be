//! Defaults, and how settled values and what a user writes become each other.

use std::num::NonZeroUsize;

use std::path::PathBuf;

use super::{
    AdapterPlan, AdaptiveKlPlan, AlgorithmPlan, CriticPlan, DeclaredPlan, HappoPlan, InfluencePlan,
    LoraConfig, LossPlan, OptimPlan, PreferencePlan, ReferencePlan, Sampling,
};
use crate::config::{
    self, AdaptiveKlConfig, AlgorithmConfig, Correction, CriticConfig, Estimator, GroupBy,
    HappoConfig, InfluenceConfig, Kl, KlIn, LossConfig, OptimConfig, PreferenceConfig, Ratio,
    ReferenceConfig, SamplingConfig, Schedule, Surrogate, TargetModules,
};
use crate::model::{HfConfig, ModelError, lora};

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_tokens: 256,
            stop: Vec::new(),
            stop_ids: Vec::new(),
        }
    }
}

impl From<&SamplingConfig> for Sampling {
    fn from(config: &SamplingConfig) -> Self {
        let default = Self::default();
        Self {
            temperature: config.temperature.unwrap_or(default.temperature),
            top_k: config.top_k.unwrap_or(default.top_k),
            top_p: config.top_p.unwrap_or(default.top_p),
            min_p: config.min_p.unwrap_or(default.min_p),
            repetition_penalty: config.repetition_penalty.unwrap_or(default.repetition_penalty),
            max_tokens: config.max_tokens.map_or(default.max_tokens, NonZeroUsize::get),
            stop: config.stop.clone().unwrap_or_default(),
            stop_ids: config.stop_ids.clone().unwrap_or_default(),
        }
    }
}

impl From<&Sampling> for SamplingConfig {
    fn from(sampling: &Sampling) -> Self {
        Self {
            temperature: Some(sampling.temperature),
            top_k: Some(sampling.top_k),
            top_p: Some(sampling.top_p),
            min_p: Some(sampling.min_p),
            repetition_penalty: Some(sampling.repetition_penalty),
            max_tokens: NonZeroUsize::new(sampling.max_tokens),
            stop: Some(sampling.stop.clone()),
            stop_ids: Some(sampling.stop_ids.clone()),
        }
    }
}

impl Default for LossPlan {
    fn default() -> Self {
        Self {
            surrogate: Surrogate::Clip,
            ratio: Ratio::Token,
            gate: (1.0, 1.05),
            clip_low: 0.2,
            clip_high: 0.2,
            clip_dual: 3.0,
            kl_coef: 0.0,
            kl: Kl::K3,
            kl_corrected: false,
            kl_in: KlIn::Loss,
            correction: Correction::None,
            correction_cap: 2.0,
            drift_coef: 0.0,
            entropy_coef: 0.0,
            invalid_reply_penalty: 0.1,
            overlong_buffer: 0.0,
            overlong_penalty: 1.0,
        }
    }
}

impl From<&LossConfig> for LossPlan {
    fn from(config: &LossConfig) -> Self {
        let default = Self::default();
        Self {
            surrogate: config.surrogate.unwrap_or(default.surrogate),
            ratio: config.ratio.unwrap_or(default.ratio),
            gate: config.gate.unwrap_or(default.gate),
            clip_low: config.clip_low.unwrap_or(default.clip_low),
            clip_high: config.clip_high.unwrap_or(default.clip_high),
            clip_dual: config.clip_dual.unwrap_or(default.clip_dual),
            kl_coef: config.kl_coef.unwrap_or(default.kl_coef),
            kl: config.kl.unwrap_or(default.kl),
            kl_corrected: config.kl_corrected.unwrap_or(default.kl_corrected),
            kl_in: config.kl_in.unwrap_or(default.kl_in),
            correction: config.correction.unwrap_or(default.correction),
            correction_cap: config.correction_cap.unwrap_or(default.correction_cap),
            drift_coef: config.drift_coef.unwrap_or(default.drift_coef),
            entropy_coef: config.entropy_coef.unwrap_or(default.entropy_coef),
            invalid_reply_penalty: config
                .invalid_reply_penalty
                .unwrap_or(default.invalid_reply_penalty),
            overlong_buffer: config.overlong_buffer.unwrap_or(default.overlong_buffer),
            overlong_penalty: config.overlong_penalty.unwrap_or(default.overlong_penalty),
        }
    }
}

impl From<&LossPlan> for LossConfig {
    fn from(loss: &LossPlan) -> Self {
        Self {
            surrogate: Some(loss.surrogate),
            ratio: Some(loss.ratio),
            gate: Some(loss.gate),
            clip_low: Some(loss.clip_low),
            clip_high: Some(loss.clip_high),
            clip_dual: Some(loss.clip_dual),
            kl_coef: Some(loss.kl_coef),
            kl: Some(loss.kl),
            kl_corrected: Some(loss.kl_corrected),
            kl_in: Some(loss.kl_in),
            correction: Some(loss.correction),
            correction_cap: Some(loss.correction_cap),
            drift_coef: Some(loss.drift_coef),
            entropy_coef: Some(loss.entropy_coef),
            invalid_reply_penalty: Some(loss.invalid_reply_penalty),
            overlong_buffer: Some(loss.overlong_buffer),
            overlong_penalty: Some(loss.overlong_penalty),
        }
    }
}

impl Default for OptimPlan {
    fn default() -> Self {
        Self {
            lr: 1e-6,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            grad_clip: 1.0,
            schedule: Schedule::Constant,
            warmup_steps: 0,
        }
    }
}

impl From<&OptimConfig> for OptimPlan {
    fn from(config: &OptimConfig) -> Self {
        let default = Self::default();
        Self {
            lr: config.lr.unwrap_or(default.lr),
            betas: config.betas.unwrap_or(default.betas),
            eps: config.eps.unwrap_or(default.eps),
            weight_decay: config.weight_decay.unwrap_or(default.weight_decay),
            grad_clip: config.grad_clip.unwrap_or(default.grad_clip),
            schedule: config.schedule.unwrap_or(default.schedule),
            warmup_steps: config.warmup_steps.unwrap_or(default.warmup_steps),
        }
    }
}

impl From<&OptimPlan> for OptimConfig {
    fn from(optim: &OptimPlan) -> Self {
        Self {
            lr: Some(optim.lr),
            betas: Some(optim.betas),
            eps: Some(optim.eps),
            weight_decay: Some(optim.weight_decay),
            grad_clip: Some(optim.grad_clip),
            schedule: Some(optim.schedule),
            warmup_steps: Some(optim.warmup_steps),
        }
    }
}

impl AdapterPlan {
    /// Default settings of an adapter.
    pub(crate) fn defaults() -> config::LoraConfig {
        config::LoraConfig {
            rank: NonZeroUsize::new(8),
            alpha: Some(16.0),
            dropout: Some(0.0),
            target_modules: Some(TargetModules::AllLinear),
            rslora: Some(false),
        }
    }

    /// An adapter on a base; what `config` leaves out has its default.
    ///
    /// # Errors
    ///
    /// If a target module is not in the base.
    pub(crate) fn new(
        config: &config::LoraConfig,
        start: Option<PathBuf>,
        base: &HfConfig,
    ) -> Result<Self, ModelError> {
        let config = config.over(&Self::defaults());
        let mut target_modules = match config.target_modules {
            Some(TargetModules::Named(names)) => names,
            _ => lora::linear_names(base),
        };
        target_modules.sort();
        target_modules.dedup();
        let lora = LoraConfig {
            rank: config.rank.map_or(1, NonZeroUsize::get),
            alpha: config.alpha.unwrap_or_default(),
            dropout: config.dropout.unwrap_or_default(),
            target_modules,
            rslora: config.rslora.unwrap_or_default(),
            patterns: lora::Patterns::default(),
        };
        let parameters = lora.parameters(base)?;
        Ok(Self { lora, start, parameters })
    }

    /// The same with ranks, scales and targets of the adapter that it starts from.
    ///
    /// # Errors
    ///
    /// If a target module is not in the base.
    pub(crate) fn started(self, from: &LoraConfig, base: &HfConfig) -> Result<Self, ModelError> {
        let lora = LoraConfig { dropout: self.lora.dropout, ..from.clone() };
        let parameters = lora.parameters(base)?;
        Ok(Self { lora, parameters, ..self })
    }
}

impl From<&LoraConfig> for config::LoraConfig {
    fn from(lora: &LoraConfig) -> Self {
        Self {
            rank: NonZeroUsize::new(lora.rank),
            alpha: Some(lora.alpha),
            dropout: Some(lora.dropout),
            target_modules: Some(TargetModules::Named(lora.target_modules.clone())),
            rslora: Some(lora.rslora),
        }
    }
}

impl From<&AlgorithmConfig> for AlgorithmPlan {
    /// Resolves the written values over those of the preset, over the defaults.
    fn from(config: &AlgorithmConfig) -> Self {
        let config = config.over(&config.name.parts());
        let group_by = config.group_by.unwrap_or(GroupBy::TaskSeat);
        Self {
            preset: config.name,
            baseline: config.baseline.unwrap_or_default(),
            group_by,
            deviation_by: config.deviation_by.unwrap_or(group_by),
            normalize_std: config.normalize_std.unwrap_or(true),
            advantage_eps: config.advantage_eps.unwrap_or(1e-6),
            singleton: config.singleton.unwrap_or_default(),
            baseline_momentum: config.baseline_momentum.unwrap_or(0.9),
            shaping: config.shaping.unwrap_or_default(),
            shaping_weight: config.shaping_weight.unwrap_or(0.5),
            whiten: config.whiten.unwrap_or(false),
            anchor_weight: config.anchor_weight.unwrap_or(0.0),
            anchor_similarity: config.anchor_similarity.unwrap_or(1.0),
            discount: config.discount.unwrap_or(0.95),
            resample: config.resample.unwrap_or(0),
            aggregation: config.aggregation.unwrap_or_default(),
            minibatches: config.minibatches.map_or(1, NonZeroUsize::get),
            epochs: config.epochs.map_or(1, NonZeroUsize::get),
            early_stop_kl: config.early_stop_kl.unwrap_or(0.0),
            critic: (config.estimator == Some(Estimator::Critic))
                .then(|| CriticPlan::from(&config.critic)),
            update_order: config.update_order.unwrap_or_default(),
            happo: HappoPlan {
                factor: config.happo.factor.unwrap_or_default(),
                clip: config.happo.clip.unwrap_or(0.2),
            },
            future_rewards: config.future_rewards.unwrap_or_default(),
            future_discount: config.future_discount.unwrap_or(0.3),
            influence: InfluencePlan::from(&config.influence),
            adaptive_kl: AdaptiveKlPlan {
                target: config.adaptive_kl.target.unwrap_or(0.0),
                horizon: config.adaptive_kl.horizon.unwrap_or(10_000.0),
            },
            reference: ReferencePlan { every: config.reference.every.unwrap_or(0) },
            swap_every: config.swap_every.unwrap_or(0),
            train_cycle: config.train_cycle.unwrap_or(0),
            train_on: config.train_on.unwrap_or_default(),
            observation_weight: config.observation_weight.unwrap_or(0.5),
            preference: PreferencePlan::from(&config.preference),
            declared: DeclaredPlan::default(),
            max_flat_steps: config.max_flat_steps,
        }
    }
}

impl AlgorithmPlan {
    /// The same as a user would write it, with these coefficients of the loss, but for what other crates declare.
    pub(crate) fn written(&self, loss: &LossPlan) -> AlgorithmConfig {
        AlgorithmConfig {
            name: self.preset,
            baseline: Some(self.baseline),
            group_by: Some(self.group_by),
            deviation_by: Some(self.deviation_by),
            normalize_std: Some(self.normalize_std),
            advantage_eps: Some(self.advantage_eps),
            singleton: Some(self.singleton),
            baseline_momentum: Some(self.baseline_momentum),
            shaping: Some(self.shaping),
            shaping_weight: Some(self.shaping_weight),
            whiten: Some(self.whiten),
            anchor_weight: Some(self.anchor_weight),
            anchor_similarity: Some(self.anchor_similarity),
            discount: Some(self.discount),
            resample: Some(self.resample),
            loss: LossConfig::from(loss),
            aggregation: Some(self.aggregation),
            minibatches: NonZeroUsize::new(self.minibatches),
            epochs: NonZeroUsize::new(self.epochs),
            early_stop_kl: Some(self.early_stop_kl),
            estimator: Some(match self.critic {
                Some(_) => Estimator::Critic,
                None => Estimator::Group,
            }),
            critic: self.critic.as_ref().map(CriticConfig::from).unwrap_or_default(),
            update_order: Some(self.update_order),
            happo: HappoConfig { factor: Some(self.happo.factor), clip: Some(self.happo.clip) },
            future_rewards: Some(self.future_rewards),
            future_discount: Some(self.future_discount),
            influence: InfluenceConfig::from(&self.influence),
            adaptive_kl: AdaptiveKlConfig {
                target: Some(self.adaptive_kl.target),
                horizon: Some(self.adaptive_kl.horizon),
            },
            reference: ReferenceConfig { every: Some(self.reference.every) },
            swap_every: Some(self.swap_every),
            train_cycle: Some(self.train_cycle),
            train_on: Some(self.train_on),
            observation_weight: Some(self.observation_weight),
            preference: PreferenceConfig::from(&self.preference),
            advantage: None,
            surrogate: None,
            max_flat_steps: self.max_flat_steps,
        }
    }
}

impl From<&InfluenceConfig> for InfluencePlan {
    fn from(config: &InfluenceConfig) -> Self {
        let InfluenceConfig { follow, resist, provoke, persuade } = config;
        let [follow, resist, provoke, persuade] =
            [follow, resist, provoke, persuade].map(|weight| weight.unwrap_or(0.0));
        Self { follow, resist, provoke, persuade }
    }
}

impl From<&InfluencePlan> for InfluenceConfig {
    fn from(plan: &InfluencePlan) -> Self {
        let InfluencePlan { follow, resist, provoke, persuade } = *plan;
        let [follow, resist, provoke, persuade] = [follow, resist, provoke, persuade].map(Some);
        Self { follow, resist, provoke, persuade }
    }
}

impl From<&PreferenceConfig> for PreferencePlan {
    fn from(config: &PreferenceConfig) -> Self {
        Self {
            loss: config.loss.unwrap_or_default(),
            beta: config.beta.unwrap_or(0.1),
            label_smoothing: config.label_smoothing.unwrap_or(0.0),
            reference_free: config.reference_free.unwrap_or(false),
        }
    }
}

impl From<&PreferencePlan> for PreferenceConfig {
    fn from(plan: &PreferencePlan) -> Self {
        Self {
            loss: Some(plan.loss),
            beta: Some(plan.beta),
            label_smoothing: Some(plan.label_smoothing),
            reference_free: Some(plan.reference_free),
        }
    }
}
