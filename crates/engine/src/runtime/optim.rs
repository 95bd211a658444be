//! Options of optimizers, and the learning rate of each step.

use std::f64::consts::PI;

use maverl_kernels::adamw::AdamW;
use maverl_kernels::adamw8::BLOCK;
use maverl_kernels::muon::Muon;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Optimizer: `optim = { .. }` of a model, or of an agent with a worker of its own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "OptimConfig", level = "policy", crate = crate)]
pub struct OptimOptions {
    /// Optimizer: AdamW (`adamw`), AdamW with moments in 8 bits (`adamw8bit`), or Muon for the matrices of layers, with AdamW for
    /// all other parameters (`muon`).
    pub kind: OptimizerKind,
    /// Learning rate.
    #[setting(default = 1e-6, range = above(0.0)..)]
    pub lr: f64,
    /// Decay rate of Muon's momentum.
    #[setting(default = 0.95, range = 0.0..1.0, idle_unless = "kind = 'muon'")]
    pub momentum: f64,
    /// Decay rates of AdamW's moments.
    #[setting(default = (0.9, 0.999), range = 0.0..1.0)]
    pub betas: (f64, f64),
    /// Added to AdamW's denominator.
    #[setting(default = 1e-8, range = above(0.0)..)]
    pub eps: f64,
    /// Decoupled weight decay.
    #[setting(default = 0.01, range = 0.0..)]
    pub weight_decay: f64,
    /// Maximum of the global gradient norm; larger gradients are scaled down to it.
    #[setting(default = 1.0, range = above(0.0)..)]
    pub grad_clip: f64,
    /// Learning rate schedule over `steps`.
    pub schedule: Schedule,
    /// Warm-up: steps over which the learning rate rises linearly to `lr`.
    #[setting(default = 0)]
    pub warmup_steps: u64,
}

impl OptimOptions {
    /// Returns the learning rate of step `step` (from 0) of `steps`, which is that of its [`Batch`](super::Batch).
    ///
    /// ```text
    /// warm-up    lr · (step + 1) / w                    step < w
    /// constant   lr
    /// linear     lr · (1 − p)                           p = (step − w) / (steps − w)
    /// cosine     lr · (1 + cos πp) / 2
    /// ```
    ///
    /// - Warm-up begins with one part in `w`, not with 0: a step with learning rate 0 would change nothing.
    /// - Linear and cosine reach 0 when the run ends, one step after its last, as in `transformers`.
    pub fn rate(&self, step: u64, steps: u64) -> f64 {
        let warmup = self.warmup_steps;
        if step < warmup {
            return self.lr * (step + 1) as f64 / warmup as f64;
        }
        let decay = steps.saturating_sub(warmup).max(1);
        let progress = ((step - warmup) as f64 / decay as f64).min(1.0);
        self.lr
            * match self.schedule {
                Schedule::Constant => 1.0,
                Schedule::Linear => 1.0 - progress,
                Schedule::Cosine => f64::midpoint(1.0, libm::cos(PI * progress)),
            }
    }

    /// Returns the constants of an AdamW step, and the factor that clips a gradient of this norm.
    ///
    /// ```text
    /// factor = min(grad_clip / (norm + 1e-6), 1)
    /// ```
    pub fn step(&self, lr: f64, norm: f64) -> (AdamW, f32) {
        let Self { betas: (beta1, beta2), eps, weight_decay, grad_clip, .. } = *self;
        let factor = (grad_clip / (norm + 1e-6)).min(1.0) as f32;
        (AdamW { lr, beta1, beta2, eps, weight_decay }, factor)
    }

    /// Returns the constants of a step of Muon; `None` for another optimizer.
    pub(crate) fn muon(&self, lr: f64) -> Option<Muon> {
        let Self { kind, momentum, weight_decay, .. } = *self;
        (kind == OptimizerKind::Muon).then_some(Muon { lr, momentum, weight_decay })
    }
}

/// Optimizer of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// AdamW. arXiv:1711.05101
    #[default]
    Adamw,
    /// Muon on matrices of layers, AdamW on embeddings, heads, norms, biases and experts. arXiv:2502.16982
    Muon,
    /// AdamW whose moments have 8 bits, in blocks of 256 with a scale each. arXiv:2110.02861
    Adamw8bit,
}

impl OptimizerKind {
    /// Returns the name of an optimizer that updates on a CPU alone, and whose moments are not divided among ranks; `None` for
    /// another one.
    pub fn on_cpu(self) -> Option<&'static str> {
        match self {
            Self::Adamw => None,
            Self::Muon => Some("muon"),
            Self::Adamw8bit => Some("adamw8bit"),
        }
    }

    /// Returns the bytes of both moments of this many parameters. In 8 bits, the few in tensors below 4,096 count like the others.
    pub fn moment_bytes(self, parameters: u64) -> u64 {
        match self {
            Self::Adamw | Self::Muon => 8 * parameters,
            Self::Adamw8bit => 2 * (parameters + 4 * parameters.div_ceil(BLOCK as u64)),
        }
    }
}

/// Learning rate schedule after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It stays.
    #[default]
    Constant,
    /// Straight down; it would be zero one step after the last.
    Linear,
    /// Half a cosine down; it would be zero one step after the last.
    Cosine,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(schedule: Schedule, warmup_steps: u64, steps: u64) -> Vec<f64> {
        let optim = OptimOptions { lr: 1.0, schedule, warmup_steps, ..OptimOptions::default() };
        (0..steps).map(|step| optim.rate(step, steps)).collect()
    }

    #[test]
    fn warmup_rises_from_one_part_to_the_whole() {
        assert_eq!(rates(Schedule::Constant, 4, 6), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn decay_agrees_with_transformers_after_warmup() {
        let linear = rates(Schedule::Linear, 4, 20);
        assert_eq!(linear[4..8], [1.0, 0.9375, 0.875, 0.8125]);
        assert_eq!(linear[19], 0.0625);
        let cosine = rates(Schedule::Cosine, 4, 20);
        let want = [
            (4, 1.0),
            (5, 0.9903926402016152),
            (11, 0.5975451610080642),
            (19, 0.009607359798384785),
        ];
        for (step, want) in want {
            assert!((cosine[step] - want).abs() < 1e-12, "step {step}: {}", cosine[step]);
        }
    }

    #[test]
    fn a_run_of_one_step_or_shorter_than_its_warmup_has_a_step_size() {
        assert_eq!(rates(Schedule::Linear, 0, 1), [1.0]);
        assert_eq!(rates(Schedule::Cosine, 8, 2), [0.125, 0.25]);
    }

    #[test]
    fn past_its_end_a_decayed_step_size_stays_zero() {
        let optim = OptimOptions { schedule: Schedule::Linear, ..OptimOptions::default() };
        assert_eq!(optim.rate(30, 20), 0.0);
    }
}
