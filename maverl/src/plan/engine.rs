//! The options of the engine for a plan: every conversion from the types of a configuration to those of `maverl-engine`.

use maverl_engine::loss::{
    self, BuiltinSurrogate, Clipped, LossOptions, PolicyToken, Preference, PreferenceOptions,
    ValueLimits,
};
#[cfg(feature = "cuda")]
use maverl_engine::runtime::NcclOptions;
use maverl_engine::runtime::{
    self, AdapterSpec, CriticSpec, CustomSurrogate, LoraSpec, OptimOptions, PolicySpec,
    RuntimeOptions, WorkerSpec,
};

use super::{
    AdapterPlan, AlgorithmPlan, CriticPlan, LoraConfig, LossPlan, OptimPlan, Plan, PreferencePlan,
    Sampling, WorkerPlan,
};
#[cfg(feature = "cuda")]
use crate::config::Transport;
use crate::config::{
    Aggregation, CispoPlan, ClipPlan, CorrectionPlan, CpgdPlan, Kl, KlIn, LoraPlan, Normalize,
    PairLoss, Preset, Ratio, RuntimeConfig, SapoPlan, SurrogatePlan, TargetModules, Trunk,
    VerifierHead,
};
use crate::credit::Surrogate;
use crate::model::HeadKind;

impl Plan {
    /// Returns the worker groups of the plan, as [`Runtime::start`](runtime::Runtime::start) takes them.
    pub fn worker_specs(&self) -> Vec<WorkerSpec> {
        self.workers
            .iter()
            .enumerate()
            .map(|(index, worker)| self.worker_spec(index, worker))
            .collect()
    }

    fn worker_spec(&self, index: usize, worker: &WorkerPlan) -> WorkerSpec {
        let mut spec = WorkerSpec::new(worker.name.clone(), worker.source.clone());
        spec.precision = worker.dtype.into();
        spec.device = worker.device.map(|device| device.0);
        spec.template_kwargs = worker.chat_template_kwargs.clone();
        let policies = (0..self.policies.len()).filter(|&at| self.policies[at].worker == index);
        spec.policies = policies.map(|at| self.policy_spec(at)).collect();
        spec
    }

    fn policy_spec(&self, index: usize) -> PolicySpec {
        let policy = &self.policies[index];
        let here = self.critic_of(index) == Some(index);
        let mut spec = PolicySpec::new(policy.name.clone());
        spec.trained = policy.trained;
        spec.reference = policy.reference;
        spec.gradient_checkpointing = policy.gradient_checkpointing;
        spec.adapter = policy.adapter.as_ref().map(AdapterSpec::from);
        spec.critic = self.algorithm.critic.as_ref().filter(|_| here).map(CriticSpec::from);
        if self.algorithm.preset == Preset::Verifier {
            // The head of rewards is trained on a trunk of its own, and the policy stays as it is.
            spec.trained = false;
            if let Some(critic) = &mut spec.critic {
                critic.head = self.algorithm.verifier.head.into();
                critic.head_rate = self.algorithm.verifier.head_rate;
            }
        }
        spec.optim = OptimOptions::from(&policy.optim);
        spec
    }

    /// Returns the options of the machine.
    pub fn runtime_options(&self) -> RuntimeOptions {
        let mut options = RuntimeOptions::from(&self.runtime);
        options.seed = self.seed;
        options.shard_optimizer = self.config.dist.shard_optimizer;
        #[cfg(feature = "cuda")]
        if self.config.dist.transport == Transport::Nccl {
            options.nccl = Some(NcclOptions::within(self.config.dist.timeout_s));
        }
        options
    }
}

impl From<&RuntimeConfig> for RuntimeOptions {
    fn from(config: &RuntimeConfig) -> Self {
        let mut options = Self::default();
        options.device = config.device.0;
        options.threads = config.threads;
        options.max_requests = config.max_requests;
        options.prefill_tokens = config.prefill_tokens;
        options.kv_mib = config.kv_mib;
        options.prefix_cache = config.prefix_cache;
        options.graphs = config.graphs;
        options.micro_batch_tokens = config.micro_batch_tokens;
        options
    }
}

