//! Parts of a plan that ranks do not divide.

use super::{Plan, PolicyPlan};
use crate::config::RolloutWeights;
use crate::runtime::{DeviceChoice, Dtype};

/// Remedy of all parts.
const OTHER: &str = "write `dist.shard = \"optimizer\"`, which divides the moments";

/// Part of a plan that ranks do not divide with `dist.shard = "full"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UndividedPart {
    /// Key of the part.
    pub(crate) key: Vec<String>,
    /// Part and what it is.
    pub(crate) message: String,
    /// Value to write instead.
    pub(crate) remedy: String,
}

impl UndividedPart {
    fn new(key: &[&str], message: String, remedy: String) -> Self {
        Self { key: key.iter().map(|part| (*part).to_owned()).collect(), message, remedy }
    }
}

impl Plan {
    /// Returns the parts that ranks do not divide with `dist.shard = "full"`. They divide the weights of one policy on the CPU.
    pub(crate) fn undivided_parts(&self) -> Vec<UndividedPart> {
        let mut found = Vec::new();
        if self.workers.len() > 1 {
            let names: Vec<String> =
                self.workers.iter().map(|worker| format!("`{}`", worker.name)).collect();
            let message = format!("there are several worker groups: {}", names.join(", "));
            let remedy = format!("let the team have one model, also without teachers, or {OTHER}");
            found.push(UndividedPart::new(&["dist", "shard"], message, remedy));
        }
        for worker in &self.workers {
            let device = self.device_of(worker);
            if device != DeviceChoice::Cpu {
                let message = format!("worker group `{}` is on \"{device}\"", worker.name);
                let remedy = format!("write `runtime.device = \"cpu\"`, or {OTHER}");
                found.push(UndividedPart::new(&["runtime", "device"], message, remedy));
            }
            if worker.dtype == Dtype::F16 {
                let model = worker.model.as_str();
                let message =
                    format!("`models.{model}.dtype` is \"f16\", with a scale of the loss");
                let remedy = format!("write \"f32\" or \"bf16\", or {OTHER}");
                found.push(UndividedPart::new(&["models", model, "dtype"], message, remedy));
            }
        }
        found.extend(self.policies.iter().flat_map(|policy| self.undivided_policy(policy)));
        let dist = &self.config.dist;
        if dist.rollout == RolloutWeights::Layers {
            let message = "`dist.rollout` is \"layers\", and rollouts read a copy".to_owned();
            let remedy = "write \"copy\" or \"auto\"".to_owned();
            found.push(UndividedPart::new(&["dist", "rollout"], message, remedy));
        }
        if dist.round > 0 {
            let message = format!("`dist.round` is {}, and gradients are reduced once", dist.round);
            let remedy = "leave it out, or raise `minibatches`".to_owned();
            found.push(UndividedPart::new(&["dist", "round"], message, remedy));
        }
        found
    }

    /// Returns what makes a policy one that ranks do not divide.
    fn undivided_policy(&self, policy: &PolicyPlan) -> Vec<UndividedPart> {
        let (name, model) = (&policy.name, self.workers[policy.worker].model.as_str());
        let mut found = Vec::new();
        if policy.adapter.is_some() {
            let message = format!("policy `{name}` is an adapter");
            let remedy = format!("adapters have few weights: {OTHER}");
            found.push(UndividedPart::new(&["models", model, "lora"], message, remedy));
        }
        if policy.critic_parameters > 0 {
            let message = format!("policy `{name}` has a critic");
            let remedy = format!("take an estimator without a critic, or {OTHER}");
            found.push(UndividedPart::new(&["algorithm", "advantage"], message, remedy));
        }
        found
    }
}
