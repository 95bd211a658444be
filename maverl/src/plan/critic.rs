//! Critics with every value settled, and where they are.

use std::num::NonZeroUsize;

use serde::Serialize;

use super::{AdapterPlan, OptimPlan, Plan, PolicyPlan};
use crate::config::{
    self, Bootstrap, Credit, CriticConfig, CriticInput, CriticScope, Granularity, Mixer, Normalize,
    OptimConfig, Trunk,
};

/// Critics: values, and advantages from values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CriticPlan {
    /// Trunk under the value head.
    pub trunk: Trunk,
    /// The adapter, with [`Trunk::Lora`].
    pub lora: config::LoraConfig,
    /// Input before a reply.
    pub input: CriticInput,
    /// Who has one of its own.
    pub scope: CriticScope,
    /// Granularity of values.
    pub granularity: Granularity,
    /// Where an advantage ends to count what comes after.
    pub bootstrap: Bootstrap,
    /// Discount from one place to the next.
    pub gamma: f64,
    /// GAE lambda.
    pub lambda: f64,
    /// Clip of value updates; 0 is no clip.
    pub clip: f64,
    /// Errors beyond it count linearly; 0 is never.
    pub huber: f64,
    /// Coefficient of the value loss in a shared trunk.
    pub value_coef: f64,
    /// Normalization of value targets: none, running statistics, or PopArt.
    pub normalize: Normalize,
    /// Steps in which critics learn, and policies not yet.
    pub warmup_steps: u64,
    /// Mixer of the agents' values into a value of the team.
    pub mixer: Mixer,
    /// Credit of an agent from the team's advantage.
    pub credit: Credit,
    /// Hidden units of a monotone mixer.
    pub mixer_width: usize,
    /// The optimizer.
    pub optim: OptimPlan,
}

impl From<&CriticConfig> for CriticPlan {
    fn from(config: &CriticConfig) -> Self {
        let optim = OptimConfig { lr: Some(1e-5), ..OptimConfig::default() };
        Self {
            trunk: config.trunk.unwrap_or_default(),
            lora: config.lora.clone().unwrap_or_default().over(&AdapterPlan::defaults()),
            input: config.input.unwrap_or_default(),
            scope: config.scope.unwrap_or_default(),
            granularity: config.granularity.unwrap_or_default(),
            bootstrap: config.bootstrap.unwrap_or_default(),
            gamma: config.gamma.unwrap_or(1.0),
            lambda: config.lambda.unwrap_or(0.95),
            clip: config.clip.unwrap_or(0.2),
            huber: config.huber.unwrap_or(0.0),
            value_coef: config.value_coef.unwrap_or(0.1),
            normalize: config.normalize.unwrap_or_default(),
            warmup_steps: config.warmup_steps.unwrap_or(0),
            mixer: config.mixer.unwrap_or_default(),
            credit: config.credit.unwrap_or_default(),
            mixer_width: config.mixer_width.map_or(32, NonZeroUsize::get),
            optim: OptimPlan::from(&config.optim.over(&optim)),
        }
    }
}

impl From<&CriticPlan> for CriticConfig {
    /// The same as a user would write it.
    fn from(plan: &CriticPlan) -> Self {
        Self {
            trunk: Some(plan.trunk),
            lora: (plan.trunk == Trunk::Lora).then(|| plan.lora.clone()),
            input: Some(plan.input),
            scope: Some(plan.scope),
            granularity: Some(plan.granularity),
            bootstrap: Some(plan.bootstrap),
            gamma: Some(plan.gamma),
            lambda: Some(plan.lambda),
            clip: Some(plan.clip),
            huber: Some(plan.huber),
            value_coef: Some(plan.value_coef),
            normalize: Some(plan.normalize),
            warmup_steps: Some(plan.warmup_steps),
            mixer: Some(plan.mixer),
            credit: Some(plan.credit),
            mixer_width: NonZeroUsize::new(plan.mixer_width),
            optim: OptimConfig::from(&plan.optim),
        }
    }
}

impl Plan {
    /// Where values of agents are mixed into one of the team: how.
    pub fn mixed(&self) -> Option<&CriticPlan> {
        self.algorithm.critic.as_ref().filter(|critic| critic.mixer != Mixer::None)
    }

    /// Critics are heads on the policies, and are updated with them.
    pub fn shares_trunk(&self) -> bool {
        self.algorithm.critic.as_ref().is_some_and(|critic| critic.trunk == Trunk::Shared)
    }

    /// The policy beside which the critic is that gives the values of a policy's turns; none without a critic.
    pub fn critic_of(&self, policy: usize) -> Option<usize> {
        host(&self.policies, self.algorithm.critic.as_ref()?.scope, policy)
    }
}

/// The policy beside which a policy's critic is: the first trained one whose critic has the same name; where it has none, as
/// `per` says, the policy itself or the first without a name.
pub(crate) fn host(policies: &[PolicyPlan], per: CriticScope, policy: usize) -> Option<usize> {
    let critic = policies[policy].critic.as_deref();
    if critic.is_none() && per == CriticScope::Policy {
        return Some(policy).filter(|&policy| policies[policy].trained);
    }
    policies.iter().position(|policy| policy.trained && policy.critic.as_deref() == critic)
}