impl AlgorithmPlan {
    /// Returns the declared surrogate as batches hold it.
    pub(crate) fn custom_surrogate(&self) -> Option<CustomSurrogate> {
        match &self.loss.surrogate {
            SurrogatePlan::Declared(declared) => Some(CustomSurrogate {
                name: declared.chosen.name.clone(),
                value: declared.value.clone(),
            }),
            _ => None,
        }
    }
}

impl From<&AdapterPlan> for AdapterSpec {
    fn from(plan: &AdapterPlan) -> Self {
        match &plan.start {
            Some(dir) => Self::Load { dir: dir.clone(), dropout: plan.lora.dropout },
            None => Self::New(shape_of(&plan.lora)),
        }
    }
}

/// Returns the shape of an adapter on a base.
fn shape_of(lora: &LoraConfig) -> LoraSpec {
    let mut spec = LoraSpec::default();
    spec.rank = lora.rank;
    spec.alpha = lora.alpha;
    spec.dropout = lora.dropout;
    spec.target_modules = Some(lora.target_modules.clone());
    spec.rslora = lora.rslora;
    spec
}

impl From<&LoraPlan> for LoraSpec {
    fn from(plan: &LoraPlan) -> Self {
        let mut spec = Self::default();
        spec.rank = plan.rank;
        spec.alpha = plan.alpha;
        spec.dropout = plan.dropout;
        spec.rslora = plan.rslora;
        spec.target_modules = match &plan.target_modules {
            TargetModules::Named(names) => Some(names.clone()),
            TargetModules::AllLinear => None,
        };
        spec
    }
}

impl From<&Sampling> for runtime::Sampling {
    fn from(plan: &Sampling) -> Self {
        Self {
            temperature: plan.temperature,
            top_k: plan.top_k,
            top_p: plan.top_p,
            min_p: plan.min_p,
            repetition_penalty: plan.repetition_penalty,
            max_tokens: plan.max_tokens,
            stop: plan.stop.clone(),
            stop_ids: plan.stop_ids.clone(),
        }
    }
}

impl From<VerifierHead> for HeadKind {
    fn from(head: VerifierHead) -> Self {
        match head {
            VerifierHead::Linear => Self::Reward,
            VerifierHead::Likelihood => Self::Likelihood,
        }
    }
}

impl From<&CriticPlan> for CriticSpec {
    fn from(plan: &CriticPlan) -> Self {
        let mut spec = Self::new(match plan.trunk {
            Trunk::Own => runtime::Trunk::Own,
            Trunk::Lora => runtime::Trunk::Lora(LoraSpec::from(&plan.lora())),
            Trunk::Shared => runtime::Trunk::Shared,
        });
        spec.normalize = match plan.normalize {
            Normalize::None => runtime::Normalize::None,
            Normalize::Running => runtime::Normalize::Running,
            Normalize::Popart => runtime::Normalize::Popart,
        };
        spec.limits = ValueLimits::from(plan);
        spec.value_coef = plan.value_coef;
        spec.optim = OptimOptions::from(&plan.optim());
        spec
    }
}

impl From<&CriticPlan> for ValueLimits {
    fn from(plan: &CriticPlan) -> Self {
        Self { clip: plan.clip, huber: plan.huber }
    }
}

impl From<&OptimPlan> for OptimOptions {
    fn from(plan: &OptimPlan) -> Self {
        let OptimPlan { betas, eps, weight_decay, grad_clip, .. } = *plan;
        Self { betas, eps, weight_decay, grad_clip }
    }
}

impl From<&LossPlan> for LossOptions {
    /// A KL in the reward is no part of the loss.
    fn from(plan: &LossPlan) -> Self {
        Self {
            surrogate: BuiltinSurrogate::from(&plan.surrogate),
            ratio: plan.ratio.into(),
            kl_coef: if plan.kl_in == KlIn::Loss { plan.kl_coef } else { 0.0 },
            kl: plan.kl.into(),
            kl_corrected: plan.kl_corrected,
            drift_coef: plan.drift_coef,
            entropy_coef: plan.entropy_coef,
            correction: loss::Correction::from(plan.correction),
            correction_cap: plan.correction.cap(),
        }
    }
}

