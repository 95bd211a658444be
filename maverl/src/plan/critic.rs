//! Critics of a plan, and the policies whose worker groups they are on.

use super::{Plan, PolicyPlan};
use crate::config::{AdvantagePlan, CriticScope, MixerPlan, Trunk};

impl Plan {
    /// The mixer of the agents' values into one of the team; none if values are not mixed.
    pub fn mixer_plan(&self) -> Option<&MixerPlan> {
        match &self.algorithm.advantage {
            AdvantagePlan::Mixer(mixer) => Some(mixer),
            _ => None,
        }
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
