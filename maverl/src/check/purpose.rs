//! Purpose of a plan.

use crate::config::Config;

/// Purpose of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Training: a policy must be trained, with settings that allow it.
    Train,
    /// Training at another time or on another machine: as `Train`, but models may lack their weights. A plan with such
    /// a model may need more memory than this machine has.
    Plan,
    /// Numbers of a plan on several ranks (`maverl check --ranks`): as `Plan`, and a value of `dist.shard` with which this version
    /// does not train is planned too.
    Ranks,
    /// Evaluation on held-out tasks.
    Eval,
    /// A recorded episode, played again: as `Eval`, with the teachers, because steps may be learned again.
    Replay,
    /// The environment with its tasks, without a team. The plan has no seats, policies and rewards.
    Environment,
}

impl Purpose {
    /// Returns true for a plan of training at another time or on another machine.
    pub(crate) fn is_elsewhere(self) -> bool {
        matches!(self, Self::Plan | Self::Ranks)
    }
}

/// Returns true if replies are generated: not in supervised training without evaluation.
pub(crate) fn samples_replies(config: &Config, purpose: Purpose) -> bool {
    let (preset, eval) = (config.algorithm.name, config.eval.used(config.algorithm.name));
    matches!(purpose, Purpose::Eval | Purpose::Replay)
        || preset.generates()
        || eval.before_and_after
        || eval.every > 0
}