impl From<&SurrogatePlan> for BuiltinSurrogate {
    /// A declared surrogate is used in place of those of the rows.
    fn from(plan: &SurrogatePlan) -> Self {
        match plan {
            SurrogatePlan::Clip(plan) => Self::from(*plan),
            SurrogatePlan::Cispo(plan) => Self::from(*plan),
            SurrogatePlan::Sapo(plan) => Self::from(*plan),
            SurrogatePlan::Cpgd(plan) => Self::from(*plan),
            SurrogatePlan::Declared(_) => Self::default(),
        }
    }
}

/// Loss of built-in surrogates, from their settings, and what else they say of themselves.
macro_rules! built_in {
    ($($plan:ident { $($method:item)* })*) => {$(
        impl Surrogate for $plan {
            fn loss(&self, token: &PolicyToken) -> Clipped {
                BuiltinSurrogate::from(*self).loss(token)
            }
            $($method)*
        }
    )*};
}

built_in! {
    ClipPlan {
        fn ratio_bounds(&self) -> Option<[f64; 2]> {
            Some([1.0 - self.clip_low, 1.0 + self.clip_high])
        }
    }
    CispoPlan {
        fn needs_token_ratio(&self) -> bool {
            true
        }
    }
    SapoPlan {}
    CpgdPlan {}
}

impl From<ClipPlan> for BuiltinSurrogate {
    fn from(ClipPlan { clip_low, clip_high, clip_dual }: ClipPlan) -> Self {
        Self::Clip { low: clip_low as f32, high: clip_high as f32, dual: clip_dual as f32 }
    }
}

impl From<CispoPlan> for BuiltinSurrogate {
    fn from(CispoPlan { clip_high }: CispoPlan) -> Self {
        Self::Cispo { high: clip_high as f32 }
    }
}

impl From<SapoPlan> for BuiltinSurrogate {
    fn from(SapoPlan { gate }: SapoPlan) -> Self {
        Self::Sapo { gate }
    }
}

impl From<CpgdPlan> for BuiltinSurrogate {
    fn from(CpgdPlan { clip_low, clip_high }: CpgdPlan) -> Self {
        Self::Cpgd { low: clip_low as f32, high: clip_high as f32 }
    }
}

impl From<&PreferencePlan> for PreferenceOptions {
    fn from(plan: &PreferencePlan) -> Self {
        let PreferencePlan { loss, beta, label_smoothing: smoothing, reference_free } = *plan;
        let loss = match loss {
            PairLoss::Sigmoid => Preference::Sigmoid { smoothing },
            PairLoss::Hinge => Preference::Hinge,
            PairLoss::Ipo => Preference::Ipo,
            PairLoss::Robust => Preference::Robust { smoothing },
        };
        Self { loss, beta, reference_free }
    }
}

impl From<Aggregation> for loss::Aggregation {
    fn from(aggregation: Aggregation) -> Self {
        match aggregation {
            Aggregation::TokenMean => Self::TokenMean,
            Aggregation::SequenceMean => Self::SequenceMean,
            Aggregation::SequenceSum => Self::SequenceSum,
            Aggregation::Constant => Self::Constant,
        }
    }
}

impl From<Ratio> for loss::Ratio {
    fn from(ratio: Ratio) -> Self {
        match ratio {
            Ratio::Token => Self::Token,
            Ratio::Sequence => Self::Sequence,
            Ratio::Product => Self::Product,
        }
    }
}

impl From<Kl> for loss::Kl {
    fn from(kl: Kl) -> Self {
        match kl {
            Kl::K1 => Self::K1,
            Kl::K2 => Self::K2,
            Kl::K3 => Self::K3,
        }
    }
}

impl From<CorrectionPlan> for loss::Correction {
    fn from(plan: CorrectionPlan) -> Self {
        match plan {
            CorrectionPlan::None => Self::None,
            CorrectionPlan::Truncate(_) => Self::Truncate,
            CorrectionPlan::MaskTokens(_) => Self::MaskTokens,
            CorrectionPlan::MaskSequences(_) => Self::MaskSequences,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;
    use crate::plan::AlgorithmPlan;

    #[test]
    fn presets_that_compare_pairs_have_the_defaults_of_the_engine() {
        for preset in [Preset::Dpo, Preset::Spin, Preset::OnlineDpo] {
            let plan = AlgorithmPlan::from(&preset.parts());
            assert_eq!(PreferenceOptions::from(&plan.preference), PreferenceOptions::default());
        }
    }
}
