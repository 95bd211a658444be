//! An optimizer step of several ranks: sums and gradients of each, added in their order.

use super::Trainer;
use super::totals::Totals;
use crate::files::ModelError;
use crate::loss::{PolicyLoss, ValueLoss};
use crate::net::Model;
use crate::net::ops::Backend;
use crate::runtime::critic::Joint;

/// Sums of all ranks before an optimizer step. Those of the step are summed from zero, and are added when all ranks have
/// theirs.
#[derive(Clone, Copy)]
pub(super) struct Before {
    policy: PolicyLoss,
    /// Sum, maximum and number of the mismatches.
    mismatch: (f64, f64, u64),
    value: ValueLoss,
    /// Tokens that were computed.
    computed: u64,
}

impl Totals {
    /// Begins the sums of an optimizer step, and returns those before it.
    pub(super) fn begin_step<O: Backend>(&mut self, joint: Option<&mut Joint<'_, O>>) -> Before {
        let mismatch = (self.mismatch, self.mismatch_max, self.mismatch_tokens);
        (self.mismatch, self.mismatch_max, self.mismatch_tokens) = (0.0, 0.0, 0);
        let value = joint.map(Joint::begin_step).unwrap_or_default();
        let computed = std::mem::take(&mut self.tokens.computed);
        Before { policy: std::mem::take(&mut self.policy), mismatch, value, computed }
    }
}

impl<O: Backend> Trainer<O> {
    /// Adds the sums of the other ranks, and the gradients of a critic on the same trunk.
    pub(super) fn combine_totals(
        &self,
        model: &Model<O>,
        before: Before,
        joint: Option<&mut Joint<'_, O>>,
        totals: &mut Totals,
    ) -> Result<(), ModelError> {
        let Before { policy, mismatch: (sum, max, tokens), value, computed } = before;
        totals.tokens.computed = computed + self.peers.count(totals.tokens.computed)?;
        let loads = std::mem::take(&mut totals.routers.step);
        totals.routers.step = loads.add_ranks(&model.config, &self.peers)?;
        let own = self.peers.policy_loss(totals.policy)?;
        totals.policy = policy;
        totals.policy += own;
        let own = [totals.mismatch, totals.mismatch_max, totals.mismatch_tokens as f64];
        (totals.mismatch, totals.mismatch_max, totals.mismatch_tokens) = (sum, max, tokens);
        for of in self.peers.numbers(&own)? {
            let &[sum, max, tokens] = of.as_slice() else { continue };
            totals.mismatch += sum;
            totals.mismatch_max = totals.mismatch_max.max(max);
            totals.mismatch_tokens += tokens as u64;
        }
        match joint {
            Some(joint) => joint.combine(&self.peers, value),
            None => Ok(()),
        }
    }
}
