//! Shares of ranks in the parameters of a worker group.

use super::devices::Placement;
use super::{Plan, PolicyPlan};
use crate::config::{Dtype, Shard};

/// Bytes of a master weight, and of a sum of gradients.
pub(super) const F32: u64 = 4;

/// Parameters of a worker group, by what ranks have of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) trained: u64,
    frozen: u64,
}

impl Parameters {
    pub(super) fn of(plan: &Plan, index: usize) -> Self {
        let base = plan.workers[index].units.parameters() as u64;
        let policies = plan.policies.iter().filter(|policy| policy.worker == index);
        let size = |policy: &PolicyPlan| {
            policy.adapter.as_ref().map_or(base, |adapter| adapter.parameters)
        };
        let trained = policies.clone().filter(|policy| policy.trained);
        let critics: u64 = policies.clone().map(|policy| policy.critic_parameters).sum();
        let references: u64 = policies.clone().filter(|policy| policy.reference).map(size).sum();
        let whole = trained.clone().any(|policy| policy.adapter.is_none());
        Self {
            trained: trained.map(size).sum::<u64>() + critics,
            frozen: references + if whole { 0 } else { base },
        }
    }

    /// Returns the bytes of a rank's share: of weights in use and masters, and `others` for a trained weight. A bf16 weight in use is
    /// half of its master. One in f16 is not: where it is divided as its master is, it is rounded when it is gathered.
    pub(super) fn shard_bytes(
        self,
        at: &Placement,
        shard: Shard,
        weight: WeightInUse,
        others: u64,
    ) -> u64 {
        let hybrid = shard == Shard::Hybrid;
        let in_use = if hybrid { at.local } else { at.ranks };
        let common = if hybrid && weight.apart { 0 } else { weight.bytes };
        let rest = (F32 - common + others) * self.trained;
        rest.div_ceil(at.ranks) + (weight.bytes * (self.trained + self.frozen)).div_ceil(in_use)
    }
}

/// A weight as products read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WeightInUse {
    pub(super) bytes: u64,
    /// True if it is no part of its master.
    apart: bool,
}

impl WeightInUse {
    pub(super) fn of(dtype: Dtype, on_device: bool) -> Self {
        let half = on_device || matches!(dtype, Dtype::Bf16 | Dtype::F16);
        Self { bytes: if half { F32 / 2 } else { F32 }, apart: dtype == Dtype::F16 }
    }
}
